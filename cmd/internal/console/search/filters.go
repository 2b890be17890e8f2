package search

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/events"
)

// Sizes of the filters.
const (
	filterBits  = 19         // of the number of a bit: 64 KiB
	filterBytes = 4 << 20    // of the events of a filter, about
	firstFilter = 512        // positions of the first filter of a cell, before the size of its events is known
	sequence    = 3          // bytes
	spread      = 2654435761 // a prime near 2^32 divided by the golden ratio
)

// Filters know which sequences of three bytes the newest events of a generation have, part by part. A search leaves out a
// part that lacks a sequence of its terms: without filters it reads every event for a word that few events have. They are
// in memory alone, and each search checks that the stream is still the one that was read. Several goroutines may use them.
type Filters struct {
	most    int
	filling sync.Mutex // held by Fill

	mu         sync.Mutex
	idle       *sync.Cond // of mu: no search runs
	searches   int        // that run
	generation string
	cells      map[int]cellFilters
}

// cellFilters are the filters of a cell. A changed one has a new list.
type cellFilters struct {
	list     []*filter // in the order of the stream
	from, to uint64    // positions that have been read, without to
	missed   int       // parts that could not be read as a whole, so they have no filter
	size     uint64    // positions of the next filter
}

// filter has the sequences of the events of a part.
type filter struct {
	span        events.Span
	first, last time.Time           // when the first and the last event were stored
	counts      map[string]Coverage // of the events by type
	bits        [1 << filterBits / 64]uint64
}

// MostFilters are 32 MiB of filters, for about 2 GiB of events.
const MostFilters = 512

// NewFilters returns filters that are still empty. There will be at most that many.
func NewFilters(most int) *Filters {
	f := &Filters{most: most}
	f.idle = sync.NewCond(&f.mu)
	return f
}

// Fill makes filters for the events that have none, the newer ones and then older ones, until there are as many as may be.
// It waits while a search runs, and returns at once while another call is filling.
func (f *Filters) Fill(ctx context.Context, js jetstream.JetStream, generation string) error {
	if !f.filling.TryLock() {
		return nil
	}
	defer f.filling.Unlock()
	spans, err := events.OpenSpans(ctx, js, generation, events.Query{})
	if err != nil {
		return err
	}
	f.mu.Lock()
	if f.generation != generation {
		f.generation, f.cells = generation, map[int]cellFilters{}
	}
	f.mu.Unlock()
	for _, span := range spans.Stored {
		for more := true; more; {
			if more, err = f.fillNext(ctx, js, spans, span, max(f.most/len(spans.Stored), 1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fillNext makes the next filter of a cell, which has at most that many. It returns false if there is none to make.
func (f *Filters) fillNext(ctx context.Context, js jetstream.JetStream, spans *events.Spans, span events.Span, most int) (more bool, err error) {
	if err := f.awaitIdle(ctx); err != nil {
		return false, err
	}
	c, err := f.current(ctx, js, spans, span.Cell)
	if err != nil {
		return false, err
	}
	if newer := span.Last + 1 - c.to; c.to == 0 || newer > uint64(most)*c.size { //nolint:gosec // it is positive
		c = cellFilters{from: span.Last + 1, to: span.Last + 1, size: firstFilter}
	}
	part, list := events.Span{Cell: span.Cell}, c.list
	newer := c.to <= span.Last
	switch {
	case newer:
		part.First = max(c.to, span.First, 1)
		if last := len(list) - 1; last >= 0 && list[last].span.Last+1 == c.to && part.First == c.to && list[last].positions() < c.size/2 {
			part.First, list = list[last].span.First, list[:last] // a small filter would stay small
		}
		part.Last = min(part.First+c.size-1, span.Last)
		c.to = part.Last + 1
	case c.from > max(span.First, 1) && len(list)+c.missed < most:
		part.Last = c.from - 1
		part.First = max(span.First, 1, c.from-min(c.size, c.from))
		c.from = part.First
	default:
		return false, nil
	}
	made, read := newFilter(ctx, js, spans, part)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case made == nil:
		c.missed++
	case newer:
		list = append(slices.Clone(list), made)
	default:
		list = append([]*filter{made}, list...)
	}
	if read > 0 {
		positions := part.Last - part.First + 1
		c.size = max(min(positions*filterBytes/uint64(read), 4*c.size), firstFilter) //nolint:gosec // it is positive
	}
	if drop := len(list) - most; drop > 0 {
		list, c.missed = list[drop:], 0
		c.from = list[0].span.First
	}
	c.list = list
	f.mu.Lock()
	f.cells[span.Cell] = c
	f.mu.Unlock()
	return true, nil
}

// awaitIdle waits until no search runs.
func (f *Filters) awaitIdle(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer context.AfterFunc(ctx, f.idle.Broadcast)()
	for f.searches > 0 && ctx.Err() == nil {
		f.idle.Wait()
	}
	return ctx.Err()
}

// enter returns the filters of each cell for a search, which calls leave when it ends. A cell whose filters cannot be
// checked has none.
func (f *Filters) enter(ctx context.Context, js jetstream.JetStream, generation string, spans *events.Spans) (cells map[int][]*filter, leave func()) {
	f.mu.Lock()
	f.searches++
	same := f.generation == generation
	f.mu.Unlock()
	cells = map[int][]*filter{}
	for _, span := range spans.Stored {
		if !same {
			break
		}
		if c, err := f.current(ctx, js, spans, span.Cell); err == nil {
			cells[span.Cell] = c.list
		}
	}
	return cells, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.searches--; f.searches == 0 {
			f.idle.Broadcast()
		}
	}
}

// current returns the filters of a cell. It drops them if the stream does not have their newest event any more: the stream
// has another history now, for example because it was restored from a backup.
func (f *Filters) current(ctx context.Context, js jetstream.JetStream, spans *events.Spans, cell int) (cellFilters, error) {
	f.mu.Lock()
	c := f.cells[cell]
	f.mu.Unlock()
	if len(c.list) == 0 {
		return c, nil
	}
	newest := c.list[len(c.list)-1]
	stored, err := spans.StoredAt(ctx, js, cell, newest.span.Last)
	switch {
	case err == nil && stored.Equal(newest.last):
		return c, nil
	case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
		return cellFilters{}, err
	}
	f.mu.Lock()
	delete(f.cells, cell)
	f.mu.Unlock()
	return cellFilters{}, nil
}

// newFilter reads a part. It returns nil if the part cannot be read as a whole, or if an event is not stored as workers
// store them.
func newFilter(ctx context.Context, js jetstream.JetStream, spans *events.Spans, part events.Span) (f *filter, read int64) {
	f = &filter{span: part, counts: map[string]Coverage{}}
	var whole bool
	f.first, f.last, whole = spans.Bodies(ctx, js, part, func(body []byte) bool {
		read += int64(len(body))
		return f.add(body)
	})
	if !whole {
		return nil, read
	}
	return f, read
}

// add adds an event. It returns false for a structured CloudEvent, whose text is behind escapes.
func (f *filter) add(body []byte) bool {
	is := typeOf(body)
	switch {
	case is != nil:
		counts := f.counts[string(is)]
		counts.count(body)
		f.counts[string(is)] = counts
	case bytes.Contains(body, specVersion):
		return false
	}
	text := searched(body, is)
	f.addText(text)
	if hasASCIIEscape(text) { // as in mayMatch
		text = unescaped(text)
		f.addText(text)
		f.addText(unescaped(text))
	}
	return true
}

// addText adds the sequences of a text in lower case.
func (f *filter) addText(text []byte) {
	var key uint32
	for i, b := range text {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		if key = key<<8 | uint32(b); i >= sequence-1 {
			bit := bitOf(key)
			f.bits[bit/64] |= 1 << (bit % 64)
		}
	}
}

// bitOf returns the number of the bit of the last three bytes of key.
func bitOf(key uint32) uint32 { return key << 8 * spread >> (32 - filterBits) }

func (f *filter) positions() uint64 { return f.span.Last - f.span.First + 1 }

// lacks reports whether no event of the part has all terms: true is certain.
func (f *filter) lacks(t *Terms) bool {
	return slices.ContainsFunc(t.list, func(one term) bool {
		return slices.ContainsFunc(one.needles, func(n needle) bool {
			return !n.nonASCII && !f.has(n.lower) // JSON may have escapes for other characters
		})
	})
}

// has reports whether the part has all sequences of a text in lower case.
func (f *filter) has(lower []byte) bool {
	var key uint32
	for i, b := range lower {
		if key = key<<8 | uint32(b); i >= sequence-1 {
			if bit := bitOf(key); f.bits[bit/64]&(1<<(bit%64)) == 0 {
				return false
			}
		}
	}
	return true
}
