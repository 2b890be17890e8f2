package sessionmeta

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"tributary/pipeline"
)

// The limits of a group.
const (
	maxGroup      = 100     // writes
	maxGroupBytes = 4 << 20 // of their messages
)

// group collects the writes of different sessions that wait at the same time into one atomic
// batch, because the server syncs each batch to disk. One batch is in flight at a time: the
// longer it takes, the more writes the next one has.
type group struct {
	nc      *nats.Conn
	publish chan struct{} // held while a batch is in flight

	mu      sync.Mutex
	pending []*write
}

// write is a record and its change.
type write struct {
	messages [2]*nats.Msg
	size     int
	done     chan struct{} // closed when there is an outcome
	sequence uint64        // of the change, when err is nil
	err      error
}

func newGroup(nc *nats.Conn) *group {
	return &group{nc: nc, publish: make(chan struct{}, 1)}
}

// store stores a record and its change, and returns the sequence of the change. For the error
// see [pipeline.PublishBatch]; it is errAgain when ctx ends before anything was sent. The call
// that finds no batch in flight publishes the writes of all that wait.
func (g *group) store(ctx context.Context, record, change *nats.Msg) (uint64, error) {
	w := &write{messages: [2]*nats.Msg{record, change}, size: record.Size() + change.Size(), done: make(chan struct{})}
	g.mu.Lock()
	g.pending = append(g.pending, w)
	g.mu.Unlock()
	for {
		select {
		case <-w.done:
			return w.sequence, w.err
		case g.publish <- struct{}{}:
			g.flush(context.WithoutCancel(ctx)) // of others, too
			<-g.publish
		case <-ctx.Done():
			if g.withdraw(w) {
				return 0, errAgain
			}
			return 0, context.Cause(ctx) // it is in flight
		}
	}
}

// withdraw removes a write that is not in flight.
func (g *group) withdraw(w *write) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.pending, w)
	if i >= 0 {
		g.pending = slices.Delete(g.pending, i, i+1)
	}
	return i >= 0
}

// take removes the first writes that fit a group.
func (g *group) take() []*write {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < len(g.pending) && n < maxGroup {
		if size += g.pending[n].size; n > 0 && size > maxGroupBytes {
			break
		}
		n++
	}
	taken := slices.Clone(g.pending[:n])
	g.pending = slices.Delete(g.pending, 0, n)
	return taken
}

// flush publishes the next group.
func (g *group) flush(ctx context.Context) {
	if writes := g.take(); len(writes) > 0 {
		g.batch(ctx, writes)
	}
}

// batch publishes writes in one batch, and reports the outcome to each. The server refuses a
// batch as a whole when one of its writes is overtaken by another replica, or is wrong in
// another way, and does not say which: the halves are published then.
func (g *group) batch(ctx context.Context, writes []*write) {
	messages := make([]*nats.Msg, 0, 2*len(writes))
	for _, w := range writes {
		messages = append(messages, w.messages[:]...)
	}
	last, err := pipeline.PublishBatch(ctx, g.nc, messages)
	if half := len(writes) / 2; half > 0 && errorCodeOf(err) != 0 {
		g.batch(ctx, writes[:half])
		g.batch(ctx, writes[half:])
		return
	}
	for i, w := range writes {
		w.sequence, w.err = last-2*uint64(len(writes)-1-i), err
		close(w.done)
	}
}

// errBusy: the time of a call was over before its write was sent, or other replicas were
// always faster.
var errBusy = errors.New("too many other writers")
