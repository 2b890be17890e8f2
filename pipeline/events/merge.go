package events

import (
	"context"
	"slices"
	"sync"
)

// cellArrival is an event of one cell, a notice that the cell has caught up, or the end of its reading.
type cellArrival struct {
	event    Event
	err      error // error of the event, or why the reading ended
	caughtUp bool
	ended    bool
}

// cellFeed passes on what one reader reads.
type cellFeed struct {
	arrivals chan cellArrival
	head     *cellArrival // next event; nil if none has arrived
	caughtUp bool         // other cells do not wait for it
	ended    bool
}

// mergeAhead is how many events of a cell may wait for those of others.
const mergeAhead = 64

// merge yields the events of all readers until yield returns false. While a cell has events that existed at the
// beginning, the earliest stored event comes next; later events come as they arrive.
func merge(ctx context.Context, readers []*eventsReader, follow bool, yield func(Event, error) bool) error {
	if len(readers) == 1 {
		return readers[0].each(ctx, readers[0].from, follow, yield)
	}
	ctx, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	arrived := make(chan struct{}, 1)
	feeds := make([]*cellFeed, len(readers))
	for i, r := range readers {
		f := &cellFeed{arrivals: make(chan cellArrival, mergeAhead)}
		feeds[i] = f
		reading.Go(func() { f.read(ctx, r, follow, arrived) })
	}
	for ctx.Err() == nil {
		next, failed := nextOf(ctx, feeds)
		switch {
		case failed != nil:
			return failed
		case next == nil && !slices.ContainsFunc(feeds, func(f *cellFeed) bool { return !f.ended }):
			return nil
		case next == nil:
			select {
			case <-arrived:
			case <-ctx.Done():
			}
		default:
			a := *next.head
			next.head = nil
			if !yield(a.event, a.err) {
				return nil
			}
		}
	}
	return nil
}

// read passes on what a reader reads.
func (f *cellFeed) read(ctx context.Context, r *eventsReader, follow bool, arrived chan<- struct{}) {
	send := func(a cellArrival) bool {
		select {
		case f.arrivals <- a:
		case <-ctx.Done():
			return false
		}
		select {
		case arrived <- struct{}{}:
		default:
		}
		return true
	}
	r.caughtUp = func() { send(cellArrival{caughtUp: true}) }
	err := r.each(ctx, r.from, follow, func(e Event, err error) bool { return send(cellArrival{event: e, err: err}) })
	send(cellArrival{err: err, ended: true})
}

// nextOf returns the feed with the next event; nil if none has one. It waits for feeds that have not caught up.
// failed is the error with which one ended.
func nextOf(ctx context.Context, feeds []*cellFeed) (next *cellFeed, failed error) {
	for _, f := range feeds {
		for f.head == nil && !f.ended {
			a, ok := f.take(ctx)
			if !ok {
				break
			}
			switch {
			case a.ended:
				f.ended, failed = true, a.err
			case a.caughtUp:
				f.caughtUp = true
			default:
				f.head = &a
			}
			if failed != nil {
				return nil, failed
			}
		}
		if f.head != nil && (next == nil || f.head.event.Stored.Before(next.head.event.Stored)) {
			next = f
		}
	}
	return next, nil
}

// take returns the next arrival. It waits for one unless the cell has caught up.
func (f *cellFeed) take(ctx context.Context) (cellArrival, bool) {
	if f.caughtUp {
		select {
		case a := <-f.arrivals:
			return a, true
		default:
			return cellArrival{}, false
		}
	}
	select {
	case a := <-f.arrivals:
		return a, true
	case <-ctx.Done():
		return cellArrival{}, false
	}
}
