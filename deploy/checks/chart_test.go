package checks

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const allValues = `
replicas: 3
image: {repository: registry.example/tributary, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: registry}]
nats: {url: "tls://nats-0.example:4222,tls://nats-1.example:4222", inboxPrefix: _INBOX_stage, secret: {name: stage, creds: true, nkey: true, ca: true, certificate: true}}
settings: {TRIBUTARY_REPLICAS: "3", TRIBUTARY_LOG_LEVEL: debug, OTEL_TRACES_EXPORTER: otlp}
settingsFrom: [{secretRef: {name: more}}]
drainSeconds: 45
autoscaling: {enabled: true, metric: {type: External, name: tributary_lag_sum}}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
networkPolicy: {metricsFrom: [{podSelector: {matchLabels: {app: prometheus}}}], egressPorts: [4222, 4317]}
podAnnotations: {team: agents}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {}}
enableServiceLinks: true
console:
  enabled: true
  hosts: [tributary.example, tributary]
  userHeader: X-Forwarded-User
  proxies: [10.1.0.0/16]
  write: true
  nats: {inboxPrefix: _INBOX_operator, secret: {name: operator, nkey: true, ca: true}}
  settings: {TRIBUTARY_LOG_LEVEL: debug}
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
`

// TestChart renders the chart with several values. Every object is decoded into its type of
// Kubernetes, without unknown fields.
func TestChart(t *testing.T) {
	t.Parallel()
	kinds := []string{"Deployment", "ServiceAccount", "Service", "PodDisruptionBudget", "NetworkPolicy"}
	for name, test := range map[string]struct {
		values string
		kinds  []string
	}{
		"defaults": {"", kinds},
		"all":      {allValues, append([]string{"HorizontalPodAutoscaler", "ServiceMonitor", "console-Deployment", "console-Service", "console-NetworkPolicy"}, kinds...)},
		"pods":     {"autoscaling: {enabled: true}", append([]string{"HorizontalPodAutoscaler"}, kinds...)},
		"least":    {"podDisruptionBudget: {enabled: false}\nnetworkPolicy: {enabled: false}\npreStopSeconds: 0", kinds[:3]},
	} {
		objects := render(t, test.values)
		var found []string
		for kind, object := range objects {
			found = append(found, kind)
			if d, ok := object.(*apps.Deployment); ok {
				requireRestricted(t, name, d)
			}
		}
		require.ElementsMatch(t, test.kinds, found, name)
	}
	all := render(t, allValues)
	pod := all["Deployment"].(*apps.Deployment).Spec.Template.Spec
	require.Nil(t, all["Deployment"].(*apps.Deployment).Spec.Replicas) // the autoscaler decides
	require.EqualValues(t, 2+45+10, *pod.TerminationGracePeriodSeconds)
	require.True(t, *pod.EnableServiceLinks)
	require.Regexp(t, `@sha256:`, pod.Containers[0].Image)
	require.Equal(t, "prometheus", all["ServiceMonitor"].(*monitoring.ServiceMonitor).Labels["release"])
	requireConsole(t, all)
	require.EqualValues(t, "External", all["HorizontalPodAutoscaler"].(*autoscaling.HorizontalPodAutoscaler).Spec.Metrics[0].Type)
}

// requireConsole checks that the Service of the console leads to its pods alone, and what lets people in.
func requireConsole(t *testing.T, all map[string]any) {
	t.Helper()
	d, worker := all["console-Deployment"].(*apps.Deployment), all["Deployment"].(*apps.Deployment)
	require.Equal(t, all["console-Service"].(*core.Service).Spec.Selector, d.Spec.Template.Labels)
	require.NotEqual(t, d.Spec.Template.Labels, worker.Spec.Template.Labels)
	require.Equal(t, d.Spec.Template.Labels, all["console-NetworkPolicy"].(*networking.NetworkPolicy).Spec.PodSelector.MatchLabels)
	c := d.Spec.Template.Spec.Containers[0]
	require.Equal(t, []string{"console", "--insecure-listen", "--write"}, c.Args)
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	require.Equal(t, "X-Forwarded-User", env["TRIBUTARY_CONSOLE_USER_HEADER"])
	require.Equal(t, "tributary.example,tributary", env["TRIBUTARY_CONSOLE_HOSTS"])
	require.Equal(t, ":8423", env["TRIBUTARY_CONSOLE_LISTEN"])
	require.Equal(t, "_INBOX_operator", env["NATS_INBOX_PREFIX"])
	token := render(t, "console: {enabled: true, hosts: [tributary.example], tokenSecret: console}")["console-Deployment"].(*apps.Deployment)
	require.NotContains(t, token.Spec.Template.Spec.Containers[0].Args, "--write")
	require.Contains(t, token.Spec.Template.Spec.Containers[0].Env, core.EnvVar{Name: "TRIBUTARY_CONSOLE_TOKEN", ValueFrom: &core.EnvVarSource{
		SecretKeyRef: &core.SecretKeySelector{LocalObjectReference: core.LocalObjectReference{Name: "console"}, Key: "token"},
	}})
}

// requireRestricted checks what the restricted pod security standard asks for, and the settings.
func requireRestricted(t *testing.T, name string, d *apps.Deployment) {
	t.Helper()
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	require.Equal(t, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels, name)
	require.False(t, *pod.AutomountServiceAccountToken)
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.Regexp(t, pinned, c.Image)
	for _, e := range c.Env {
		requireSettings(t, e.Name)
		if e.Name == "TRIBUTARY_DRAIN_TIMEOUT" {
			var drain int64
			_, err := fmt.Sscanf(e.Value, "%ds", &drain)
			require.NoError(t, err)
			require.Greater(t, *pod.TerminationGracePeriodSeconds, drain)
		}
	}
}

// render returns the objects of the chart by their kinds, those of the console with the prefix "console-".
func render(t *testing.T, values string) map[string]any {
	t.Helper()
	rendered, err := renderText(t, values)
	require.NoError(t, err)
	objects := map[string]any{}
	for file, text := range rendered {
		if strings.HasSuffix(file, "NOTES.txt") {
			require.NotEmpty(t, strings.TrimSpace(text))
			continue
		}
		var kind struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(text), &kind))
		if kind.Kind == "" { // switched off
			require.Empty(t, strings.TrimSpace(text), file)
			continue
		}
		object := map[string]any{
			"Deployment": &apps.Deployment{}, "ServiceAccount": &core.ServiceAccount{}, "Service": &core.Service{},
			"PodDisruptionBudget": &policy.PodDisruptionBudget{}, "NetworkPolicy": &networking.NetworkPolicy{},
			"HorizontalPodAutoscaler": &autoscaling.HorizontalPodAutoscaler{}, "ServiceMonitor": &monitoring.ServiceMonitor{},
		}[kind.Kind]
		require.NotNil(t, object, kind.Kind)
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), object), "%s\n%s", file, text)
		name := kind.Kind
		if strings.HasPrefix(filepath.Base(file), "console-") {
			name = "console-" + name
		}
		require.NotContains(t, objects, name)
		objects[name] = object
	}
	return objects
}

func renderText(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load(root + "/deploy/helm/tributary")
	require.NoError(t, err)
	require.NoError(t, chart.Validate())
	var set map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(values), &set))
	all, err := chartutil.ToRenderValues(chart, set, chartutil.ReleaseOptions{Name: "tributary", Namespace: "agents"}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// TestWrongValuesAreRefused: the schema of the chart names a wrong value before anything is installed.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	require.True(t, json.Valid([]byte(read(t, "deploy/helm/tributary/values.schema.json"))))
	for values, wrong := range map[string]string{
		"replicas: -1":                                                   "replicas",
		"replica: 1":                                                     "replica",
		"image: {tag: latest}":                                           "tag",
		"nats: {url: 'localhost'}":                                       "url",
		"nats: {url: 'nats://u:p@host'}":                                 "url", // a password belongs into the secret
		"settings: {HOME: x}":                                            "HOME",
		"settings: {TRIBUTARY_REPLICAS: 3}":                              "TRIBUTARY_REPLICAS",
		"http: {port: 80}":                                               "port",
		"console: {enabled: true, tokenSecret: a}":                       "hosts",
		"console: {enabled: true, hosts: [a]}":                           "console",
		"console: {enabled: true, hosts: [a], userHeader: X-User}":       "console", // from anywhere
		"console: {hosts: ['http://a']}":                                 "hosts",
		"console: {enabled: true, hosts: [a], tokenSecret: a, from: []}": "from",
		"console: {settings: {PATH: x}}":                                 "PATH",
	} {
		_, err := renderText(t, values)
		require.ErrorContains(t, err, wrong, values)
	}
}
