package checks

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
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
image: {repository: registry.example/tributary, pullPolicy: Always, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: registry}]
nats: {url: "tls://nats-0.example:4222,tls://nats-1.example:4222", inboxPrefix: _INBOX_stage, secret: {name: stage, creds: true, nkey: true, ca: true, certificate: true}}
settings: {TRIBUTARY_REPLICAS: "3", TRIBUTARY_LOG_LEVEL: debug, OTEL_TRACES_EXPORTER: otlp}
settingsFrom: [{secretRef: {name: more}}]
extraEnv: [{name: TRIBUTARY_REDACT_KEY, valueFrom: {secretKeyRef: {name: redact, key: key}}}]
extraVolumes: [{name: rules, configMap: {name: rules}}]
extraVolumeMounts: [{name: rules, mountPath: /etc/rules, readOnly: true}]
maxSurge: 100%
drainSeconds: 45
preStopSeconds: 5
http: {port: 9999}
resources: {requests: {cpu: 2, memory: 512Mi}, limits: {memory: 2Gi}}
memoryTarget: 1843MiB
podDisruptionBudget: {maxUnavailable: 2}
autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 16, lagPerWorker: 100, metric: {type: External, name: tributary_lag_sum}}
serviceMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true, labels: {grafana_folder: agents}}
networkPolicy: {metricsFrom: [{podSelector: {matchLabels: {app: prometheus}}}], egressPorts: [4222, 4317]}
podAnnotations: {team: agents}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {}}
enableServiceLinks: true
console:
  enabled: true
  port: 8888
  hosts: [tributary.example, tributary]
  userHeader: X-Forwarded-User
  proxies: [10.1.0.0/16]
  write: true
  nats: {inboxPrefix: _INBOX_operator, secret: {name: operator, creds: true, nkey: true, ca: true, certificate: true}}
  settings: {TRIBUTARY_LOG_LEVEL: debug}
  extraEnv: [{name: TRIBUTARY_GENERATION, value: v1}]
  extraVolumes: [{name: prices, configMap: {name: prices}}]
  extraVolumeMounts: [{name: prices, mountPath: /etc/prices}]
  resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
receive:
  enabled: true
  replicas: 3
  tokensSecret: tokens
  userHeader: X-Forwarded-User
  proxies: [10.1.0.0/16]
  tlsSecret: receive-tls
  nats: {inboxPrefix: _INBOX_producer, secret: {name: producer, creds: true, nkey: true, ca: true, certificate: true}}
  settings: {TRIBUTARY_RECEIVE_MAX_BODY: "32"}
  extraEnv: [{name: TRIBUTARY_REDACT, value: redacted}]
  extraVolumes: [{name: rules, configMap: {name: rules}}]
  extraVolumeMounts: [{name: rules, mountPath: /etc/rules}]
  resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: agents}}}]
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
		"all":      {allValues, append([]string{"HorizontalPodAutoscaler", "ServiceMonitor", "PrometheusRule", "ConfigMap", "console-Deployment", "console-Service", "console-NetworkPolicy", "receive-Deployment", "receive-Service", "receive-NetworkPolicy"}, kinds...)},
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
	require.EqualValues(t, 5+45+10, *pod.TerminationGracePeriodSeconds)
	require.True(t, *pod.EnableServiceLinks)
	require.Regexp(t, `@sha256:`, pod.Containers[0].Image)
	require.Equal(t, "prometheus", all["ServiceMonitor"].(*monitoring.ServiceMonitor).Labels["release"])
	requireConsole(t, all)
	requireReceiver(t, all)
	requireMonitoring(t, all)
	require.EqualValues(t, "External", all["HorizontalPodAutoscaler"].(*autoscaling.HorizontalPodAutoscaler).Spec.Metrics[0].Type)
}

// requireMonitoring checks that the chart has the alerts of rules.yaml, for the workers of its namespace, and the dashboard.
func requireMonitoring(t *testing.T, all map[string]any) {
	t.Helper()
	made := all["PrometheusRule"].(*monitoring.PrometheusRule)
	require.Len(t, made.Spec.Groups, 1)
	worker := regexp.MustCompile(`tributary_(?:[^s]|s[^h])\w*`)
	alerts := alertRules(t)
	require.Len(t, made.Spec.Groups[0].Rules, len(alerts))
	for i, r := range made.Spec.Groups[0].Rules {
		want := alerts[i]
		require.Equal(t, want.Alert, r.Alert)
		require.Equal(t, want.Labels, r.Labels)
		require.Equal(t, want.Annotations, r.Annotations)
		if want.For == 0 {
			require.Nil(t, r.For, r.Alert)
		} else {
			require.EqualValues(t, want.For.String(), *r.For, r.Alert)
		}
		expression, err := parser.ParseExpr(r.Expr.String())
		require.NoError(t, err, r.Expr.String())
		parser.Inspect(expression, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				require.Equal(t, worker.MatchString(s.Name), strings.Contains(s.String(), `namespace="agents"`), s.String())
			}
			return nil
		})
		plain := strings.NewReplacer(`{namespace="agents"}`, "", `namespace="agents",`, "").Replace(r.Expr.String())
		require.Equal(t, want.Expr, plain)
	}
	dashboard := all["ConfigMap"].(*core.ConfigMap)
	require.Equal(t, "1", dashboard.Labels["grafana_dashboard"])
	require.JSONEq(t, read(t, "deploy/grafana/tributary.json"), dashboard.Data["tributary.json"])
}

// leaves returns the paths of the values of a map.
func leaves(path []string, v any) (list [][]string) {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return [][]string{path}
	}
	for key, inner := range m {
		list = append(list, leaves(append(slices.Clip(path), key), inner)...)
	}
	return list
}

// at returns the value at a path and the map with its last key.
func at(m map[string]any, path []string) (in map[string]any, v any) {
	for _, key := range path[:len(path)-1] {
		next, ok := m[key].(map[string]any)
		if !ok {
			return nil, nil
		}
		m = next
	}
	return m, m[path[len(path)-1]]
}

// TestEachValueHasAnEffect sets each documented value: the schema has it, and it changes the rendered chart.
func TestEachValueHasAnEffect(t *testing.T) {
	t.Parallel()
	var documented map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/helm/tributary/values.yaml")), &documented))
	variants := []string{
		allValues, "replicas: 5", "image: {tag: v9}", "podDisruptionBudget: {enabled: false}", "networkPolicy: {enabled: false}",
		"console: {enabled: true, hosts: [a], tokenSecret: console, from: [{podSelector: {}}]}\nserviceMonitor: {enabled: true}",
		"receive: {enabled: true, tokensSecret: tokens}",
	}
	paths := leaves(nil, documented)
	require.Greater(t, len(paths), 50)
	for _, path := range paths {
		if strings.Contains(strings.Join(path, "."), "labels.") {
			continue // a map of anything
		}
		effective := false
		for _, text := range variants {
			var values map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(text), &values))
			in, v := at(values, path)
			if v == nil {
				continue
			}
			with, err := renderText(t, text)
			require.NoError(t, err)
			delete(in, path[len(path)-1])
			rest, err := yaml.Marshal(values)
			require.NoError(t, err)
			without, err := renderText(t, string(rest))
			effective = effective || err != nil || !maps.Equal(with, without) // without it, others may be refused
		}
		require.True(t, effective, "%v has no effect, or is in no test", path)
	}
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
	require.Equal(t, ":8888", env["TRIBUTARY_CONSOLE_LISTEN"])
	require.Equal(t, "_INBOX_operator", env["NATS_INBOX_PREFIX"])
	token := render(t, "console: {enabled: true, hosts: [tributary.example], tokenSecret: console}")["console-Deployment"].(*apps.Deployment)
	require.NotContains(t, token.Spec.Template.Spec.Containers[0].Args, "--write")
	require.Contains(t, token.Spec.Template.Spec.Containers[0].Env, core.EnvVar{Name: "TRIBUTARY_CONSOLE_TOKEN", ValueFrom: &core.EnvVarSource{
		SecretKeyRef: &core.SecretKeySelector{LocalObjectReference: core.LocalObjectReference{Name: "console"}, Key: "token"},
	}})
}

// requireReceiver checks that the Service of the receiver leads to its pods alone, and what lets senders in.
func requireReceiver(t *testing.T, all map[string]any) {
	t.Helper()
	d, worker := all["receive-Deployment"].(*apps.Deployment), all["Deployment"].(*apps.Deployment)
	require.Equal(t, all["receive-Service"].(*core.Service).Spec.Selector, d.Spec.Template.Labels)
	require.NotEqual(t, d.Spec.Template.Labels, worker.Spec.Template.Labels)
	require.Equal(t, d.Spec.Template.Labels, all["receive-NetworkPolicy"].(*networking.NetworkPolicy).Spec.PodSelector.MatchLabels)
	c := d.Spec.Template.Spec.Containers[0]
	require.Equal(t, []string{"receive"}, c.Args)
	for _, e := range c.Env {
		for _, m := range c.VolumeMounts {
			if name, ok := strings.CutPrefix(e.Value, m.MountPath+"/"); ok {
				require.Contains(t, []string{"tokens", "tls.crt", "tls.key", "nats.creds", "nkey.seed", "ca.crt"}, name)
			}
		}
	}
	behind := render(t, "receive: {enabled: true, tokensSecret: tokens}")["receive-Deployment"].(*apps.Deployment)
	require.Equal(t, []string{"receive", "--insecure-listen"}, behind.Spec.Template.Spec.Containers[0].Args)
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

// render returns the objects of the chart by their kinds, those of the console and the receiver with a prefix.
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
			"PrometheusRule": &monitoring.PrometheusRule{}, "ConfigMap": &core.ConfigMap{},
		}[kind.Kind]
		require.NotNil(t, object, kind.Kind)
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), object), "%s\n%s", file, text)
		name := kind.Kind
		for _, part := range []string{"console-", "receive-"} {
			if strings.HasPrefix(filepath.Base(file), part) {
				name = part + name
			}
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
		"receive: {enabled: true}":                                       "receive", // everybody could send
		"receive: {enabled: true, userHeader: X-User}":                   "receive", // from anywhere
	} {
		_, err := renderText(t, values)
		require.ErrorContains(t, err, wrong, values)
	}
}
