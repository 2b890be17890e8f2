package summaries_test

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/filters"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

// filterBytes is the size of the events of a filter in tests.
const filterBytes = 256 << 10

// requireFilters waits for the filters of a generation and compares them with its events.
func requireFilters(t *testing.T, js jetstream.JetStream, generation string) {
	t.Helper()
	spans, err := events.OpenSpans(t.Context(), js, generation, events.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range spans.Stored {
		stored := awaitFilters(t, js, generation, spans, span)
		next := uint64(1)
		for i, f := range stored {
			if f.Number != uint64(i+1) || f.Span.First != next || f.Span.Last < next { //nolint:gosec // it is positive
				t.Fatalf("filter %d of cell %d is number %d of positions %d to %d, want from %d", i+1, span.Cell, f.Number, f.Span.First, f.Span.Last, next)
			}
			next = f.Span.Last + 1
			requireFilter(t, js, generation, f)
		}
	}
}

// awaitFilters waits until only the events of less than a filter have none, and returns all filters of a cell.
func awaitFilters(t *testing.T, js jetstream.JetStream, generation string, spans *events.Spans, span events.Span) []*filters.Filter {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	for {
		all, err := allFilters(ctx, open(t, js, generation), span.Cell)
		behind := events.Span{Cell: span.Cell, First: 1, Last: span.Last}
		if len(all) > 0 {
			behind.First = all[len(all)-1].Span.Last + 1
		}
		size := 0
		for m, err := range spans.Read(ctx, behind) {
			if m == nil {
				t.Fatal(err)
			}
			size += len(m.Data)
		}
		if err == nil && size < filterBytes && (len(all) == 0 || all[0].Number == 1) { // else they are being made again
			return all
		}
		if broker.Pause(ctx, 100*time.Millisecond) != nil {
			t.Fatalf("%d bytes of events have no filter: %v", size, err)
		}
	}
}

// allFilters reads the filters of a cell.
func allFilters(ctx context.Context, v *summaries.View, cell int) (all []*filters.Filter, err error) {
	for before := uint64(0); before != 1; before = all[0].Number {
		page, err := v.Filters(ctx, cell, before, 3)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(page, all...)
	}
	return all, nil
}

// word matches text that JSON does not have to escape.
var word = regexp.MustCompile(`[A-Za-z0-9]+`)

// requireFilter compares a filter with the messages of its span. Some that it was made of may have been replaced since:
// states of sessions.
func requireFilter(t *testing.T, js jetstream.JetStream, generation string, f *filters.Filter) {
	t.Helper()
	consumer, err := js.OrderedConsumer(t.Context(), streams.EventsStream(envelopes.CellName(generation, f.Span.Cell)), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.Span.First, FilterSubjects: []string{"events.>"},
	})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	counts := map[envelopes.EventType]filters.Count{}
	for pending := uint64(1); pending > 0; {
		m, err := messages.Next(jetstream.NextContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if pending = meta.NumPending; meta.Sequence.Stream > f.Span.Last {
			break
		}
		e, err := envelopes.DecodeOutline(m.Data())
		if err != nil {
			t.Fatal(err)
		}
		count := counts[e.EventType]
		counts[e.EventType] = filters.Count{Events: count.Events + 1, Bytes: count.Bytes + int64(len(m.Data()))}
		for _, word := range word.FindAllString(*cmp.Or(e.Text, new("")), -1) {
			if !f.Has([]byte(strings.ToLower(word))) {
				t.Fatalf("filter %d, positions %d to %d, lacks %q of event %d", f.Number, f.Span.First, f.Span.Last, word, meta.Sequence.Stream)
			}
		}
		if f.Oldest.After(meta.Timestamp) || f.Newest.Before(meta.Timestamp) {
			t.Errorf("filter %d, positions %d to %d, is from %v to %v, event %d of %v", f.Number, f.Span.First, f.Span.Last, f.Oldest, f.Newest, meta.Sequence.Stream, meta.Timestamp)
		}
	}
	if diff := gocmp.Diff(counts, f.Counts); diff != "" || f.Has([]byte("qzxjvkwq")) {
		t.Errorf("filter %d, positions %d to %d, has a word of no event: %v; counts (-events +stored):\n%s", f.Number, f.Span.First, f.Span.Last, f.Has([]byte("qzxjvkwq")), diff)
	}
}

// TestFiltersAreMadeAgainAfterAnErasure erases a session: no filter that was made of its events is left.
func TestFiltersAreMadeAgainAfterAnErasure(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(14, 5, 600)...)
	runStage(t, js, top)
	startKeeper(t, js, config(1<<20, time.Millisecond))
	requireExact(t, js, "v1")
	spans, err := events.OpenSpans(t.Context(), js, "v1", events.Query{})
	if err != nil {
		t.Fatal(err)
	}
	before := awaitFilters(t, js, "v1", spans, spans.Stored[0])
	if len(before) < 2 {
		t.Fatalf("%d filters are too few for this test", len(before))
	}
	for _, generation := range []string{"v1", "without-records"} {
		if _, err := summaries.Erase(t.Context(), js, generation, sessionsOf(t, js)[:1]); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	for {
		all := awaitFilters(t, js, "v1", spans, spans.Stored[0])
		if !slices.ContainsFunc(all, func(f *filters.Filter) bool { return f.Erasures == 0 }) {
			break
		}
		if err := broker.Pause(ctx, 10*time.Millisecond); err != nil {
			t.Fatal("filters of before the erasure are still there")
		}
	}
	requireFilters(t, js, "v1")
}

// TestFiltersAreMadeOnceTheyAreWanted wants none at first: the keeper looks several times and makes none.
func TestFiltersAreMadeOnceTheyAreWanted(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(15, 5, 300)...)
	runStage(t, js, top)
	cfg := config(1<<20, time.Millisecond)
	var wanted atomic.Bool
	looks := make(chan struct{})
	cfg.Filters = func() bool {
		select {
		case looks <- struct{}{}:
		case <-t.Context().Done():
		}
		return wanted.Load()
	}
	startKeeper(t, js, cfg)
	v := awaitKept(t, js, "v1")
	for range 3 {
		<-looks
	}
	if made, err := v.Filters(t.Context(), 0, 0, 1); err != nil || len(made) > 0 {
		t.Errorf("%d filters that nobody wants: %v", len(made), err)
	}
	wanted.Store(true)
	go func() {
		for {
			select {
			case <-looks:
			case <-t.Context().Done():
				return
			}
		}
	}()
	requireExact(t, js, "v1")
}
