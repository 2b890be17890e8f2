package search_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/console/search"
	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

// history stores events with one word each, which is of random letters, so that filters leave out most other parts.
type history struct {
	random *rand.Rand
	js     jetstream.JetStream
	stream jetstream.Stream
	words  []string        // of all events
	has    map[string]bool // whether the stream has the event of a word
	place  map[string]uint64
}

// newHistory returns the history of a stream of its own server.
func newHistory(t *testing.T, r *rand.Rand) *history {
	t.Helper()
	h := &history{random: r, js: pipelinetest.NewServer(t).Provision(streams.Topology{Generation: "v1", Partitions: 1}), has: map[string]bool{}, place: map[string]uint64{}}
	var err error
	if h.stream, err = h.js.Stream(t.Context(), streams.EventsStream("v1")); err != nil {
		t.Fatal(err)
	}
	return h
}

// store stores events.
func (h *history) store(t *testing.T, count int) {
	t.Helper()
	var list []*nats.Msg
	for range count {
		letters := make([]byte, 12)
		for i := range letters {
			letters[i] = 'a' + byte(h.random.IntN(26)) //nolint:gosec // it is a letter
		}
		word := string(letters)
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: envelopes.Codex, SessionID: "one", ProjectHash: strings.Repeat("0", 64), EventID: word,
			TS: "2026-03-09T10:00:00Z", EventType: envelopes.UserMessage, Role: new(envelopes.RoleUser), Text: &word, Sequence: uint64(len(h.words) + 1),
		}
		header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: e.Sequence}, envelopes.Binary)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: header, Data: data})
		h.words = append(h.words, word)
	}
	pipelinetest.PublishMessages(t.Context(), t, h.js, list...)
	info, err := h.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, word := range h.words[len(h.words)-count:] {
		h.has[word], h.place[word] = true, info.State.LastSeq-uint64(count-1-i) //nolint:gosec // it is not negative
	}
}

// some returns the first word, the last word and four others.
func (h *history) some() []string {
	words := []string{h.words[0], h.words[len(h.words)-1]}
	for range 4 {
		words = append(words, h.words[h.random.IntN(len(h.words))])
	}
	return words
}

// check searches for words of the history: each one is found exactly if the stream has its event.
func (h *history) check(t *testing.T, words []string) {
	t.Helper()
	for _, word := range words {
		hits, coverage := find(t, h.js, search.Search{Terms: parse(t, word), Hits: 10})
		if coverage.Next != nil || len(hits) > 1 || (len(hits) == 1) != h.has[word] {
			t.Fatalf("%d events have %s, which the stream has: %v; %+v", len(hits), word, h.has[word], coverage)
		}
	}
}

// filterBytes is the size of the events of a filter in histories.
const filterBytes = 32 << 10

// startKeeper keeps records of sessions, and filters of events of so many bytes each, until stop.
func startKeeper(t *testing.T, js jetstream.JetStream, filterBytes int) (stop func()) {
	t.Helper()
	k, err := summaries.New(js, summaries.Config{Beat: 100 * time.Millisecond, Every: 50 * time.Millisecond, FilterBytes: filterBytes})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- k.Run(context.WithoutCancel(t.Context())) }()
	stop = sync.OnceFunc(func() {
		k.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// awaitFilters waits until only the newest events of each cell have no filter.
func awaitFilters(t *testing.T, js jetstream.JetStream, filterBytes int) {
	t.Helper()
	spans, err := events.OpenSpans(t.Context(), js, "v1", events.Query{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, span := range spans.Stored {
		for {
			v, err := summaries.Open(ctx, js, "v1", func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			newest, err := v.Filters(ctx, span.Cell, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			behind := span
			if len(newest) > 0 {
				behind.First = newest[0].Span.Last + 1
			}
			size := 0
			for m, err := range spans.Read(ctx, behind) {
				if m == nil {
					t.Fatal(err)
				}
				size += len(m.Data)
			}
			if size < filterBytes {
				break
			}
			if err := broker.Pause(ctx, 50*time.Millisecond); err != nil {
				t.Fatalf("%d bytes of events have no filter", size)
			}
		}
	}
}

// TestFiltersFollowTheStream stores, removes and expires events of a stream, and replaces it by one with another history,
// while searches have filters of any age.
func TestFiltersFollowTheStream(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for n := range 3 {
		h := newHistory(t, r)
		stop := startKeeper(t, h.js, filterBytes)
		h.store(t, 1+r.IntN(500))
		for range 5 {
			if r.IntN(3) > 0 {
				awaitFilters(t, h.js, filterBytes)
			}
			removed := h.words[len(h.words)-1] // where a filter may end
			h.store(t, 1+r.IntN(500))
			if r.IntN(2) == 0 {
				removed = h.words[r.IntN(len(h.words))]
			}
			if n > 0 && h.has[removed] {
				if err := h.stream.DeleteMsg(t.Context(), h.place[removed]); err != nil {
					t.Fatal(err)
				}
				h.has[removed] = false
			}
			h.check(t, append(h.some(), removed))
		}
		first := len(h.words) / 3
		if err := h.stream.Purge(t.Context(), jetstream.WithPurgeSequence(h.place[h.words[first]])); err != nil {
			t.Fatal(err)
		}
		for _, word := range h.words[:first] {
			h.has[word] = false
		}
		h.check(t, append(h.some(), h.words[first-1], h.words[first]))
		awaitFilters(t, h.js, filterBytes)
		h.check(t, h.some())
		if n == 2 {
			stop() // it does not see that the stream is replaced
		}

		config := h.stream.CachedInfo().Config
		if err := h.js.DeleteStream(t.Context(), config.Name); err != nil {
			t.Fatal(err)
		}
		var err error
		if h.stream, err = h.js.CreateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		clear(h.has)
		before := len(h.words)
		h.store(t, before+r.IntN(500))
		words := append(h.some(), h.words[:4]...)
		for range 4 {
			words = append(words, h.words[before+r.IntN(before)])
		}
		h.check(t, words)
		if n == 2 {
			startKeeper(t, h.js, filterBytes)
		}
		awaitFilters(t, h.js, filterBytes)
		h.check(t, words)
	}
}

// TestFiltersLeaveOutWhatLacksAWord searches events that have filters for words of one event or of none: most events are
// not read for them, and the search states that it covers all of them.
func TestFiltersLeaveOutWhatLacksAWord(t *testing.T) {
	t.Parallel()
	h := newHistory(t, rand.New(rand.NewPCG(9, 10)))
	startKeeper(t, h.js, filterBytes)
	const count = 2000
	h.store(t, count)
	awaitFilters(t, h.js, filterBytes)
	h.check(t, h.some())
	before := h.js.Conn().Stats().InBytes
	hits, coverage := find(t, h.js, search.Search{Terms: parse(t, "qzxjvkwqzxjv"), Hits: 10})
	if len(hits) > 0 || coverage.Events != count || coverage.Next != nil {
		t.Errorf("%d hits, %+v", len(hits), coverage)
	}
	// The answers have the filters, the newest events, and the part where the first filter begins.
	filters := coverage.Bytes / filterBytes * 120 << 10                                       // in base64
	if read := int64(h.js.Conn().Stats().InBytes - before); read > filters+coverage.Bytes/4 { //nolint:gosec // it is positive
		t.Errorf("the search has read %d bytes for %d bytes of events", read, coverage.Bytes)
	}
}
