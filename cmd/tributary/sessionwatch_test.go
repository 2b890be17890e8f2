package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestWatchPrintsWholeSessionsWhenTheyChange stores a session, begins to watch, and lets the session go on: its record has the
// earlier events too. The watch continues after the records were made again.
func TestWatchPrintsWholeSessionsWhenTheyChange(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home := t.TempDir()
	worker := start(t, home, server.URL(), "run")
	log := filepath.Join(home, "log.jsonl")
	first := `{"type":"user","uuid":"u1","sessionId":"one","timestamp":"2026-03-09T09:00:00Z","message":{"role":"user","content":"Fix the tests."}}` + "\n"
	next := `{"type":"assistant","uuid":"u2","sessionId":"one","timestamp":"2026-03-09T09:00:05Z","message":{"id":"m","model":"opus","role":"assistant","content":[{"type":"text","text":"Done."}],"usage":{"input_tokens":1,"output_tokens":2}}}` + "\n"
	ship := func(text string, events uint64) {
		t.Helper()
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := finish(t, home, server.URL(), "ship", "--once", "--source", "claude_code", log); code != 0 {
			t.Fatalf("ship: exit code %d\n%s", code, out)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := awaitStored(ctx, js, streams.EventsStream("v1"), "events.v1.>", events); err != nil {
			t.Fatal(err)
		}
	}
	ship(first, 1)
	awaitRecords(t, js, "v1") // else the watch prints the session as it is now
	watch := start(t, home, server.URL(), "sessions", "watch", "-o", "json", "--every", "10ms")
	awaitReader(t, js)
	ship(first+next, 2)
	requirePrinted := func(events, tokens int64) {
		t.Helper()
		select {
		case line, open := <-watch.lines:
			var got sessionView
			if err := json.Unmarshal([]byte(line), &got); err != nil || !open {
				t.Fatalf("%q: %v\n%s", line, err, &watch.stderr)
			}
			if got.Session != "one" || got.Events != events || got.Prompts != 1 || got.Usage.Total != tokens || got.Title != "Fix the tests" {
				t.Errorf("record %+v", got)
			}
		case <-time.After(patience):
			t.Fatalf("no record\n%s", &watch.stderr)
		}
	}
	requirePrinted(2, 3)

	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d\n%s", code, &worker.stderr)
	}
	if err := js.DeleteStream(t.Context(), streams.SummariesStream("v1")); err != nil {
		t.Fatal(err)
	}
	worker = start(t, home, server.URL(), "run")
	watch.awaitLogged("the records of sessions were made again: stream SUMMARIES_v1: watching those that change from now on")
	awaitRecords(t, js, "v1")
	awaitReader(t, js)
	ship(first+next+strings.NewReplacer(`"u2"`, `"u3"`, `"m"`, `"n"`).Replace(next), 3)
	requirePrinted(3, 6)
	if code := watch.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("watch: exit code %d\n%s", code, &watch.stderr)
	}
	if code := worker.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("run: exit code %d\n%s", code, &worker.stderr)
	}
}

// awaitReader waits until a process reads the records of sessions.
func awaitReader(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		stream, err := js.Stream(ctx, streams.SummariesStream("v1"))
		if err == nil && stream.CachedInfo().State.Consumers > 0 {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatal("nothing reads the records of sessions")
		}
	}
}
