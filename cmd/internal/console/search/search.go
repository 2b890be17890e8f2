// Package search finds text in the events of a generation, the newest first.
//
// Start with [Parse] and [Search.Run]. A search reads the events streams in parts, the last parts first, several parts at
// the same time and each with a consumer. It searches the bytes of an event before it decodes them.
//
// The invariant: an event that a search does not return does not match, or the [Coverage] says that it was not searched.
package search

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/filters"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

// Search is a query with its limits.
type Search struct {
	Terms  Terms
	Source envelopes.Source         // empty for all
	Types  []envelopes.EventType    // empty for [DefaultTypes]
	Tool   string                   // only calls of this tool and their results, without regard to case; empty for all events
	Stored time.Time                // only events that were stored since then; zero for all
	Match  func(*events.Event) bool // selects events, which it gets without native JSON; nil for all
	Before streams.Positions        // only events before these positions; 0 for no bound
	Hits   int                      // after which the search ends
	Time   time.Duration            // after which the search ends; 0 for no limit
}

// DefaultTypes are the types of a search that names none: all types but metadata and snapshots of files.
var DefaultTypes = []envelopes.EventType{
	envelopes.UserMessage, envelopes.AssistantMessage, envelopes.SystemMessage, envelopes.Reasoning, envelopes.ToolCall,
	envelopes.ToolResult, envelopes.SessionSummary, envelopes.Log,
}

// Hit is an event that has every term in its texts.
type Hit struct {
	Source   envelopes.Source
	Session  string
	Event    string
	Type     envelopes.EventType
	Tool     string
	Status   envelopes.ToolStatus
	Copied   bool      // history of another session
	Time     time.Time // of the event; zero if it states none
	Stored   time.Time
	Cell     int
	Position uint64
	Snippets []Snippet
}

// Stop is the reason why a search ended before it had searched everything.
type Stop string

// The reasons.
const (
	ByHits Stop = "hits"
	ByTime Stop = "time"
)

// Coverage says which events a search has searched, and which it has not.
type Coverage struct {
	filters.Count                    // of the events that were searched
	Oldest, Newest time.Time         // when the oldest and the newest event that was read were stored
	Unreadable     int64             // events that may match and could not be read
	Stop           Stop              // empty if all was searched
	Next           streams.Positions // [Search.Before] of a search that continues; nil if all was searched
	Left           uint64            // at most how many positions were not searched
}

// Run searches the events of a generation and passes the hits to found, the one that was stored last first. It calls
// progress, which may be nil, between hits. It fails if found or progress fails, or if ctx ends.
func (s *Search) Run(ctx context.Context, js jetstream.JetStream, generation string, found func(*Hit) error, progress func(*Coverage) error) (*Coverage, error) {
	spans, err := events.OpenSpans(ctx, js, generation, s.query())
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if s.Time > 0 {
		limited, cancel = context.WithTimeout(ctx, s.Time)
	}
	defer cancel()
	bodies := &connections{js: js}
	defer bodies.close()
	m := newMerge(limited, s, spans, bodies, s.openFilters(js, generation))
	err = m.run(limited, found, progress)
	m.close()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limited.Err() != nil && (err == nil || errors.Is(err, limited.Err())):
		m.coverage.Stop = ByTime
		err = m.flush(found, true)
	}
	if err != nil {
		return nil, err
	}
	return m.settled(), nil
}

// query returns the selection of the broker. For several types the broker sends all events, because it is slower with
// a filter for each type.
func (s *Search) query() events.Query {
	q := events.Query{Source: s.Source}
	if len(s.Types) == 1 {
		q.Types = s.Types
	}
	return q
}

// types returns the types of the events to search.
func (s *Search) types() []envelopes.EventType {
	if len(s.Types) == 0 {
		return DefaultTypes
	}
	return s.Types
}

// merge merges the hits of all cells, ordered by their time of storage.
type merge struct {
	search   *Search
	cells    []*cell
	found    int
	coverage Coverage
	stop     context.CancelFunc
}

func newMerge(ctx context.Context, s *Search, spans *events.Spans, bodies *connections, records func(context.Context) *summaries.View) *merge {
	m := &merge{search: s}
	ctx, m.stop = context.WithCancel(ctx)
	slots := make(chan struct{}, maxReading)
	for _, span := range spans.Stored {
		if before := s.Before.In(span.Cell); before > 0 {
			span.Last = min(span.Last, before-1)
		}
		c := &cell{search: s, spans: spans, bodies: bodies, filters: &stored{records: records, cell: span.Cell}, span: span, searched: span.Last + 1, results: make(chan *partResult), slots: slots}
		m.cells = append(m.cells, c)
		go c.read(ctx)
	}
	return m
}

// close ends the reading of all cells and waits for that.
func (m *merge) close() {
	m.stop()
	for _, c := range m.cells {
		for range c.results { // until the cell has ended
		}
	}
}

// run passes on the hits. It always waits for the cell whose search has gone the least far back in time, so that no cell
// is read much further than necessary.
func (m *merge) run(ctx context.Context, found func(*Hit) error, progress func(*Coverage) error) error {
	for {
		next := m.latest(nil)
		if next == nil {
			return m.flush(found, true)
		}
		select {
		case r, ok := <-next.results:
			switch {
			case ok && r.err != nil:
				return r.err
			case ok:
				next.add(r)
				m.coverage.add(&r.coverage)
			case ctx.Err() != nil:
				return ctx.Err()
			default:
				next.ended = true
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := m.flush(found, false); err != nil {
			return err
		}
		if m.found >= m.search.Hits {
			m.coverage.Stop = ByHits
			return nil
		}
		if progress != nil {
			if err := progress(m.settled()); err != nil {
				return err
			}
		}
	}
}

// latest returns the cell, except but, whose search has gone the least far back in time; nil if all have ended.
func (m *merge) latest(but *cell) *cell {
	var found *cell
	for _, c := range m.cells {
		if c != but && !c.ended && (found == nil || c.isLater(found)) {
			found = c
		}
	}
	return found
}

// flush passes on the hits that are newer than all that another cell can still find, or all hits.
func (m *merge) flush(found func(*Hit) error, all bool) error {
	for m.found < m.search.Hits {
		var newest *cell
		for _, c := range m.cells {
			if len(c.hits) > 0 && (newest == nil || c.hits[0].Stored.After(newest.hits[0].Stored)) {
				newest = c
			}
		}
		if newest == nil {
			return nil
		}
		hit := newest.hits[0]
		if other := m.latest(newest); !all && other != nil && (other.oldest.IsZero() || other.oldest.After(hit.Stored)) {
			return nil
		}
		newest.hits = newest.hits[1:]
		m.found++
		if err := found(hit); err != nil {
			return err
		}
	}
	return nil
}

// settled returns the coverage with the positions that were not searched.
func (m *merge) settled() *Coverage {
	all := m.coverage
	for _, c := range m.cells {
		next := c.searched
		switch {
		case len(c.hits) > 0: // this hit was not passed on
			next = c.hits[0].Position + 1
		case c.ended:
			next = 1
		}
		all.Next = all.Next.With(c.span.Cell, max(next, 1))
		if first := max(c.span.First, 1); next > first {
			all.Left += next - first
		}
	}
	if all.Left == 0 {
		all.Stop, all.Next = "", nil
	}
	return &all
}

// add adds the coverage of a part.
func (c *Coverage) add(p *Coverage) {
	c.Events += p.Events
	c.Bytes += p.Bytes
	c.Unreadable += p.Unreadable
	c.Cut += p.Cut
	c.see(p.Oldest)
	c.see(p.Newest)
}

// see extends the times of storage to one more event.
func (c *Coverage) see(stored time.Time) {
	if stored.IsZero() {
		return
	}
	if c.Oldest.IsZero() || stored.Before(c.Oldest) {
		c.Oldest = stored
	}
	if stored.After(c.Newest) {
		c.Newest = stored
	}
}

// hitOf returns the hit of an event, nil if the event does not match.
func (s *Search) hitOf(e *events.Event, data []byte) *Hit {
	h := &Hit{}
	missing := slices.Clone(s.Terms.list)
	for place, text := range textsOf(&e.AgentEventV1, data) {
		var found [][]int
		missing = slices.DeleteFunc(missing, func(t term) bool {
			at := t.find(text)
			if at != nil {
				found = append(found, at)
			}
			return at != nil
		})
		slices.SortFunc(found, slices.Compare)
		shown := 0 // the end of the last snippet in the text
		for _, at := range found {
			if at[0] >= shown && len(h.Snippets) < maxSnippets {
				var snippet Snippet
				snippet, shown = s.Terms.snippet(place, text, at)
				h.Snippets = append(h.Snippets, snippet)
			}
		}
		if len(missing) == 0 {
			break
		}
	}
	if len(missing) > 0 {
		return nil
	}
	h.Source, h.Session, h.Event, h.Type = e.Source, e.SessionID, e.EventID, e.EventType
	h.Stored, h.Cell, h.Position, h.Copied = e.Stored, e.Cell, e.Position, e.Origin == envelopes.OriginCopied
	h.Time, _ = e.Timestamp() // zero for none
	if e.ToolName != nil {
		h.Tool = *e.ToolName
	}
	if e.ToolStatus != nil {
		h.Status = *e.ToolStatus
	}
	return h
}
