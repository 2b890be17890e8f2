package search

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/events"
)

// maxReading limits the parts of the stream that are read at the same time.
const maxReading = 4

// cutBytes is the least size of an event with a truncated text.
const cutBytes = 64 << 10

var (
	truncated     = needlesOf("text_truncated")[0] // by its x: each member of JSON begins as the flag does
	textTruncated = []byte(`"text_truncated":true`)
)

// cell searches the events of one cell.
type cell struct {
	search  *Search
	spans   *events.Spans
	bodies  *connections
	filters []*filter // in the order of the stream
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
			part, more := c.next(parts)
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
func (c *cell) next(parts *events.Parts) (*partResult, bool) {
	left := parts.Left()
	if left.First > left.Last {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(c.filters, left.Last, func(f *filter, last uint64) int { return cmp.Compare(f.span.Last, last) })
	if i == len(c.filters) || c.filters[i].span.First > left.Last { // no filter has the last position
		behind := uint64(0)
		if i > 0 {
			behind = c.filters[i-1].span.Last
		}
		sized := *parts
		if part, _ := sized.Next(); part.First > behind {
			*parts = sized
			return &partResult{part: part}, true
		}
		return &partResult{part: parts.From(behind + 1)}, true
	}
	r := &partResult{}
	for first := left.Last + 1; i >= 0 && c.leavesOut(c.filters[i], first); i-- {
		r.filtered, first = true, c.filters[i].span.First
		r.add(c.filters[i], c.search.types())
	}
	if r.filtered {
		i++
	}
	r.part = parts.From(c.filters[i].span.First)
	return r, true
}

// leavesOut reports whether the part of a filter, which must end before a position, needs no search.
func (c *cell) leavesOut(f *filter, before uint64) bool {
	return f.span.Last+1 == before && f.span.First >= c.span.First && !f.first.Before(c.search.Stored) && f.lacks(&c.search.Terms)
}

// add adds the coverage of a part that a filter leaves out.
func (r *partResult) add(f *filter, types []envelopes.EventType) {
	for _, t := range types {
		counts := f.counts[string(t)]
		r.coverage.add(&counts)
	}
	r.coverage.see(f.first.UTC())
	r.coverage.see(f.last.UTC())
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

// plainEvent begins every event in JSON that a worker stores.
var plainEvent = []byte(`{"schema_version":"` + envelopes.SchemaVersion + `","source":"`)

// skim searches the bodies of a part of the stream. It returns nil if an event may match, because a body does not have
// all that a hit states, or if there is no way to read only bodies.
func (c *cell) skim(ctx context.Context, part events.Span) *partResult {
	r := &partResult{part: part}
	first, last, whole := c.spans.Bodies(ctx, c.bodies.next(), part, func(body []byte) bool {
		r.read += int64(len(body))
		is := typeOf(body)
		switch {
		case is != nil && !c.search.hasType(is):
			return true
		case is != nil:
			r.coverage.count(body)
		case bytes.Contains(body, specVersion): // a structured CloudEvent
			return false
		}
		// Most bodies lack a needle as a whole, which is known before it is known where their raw record begins.
		return c.search.Terms.lacks(body) || !c.search.Terms.mayMatch(searched(body, is))
	})
	if !whole || first.Before(c.search.Stored) {
		return nil
	}
	r.coverage.see(first.UTC())
	r.coverage.see(last.UTC())
	return r
}

var (
	specVersion = []byte(`"specversion"`)
	eventType   = []byte(`,"event_type":"`)
	toolResult  = []byte(envelopes.ToolResult)
	native      = []byte(`,"raw":`)
)

// typeOf returns the type of an event in JSON that a worker stored, nil for other data.
func typeOf(data []byte) []byte {
	if !bytes.HasPrefix(data, plainEvent) {
		return nil
	}
	_, behind, _ := bytes.Cut(data, eventType)
	is, _, _ := bytes.Cut(behind, []byte{'"'})
	return is
}

// hasType reports whether the search includes a type.
func (s *Search) hasType(is []byte) bool {
	return slices.ContainsFunc(s.types(), func(t envelopes.EventType) bool { return string(t) == string(is) })
}

// searched returns the part of an event in JSON, whose type is what [typeOf] returns, that has its texts: what comes before
// the raw record, which repeats them. Only the result of a tool has texts behind it, too.
func searched(data, is []byte) []byte {
	if is != nil && !bytes.Equal(is, toolResult) {
		data, _, _ = bytes.Cut(data, native)
	}
	return data
}

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

// count counts an event that is searched.
func (c *Coverage) count(data []byte) {
	c.Events++
	c.Bytes += int64(len(data))
	if len(data) >= cutBytes && truncated.index(data) >= 0 && bytes.Contains(data, textTruncated) {
		c.Cut++
	}
}

// match adds an event to the hits of its part if it matches.
func (c *cell) match(r *partResult, m *events.Message) {
	s := c.search
	data, plain := m.JSON()
	r.coverage.count(data)
	if plain && !s.Terms.mayMatch(searched(data, typeOf(data))) {
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
