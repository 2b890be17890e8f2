package checks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/require"
)

// TestUnits parses the units of systemd, and lets systemd-analyze verify them where it is.
func TestUnits(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(root + "/deploy/systemd/*.service")
	require.NoError(t, err)
	require.Len(t, files, 5)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		options, err := unit.DeserializeOptions(bytes.NewReader(text))
		require.NoError(t, err)
		has := map[string]string{}
		for _, o := range options {
			has[o.Section+"."+o.Name] = o.Value
			if o.Name == "Environment" {
				for _, assignment := range strings.Fields(o.Value) {
					name, _, _ := strings.Cut(assignment, "=")
					requireSettings(t, name)
				}
			}
		}
		require.Equal(t, "yes", has["Service.NoNewPrivileges"], file)
		require.Equal(t, "always", has["Service.Restart"], file)
		require.NotEmpty(t, has["Service.SystemCallFilter"], file)
		require.Contains(t, string(text), "GOMEMLIMIT=", file)
		require.NotEmpty(t, has["Install.WantedBy"], file)
		require.Regexp(t, `^(tributary (run|ship|receive)|nats-server -c /etc/nats/nats.conf)$`, has["Service.ExecStart"])
		verify(t, file, string(text))
	}
}

// verify runs systemd-analyze on a copy of a unit whose program exists.
func verify(t *testing.T, file, text string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return
	}
	copied := filepath.Join(t.TempDir(), filepath.Base(file))
	require.NoError(t, os.WriteFile(copied, []byte(regexp.MustCompile(`ExecStart=\S+`).ReplaceAllString(text, "ExecStart=/bin/true")), 0o600))
	out, _ := exec.CommandContext(t.Context(), analyze, "verify", copied).CombinedOutput() // its exit code judges other units, too
	for line := range strings.Lines(string(out)) {
		require.NotContains(t, line, filepath.Base(file))
	}
}
