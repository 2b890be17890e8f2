package checks

import (
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/stretchr/testify/require"
)

// TestComposeFile loads compose.yaml with the library of docker compose, which checks it against
// the specification, with and without its profiles.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{root + "/compose.yaml"}, cli.WithProfiles([]string{"samples", "console", "receive"}), cli.WithoutEnvironmentResolution)
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	require.Len(t, project.Services, 10)
	for name, s := range project.Services {
		if s.Build == nil {
			require.Regexp(t, pinned, s.Image, name)
		}
		for _, p := range s.Ports {
			require.Equal(t, "127.0.0.1", p.HostIP, name)
		}
		for _, v := range s.Volumes {
			if v.Type == "bind" {
				require.DirExists(t, directory(v.Source), name)
			}
		}
		if name == "volumes" { // it changes owners, and ends
			continue
		}
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		for variable := range s.Environment {
			if name == "worker" || name == "samples" || name == "console" || name == "receiver" {
				requireSettings(t, variable)
			}
		}
	}
	require.Greater(t, project.Services["worker"].StopGracePeriod.String(), "20s")                    // the default of TRIBUTARY_DRAIN_TIMEOUT
	for _, name := range []string{"nats", "worker", "console", "receiver", "prometheus", "grafana"} { // the images of the others have no client for a check
		require.NotNil(t, project.Services[name].HealthCheck, name)
	}
	for name, s := range project.Services {
		for on, d := range s.DependsOn {
			if project.Services[on].HealthCheck != nil {
				require.Equal(t, "service_healthy", d.Condition, "%s of %s", on, name)
			}
		}
	}
	// Every sample is sent.
	samples, err := filepath.Glob(root + "/normalizers/*/samples")
	require.NoError(t, err)
	require.NotEmpty(t, samples)
	for _, folder := range samples {
		require.Contains(t, project.Services["samples"].Command, "/samples/"+filepath.Base(filepath.Dir(folder))+"/samples")
	}
	without, err := project.WithProfiles(nil)
	require.NoError(t, err)
	require.NotContains(t, without.Services, "samples")
	require.NotContains(t, without.Services, "console")
	require.NotContains(t, without.Services, "receiver")
}
