package load

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// The mix has the shares and sizes of its table, and records that their normalizers read.
func TestMixIsLikeRealLogs(t *testing.T) {
	t.Parallel()
	const n = 10_000
	records, err := Mix(n, 0)
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[string]*core.Session)
	share := make(map[envelopes.Source]float64)
	total, events, skipped := 0, 0, 0
	var sizes []int
	for _, r := range records {
		share[r.Source] += 1000.0 / n
		total += len(r.Data)
		sizes = append(sizes, len(r.Data))
		key := string(r.Source) + r.Session
		if states[key] == nil {
			states[key] = normalizers.NewSession(r.Source, r.Session)
		}
		result, err := normalizers.Normalize(states[key], r)
		if err != nil {
			t.Fatalf("%s: %v in %.2000s", r.Source, err, r.Data)
		}
		events += len(result.Events)
		if len(result.Events) == 0 {
			skipped++
		}
	}
	slices.Sort(sizes)
	if mean := total / n; mean < 2200 || mean > 3800 || sizes[n/2] < 700 || sizes[n/2] > 1300 {
		t.Errorf("records have %d bytes in the mean and %d in the median", mean, sizes[n/2])
	}
	for _, k := range kinds() {
		if math.Abs(share[k.source]-float64(k.share)) > 50+float64(k.share)/4 {
			t.Errorf("%.0f of 1,000 records are of %s, want %d", share[k.source], k.source, k.share)
		}
	}
	if events < n*8/10 || skipped > n*3/10 || len(states) < 100 {
		t.Errorf("%d events of %d sessions, %d records without one", events, len(states), skipped)
	}
	again, err := Mix(n, 0)
	same := func(a, b core.Record) bool { return a.Session == b.Session && bytes.Equal(a.Data, b.Data) }
	if err != nil || !slices.EqualFunc(records, again, same) {
		t.Errorf("another mix the second time: %v", err)
	}
	few, err := Mix(1000, 10)
	if err != nil || few[0].Session != few[10].Session || few[0].Session == few[9].Session {
		t.Errorf("records of 10 sessions do not come in turn: %v", err)
	}
}

func TestFolderReadsTheLogsOfAgents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Folder(dir); !errors.Is(err, errNoLogs) {
		t.Errorf("an empty folder: %v", err)
	}
	for _, v := range normalizers.Vendors() {
		if err := os.CopyFS(filepath.Join(dir, string(v.Source)), v.Samples()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("nothing of an agent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	records, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	sources := make(map[envelopes.Source]int)
	for _, r := range records {
		sources[r.Source]++
	}
	for _, v := range normalizers.Vendors() {
		if len(v.LogOf) == 0 && sources[v.Source] == 0 { // a log that looks like another agent's needs the folder of its own
			t.Errorf("no record of %s: %v", v.Source, sources)
		}
	}
	n := len(records)
	more := Repeat(records, 2*n+3)
	if diff := cmp.Diff(records, more[:n], cmpopts.IgnoreUnexported(core.Record{})); diff != "" {
		t.Errorf("the first turn (-want +got):\n%s", diff)
	}
	if r := more[2*n]; len(more) != 2*n+3 || r.Session != records[0].Session+"-2" || r.Origin.File == records[0].Origin.File || &r.Data[0] != &records[0].Data[0] {
		t.Errorf("the third turn begins with %s of %s", r.Session, r.Origin.File)
	}
}
