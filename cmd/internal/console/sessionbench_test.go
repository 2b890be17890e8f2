package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/summaries"
)

// BenchmarkSession measures the answers about a session of 10,000 events, which a stage has made and a keeper has summed up. The
// server is in this process, too.
//
//	go test ./cmd/internal/console -run '^$' -bench Session -count 6
func BenchmarkSession(b *testing.B) {
	id := events.SessionID{Source: envelopes.ClaudeCode, Session: "00000001-0000-4000-8000-000000000000"}
	c, js, _ := normalized(b, pipelinetest.Workload(1, 1, 5_300)...)
	keep(b, c)
	var last events.Event
	for e, err := range events.Outlines(b.Context(), js, "v1", events.Query{Source: id.Source, Session: id.Session}) {
		if err != nil {
			b.Fatal(err)
		}
		last = e
	}
	if last.Sequence < 10_000 {
		b.Fatalf("%d events", last.Sequence)
	}
	address := sessionPath(id.Source, id.Session)
	for name, of := range map[string]string{
		"first":    address,
		"middle":   address + "?from=" + strconv.FormatUint(last.Sequence/2, 10),
		"last":     address + "?from=last",
		"timeline": address + "/timeline",
		"event":    eventPath(id.Source, id.Session, last.EventID),
	} {
		b.Run("page="+name, func(b *testing.B) {
			for b.Loop() {
				if w := get(b, c, of); w.Code != http.StatusOK {
					b.Fatalf("status %d: %s", w.Code, w.Body)
				}
			}
		})
	}
}

// keep runs a keeper for as long as the test runs, and waits until it has all events.
func keep(tb testing.TB, c *Console) {
	tb.Helper()
	k, err := summaries.New(c.config.JetStream, summaries.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			tb.Error(err)
		}
	})
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	end := time.After(time.Minute)
	for {
		view, err := summaries.Open(ctx, c.config.JetStream, "v1", func(error) {})
		if err != nil {
			tb.Fatal(err)
		}
		status, err := view.Status(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		if status.Kept && status.Behind == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-end:
			tb.Fatalf("the keeper lacks events: %+v", status)
		}
	}
}
