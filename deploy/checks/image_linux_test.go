package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProgramAlone runs the program as in the image: in a root without other files, which its user cannot write.
func TestProgramAlone(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give a process another root")
	}
	dir := t.TempDir()
	path, err := program()
	require.NoError(t, err)
	require.NoError(t, os.Link(path, filepath.Join(dir, "tributary"))) // both are in the folder for temporary files
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o755))
	for name, c := range bareRuns {
		cmd := exec.CommandContext(t.Context(), "/tributary", c.args...)
		cmd.Dir, cmd.Env = "/", []string{"HOME=/", "NATS_URL=nats://127.0.0.1:1", "TRIBUTARY_DATA=/data", c.setting}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		out, err := cmd.CombinedOutput()
		assert.Error(t, err, name)
		assert.Contains(t, string(out), c.prints, name)
	}
}
