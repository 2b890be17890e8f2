package ship_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tributary/pipeline/ship"
)

// A folder with the homes of agents, as in a copy of a home, is shipped with their logs. Any other hidden
// folder is skipped and named, and shipped when it is asked for.
func TestHiddenFoldersAreNamedOrRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, session := range map[string]string{
		"one.jsonl": "one", "ada/.claude/projects/garden/two.jsonl": "two",
		".git/three.jsonl": "three", ".notes/four.jsonl": "four", "ada/.claude/settings.jsonl": "five",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(lines(prompt(session, 1))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		paths   []string
		records int
		skipped bool
	}{
		{[]string{dir}, 2, true},
		{[]string{dir, filepath.Join(dir, ".notes")}, 3, true},
		{[]string{filepath.Join(dir, "ada")}, 1, false},
	} {
		var out bytes.Buffer
		s, err := ship.New(nil, ship.Config{Paths: c.paths, DryRun: true, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sum := s.Summary(); sum.Records != c.records || len(sum.Refusals) > 0 || sum.Hidden > 0 != c.skipped {
			t.Errorf("%v: %+v", c.paths, sum)
		}
		if named := strings.Contains(out.String(), filepath.Join(dir, ".git")); named != c.skipped {
			t.Errorf("%v: skipped folders are named: %v\n%s", c.paths, named, out.String())
		}
	}
}
