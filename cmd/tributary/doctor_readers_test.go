package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/doctor"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// pass passes events of a generation to a subscription, so many or, for 0, all that are there.
func pass(tb testing.TB, js jetstream.JetStream, name string, most int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	last, err := events.LastMark(ctx, js, "v1", 0)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := subscribe.New(js, subscribe.Config{Name: name, Generation: "v1"})
	if err != nil {
		tb.Fatal(err)
	}
	passed := 0
	if err := s.Run(ctx, func(_ context.Context, e subscribe.Event) error {
		if passed++; passed == most || e.Position == last.Position {
			s.Drain()
		}
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
}

// TestDoctorShowsSubscriptionsAndExports compares what doctor says of a subscription and of an export with what was sent: how many
// events they have not read, that a stream went back under them, and how many expired before they were read, until both have
// noticed.
func TestDoctorShowsSubscriptionsAndExports(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	out := filepath.Join(home, "events")
	top := streams.DefaultTopology()
	js := server.Provision(top)
	records := pipelinetest.Workload(92, 9, 300)
	sent := func(n int) uint64 { return uint64(len(sentEvents(t, records[:n]))) }
	work := func() (end func()) {
		t.Helper()
		p := start(t, home, server.URL(), "run")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := replay.CatchUp(ctx, js, top); err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			if code := p.signal(syscall.SIGTERM); code != 0 {
				t.Errorf("run: exit code %d\n%s", code, p.stderr.String())
			}
		}
	}
	examine := func() (d struct {
		Subscriptions []subscribe.Status `json:"subscriptions"`
		Exports       []doctor.Exported  `json:"exports"`
		Problems      []string           `json:"problems"`
	},
	) {
		t.Helper()
		_, text := finish(t, home, server.URL(), "doctor", "-o", "json", "--export", out)
		text, _, _ = strings.Cut(text, "\n")
		if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Subscriptions) != 1 || len(d.Exports) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
		return d
	}
	export := func() {
		t.Helper()
		if code, text := finish(t, home, server.URL(), "export", "--out", out); code != 0 {
			t.Fatalf("export: exit code %d\n%s", code, text)
		}
	}
	pipelinetest.Publish(t, js, records[:100]...)
	end := work()
	export()
	pass(t, js, "search", 1)
	d := examine()
	if s, e := d.Subscriptions[0], d.Exports[0]; s.Name != "search" || s.Behind != sent(100)-1 || s.Oldest.IsZero() || e.Behind != 0 || e.Place != out || s.Expired+e.Expired > 0 || s.WentBack || e.WentBack {
		t.Errorf("one event of %d was passed, and all are exported: %+v", sent(100), d)
	}
	end()

	saved := server.CopyStore()
	pipelinetest.Publish(t, js, records[100:200]...)
	end = work()
	if d := examine(); d.Exports[0].Behind != sent(200)-sent(100) {
		t.Errorf("%d events are not exported: %+v", sent(200)-sent(100), d)
	}
	export()
	pass(t, js, "search", 0)
	end()
	saved.PutBack(streams.EventsStream("v1"))
	if d := examine(); !d.Subscriptions[0].WentBack || !d.Exports[0].WentBack {
		t.Errorf("the stream went back: %+v", d)
	}
	_, text := finish(t, home, server.URL(), "doctor")
	contains(t, text, "READER", "subscription search", "its stream went back in time")
	end = work()
	defer func() { end() }()
	export()
	pass(t, js, "search", 0)
	if d := examine(); d.Subscriptions[0].WentBack || d.Exports[0].WentBack || d.Subscriptions[0].Behind+d.Exports[0].Behind > 0 {
		t.Errorf("both have read what is there: %+v", d)
	}

	pipelinetest.Publish(t, js, records[200:]...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := replay.CatchUp(ctx, js, top); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("events.>")); err != nil { // as if they had expired
		t.Fatal(err)
	}
	lost, d := sent(len(records))-sent(200), examine()
	if s, e := d.Subscriptions[0], d.Exports[0]; s.Expired < lost || e.Expired < lost {
		t.Errorf("%d events expired unread: %+v", lost, d)
	}
	for _, want := range []string{"subscription search: up to ", "export " + out + ": up to "} {
		if !slices.ContainsFunc(d.Problems, func(p string) bool { return len(p) > len(want) && p[:len(want)] == want }) {
			t.Errorf("no problem %q in %q", want, d.Problems)
		}
	}
	export()
	told, stop := context.WithCancel(ctx)
	s, err := subscribe.New(js, subscribe.Config{Name: "search", Generation: "v1", Expired: func(_ context.Context, e subscribe.Expired) error {
		if e.Most < lost {
			t.Errorf("told of %d, and %d expired", e.Most, lost)
		}
		stop()
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(told, func(context.Context, subscribe.Event) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if d := examine(); d.Subscriptions[0].Expired+d.Exports[0].Expired > 0 {
		t.Errorf("both have noticed: %+v", d)
	}
}
