package export_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestSessionsOfAnyBytesAreInTheRows exports events whose sessions have bytes that mean something in paths, URLs, SQL and
// JSON, to a folder and to a bucket, and those of a source that is a path. The source of one event is no part of a URI, so
// that the event cannot be read, and is in no file.
func TestSessionsOfAnyBytesAreInTheRows(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	hostile := []string{"..", "a/b", `a\b`, "\x00", "\x7f\u2028", "line\nbreak", `quote"'`, "date=2026", "%41%2F", "a+b c?d#e", "日本🦊", "*", strings.Repeat("long ", 100)}
	js := pipelinetest.NewServer(t).Provision(streams.Topology{Generation: "v1", Partitions: 1})
	var messages []*nats.Msg
	var want []string
	for i, name := range slices.Concat(hostile, []string{"../../outside", "two words"}) {
		source := envelopes.Codex
		if i >= len(hostile) {
			source = envelopes.Source(name)
		}
		if i <= len(hostile) {
			want = append(want, name)
		}
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: source, ProjectHash: strings.Repeat("a", 64), SessionID: name, EventID: name,
			TS: "2026-03-09T09:00:00Z", EventType: envelopes.AssistantMessage, Role: new(envelopes.RoleAssistant), Text: &name, Raw: []byte(`{}`), Sequence: 1,
		}
		header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: uint64(i)}, envelopes.Structured)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: header, Data: data})
	}
	pipelinetest.PublishMessages(t.Context(), t, js, messages...)
	outside := t.TempDir()
	dir := filepath.Join(outside, "events")
	store := pipelinetest.NewObjectStore(t)
	for _, r := range []export.Result{run(t, js, dir, export.Parquet), runConfig(t, js, inBucket(store))} {
		if r.Events != len(want) || r.Unreadable != 1 {
			t.Errorf("%+v", r)
		}
	}
	bucket := download(t, store)
	slices.Sort(want)
	for _, dir := range []string{dir, bucket} {
		var got []string
		for _, r := range rows(t, dir) {
			got = append(got, r.SessionID)
		}
		slices.Sort(got)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if diff := gocmp.Diff(names(t, dir), names(t, bucket)); diff != "" {
		t.Error(diff)
	}
	if there, err := os.ReadDir(outside); err != nil || len(there) != 1 {
		t.Errorf("files outside: %v %v", there, err)
	}
	for _, name := range names(t, dir) {
		if strings.Count(name, "/") != 3 {
			t.Errorf("%s is not in a folder of a date and a source", name)
		}
	}
}
