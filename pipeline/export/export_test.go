package export_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/parquet-go/parquet-go"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions/prices"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// stream is a server whose events stream has events of two sources and three days, n of each session.
func stream(tb testing.TB, n int) jetstream.JetStream {
	tb.Helper()
	js := pipelinetest.NewServer(tb).Provision(streams.Topology{Generation: "v1", Partitions: 1})
	storeEvents(tb, js, 0, n)
	return js
}

// first is the sequence of the first event: the checkpoint of the partition is before it.
const first = 2

// storeEvents stores events of two sessions, from a number on.
func storeEvents(tb testing.TB, js jetstream.JetStream, from, n int) {
	tb.Helper()
	var messages []*nats.Msg
	for i := from; i < from+n; i++ {
		for _, source := range []envelopes.Source{envelopes.Codex, envelopes.Gemini} {
			at := time.Date(2026, 3, 9+i%3, 9, 0, i, 123456000, time.UTC)
			e := envelopes.AgentEventV1{
				SchemaVersion: envelopes.SchemaVersion, Source: source, ProjectHash: strings.Repeat("a", 64), SessionID: "session " + string(source), EventID: fmt.Sprint("e", i),
				TS: at.Format(time.RFC3339Nano), EventType: envelopes.AssistantMessage, Role: new(envelopes.RoleAssistant),
				Text: new(strings.Repeat("text ", 20)), Raw: []byte(`{"a":1}`), Sequence: uint64(i + 1), Model: new("m"),
				TokensTotal: new(int64(15)), Usage: &envelopes.Usage{Input: 1, CacheRead: 2, CacheWrite: 3, Output: 4, Reasoning: 5, Key: fmt.Sprint("a key of twenty bytes ", i)},
				Files: []envelopes.File{{Path: "/a", Op: envelopes.OpRead}}, Metadata: &envelopes.Metadata{SessionID: new("resume")},
			}
			if source == envelopes.Codex {
				e.Edge = &envelopes.Edge{User: "ada", Verified: i%2 == 0}
			}
			header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: uint64(i)}, envelopes.Binary)
			if err != nil {
				tb.Fatal(err)
			}
			messages = append(messages, &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: header, Data: data})
		}
	}
	pipelinetest.PublishMessages(tb.Context(), tb, js, messages...)
}

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

// run exports to a folder, in spans of a few events.
func run(t *testing.T, js jetstream.JetStream, dir string, format export.Format) export.Result {
	t.Helper()
	return runConfig(t, js, export.Config{Dir: dir, Generation: "v1", Format: format, SpanBytes: 10_000, Prices: prices.Builtin().CSV(), Logger: quiet})
}

// runConfig exports.
func runConfig(t *testing.T, js jetstream.JetStream, cfg export.Config) export.Result {
	t.Helper()
	r, err := export.Run(t.Context(), js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// files returns the names of all files of an export, without the folder of its control.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "_export" {
			return fs.SkipDir
		}
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rows reads all rows of the Parquet files, in the order of the stream.
func rows(t *testing.T, dir string) []export.Row {
	t.Helper()
	var out []export.Row
	for _, name := range files(t, dir) {
		list, err := parquet.ReadFile[export.Row](name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b export.Row) int { return cmp.Compare(a.StreamSequence, b.StreamSequence) })
	return out
}

// TestEveryEventIsInOneFile exports twice, with more events in between.
func TestEveryEventIsInOneFile(t *testing.T) {
	t.Parallel()
	js := stream(t, 60)
	dir := t.TempDir()
	if r := run(t, js, dir, export.Parquet); r.Events != 120 || r.Through.In(0) != first+119 || r.Unreadable != 0 {
		t.Errorf("%+v", r)
	}
	if r := run(t, js, dir, export.Parquet); r.Events != 0 || r.Files != 0 {
		t.Errorf("again: %+v", r)
	}
	storeEvents(t, js, 60, 5)
	if r := run(t, js, dir, export.Parquet); r.Events != 10 {
		t.Errorf("after more: %+v", r)
	}
	got := rows(t, dir)
	if len(got) != 130 {
		t.Fatalf("%d rows", len(got))
	}
	for i := range got {
		if got[i].StreamSequence != int64(first+i) {
			t.Fatalf("row %d has sequence %d", i, got[i].StreamSequence)
		}
	}
	for _, name := range files(t, dir) {
		list, err := parquet.ReadFile[export.Row](name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if want := filepath.Join("month="+list[i].TS.Format("2006-01"), "source="+list[i].Source); !strings.Contains(name, want) {
				t.Errorf("%s has a row of %s", name, want)
			}
		}
	}
}

// TestColumnsHaveTheEvent checks a row in both formats.
func TestColumnsHaveTheEvent(t *testing.T) {
	t.Parallel()
	js := stream(t, 1)
	dir := t.TempDir()
	run(t, js, dir, export.Parquet)
	r := rows(t, dir)[0]
	at := time.Date(2026, 3, 9, 9, 0, 0, 123456000, time.UTC)
	if !r.TS.Equal(at) || r.Source != "codex" || r.SessionID != "session codex" || r.Sequence != 1 || *r.UsageCacheWrite != 3 || !r.UsageKeyUnique ||
		r.Verified == nil || !*r.Verified || string(r.Files) != `[{"path":"/a","op":"read"}]` || *r.ResumeID != "resume" || r.Raw != nil || r.ToolName != nil || r.Generation != "v1" {
		t.Errorf("row %+v", r)
	}
	dir = t.TempDir()
	if _, err := export.Run(t.Context(), js, export.Config{Dir: dir, Generation: "v1", Format: export.JSONL, Raw: true, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(files(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"stream_sequence":2,`, `"ts":"2026-03-09T09:00:00.123456Z"`, `"tool_name":null`, `"files":[{"path":"/a","op":"read"}]`, `"usage_key_unique":true`, `"user_name":"ada","user_verified":true`, `"raw":{"a":1}}` + "\n"} {
		if !strings.Contains(string(line), want) {
			t.Errorf("%s is not in %s", want, line)
		}
	}
}

// TestAnInterruptedExportGoesOn removes what an export that is killed has not done yet: any of the
// files of its last span, the manifest, and both. The next export makes the same files.
func TestAnInterruptedExportGoesOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one export after the other: the race detector sees nothing new in that")
	}
	js := stream(t, 60)
	whole := t.TempDir()
	run(t, js, whole, export.Parquet)
	want := rows(t, whole)
	names := files(t, whole)
	last := newest(names)
	var span []string // the files of the last span
	for _, name := range names {
		if filepath.Base(name) == filepath.Base(last) {
			span = append(span, name)
		}
	}
	if len(span) < 2 || len(span) == len(names) {
		t.Fatalf("%d files of %d are in the last span", len(span), len(names))
	}
	for name, missing := range map[string][]string{
		"no file":                       span,
		"one file":                      span[:1],
		"all but one":                   span[1:],
		"the manifest behind all files": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			for _, name := range slices.Concat(missing, []string{filepath.Join(whole, "_export", "manifest.json")}) {
				if err := os.Remove(filepath.Join(dir, strings.TrimPrefix(name, whole))); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "_export", "tmp", "0.tmp"), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := run(t, js, dir, export.Parquet); r.Files != len(missing) {
				t.Errorf("%+v, want %d files", r, len(missing))
			}
			if diff := gocmp.Diff(want, rows(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("a new event does not change the span that is there in part", func(t *testing.T) {
		t.Parallel()
		js, dir := stream(t, 20), t.TempDir()
		run(t, js, dir, export.Parquet)
		for _, name := range []string{newest(files(t, dir)), filepath.Join(dir, "_export", "manifest.json")} {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		storeEvents(t, js, 20, 20)
		run(t, js, dir, export.Parquet)
		got := rows(t, dir)
		for i := range got {
			if len(got) != 80 || got[i].StreamSequence != int64(first+i) {
				t.Fatalf("%d rows, row %d has sequence %d", len(got), i, got[i].StreamSequence)
			}
		}
	})
}

// newest returns a file of the last span.
func newest(names []string) string {
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(filepath.Base(a), filepath.Base(b)) })
}

// TestOtherExportsAreRefused names what differs.
func TestOtherExportsAreRefused(t *testing.T) {
	t.Parallel()
	js := stream(t, 2)
	dir := t.TempDir()
	run(t, js, dir, export.Parquet)
	for want, cfg := range map[string]export.Config{
		"has format parquet, not jsonl: name another place": {Dir: dir, Generation: "v1", Format: export.JSONL},
		"has raw false, not true: name another place":       {Dir: dir, Generation: "v1", Format: export.Parquet, Raw: true},
	} {
		cfg.Logger = quiet
		if _, err := export.Run(t.Context(), js, cfg); !errors.Is(err, export.ErrOtherExport) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	other := stream(t, 2)
	if _, err := export.Run(t.Context(), other, export.Config{Dir: dir, Generation: "v1", Format: export.Parquet, Logger: quiet}); !errors.Is(err, export.ErrOtherExport) {
		t.Errorf("another stream: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "_export", "manifest.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := export.Run(t.Context(), js, export.Config{Dir: dir, Generation: "v1", Format: export.Parquet, Logger: quiet}); err == nil || !strings.Contains(err.Error(), "not a manifest: remove it") {
		t.Errorf("a broken manifest: %v", err)
	}
}

// TestFollowStoresWhatArrives ends a following export, which stores what it has, although the broker does not answer its first
// request for events.
func TestFollowStoresWhatArrives(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.Topology{Generation: "v1", Partitions: 1})
	storeEvents(t, js, 0, 3)
	var deaf pipelinetest.Deaf
	following := server.JetStream(deaf.Option())
	deaf.Lose("CONSUMER.CREATE.EVENTS_v1", 1)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := export.Run(ctx, following, export.Config{Dir: dir, Generation: "v1", Format: export.JSONL, Follow: true, Every: time.Millisecond, Logger: quiet})
		done <- err
	}()
	await := func(n int) {
		t.Helper()
		look := time.NewTicker(5 * time.Millisecond)
		defer look.Stop()
		limit := time.After(time.Minute)
		for {
			lines := 0
			for _, name := range files(t, dir) {
				data, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				lines += strings.Count(string(data), "\n")
			}
			if lines == n {
				return
			}
			select {
			case <-look.C:
			case <-limit:
				t.Fatalf("%d lines, want %d", lines, n)
			case err := <-done:
				t.Fatalf("the export has ended: %v", err)
			}
		}
	}
	await(6)
	storeEvents(t, js, 3, 4)
	await(14)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The events of four cells are each in one file, exported in two runs.
func TestEveryEventOfFourCellsIsInOneFile(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 8, Cells: 4}
	js := pipelinetest.NewServer(t).Provision(top)
	stage, err := worker.New(js, worker.Config{Topology: top, Heartbeat: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stage.Run(context.WithoutCancel(t.Context())) }()
	dir := t.TempDir()
	records := 150
	if testing.Short() {
		records = 20 // the race detector sees nothing new in many
	}
	for seed := range uint64(2) {
		pipelinetest.Publish(t, js, pipelinetest.Workload(seed, 20, records)...)
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		var want []uint64
		for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, streams.PlaceOf(e.Cell, e.Position))
		}
		run(t, js, dir, export.Parquet)
		var have []uint64
		for _, row := range rows(t, dir) {
			have = append(have, uint64(row.StreamSequence))
		}
		slices.Sort(want)
		if diff := gocmp.Diff(want, have); diff != "" {
			t.Errorf("places (-stream +files):\n%s", diff)
		}
		if again := run(t, js, dir, export.Parquet); again.Events != 0 || len(again.Through) != 4 {
			t.Errorf("again: %+v", again)
		}
	}
	stage.Drain()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
