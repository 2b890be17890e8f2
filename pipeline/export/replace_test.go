package export

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFilesOfAnotherGenerationAreReplaced opens an archive for another generation: its files are removed if they come from the
// same broker, also where an earlier run was killed before it had removed them, and refused otherwise.
func TestFilesOfAnotherGenerationAreReplaced(t *testing.T) {
	t.Parallel()
	first := manifest{Generation: "v1", Created: time.Unix(1, 0).UTC(), Broker: time.Unix(7, 0).UTC(), Format: JSONL}
	next := first
	next.Generation, next.Created = "b", time.Unix(2, 0).UTC()
	other := next
	other.Broker = time.Unix(8, 0).UTC()
	for name, test := range map[string]struct {
		have, want manifest
		replace    bool
		killed     bool
		refused    bool
	}{
		"the same broker":     {have: first, want: next, replace: true},
		"killed":              {have: first, want: next, replace: true, killed: true},
		"not asked for":       {have: first, want: next, refused: true},
		"another broker":      {have: first, want: other, replace: true, refused: true},
		"of an older version": {have: manifest{Generation: "v1", Created: first.Created, Format: JSONL}, want: next, replace: true, refused: true},
		"created anew":        {have: first, want: manifest{Generation: "v1", Created: next.Created, Broker: first.Broker, Format: JSONL}, replace: true, refused: true},
		"in another format":   {have: manifest{Generation: "v1", Created: first.Created, Broker: first.Broker, Format: Parquet}, want: next, replace: true, refused: true},
		"the same generation": {have: first, want: first, replace: true},
		"without being asked": {have: first, want: first},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, ctx := t.TempDir(), t.Context()
			if err := openFolder(dir); err != nil {
				t.Fatal(err)
			}
			part := filepath.Join(dir, filepath.FromSlash(span{1, 5}.name(partition{"month=2026-03", "codex"}, test.have.Format)))
			writePart(t, part)
			test.have.Through = 5
			a := &archive{place: folder{dir, 0}, manifest: test.have}
			if err := a.save(ctx); err != nil {
				t.Fatal(err)
			}
			if test.killed {
				if _, _, err := openArchive(ctx, unremovable{folder{dir, 0}}, test.want, true); !errors.Is(err, errUnremovable) {
					t.Fatalf("got %v, want %v", err, errUnremovable)
				}
			}
			a, replaced, err := openArchive(ctx, folder{dir, 0}, test.want, test.replace)
			if refused := errors.Is(err, ErrOtherExport); refused != test.refused || err != nil && !refused {
				t.Fatalf("got %v, want it refused: %v", err, test.refused)
			}
			_, gone := os.Stat(part)
			if replace := !test.refused && test.have.Generation != test.want.Generation; replace != (gone != nil) || replace != (replaced == 1) {
				t.Errorf("%d files are replaced: %v", replaced, gone)
			}
			if err == nil && a.manifest.Generation != test.want.Generation {
				t.Errorf("manifest of %s", a.manifest.Generation)
			}
		})
	}
}

func writePart(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

var errUnremovable = errors.New("the process is killed")

// unremovable is a folder whose files cannot be removed.
type unremovable struct{ folder }

func (unremovable) remove(context.Context, string) error { return errUnremovable }
