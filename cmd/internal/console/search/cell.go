package search

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/filters"
)

// maxReading limits the parts of the stream that are read at the same time.
const maxReading = 4

// cell searches the events of one cell.
type cell struct {
	search  *Search
	spans   *events.Spans
	bodies  *connections
	filters *stored
	span    events.Span
	results chan *partResult // of the parts, the last part first
	slots   chan struct{}    // one for each part of any cell that is read

	hits     []*Hit    // to pass on, the newest first
	searched uint64    // the first position of the parts in hits
	oldest   time.Time // when the oldest event of these parts was stored; zero before the first part
	ended    bool      // no result follows
}

// partResult is the result of searching a part of the stream.
type partResult struct {
	part     events.Span
	hits     []*Hit // in the order of the stream; the last ones if there are more than the search wants
	coverage Coverage
	read     int64 // bytes
	filtered bool  // filters show that no event matches
	matched  bool  // an event has the bytes of the terms
	last     bool  // the earlier parts are too old for the search
	err      error
}

// add adds the result of the part before the ones that were added.
func (c *cell) add(r *partResult) {
	slices.Reverse(r.hits)
	c.hits = append(c.hits, r.hits...)
	c.searched = r.part.First
	if !r.coverage.Oldest.IsZero() {
		c.oldest = r.coverage.Oldest
	}
}

// isLater reports whether the search of this cell has gone less far back in time than the search of another one.
func (c *cell) isLater(o *cell) bool {
	if c.oldest.IsZero() || o.oldest.IsZero() {
		return !o.oldest.IsZero()
	}
	return c.oldest.After(o.oldest)
}

// read searches the parts of the cell, the last part first, until ctx ends, and sends their results. It sends the first
// result before it reads further parts; from then on it reads several parts at the same time. Where the terms are rare,
// it skims the parts.
func (c *cell) read(ctx context.Context) {
	defer close(c.results)
	ctx, cancel := context.WithCancel(ctx)
	var reading []chan *partResult // in the order of the results
	defer func() {
		cancel()
		for _, result := range reading {
			<-result
		}
	}()
	parts, most, rare := events.NewParts(c.span), 1, false
	for {
		for len(reading) < most {
			part, more := c.next(ctx, parts, rare)
			if !more {
				break
			}
			result := make(chan *partResult, 1)
			reading = append(reading, result)
			if part.filtered {
				result <- part
				continue
			}
			go func(rare bool) { result <- c.readInSlot(ctx, part.part, rare) }(rare)
		}
		if len(reading) == 0 {
			return
		}
		r := <-reading[0]
		reading, most = reading[1:], maxReading
		if ctx.Err() != nil { // the result is not complete
			return
		}
		select {
		case c.results <- r:
		case <-ctx.Done():
			return
		}
		if r.err != nil || r.last {
			return
		}
		if !r.filtered {
			parts.Note(r.part, r.read)
		}
		rare = !r.matched
	}
}

// next returns the next part, which ends where a filter begins or ends: the parts of all following filters at once that
// lack a term, with their result, the part of a filter, or a part that has no filter. It returns false if no part is left.
// Filters are read for rare terms alone.
func (c *cell) next(ctx context.Context, parts *events.Parts, rare bool) (*partResult, bool) {
	left := parts.Left()
	if left.First > left.Last {
		return nil, false
	}
	var list []*filters.Filter
	if rare {
		list = c.filters.upTo(ctx, left.Last)
	}
	i, _ := slices.BinarySearchFunc(list, left.Last, func(f *filters.Filter, last uint64) int { return cmp.Compare(f.Span.Last, last) })
	if i == len(list) || list[i].Span.First > left.Last { // no filter has the last position
		behind := uint64(0)
		if i > 0 {
			behind = list[i-1].Span.Last
		}
		sized := *parts
		if part, _ := sized.Next(); part.First > behind {
			*parts = sized
			return &partResult{part: part}, true
		}
		return &partResult{part: parts.From(behind + 1)}, true
	}
	r := &partResult{}
	for first := left.Last + 1; i >= 0 && c.leavesOut(list[i], first); i-- {
		r.filtered, first = true, list[i].Span.First
		r.add(list[i], c.search.types())
	}
	if r.filtered {
		i++
	}
	r.part = parts.From(list[i].Span.First)
	return r, true
}

// leavesOut reports whether the part of a filter, which must end before a position, needs no search.
func (c *cell) leavesOut(f *filters.Filter, before uint64) bool {
	return f.Span.Last+1 == before && f.Span.First >= c.span.First && !f.Oldest.Before(c.search.Stored) && c.search.Terms.lackedBy(f)
}

// add adds the coverage of a part that a filter leaves out.
func (r *partResult) add(f *filters.Filter, types []envelopes.EventType) {
	for _, t := range types {
		r.coverage.add(&Coverage{Count: f.Counts[t]})
	}
	r.coverage.see(f.Oldest.UTC())
	r.coverage.see(f.Newest.UTC())
}

// readInSlot waits for a slot and searches a part of the stream, in which the terms may be rare. The result is nil if ctx
// ends first.
func (c *cell) readInSlot(ctx context.Context, part events.Span, rare bool) *partResult {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
		if rare {
			if r := c.skim(ctx, part); r != nil {
				return r
			}
		}
		return c.readPart(ctx, part)
	case <-ctx.Done():
		return nil
	}
}

// skim searches the bodies of a part of the stream. It returns nil if an event may match, because a body does not have
// all that a hit states, or if there is no way to read only bodies.
func (c *cell) skim(ctx context.Context, part events.Span) *partResult {
	r := &partResult{part: part}
	first, last, whole := c.spans.Bodies(ctx, c.bodies.next(), part, func(body []byte) bool {
		r.read += int64(len(body))
		is := filters.TypeOf(body)
		switch {
		case is != "" && !c.search.hasType(is):
			return true
		case is != "":
			r.coverage.Count.Add(body)
		case filters.IsDocument(body):
			return false
		}
		// Most bodies lack a needle as a whole, which is known before it is known where their raw record begins.
		return c.search.Terms.lacks(body) || !c.search.Terms.mayMatch(filters.Searched(body, is))
	})
	if !whole || first.Before(c.search.Stored) {
		return nil
	}
	r.coverage.see(first.UTC())
	r.coverage.see(last.UTC())
	return r
}

// hasType reports whether the search includes a type.
func (s *Search) hasType(is envelopes.EventType) bool { return slices.Contains(s.types(), is) }

// readPart searches a part of the stream.
func (c *cell) readPart(ctx context.Context, part events.Span) *partResult {
	r := &partResult{part: part}
	for m, err := range c.spans.Read(ctx, part) {
		if m == nil {
			r.err = err
			return r
		}
		r.read += int64(len(m.Data))
		if m.Stored.Before(c.search.Stored) {
			r.last = true
			continue
		}
		r.coverage.see(m.Stored.UTC())
		switch {
		case err != nil:
			r.coverage.Unreadable++
		case slices.Contains(c.search.types(), m.Type):
			c.match(r, m)
		}
	}
	return r
}

// match adds an event to the hits of its part if it matches.
func (c *cell) match(r *partResult, m *events.Message) {
	s := c.search
	data, plain := m.JSON()
	r.coverage.Count.Add(data)
	if plain && !s.Terms.mayMatch(filters.Searched(data, filters.TypeOf(data))) {
		return
	}
	r.matched = true
	e, err := m.Outline()
	if err != nil {
		r.coverage.Unreadable++
		return
	}
	if s.Tool != "" && (e.ToolName == nil || !strings.EqualFold(*e.ToolName, s.Tool)) || s.Match != nil && !s.Match(&e) {
		return
	}
	if !plain { // a structured CloudEvent, which is rare
		if data, err = e.AppendJSON(nil); err != nil {
			r.coverage.Unreadable++
			return
		}
	}
	h := s.hitOf(&e, data)
	if h == nil {
		return
	}
	if r.hits = append(r.hits, h); len(r.hits) >= 2*s.Hits {
		r.hits = slices.Delete(r.hits, 0, len(r.hits)-s.Hits)
	}
}
