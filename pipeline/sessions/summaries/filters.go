package summaries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/filters"
	"tributary/pipeline/streams"
)

// headerFilter has what a filter states besides the sequences, which are its data.
const headerFilter = "Tributary-Filter"

// readsOfFilter is in how many parts the events of a filter are read.
const readsOfFilter = 4

// maxRead limits the events of one read.
const maxRead = 1 << 20

// When filters are made, in beats.
const (
	quietBeats = 5  // after the last event: 10 s
	mostBeats  = 30 // after filters were made last, where events come all the time: a minute
)

// anyCell matches any cell in a subject.
const anyCell = -1

// filterSubject returns the subject of a filter of a cell; 0 matches any number.
func (s *store) filterSubject(cell int, number uint64) string {
	in, token := "*", "*"
	if cell != anyCell {
		in = strconv.Itoa(cell)
	}
	if number > 0 {
		token = strconv.FormatUint(number, 10)
	}
	return "summaries." + s.generation + ".filters." + in + "." + token
}

// filter reads a filter of a cell; 0 reads the newest one. It is nil if there is none.
func (s *store) filter(ctx context.Context, cell int, number uint64) (*filters.Filter, error) {
	stored, err := broker.LastStored(ctx, s.js, s.stream(), s.filterSubject(cell, number))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil //nolint:nilnil // neither a filter nor an error
	case err != nil:
		return nil, fmt.Errorf("read stream %s: %w", s.stream(), err)
	}
	f, err := filters.Decode(stored.Header.Get(headerFilter), stored.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: filter %d of stream %s", errDamaged, stored.Sequence, s.stream())
	}
	return f, nil
}

// Filters returns filters of a cell in the order of the stream: at most n with a number before the given one; 0 returns the
// newest ones. There are none before the first one of the result if it has fewer than n. Each is of events that the stream
// has, but for those that were removed since.
func (v *View) Filters(ctx context.Context, cell int, before uint64, n int) ([]*filters.Filter, error) {
	if !v.kept {
		return nil, nil
	}
	var list []*filters.Filter
	if before == 0 {
		newest, err := v.filter(ctx, cell, 0)
		if err != nil || newest == nil {
			return nil, err
		}
		list, before = append(list, newest), newest.Number
	}
	older := make([]*filters.Filter, min(uint64(max(n-len(list), 0)), before-1)) //nolint:gosec // it is not negative
	var reading errgroup.Group
	for i := range older {
		reading.Go(func() (err error) {
			older[i], err = v.filter(ctx, cell, before-uint64(len(older)-i))
			return err
		})
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	list = append(older, list...)
	for i := range slices.Backward(list) {
		if list[i] == nil || i+1 < len(list) && list[i].Span.Last >= list[i+1].Span.First { // expired, or of filters that are made again
			return list[i+1:], nil
		}
	}
	return list, nil
}

// filtering is the filter of a cell that is being made.
type filtering struct {
	filter *filters.Filter // its span ends with the last event that was read
	size   int             // bytes of these events
}

// newFiltering begins a filter at a position.
func newFiltering(number uint64, cell int, first uint64) *filtering {
	return &filtering{filter: &filters.Filter{Number: number, Span: events.Span{Cell: cell, First: first, Last: first - 1}}}
}

// filterMaker makes filters of the events that are in the records. Searches find the same without filters, but more slowly.
type filterMaker struct {
	store

	keeper   *Keeper
	log      *slog.Logger
	position func() streams.Positions // of the last event in the records
	erasures uint64                   // of the checkpoint that the leader stored first
	made     chan<- *filters.Filter   // for the leader, who stores them
	cells    map[int]*filtering
}

// run makes filters until ctx ends. The stages go first: it looks at each beat, and makes filters when no event has come for
// some. Where events come all the time, it makes some from time to time, with rests.
func (m *filterMaker) run(ctx context.Context) {
	look := time.NewTicker(m.keeper.config.Beat)
	defer look.Stop()
	last, failing := m.position(), false
	for quiet, beats := 0, 0; ; { // since the last event, and since filters were made
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		now := m.position()
		if quiet, beats = quiet+1, beats+1; !now.Equal(last) {
			last, quiet = now, 0
		}
		if quiet < quietBeats && beats < mostBeats || !m.keeper.config.Filters() {
			continue
		}
		err := m.makeUpTo(ctx, now, quiet < quietBeats)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing && !errors.Is(err, jetstream.ErrStreamNotFound) {
			m.log.WarnContext(ctx, "filters of searches are not made, so that searches read all events: trying again", slog.Any("error", err))
		}
		failing, beats = err != nil, 0
	}
}

// makeUpTo makes the filters of events up to a position, until further events come. If the stages are busy, it makes all of
// them, and rests as a leader does.
func (m *filterMaker) makeUpTo(ctx context.Context, position streams.Positions, busy bool) error {
	for cell, end := range position {
		if m.cells[cell] == nil {
			var err error
			if m.cells[cell], err = m.begin(ctx, cell); err != nil {
				return err
			}
		}
		for more := true; more && (busy || m.position().Equal(position)); {
			c, began := m.cells[cell], time.Now()
			f := c.filter
			var err error
			if more, err = m.read(ctx, c, end); err != nil {
				m.cells[cell] = newFiltering(f.Number, cell, f.Span.First) // some of the events may have been added
				return err
			}
			if busy {
				if err := broker.Pause(ctx, min(restFactor*time.Since(began), maxRest)); err != nil {
					return err
				}
			}
			if c.size < m.keeper.config.FilterBytes || f.Span.Last > end { // a read of as many events ends later where some were removed
				continue
			}
			if err := m.pass(ctx, f); err != nil {
				return err
			}
			m.cells[cell] = newFiltering(f.Number+1, cell, f.Span.Last+1)
		}
	}
	return nil
}

// begin begins the filter behind the last one of a cell. It removes filters that cannot be read, or that may have sequences
// of sessions that were erased since.
func (m *filterMaker) begin(ctx context.Context, cell int) (*filtering, error) {
	last, err := m.filter(ctx, cell, 0)
	damaged := errors.Is(err, errDamaged)
	switch {
	case err != nil && !damaged:
		return nil, err
	case last != nil && last.Erasures == m.erasures:
		return newFiltering(last.Number+1, cell, last.Span.Last+1), nil
	case last != nil, damaged:
		if _, err := broker.Purge(ctx, m.js, m.stream(), m.filterSubject(cell, 0), 0); err != nil {
			return nil, err
		}
	}
	return newFiltering(1, cell, 1), nil
}

// read adds the next events up to a position to a filter. It returns false if there are none yet.
func (m *filterMaker) read(ctx context.Context, c *filtering, end uint64) (more bool, err error) {
	f := c.filter
	from := f.Span.Last + 1
	if from > end {
		return false, nil
	}
	last, err := broker.ReadBodies(ctx, m.js, m.events(f.Span.Cell), from, int(min(end-from+1, maxRead)), m.keeper.config.FilterBytes/readsOfFilter, func(body []byte) bool { //nolint:gosec // at most maxRead
		f.Add(body)
		c.size += len(body)
		return true
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // they expired, or the replica that answers is behind
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read stream %s: %w", m.events(f.Span.Cell), err)
	}
	f.Span.Last = last
	return true, nil
}

// pass passes a filter to the leader.
func (m *filterMaker) pass(ctx context.Context, f *filters.Filter) error {
	for position, stored := range map[uint64]*time.Time{f.Span.First: &f.Oldest, f.Span.Last: &f.Newest} {
		next, err := broker.NextStored(ctx, m.js, m.events(f.Span.Cell), ">", position)
		if err != nil {
			return fmt.Errorf("read stream %s: %w", m.events(f.Span.Cell), err)
		}
		*stored = next.Time
	}
	f.Erasures = m.erasures
	select {
	case m.made <- f:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// events returns the name of the events stream of a cell.
func (m *filterMaker) events(cell int) string {
	return streams.EventsStream(envelopes.CellName(m.generation, cell))
}

// storeFilters stores the filters that were made, each batch with the checkpoint again. The checkpoint is already behind
// their events, so they are void whenever the records are.
func (l *leader) storeFilters(ctx context.Context) error {
	for list := range slices.Chunk(l.filters, maxBytes/filters.Bytes) {
		messages := make([]*nats.Msg, len(list))
		for i, f := range list {
			var err error
			if messages[i], err = l.filterMessage(f); err != nil {
				return err
			}
		}
		if err := l.publish(ctx, messages, &l.stored); err != nil {
			return err
		}
	}
	l.filters = nil
	return nil
}

// filterMessage returns the message of a filter.
func (l *leader) filterMessage(f *filters.Filter) (*nats.Msg, error) {
	head, data, err := f.Encode()
	if err != nil {
		return nil, err
	}
	m := l.message(l.filterSubject(f.Span.Cell, f.Number), data)
	m.Header[headerFilter] = []string{head}
	return m, nil
}
