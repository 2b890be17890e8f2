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

// window reads the events of a page, and notes what the page needs of them beside their transcript.
type window struct {
	*request

	generation string
	id         events.SessionID
	from, end  uint64 // sequences: the first one, and the one behind the last

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

// place is an event of the page.
type place struct {
	event    string
	sequence uint64
	kind     envelopes.EventType
	apart    bool // it is on another page
}

func newWindow(r *request, generation string, id events.SessionID, from, end uint64) *window {
	return &window{request: r, generation: generation, id: id, from: from, end: end, byCall: map[string][]place{}, spans: genai.New(false)}
}

// events iterates over the events of the page, up to [pageBytes], and then over the results of its calls that are behind it.
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

// onward returns the query of the events of a session from one on.
func onward(e *events.Event) events.Query {
	return events.Query{
		Source: e.Source, Session: e.SessionID, Cells: []int{e.Cell},
		After: streams.Positions{}.With(e.Cell, e.Position-1),
	}
}

// note notes the next event.
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

// noteCall notes what the next event has of a call.
func (w *window) noteCall(e *events.Event, apart bool) place {
	at := place{e.EventID, e.Sequence, e.EventType, apart}
	if call := orZero(e.ToolCallID); call != "" {
		w.byCall[call] = append(w.byCall[call], at)
	}
	w.calls.note(&e.AgentEventV1)
	w.spans.Add(&e.AgentEventV1)
	return at
}

// without returns the ids of the calls of which the page has an event of a type, and none of another one.
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

// results yields the results of calls of the page from the event behind it on, as far as another page goes.
func (w *window) results(ctx context.Context, behind *events.Event, yield func(*envelopes.AgentEventV1, error) bool) {
	open := w.without(envelopes.ToolResult, envelopes.ToolCall)
	q := onward(behind)
	q.Types = []envelopes.EventType{envelopes.ToolResult}
	if len(open) == 0 {
		return
	}
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
		if len(open) == 0 || size > pageBytes || e.Sequence >= behind.Sequence+pageEvents {
			return
		}
	}
	if err := context.Cause(ctx); err != nil {
		yield(nil, err)
	}
}

// findCalls notes the calls before the page, as far as another page goes, of which the page has the results.
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

// traces returns the ids of the traces of turns, as trace knows them, by the numbers of the turns.
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

// begin makes the spans of the page those of a turn that began before it.
func (w *window) begin(turn turnStart) {
	w.spans.Add(&envelopes.AgentEventV1{
		Source: w.id.Source, SessionID: w.id.Session, EventID: turn.event, Sequence: turn.sequence, EventType: envelopes.UserMessage,
	})
}

// orZero is what p points to, or the zero value.
func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
