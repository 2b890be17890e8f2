package export

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"tributary/pipeline/pipelinetest"
)

// newest is the manifest of a new export.
var newest = manifest{Generation: "v1", Created: time.Unix(1, 0).UTC(), Broker: time.Unix(7, 0).UTC(), Format: Parquet}

// storeSpans stores spans of an event of each of two sources, the first span behind those that are stored.
func storeSpans(t *testing.T, a *archive, spans int) {
	t.Helper()
	for range spans {
		first := a.manifest.Through + 1
		rows := map[partition][]Row{}
		for i, source := range []string{"codex", "gemini"} {
			at := time.Date(2026, 3, 9, 0, 0, 0, 0, time.UTC)
			r := Row{StreamSequence: int64(first) + int64(i), StoredAt: at, TS: &at, Generation: "v1", Source: source, SessionID: "s", Text: new("text"), Files: []byte(`[{"path":"/a"}]`)}
			r.Date = r.date()
			rows[a.partition(&r)] = append(rows[a.partition(&r)], r)
		}
		if _, _, err := a.store(t.Context(), span{first, first + 1}, rows); err != nil {
			t.Fatal(err)
		}
	}
}

// open opens an archive of a folder.
func open(t *testing.T, p place, dir string) (*archive, error) {
	t.Helper()
	if err := openFolder(dir); err != nil {
		t.Fatal(err)
	}
	a, _, err := openArchive(t.Context(), p, newest, false)
	return a, err
}

// sequences returns the sequences of the rows in the files of a folder, in their order, as a reader has them that leaves out files
// whose span another file of their folder has.
func sequences(t *testing.T, dir string) (list []int64) {
	t.Helper()
	files, err := folder{dir, 0}.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		mine, _ := spanOf(f.name, Parquet)
		if slices.ContainsFunc(files, func(o stored) bool {
			theirs, _ := spanOf(o.name, Parquet)
			return o != f && filepath.Dir(o.name) == filepath.Dir(f.name) && theirs.has(mine)
		}) {
			continue
		}
		rows, err := parquet.ReadFile[sequence](filepath.Join(dir, f.name))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			list = append(list, r.StreamSequence)
		}
	}
	slices.Sort(list)
	return list
}

// sequence is the column of a [Row] that distinguishes it from others.
type sequence struct {
	StreamSequence int64 `parquet:"stream_sequence,delta"`
}

// numbers returns the numbers from 1 to n.
func numbers(n int) (list []int64) {
	for i := range n {
		list = append(list, int64(i+1))
	}
	return list
}

// TestCompactionIsExactWhereverItEnds ends a compaction before and after each change of the files and of the manifest. At every moment a
// reader sees each row once, and the next run has large files, with the manifest and without.
func TestCompactionIsExactWhereverItEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one change after the other: the race detector sees nothing new in that")
	}
	const spans = 9
	whole := t.TempDir()
	a, err := open(t, folder{whole, 0}, whole)
	if err != nil {
		t.Fatal(err)
	}
	storeSpans(t, a, spans)
	for n := 1; ; n++ {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		a, err := open(t, folder{dir, 0}, dir)
		if err != nil {
			t.Fatal(err)
		}
		a.place = &ending{folder: folder{dir, 0}, at: n}
		_, _, err = a.compact(t.Context())
		if err == nil {
			if n < 40 {
				t.Errorf("a compaction has only %d steps", n)
			}
			return
		}
		if !errors.Is(err, errEnded) {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(numbers(2*spans), sequences(t, dir)); diff != "" {
			t.Fatalf("after step %d:\n%s", n, diff)
		}
		without := t.TempDir()
		err = errors.Join(os.CopyFS(without, os.DirFS(dir)), os.Remove(filepath.Join(without, controlDir, "manifest.json")))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{dir, without} {
			if a, err = open(t, folder{dir, 0}, dir); err != nil {
				t.Fatalf("after step %d: %v", n, err)
			}
			if through := max(a.manifest.Through, a.manifest.Pending.Last); through != 2*spans {
				t.Fatalf("after step %d: through %d", n, through)
			}
			a.manifest.Through, a.manifest.Pending = 2*spans, span{} // a run reads the last span again where the manifest is lost
			if _, _, err := a.compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			files, err := a.place.list(t.Context())
			if err != nil || len(files) != 2 {
				t.Fatalf("after step %d: %d files, %v", n, len(files), err)
			}
			rows, err := parquet.ReadFile[Row](filepath.Join(dir, files[0].name))
			if err != nil || rows[0].Date.String() != "2026-03-09" || *rows[0].Text != "text" || string(rows[0].Files) != `[{"path":"/a"}]` {
				t.Fatalf("%v: %+v", err, rows[0])
			}
			if diff := gocmp.Diff(numbers(2*spans), sequences(t, dir)); diff != "" {
				t.Fatalf("after step %d and another run:\n%s", n, diff)
			}
		}
	}
}

var errEnded = errors.New("the process is killed")

// ending is a folder whose process ends at a step: steps with even numbers are done before that.
type ending struct {
	folder
	step, at int
}

// do does a step.
func (e *ending) do(change func() error) error {
	e.step++
	if e.step == e.at {
		return errEnded
	}
	if err := change(); err != nil {
		return err
	}
	e.step++
	if e.step == e.at {
		return errEnded
	}
	return nil
}

func (e *ending) save(ctx context.Context, manifest []byte) error {
	return e.do(func() error { return e.folder.save(ctx, manifest) })
}

func (e *ending) add(ctx context.Context, files []file) error {
	return e.do(func() error { return e.folder.add(ctx, files) })
}

func (e *ending) remove(ctx context.Context, name string) error {
	return e.do(func() error { return e.folder.remove(ctx, name) })
}

// TestManySpansBecomeFewFiles stores spans as one that follows does, and compacts when there are many new files. There are never many
// files, and a row is written again a few times only.
func TestManySpansBecomeFewFiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one change after the other: the race detector sees nothing new in that")
	}
	dir := t.TempDir()
	p := &counting{folder: folder{dir, 0}}
	a, err := open(t, p, dir)
	if err != nil {
		t.Fatal(err)
	}
	const rounds, spans = 10, 8
	for n := range rounds {
		storeSpans(t, a, spans)
		if _, _, err := a.compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		files, err := p.list(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if limit := 2 * 16; len(files) > limit {
			t.Fatalf("round %d: %d files, want at most %d", n, len(files), limit)
		}
	}
	if diff := gocmp.Diff(numbers(2*spans*rounds), sequences(t, dir)); diff != "" {
		t.Error(diff)
	}
	if most := 2 * 4 * rounds * spans; p.reads > most { // a file has a row at first
		t.Errorf("%d files were read, want at most %d", p.reads, most)
	}
}

// TestFilesThatWaitAreCounted compacts before there are enough files, as an export does that goes on: with those that come behind
// them they are enough.
func TestFilesThatWaitAreCounted(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	dir := t.TempDir()
	if err := openFolder(dir); err != nil {
		t.Fatal(err)
	}
	a := &archive{place: folder{dir, 0}, manifest: newest}
	storeSpans(t, a, 5) // a file in each of two folders
	removed, waiting, err := a.compact(t.Context())
	if err != nil || removed != 0 || waiting != 8 {
		t.Errorf("%d files were removed, %d wait, want 8: %v", removed, waiting, err)
	}
	storeSpans(t, a, (compactFiles-waiting)/2)
	removed, waiting, err = a.compact(t.Context())
	if err != nil || removed != 18 || waiting != 0 {
		t.Errorf("%d files were removed, want 18, %d wait: %v", removed, waiting, err)
	}
}

// counting is a folder that counts the files that are read.
type counting struct {
	folder
	reads int
}

func (c *counting) read(ctx context.Context, name string) ([]byte, error) {
	c.reads++
	return c.folder.read(ctx, name)
}

// TestAnOlderExportKeepsItsFolders goes on with an export whose folders are of days, with its manifest and without.
func TestAnOlderExportKeepsItsFolders(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one change after the other: the race detector sees nothing new in that")
	}
	for _, lost := range []bool{false, true} {
		dir := t.TempDir()
		if err := openFolder(dir); err != nil {
			t.Fatal(err)
		}
		a := &archive{place: folder{dir, 0}, manifest: newest} // as an older version has written it
		storeSpans(t, a, 30)
		if lost {
			if err := os.Remove(filepath.Join(dir, controlDir, "manifest.json")); err != nil {
				t.Fatal(err)
			}
		}
		a, err := open(t, folder{dir, 0}, dir)
		if err != nil {
			t.Fatal(err)
		}
		a.manifest.Through, a.manifest.Pending = 60, span{}
		storeSpans(t, a, 1)
		if _, _, err := a.compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "date=2026-03-09", "source=*", "part-*"))
		if err != nil || len(files) != 2 {
			t.Errorf("%v, %v", files, err)
		}
		if diff := gocmp.Diff(numbers(62), sequences(t, dir)); diff != "" {
			t.Error(diff)
		}
	}
}
