package search_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/console/search"
	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
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
func (h *history) check(t *testing.T, filters *search.Filters, words []string) {
	t.Helper()
	for _, word := range words {
		hits, coverage := find(t, h.js, search.Search{Terms: parse(t, word), Filters: filters, Hits: 10})
		if coverage.Next != nil || len(hits) > 1 || (len(hits) == 1) != h.has[word] {
			t.Fatalf("%d events have %s, which the stream has: %v; %+v", len(hits), word, h.has[word], coverage)
		}
	}
}

// TestFiltersFollowTheStream stores, removes and expires events of a stream, and replaces it by one with another history,
// while searches have filters of any age.
func TestFiltersFollowTheStream(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for n, most := range []int{search.MostFilters, search.MostFilters, 2} {
		h := newHistory(t, r)
		filters := search.NewFilters(most)
		fill := func() {
			t.Helper()
			if err := filters.Fill(t.Context(), h.js, "v1"); err != nil {
				t.Fatal(err)
			}
		}
		h.store(t, 1+r.IntN(1000))
		for range 5 {
			if r.IntN(3) > 0 {
				fill()
			}
			removed := h.words[len(h.words)-1] // where a filter may end
			h.store(t, 1+r.IntN(1000))
			if r.IntN(2) == 0 {
				removed = h.words[r.IntN(len(h.words))]
			}
			if n > 0 && h.has[removed] {
				if err := h.stream.DeleteMsg(t.Context(), h.place[removed]); err != nil {
					t.Fatal(err)
				}
				h.has[removed] = false
			}
			h.check(t, filters, append(h.some(), removed))
		}
		first := len(h.words) / 3
		if err := h.stream.Purge(t.Context(), jetstream.WithPurgeSequence(h.place[h.words[first]])); err != nil {
			t.Fatal(err)
		}
		for _, word := range h.words[:first] {
			h.has[word] = false
		}
		h.check(t, filters, append(h.some(), h.words[first-1], h.words[first]))
		fill()
		h.check(t, filters, h.some())

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
		h.check(t, filters, words)
		fill()
		h.check(t, filters, words)
	}
}

// TestFiltersAreMadeWhileSearchesRun fills filters from two goroutines while others search.
func TestFiltersAreMadeWhileSearchesRun(t *testing.T) {
	t.Parallel()
	h, filters := newHistory(t, rand.New(rand.NewPCG(9, 10))), search.NewFilters(4)
	for range 4 {
		h.store(t, 1000)
		t.Run("at once", func(t *testing.T) {
			for range 2 {
				words := h.some()
				t.Run("search", func(t *testing.T) {
					t.Parallel()
					h.check(t, filters, words)
				})
				t.Run("fill", func(t *testing.T) {
					t.Parallel()
					if err := filters.Fill(t.Context(), h.js, "v1"); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}
