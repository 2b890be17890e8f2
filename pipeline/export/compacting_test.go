package export_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/prices"
)

// unreplaced returns the files of a folder whose rows no other file of their folder has, as its span would say.
func unreplaced(t *testing.T, dir string) []string {
	t.Helper()
	all := files(t, dir)
	span := func(name string) (first, last string) {
		first, last, _ = strings.Cut(strings.TrimPrefix(filepath.Base(name), "part-"), "-")
		return first, last
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		first, last := span(name)
		return slices.ContainsFunc(all, func(other string) bool {
			a, z := span(other)
			return other != name && filepath.Dir(other) == filepath.Dir(name) && a <= first && last <= z
		})
	})
}

// sequence is the column of a row that distinguishes it from others.
type sequence struct {
	StreamSequence int64 `parquet:"stream_sequence,delta"`
}

// sequencesOf returns the sequences of the rows of files, sorted.
func sequencesOf(t *testing.T, files []string) (list []int64) {
	t.Helper()
	for _, name := range files {
		rows, err := parquet.ReadFile[sequence](name)
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

// TestOfTwoCompactionsTheOneThatBeganLastGoesOn stops a run that compacts the files of a bucket at each of its changes, lets another one
// compact them, and lets the first one go on. No event is lost, a reader that leaves out what was replaced sees each once, and the
// next run leaves two files.
func TestOfTwoCompactionsTheOneThatBeganLastGoesOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one export after the other: the race detector sees nothing new in that")
	}
	js := stream(t, 10)
	for n := 1; ; n++ {
		store := pipelinetest.NewObjectStore(t)
		cfg := inBucket(store)
		cfg.SpanBytes = 1000
		runConfig(t, js, cfg)
		cfg.Compact = true
		var changes atomic.Int64
		stopped, goOn := make(chan struct{}), make(chan struct{})
		store.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method != http.MethodGet && changes.Add(1) == int64(n) {
				close(stopped)
				<-goOn
			}
			next.ServeHTTP(w, r)
		})
		done := make(chan error, 1)
		go func() {
			_, err := export.Run(t.Context(), js, cfg)
			done <- err
		}()
		select {
		case <-stopped:
		case err := <-done:
			if err != nil || n < 20 {
				t.Fatalf("a compaction of %d changes: %v", n-1, err)
			}
			return
		}
		runConfig(t, js, cfg)
		close(goOn)
		if err := <-done; err != nil && !errors.Is(err, export.ErrOtherRun) && !strings.Contains(err.Error(), "compact ") {
			t.Errorf("stopped at change %d: %v", n, err)
		}
		want := make([]int64, 20)
		for i := range want {
			want[i] = int64(first + i)
		}
		if got := sequencesOf(t, unreplaced(t, download(t, store))); !slices.Equal(got, want) {
			t.Fatalf("stopped at change %d: sequences %v", n, got)
		}
		runConfig(t, js, cfg)
		if left := files(t, download(t, store)); len(left) != 2 || !slices.Equal(sequencesOf(t, left), want) {
			t.Fatalf("stopped at change %d: files %v are left", n, left)
		}
	}
}

// TestAFollowingExportCompacts stores events one after the other, each as a span of its own. There are never many files.
func TestAFollowingExportCompacts(t *testing.T) {
	t.Parallel()
	js := stream(t, 1)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var sum export.Result
	go func() {
		var err error
		sum, err = export.Run(ctx, js, export.Config{Dir: dir, Generation: "v1", Format: export.JSONL, Follow: true, Compact: true, SpanBytes: 1, Every: time.Millisecond, Logger: quiet})
		done <- err
	}()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	limit := time.After(time.Minute)
	events := 40
	lines := func() (n int) {
		for _, name := range unreplaced(t, dir) {
			data, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) {
				return 0 // it was replaced meanwhile
			}
			if err != nil {
				t.Fatal(err)
			}
			n += strings.Count(string(data), "\n")
		}
		return n
	}
	storeEvents(t, js, 1, events-1)
	for lines() < 2*events || len(files(t, dir)) > 20 {
		select {
		case <-look.C:
			if lines() == 2*events { // it waits for a further event to replace as many files as are worth it
				storeEvents(t, js, events, 1)
				events++
			}
		case <-limit:
			t.Fatalf("%d lines in %d files", lines(), len(files(t, dir)))
		case err := <-done:
			t.Fatalf("the export has ended: %v", err)
		}
	}
	cancel()
	if err := <-done; err != nil || lines() != 2*events || sum.Compacted == 0 {
		t.Errorf("%d lines, %+v, %v", lines(), sum, err)
	}
	if n := len(files(t, dir)); n > 20 {
		t.Errorf("%d files", n)
	}
}

// TestAFollowingExportCompactsWhatIsThere follows a stream of which an earlier run has made many files, and in which nothing arrives.
func TestAFollowingExportCompactsWhatIsThere(t *testing.T) {
	t.Parallel()
	js, dir := stream(t, 20), t.TempDir()
	cfg := export.Config{Dir: dir, Generation: "v1", Format: export.JSONL, SpanBytes: 1, Every: time.Millisecond, Logger: quiet}
	if r := runConfig(t, js, cfg); r.Files < 40 {
		t.Fatalf("%+v", r)
	}
	cfg.Follow, cfg.Compact = true, true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := export.Run(ctx, js, cfg)
		done <- err
	}()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	limit := time.After(time.Minute)
	for len(files(t, dir)) > 2 {
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("%d files", len(files(t, dir)))
		case err := <-done:
			t.Fatalf("the export has ended: %v", err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// olderRow has some of the columns of an older version.
type olderRow struct {
	StreamSequence int64     `parquet:"stream_sequence,delta"`
	StoredAt       time.Time `parquet:"stored_at,timestamp(microsecond)"`
	Source         string    `parquet:"source,dict"`
	SessionID      string    `parquet:"session_id,dict"`
	Sequence       int64     `parquet:"sequence"`
	TS             time.Time `parquet:"ts,optional,timestamp(microsecond)"`
	EventType      string    `parquet:"event_type,dict"`
	Model          string    `parquet:"model,optional,dict"`
	TokensTotal    int64     `parquet:"tokens_total,optional"`
	UsageInput     int64     `parquet:"usage_input,optional"`
	UsageKey       string    `parquet:"usage_key,optional"`
	UsageKeyUnique bool      `parquet:"usage_key_unique"`
	Metadata       string    `parquet:"metadata,optional"`
}

// TestAnOlderExportHasTheColumns goes on with an export of an older version, whose folders are of days and whose files lack columns.
// Its files and the new ones answer every question, before a compaction and after it.
func TestAnOlderExportHasTheColumns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("may install DuckDB")
	}
	js, dir := stream(t, 30), t.TempDir()
	out := filepath.Join(dir, "events")
	cfg := export.Config{Dir: out, Generation: "v1", Format: export.Parquet, SpanBytes: 2000, Prices: prices.Builtin().CSV(), Logger: quiet}
	runConfig(t, js, cfg)
	for _, name := range files(t, out) {
		rows, err := parquet.ReadFile[export.Row](name)
		if err != nil {
			t.Fatal(err)
		}
		days := map[string][]olderRow{}
		for _, r := range rows {
			days[r.Date.String()] = append(days[r.Date.String()], olderRow{
				r.StreamSequence, r.StoredAt, r.Source, r.SessionID, r.Sequence, *r.TS, r.EventType, *r.Model, *r.TokensTotal, *r.UsageInput,
				*r.UsageKey, r.UsageKeyUnique, string(r.Metadata),
			})
		}
		for day, rows := range days {
			older := filepath.Join(out, "date="+day, filepath.Base(filepath.Dir(name)), filepath.Base(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(older), 0o700), parquet.WriteFile(older, rows)); err != nil {
				t.Fatal(err)
			}
		}
	}
	manifest := filepath.Join(out, "_export", "manifest.json")
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(data), `"months":true,`, "", 1)
	if err := errors.Join(os.RemoveAll(filepath.Join(out, "month=2026-03")), os.WriteFile(manifest, []byte(old), 0o600)); err != nil || old == string(data) {
		t.Fatalf("%v\n%s", err, data)
	}
	storeEvents(t, js, 30, 10)
	list := append(questions(t), question{Name: "rows", SQL: "select count(*)::int as n, count(distinct stream_sequence)::int as events, " +
		"count(distinct date)::int as days, count(repository)::int as known, count(team)::int as teams, sum(tokens_total)::int as tokens from events"})
	for range 2 {
		if r := runConfig(t, js, cfg); cfg.Compact != (r.Compacted > 0) {
			t.Errorf("%+v", r)
		}
		if got := ask(t, dir, list)["rows"].Rows[0]; fmt.Sprint(got["n"], got["events"], got["days"], got["known"], got["teams"], got["tokens"]) != "80 80 3 0 0 1200" {
			t.Errorf("%d files: %v", len(files(t, out)), got)
		}
		cfg.Compact = true
	}
	if left, err := filepath.Glob(filepath.Join(out, "date=*", "source=*", "*")); err != nil || len(left) != 6 || len(files(t, out)) != 6 {
		t.Errorf("files %v, %v", files(t, out), err)
	}
}
