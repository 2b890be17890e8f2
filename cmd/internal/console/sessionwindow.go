package console

import (
	"context"
	"errors"
	"iter"
	"slices"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/genai"
	"tributary/pipeline/streams"
)

// window reads the events of a page, and collects what the page needs beside their transcript.
type window struct {
	*request

	generation string
	id         events.SessionID
	from, end  uint64 // sequences of the first event, and of the first one after the page

	last    uint64 // sequence of the last event that was read; 0 for none
	unread  int
	prompts []promptSize
	places  []place            // of all events
	byCall  map[string][]place // of the events of calls, by the ids of the calls
	calls   timedCalls
	spans   *genai.Session
	raw     rawRange
}

// promptSize is the size of the prompt of an API call.
type promptSize struct {
	sequence uint64
	tokens   int64
}

// place names an event of the page, or one on another page that belongs to a call of this page.
type place struct {
	event     string
	sequence  uint64
	kind      envelopes.EventType
	otherPage bool
}

func newWindow(r *request, generation string, id events.SessionID, from, end uint64) *window {
	return &window{request: r, generation: generation, id: id, from: from, end: end, byCall: map[string][]place{}, spans: genai.New(false)}
}

// events iterates over the events of the page, up to [pageBytes], and then over later results of its calls.
func (w *window) events(ctx context.Context) iter.Seq2[*envelopes.AgentEventV1, error] {
	return func(yield func(*envelopes.AgentEventV1, error) bool) {
		first, err := events.EventAt(ctx, w.config.JetStream, w.generation, w.id, w.from)
		if errors.Is(err, events.ErrNoEvent) {
			return
		}
		if err != nil {
			yield(nil, err)
			return
		}
		size := 0
		for e, err := range events.Read(ctx, w.config.JetStream, w.generation, onward(&first)) {
			if err != nil && e.Position > 0 {
				w.unread++
				continue
			}
			if err == nil {
				if e.Sequence >= w.end || size > pageBytes {
					w.results(ctx, &e, yield)
					return
				}
				size += len(orZero(e.Text)) + len(e.ToolMetadata) + len(e.Raw)
				w.note(&e)
			}
			if !yield(&e.AgentEventV1, err) {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(nil, err)
		}
	}
}

// onward returns the query of the events of a session from e on.
func onward(e *events.Event) events.Query {
	return events.Query{
		Source: e.Source, Session: e.SessionID, Cells: []int{e.Cell},
		After: streams.Positions{}.With(e.Cell, e.Position-1),
	}
}

// note adds the next event of the page.
func (w *window) note(e *events.Event) {
	w.last = e.Sequence
	if e.Usage != nil && e.Usage.Prompt > 0 && !e.IsInternal {
		w.prompts = append(w.prompts, promptSize{e.Sequence, e.Usage.Prompt})
	}
	w.places = append(w.places, w.noteCall(e, false))
	if w.raw.First == 0 {
		w.raw = rawRange{Stream: e.Provenance.RawStream, Partition: e.Provenance.Partition, First: e.Provenance.RawSequence}
	}
	w.raw.First = min(w.raw.First, e.Provenance.RawSequence)
	w.raw.Last = max(w.raw.Last, e.Provenance.RawSequence)
}

// noteCall adds the next event to its call and to the spans. It returns the place of the event.
func (w *window) noteCall(e *events.Event, otherPage bool) place {
	at := place{e.EventID, e.Sequence, e.EventType, otherPage}
	if call := orZero(e.ToolCallID); call != "" {
		w.byCall[call] = append(w.byCall[call], at)
	}
	w.calls.note(&e.AgentEventV1)
	w.spans.Add(&e.AgentEventV1)
	return at
}

// without returns the ids of the calls that have an event of the type has, but none of the type missing.
func (w *window) without(missing, has envelopes.EventType) map[string]bool {
	ids := map[string]bool{}
	for id, list := range w.byCall {
		is := func(t envelopes.EventType) bool {
			return slices.ContainsFunc(list, func(e place) bool { return e.kind == t })
		}
		if is(has) && !is(missing) {
			ids[id] = true
		}
	}
	return ids
}

// results yields the missing results of calls of the page, from the event next on and at most as far as a page goes.
func (w *window) results(ctx context.Context, next *events.Event, yield func(*envelopes.AgentEventV1, error) bool) {
	open := w.without(envelopes.ToolResult, envelopes.ToolCall)
	if len(open) == 0 {
		return
	}
	q := onward(next)
	q.Types = []envelopes.EventType{envelopes.ToolResult}
	size := 0
	for e, err := range events.Read(ctx, w.config.JetStream, w.generation, q) {
		if err != nil && e.Position == 0 {
			yield(nil, err)
			return
		}
		if call := orZero(e.ToolCallID); err == nil && open[call] {
			delete(open, call)
			size += len(orZero(e.Text)) + len(e.ToolMetadata) + len(e.Raw)
			w.noteCall(&e, true)
			if !yield(&e.AgentEventV1, nil) {
				return
			}
		}
		if len(open) == 0 || size > pageBytes || e.Sequence >= next.Sequence+pageEvents {
			return
		}
	}
	if err := context.Cause(ctx); err != nil {
		yield(nil, err)
	}
}

// findCalls finds the calls whose results are on the page, in the events before it and at most as far as a page goes.
func (w *window) findCalls(ctx context.Context) error {
	missing := w.without(envelopes.ToolCall, envelopes.ToolResult)
	if len(missing) == 0 || w.from <= 1 {
		return nil
	}
	first, err := events.EventAt(ctx, w.config.JetStream, w.generation, w.id, w.from-min(w.from-1, pageEvents))
	if errors.Is(err, events.ErrNoEvent) {
		return nil
	}
	if err != nil {
		return err
	}
	q := onward(&first)
	q.Types = []envelopes.EventType{envelopes.ToolCall}
	for e, err := range events.Outlines(ctx, w.config.JetStream, w.generation, q) {
		if err != nil && e.Position == 0 {
			return err
		}
		if e.Sequence >= w.from {
			break
		}
		if call := orZero(e.ToolCallID); err == nil && missing[call] {
			w.byCall[call] = append(w.byCall[call], place{e.EventID, e.Sequence, e.EventType, true})
		}
	}
	return context.Cause(ctx)
}

// context returns the size of the last prompt of an API call of the main conversation between two sequences; 0 for none.
func (w *window) context(from, end uint64) int64 {
	size := int64(0)
	for _, p := range w.prompts {
		if p.sequence >= from && p.sequence < end {
			size = p.tokens
		}
	}
	return size
}

// traces returns the trace ids of turns by their numbers, equal to the ids of the command trace.
func (w *window) traces(turns []turnStart) map[int]string {
	numbers := map[string]int{}
	for n, t := range turns {
		numbers[t.event] = n + 1
	}
	ids := map[int]string{}
	for _, s := range w.spans.Spans() {
		if s.Parent == nil {
			ids[numbers[s.EventID]] = s.TraceID.String()
		}
	}
	return ids
}

// begin adds the first event of a turn that began before the page, so that the spans of the page belong to that turn.
func (w *window) begin(turn turnStart) {
	w.spans.Add(&envelopes.AgentEventV1{
		Source: w.id.Source, SessionID: w.id.Session, EventID: turn.event, Sequence: turn.sequence, EventType: envelopes.UserMessage,
	})
}

// orZero returns the value of a pointer, the zero value for nil.
func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
