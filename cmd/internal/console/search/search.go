// Package search finds text in the events of a generation, the newest first.
//
// Start with [Parse] and [Search.Run]. It reads the events streams in pieces, from their ends to their beginnings, with a
// consumer for each piece and several pieces at the same time, and looks at the bytes of an event before it decodes them.
//
// The invariant: what is not in the result of a search either does not match, or the [Coverage] says that it was not
// searched.
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
	"tributary/pipeline/streams"
)

// Search is what is searched for, where, and how long.
type Search struct {
	Terms  Terms
	Source envelopes.Source         // empty for all
	Types  []envelopes.EventType    // none for those of [DefaultTypes]
	Tool   string                   // only calls of this tool and their results, without regard to case; empty for all events
	Stored time.Time                // only events that were stored since then; zero for all
	Match  func(*events.Event) bool // only events that it selects, which have no native JSON; nil for all
	Before streams.Positions        // only events before these positions, where one is above 0
	Hits   int                      // the search ends with so many
	Time   time.Duration            // and after so long; 0 for no limit
}

// DefaultTypes are the types of events that are searched where none is named: no metadata, and no snapshots of files.
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
	Copied   bool      // it is history of another session
	Time     time.Time // of the event; zero if it states none
	Stored   time.Time
	Cell     int
	Position uint64
	Snippets []Snippet
}

// Stop is why a search has ended before it has searched everything.
type Stop string

// The reasons.
const (
	ByHits Stop = "hits"
	ByTime Stop = "time"
)

// Coverage is what a search has searched, and what it has not.
type Coverage struct {
	Events         int64             // that were looked at
	Bytes          int64             // of these
	Oldest, Newest time.Time         // when the oldest and the newest of them were stored
	Unreadable     int64             // events that may match and could not be read
	Cut            int64             // events of which only the begin of a text is stored
	Stop           Stop              // empty if all was searched
	Next           streams.Positions // to go on from, as [Search.Before]; nil if all was searched
	Left           uint64            // positions that were not searched, at most
}

// Run searches the events that a generation has, and passes the hits to found, the newest by their time of storage first.
// progress, which may be nil, is called between them. It ends early with the error of found, or with ctx.
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
	m := newMerge(limited, s, spans)
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

// query returns what the broker selects. Of several types it sends all, because a filter for each of them is slower.
func (s *Search) query() events.Query {
	q := events.Query{Source: s.Source}
	if len(s.Types) == 1 {
		q.Types = s.Types
	}
	return q
}

// types returns the types of events that are searched.
func (s *Search) types() []envelopes.EventType {
	if len(s.Types) == 0 {
		return DefaultTypes
	}
	return s.Types
}

// merge puts the hits of all cells into one order.
type merge struct {
	search   *Search
	cells    []*cell
	found    int
	coverage Coverage
	stop     context.CancelFunc
}

func newMerge(ctx context.Context, s *Search, spans *events.Spans) *merge {
	m := &merge{search: s}
	ctx, m.stop = context.WithCancel(ctx)
	places := make(chan struct{}, maxReading)
	for _, span := range spans.Stored {
		if before := s.Before.In(span.Cell); before > 0 {
			span.Last = min(span.Last, before-1)
		}
		c := &cell{search: s, spans: spans, span: span, searched: span.Last + 1, pieces: make(chan *piece), places: places}
		m.cells = append(m.cells, c)
		go c.read(ctx)
	}
	return m
}

// close ends the reading.
func (m *merge) close() {
	m.stop()
	for _, c := range m.cells {
		for range c.pieces { // until the cell has ended
		}
	}
}

// run passes on the hits. It always waits for the cell that is the least far back in time, so that no cell is read much
// further than the hits that are wanted.
func (m *merge) run(ctx context.Context, found func(*Hit) error, progress func(*Coverage) error) error {
	for {
		next := m.latest(nil)
		if next == nil {
			return m.flush(found, true)
		}
		select {
		case p, ok := <-next.pieces:
			switch {
			case ok && p.err != nil:
				return p.err
			case ok:
				next.take(p)
				m.coverage.add(&p.coverage)
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

// latest returns the cell but one that was searched the least far back in time, nil if all have ended.
func (m *merge) latest(but *cell) *cell {
	var found *cell
	for _, c := range m.cells {
		if c != but && !c.ended && (found == nil || c.isLater(found)) {
			found = c
		}
	}
	return found
}

// flush passes on the hits that no other cell can have a newer one than, or all.
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

// settled returns the coverage with what was not searched.
func (m *merge) settled() *Coverage {
	all := m.coverage
	for _, c := range m.cells {
		next := c.searched
		switch {
		case len(c.hits) > 0: // beyond the last hit that was passed on
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

// add adds the coverage of a piece.
func (c *Coverage) add(p *Coverage) {
	c.Events += p.Events
	c.Bytes += p.Bytes
	c.Unreadable += p.Unreadable
	c.Cut += p.Cut
	c.see(p.Oldest)
	c.see(p.Newest)
}

// see notes when an event was stored.
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

// hitOf returns the hit of an event, nil if it is none.
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
		shown := 0 // of the text
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
