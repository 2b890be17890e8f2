package checks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/stretchr/testify/require"
)

// directory is path, or the folder of a file.
func directory(path string) string {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return filepath.Dir(path)
	}
	return path
}

// TestDockerfiles parses the files with the parser of BuildKit: their images are pinned, and the
// last stage has nothing but the program and runs it as a user without a name.
func TestDockerfiles(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"deploy/Dockerfile", "deploy/goreleaser.dockerfile"} {
		parsed, err := parser.Parse(strings.NewReader(read(t, file)))
		require.NoError(t, err)
		require.Empty(t, parsed.Warnings)
		stages, _, err := instructions.Parse(parsed.AST, nil)
		require.NoError(t, err)
		require.Len(t, stages, 2, file)
		require.Regexp(t, pinned, stages[0].BaseName)
		last := stages[1]
		require.Equal(t, "scratch", last.BaseName)
		users, entry := "", []string(nil)
		for _, c := range last.Commands {
			switch c := c.(type) {
			case *instructions.UserCommand:
				users = c.User
			case *instructions.EntrypointCommand:
				entry = c.CmdLine
				require.False(t, c.PrependShell)
			case *instructions.EnvCommand:
				for _, e := range c.Env {
					requireSettings(t, e.Key)
				}
			case *instructions.RunCommand:
				t.Errorf("%s: scratch has nothing to run", file)
			}
		}
		require.Equal(t, "65532:65532", users)
		require.Equal(t, []string{"/tributary"}, entry)
	}
}
