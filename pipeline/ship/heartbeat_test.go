package ship_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

// beating gives an edge a name and frequent heartbeats.
func beating(c *ship.Config) {
	c.Host, c.Version, c.Heartbeat = "garden.example", "v1", 50*time.Millisecond
}

// awaitEdge waits until the broker has a heartbeat that satisfies ok.
func (e *edge) awaitEdge(what string, ok func(streams.Edge) bool) {
	e.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	limit := time.After(patience)
	for {
		edges, err := streams.Edges(e.t.Context(), e.js)
		if err == nil && len(edges) == 1 && ok(edges[0]) {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			e.t.Fatalf("timed out waiting until %s: %+v, %v", what, edges, err)
		}
	}
}

func TestHeartbeatsShowWhatIsNotSent(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	e.write("garden/two.jsonl", lines(prompt("two", 1))+prompt("two", 2)[:30])
	f := e.follow(beating)
	e.awaitEdge("all but the end of a file is sent", func(s streams.Edge) bool {
		return strings.HasPrefix(s.ID, "garden-example.") && s.Host == "garden.example" && s.Version == "v1" && s.Follows &&
			s.Files == 2 && s.Records == 4 && s.Behind == 0 && s.Held == 1 && !s.Shipped.IsZero() && !s.Seen.IsZero() && s.Error == ""
	})
	// The stream is gone, the bucket of the edges is not.
	if err := e.js.DeleteStream(t.Context(), streams.RawStream); err != nil {
		t.Fatal(err)
	}
	e.append("garden/one.jsonl", lines(prompts("one", 4, 6)...))
	want := int64(len(lines(prompts("one", 4, 6)...)))
	e.awaitEdge("the backlog and its cause are shown", func(s streams.Edge) bool {
		return s.Behind == 1 && s.Bytes == want && !s.Oldest.IsZero() && strings.Contains(s.Error, "no raw stream") && !s.Ended
	})
	f.stop()
	e.awaitEdge("the end is shown", func(s streams.Edge) bool { return s.Ended && s.Behind == 1 })
}

func TestErrorOfAnEdgeEndsWhenTheBrokerAcceptsRecordsAgain(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	f := e.follow(beating)
	e.awaitEdge("all is sent", func(s streams.Edge) bool { return s.Records == 3 && s.Behind == 0 })
	raw, err := e.js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	full := raw.CachedInfo().Config
	full.MaxMsgs, full.Discard = int64(raw.CachedInfo().State.Msgs), jetstream.DiscardNew //nolint:gosec // a few
	if _, err := e.js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	e.append("garden/one.jsonl", lines(prompts("one", 4, 6)...))
	e.awaitEdge("the stall is shown", func(s streams.Edge) bool { return s.Behind == 1 && s.Error != "" })
	full.MaxMsgs = -1
	if _, err := e.js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	e.awaitEdge("the stall is over", func(s streams.Edge) bool { return s.Records == 6 && s.Behind == 0 && s.Error == "" })
	f.stop()
}

func TestErrorOfAnEdgeEndsWhenAFileCanBeReadOrIsGone(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.unreadable("garden/one.jsonl")
	f := e.follow(beating)
	e.awaitEdge("the error is shown", func(s streams.Edge) bool { return strings.Contains(s.Error, "one.jsonl") })
	e.write("garden/.new", lines(prompt("one", 1)))
	e.rename("garden/.new", "garden/one.jsonl")
	e.awaitEdge("the file is sent", func(s streams.Edge) bool { return s.Records == 1 && s.Error == "" })
	e.unreadable("garden/two.jsonl")
	e.awaitEdge("the error is shown", func(s streams.Edge) bool { return strings.Contains(s.Error, "two.jsonl") })
	if err := os.Remove(e.path("garden/two.jsonl")); err != nil {
		t.Fatal(err)
	}
	e.awaitEdge("the file is forgotten", func(s streams.Edge) bool { return s.Error == "" })
	f.stop()
}

// A broker whose streams were made by an earlier version has no bucket of edges.
func TestMissingBucketOfEdgesStopsNothing(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	if err := e.js.DeleteKeyValue(t.Context(), "TRIBUTARY_EDGES"); err != nil {
		t.Fatal(err)
	}
	if edges, err := streams.Edges(t.Context(), e.js); err != nil || len(edges) != 0 {
		t.Errorf("%d edges, %v", len(edges), err)
	}
	e.write("garden/one.jsonl", lines(prompts("one", 1, 3)...))
	var log pipelinetest.LogText
	f := e.follow(beating, func(c *ship.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	f.until("all is sent", func(s ship.Summary) bool { return s.Records == 3 })
	f.stop()
	if n := strings.Count(log.String(), "heartbeats cannot be written"); n == 0 {
		t.Errorf("not logged:\n%s", log.String())
	}
}

func TestHeldBackEndOfAFileIsNamed(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.write("garden/one.jsonl", lines(prompt("one", 1))+prompt("one", 2)) // complete, and not idle
	f := e.follow()
	f.until("the end is held back", func(s ship.Summary) bool {
		return s.Records == 1 && s.Waiting == 1 && len(s.Held) == 1 &&
			s.Held[0] == ship.Held{Path: e.path("garden/one.jsonl"), Bytes: int64(len(prompt("one", 2)))}
	})
	e.append("garden/one.jsonl", "\n")
	f.until("nothing is held back", func(s ship.Summary) bool { return s.Records == 2 && s.Waiting == 0 && len(s.Held) == 0 })
}
