package search

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"tributary/pipeline/events"
)

// maxReading is how many parts of the stream are read at the same time.
const maxReading = 4

// cutBytes is how large an event is at least of which a text was cut.
const cutBytes = 64 << 10

var textTruncated = []byte(`"text_truncated":true`)

// cell searches the events of one cell.
type cell struct {
	search *Search
	spans  *events.Spans
	span   events.Span
	pieces chan *piece
	places chan struct{}

	hits     []*Hit    // that were not passed on, the newest first
	searched uint64    // the first position of what was searched
	oldest   time.Time // when the oldest event that was searched was stored; zero before the first
	ended    bool
}

// piece is what a part of the stream has.
type piece struct {
	part     events.Span
	hits     []*Hit // in their order, the last ones
	coverage Coverage
	read     int64 // bytes
	last     bool  // all before it is too old
	err      error
}

// take takes over a piece.
func (c *cell) take(p *piece) {
	slices.Reverse(p.hits)
	c.hits = append(c.hits, p.hits...)
	c.searched = p.part.First
	if !p.coverage.Oldest.IsZero() {
		c.oldest = p.coverage.Oldest
	}
}

// isLater reports whether less far back in time was searched than in another cell.
func (c *cell) isLater(o *cell) bool {
	if c.oldest.IsZero() || o.oldest.IsZero() {
		return !o.oldest.IsZero()
	}
	return c.oldest.After(o.oldest)
}

// read reads the pieces of the cell, from the last one on, until ctx ends. It passes the first one on before it reads
// others, and then reads several at the same time.
func (c *cell) read(ctx context.Context) {
	defer close(c.pieces)
	ctx, cancel := context.WithCancel(ctx)
	var reading []chan *piece // in the order of their parts
	defer func() {
		cancel()
		for _, p := range reading {
			<-p
		}
	}()
	parts, most := events.NewParts(c.span), 1
	for {
		for len(reading) < most {
			part, more := parts.Next()
			if !more {
				break
			}
			p := make(chan *piece, 1)
			reading = append(reading, p)
			go func() { p <- c.readInPlace(ctx, part) }()
		}
		if len(reading) == 0 {
			return
		}
		p := <-reading[0]
		reading, most = reading[1:], maxReading
		if ctx.Err() != nil { // it is not complete
			return
		}
		select {
		case c.pieces <- p:
		case <-ctx.Done():
			return
		}
		if p.err != nil || p.last {
			return
		}
		parts.Note(p.part, p.read)
	}
}

// readInPlace searches a part of the stream once fewer than maxReading of all cells are read.
func (c *cell) readInPlace(ctx context.Context, part events.Span) *piece {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
		return c.readPart(ctx, part)
	case <-ctx.Done():
		return nil
	}
}

// readPart searches a part of the stream.
func (c *cell) readPart(ctx context.Context, part events.Span) *piece {
	p := &piece{part: part}
	old := false
	for m, err := range c.spans.Read(ctx, part) {
		if m == nil {
			p.err = err
			return p
		}
		p.read += int64(len(m.Data))
		if m.Stored.Before(c.search.Stored) {
			old = true
			continue
		}
		p.coverage.see(m.Stored.UTC())
		switch {
		case err != nil:
			p.coverage.Unreadable++
		case slices.Contains(c.search.types(), m.Type):
			p.coverage.Events++
			p.coverage.Bytes += int64(len(m.Data))
			c.look(p, m)
		}
	}
	p.last = old
	return p
}

// look searches an event.
func (c *cell) look(p *piece, m *events.Message) {
	s := c.search
	data, plain := m.JSON()
	if plain && len(data) >= cutBytes && bytes.Contains(data, textTruncated) {
		p.coverage.Cut++
	}
	if plain && !s.Terms.mayMatch(data) {
		return
	}
	e, err := m.Outline()
	if err != nil {
		p.coverage.Unreadable++
		return
	}
	if s.Tool != "" && (e.ToolName == nil || !strings.EqualFold(*e.ToolName, s.Tool)) || s.Match != nil && !s.Match(&e) {
		return
	}
	if !plain { // a document, which is rare
		if data, err = e.AppendJSON(nil); err != nil {
			p.coverage.Unreadable++
			return
		}
	}
	h := s.hitOf(&e, data)
	if h == nil {
		return
	}
	if p.hits = append(p.hits, h); len(p.hits) >= 2*s.Hits {
		p.hits = slices.Delete(p.hits, 0, len(p.hits)-s.Hits)
	}
}
