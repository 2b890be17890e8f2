package checks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bareRuns are runs of the program where there are no other files, its user cannot write and no broker answers.
var bareRuns = map[string]struct {
	args    []string
	setting string
	prints  string
}{
	"a time zone":                  {[]string{"stats", "--tz", "Europe/Berlin"}, "", "no broker at nats://127.0.0.1:1"},
	"an edge without a key":        {[]string{"ship", "--once", "--redact", "/data"}, "", "set TRIBUTARY_REDACT_KEY or TRIBUTARY_REDACT_KEY_FILE"},
	"a worker without a key":       {[]string{"run"}, "TRIBUTARY_REDACT=redacted", "set TRIBUTARY_REDACT_KEY or TRIBUTARY_REDACT_KEY_FILE"},
	"pseudonyms without their key": {[]string{"ship", "--once", "/data"}, "TRIBUTARY_IDENTITY=pseudonym", "TRIBUTARY_REDACT_KEY"},
	"an edge without its data":     {[]string{"ship", "--once", "/data"}, "", "TRIBUTARY_DATA"},
}

// containers is a container engine with the commands of Docker.
type containers struct {
	t      *testing.T
	engine string
}

// newContainers returns the first engine that answers.
func newContainers(t *testing.T) containers {
	t.Helper()
	for _, engine := range []string{"docker", "podman"} {
		if exec.CommandContext(t.Context(), engine, "ps").Run() == nil {
			return containers{t, engine}
		}
	}
	t.Skip("neither docker nor podman works here")
	return containers{}
}

// try runs a command of the engine in the folder of a checkout.
func (c containers) try(folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), c.engine, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "DOCKER_BUILDKIT=1") // which Docker before 23 needs
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// do is try for a command that must succeed.
func (c containers) do(folder string, args ...string) string {
	c.t.Helper()
	out, err := c.try(folder, args...)
	require.NoError(c.t, err, "%s %s\n%s", c.engine, args, out)
	return strings.TrimSpace(out)
}

// TestImage builds the image as the page does, from a clone, and runs it on a read-only root.
func TestImage(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("takes minutes: run it with -long")
	}
	c := newContainers(t)
	base := regexp.MustCompile(`golang:\S+`).FindString(read(t, "deploy/Dockerfile"))
	if _, err := c.try(".", "image", "inspect", base); err != nil {
		if out, err := c.try(".", "pull", base); err != nil {
			t.Skipf("%s has no image %s, and cannot pull it: %s", c.engine, base, out)
		}
	}
	clone, name := filepath.Join(t.TempDir(), "clone"), fmt.Sprintf("tributary-checks-%d", os.Getpid())
	out, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", root, clone).CombinedOutput()
	require.NoError(t, err, string(out))
	t.Cleanup(func() {
		_, _ = c.try(".", "rm", "--force", "--volumes", name)
		_, _ = c.try(".", "volume", "rm", name)
		_, _ = c.try(".", "rmi", "--force", name)
	})
	if out, err := c.try(clone, "build", "-f", "deploy/Dockerfile", "-t", name, "."); strings.Contains(out, "buildx component is missing") {
		t.Skip("docker has no BuildKit here: ", out)
	} else {
		require.NoError(t, err, out)
	}
	// The limits are of engines that may not raise their own.
	hardened := []string{"run", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"}

	version := c.do(".", slices.Concat(hardened, []string{"--rm", name, "version"})...)
	require.Contains(t, version, "commit ")
	require.NotContains(t, version, "and changes")
	for run, bare := range bareRuns {
		args := slices.Concat(hardened, []string{"--rm", "-e", "NATS_URL=nats://127.0.0.1:1"})
		if bare.setting != "" {
			args = append(args, "-e", bare.setting)
		}
		out, err := c.try(".", append(append(args, name), bare.args...)...)
		assert.Error(t, err, run)
		assert.Contains(t, out, bare.prints, run)
	}
	require.Equal(t, "65532:65532", c.do(".", "image", "inspect", "--format={{.Config.User}}", name))

	c.do(".", slices.Concat(hardened, []string{"--detach", "--name", name, "--volume", name + ":/data", name, "up"})...)
	end := time.Now().Add(patience)
	for {
		out, err := c.try(".", "exec", name, "/tributary", "health")
		if err == nil {
			break
		}
		require.True(t, time.Now().Before(end), out)
		pause(t)
	}
	require.Contains(t, c.do(".", "exec", name, "/tributary", "doctor"), "every record is done")
	c.do(".", "stop", "-t", "60", name)
	require.Equal(t, "0", c.do(".", "inspect", "--format={{.State.ExitCode}}", name))
}
