package main

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestTailFollows starts tails with several flags between two events of a session.
func TestTailFollows(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	home := t.TempDir()
	start(t, home, server.URL(), "run")
	log := filepath.Join(t.TempDir(), "0b6a7f58.jsonl")
	ship := func(text string, events uint64) {
		t.Helper()
		write(t, log, text)
		if code := start(t, home, server.URL(), "ship", "--once", log).wait(); code != 0 {
			t.Fatalf("ship: exit code %d", code)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := awaitStored(ctx, js, streams.EventsStream("v1"), "events.v1.>", events); err != nil {
			t.Fatal(err)
		}
	}
	ship(hello, 1)
	ship(strings.ReplaceAll(hello, "u1", "u1b"), 2)
	awaitRecords(t, js, "v1") // so that the worker has no consumer of the events any more

	type tail struct {
		*process
		flags     string
		want, got []string
	}
	tails := []tail{
		{flags: "-n 0 -f", want: []string{"again"}}, // the first: it follows when it has a consumer
		{flags: "", want: []string{"hello", "hello", "again"}},
		{flags: "-n 1 -f", want: []string{"hello", "again"}},
		{flags: "--follow --until 2026-03-09T09:00:30Z", want: []string{"hello", "hello"}},
		{flags: "--since all --grep again", want: []string{"again"}},
		{flags: "--since 2026-03-09T09:00:30Z", want: []string{"again"}},
		{flags: "--stored-since 1h --session 0b", want: []string{"hello", "hello", "again"}},
		{flags: "--session c0f", want: []string{"late"}},
		{flags: "-n 5", want: []string{"hello", "hello"}},
	}
	for i := range tails {
		args := append([]string{"tail", "--fields", "text"}, strings.Fields(tails[i].flags)...)
		tails[i].process = start(t, home, server.URL(), args...)
		if i == 0 {
			awaitConsumer(t, js, "v1")
		}
	}
	if code := tails[len(tails)-1].wait(); code != 0 {
		t.Errorf("tail -n 5: exit code %d", code)
	}
	text := func(p *process) string {
		return strings.TrimSuffix(strings.TrimPrefix(p.expect("text"), `{"text":"`), `"}`)
	}
	for i := range tails {
		if tails[i].want[0] == "hello" { // what follows is new to it
			tails[i].got = append(tails[i].got, text(tails[i].process))
		}
	}
	ship(again, 3)
	ship(strings.NewReplacer("0b6a7f58", "c0ffee", "hello", "late").Replace(hello), 4)
	for _, tail := range tails {
		for len(tail.got) < len(tail.want) {
			tail.got = append(tail.got, text(tail.process))
		}
		if tail.running() {
			if code := tail.signal(syscall.SIGTERM); code != 0 {
				t.Errorf("tail %s: exit code %d after SIGTERM\n%s", tail.flags, code, &tail.stderr)
			}
		}
		for line := range tail.lines {
			if !strings.Contains(line, "late") {
				t.Errorf("tail %s prints %s, too", tail.flags, line)
			}
		}
		if diff := cmp.Diff(tail.want, tail.got); diff != "" {
			t.Errorf("tail %s (-want +got):\n%s", tail.flags, diff)
		}
	}
}

// awaitConsumer waits until the events stream of a generation has a consumer.
func awaitConsumer(t *testing.T, js jetstream.JetStream, generation string) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for {
		stream, err := js.Stream(t.Context(), streams.EventsStream(generation))
		if err != nil {
			t.Fatal(err)
		}
		if stream.CachedInfo().State.Consumers > 0 {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatal("nobody reads the events")
		}
	}
}
