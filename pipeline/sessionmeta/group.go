package sessionmeta

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	js      jetstream.JetStream
	publish chan struct{} // held while a batch is in flight

	mu      sync.Mutex
	pending []*write
}

// write is a record and its change.
type write struct {
	messages [2]*nats.Msg
	revision uint64 // that the record replaces
	size     int
	done     chan struct{} // closed when there is an outcome
	sequence uint64        // of the change, when err is nil
	err      error
}

func newGroup(js jetstream.JetStream) *group {
	return &group{js: js, publish: make(chan struct{}, 1)}
}

// store stores a record and its change, and returns the sequence of the change. For the error
// see [pipeline.PublishBatch]; it is errAgain when ctx ends before anything was sent. The call
// that finds no batch in flight publishes the writes of all that wait.
func (g *group) store(ctx context.Context, record, change *nats.Msg, revision uint64) (uint64, error) {
	w := &write{
		messages: [2]*nats.Msg{record, change},
		revision: revision,
		size:     record.Size() + change.Size(),
		done:     make(chan struct{}),
	}
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
	g.batch(ctx, g.take())
}

// batch publishes writes in one batch, and reports the outcome to each. The server refuses a
// batch as a whole when one of its writes is overtaken by another replica, or is wrong in
// another way, and does not say which. The writes without those that are overtaken, or else
// the halves, are published then.
func (g *group) batch(ctx context.Context, writes []*write) {
	if len(writes) == 0 {
		return
	}
	messages := make([]*nats.Msg, 0, 2*len(writes))
	for _, w := range writes {
		messages = append(messages, w.messages[:]...)
	}
	last, err := pipeline.PublishBatch(ctx, g.js.Conn(), messages)
	if half := len(writes) / 2; half > 0 && errorCodeOf(err) != 0 {
		if rest := g.current(ctx, writes, err); len(rest) < len(writes) {
			g.batch(ctx, rest)
			return
		}
		g.batch(ctx, writes[:half])
		g.batch(ctx, writes[half:])
		return
	}
	for i, w := range writes {
		w.finish(last-2*uint64(len(writes)-1-i), err)
	}
}

// current returns the writes whose record is still the newest, after a batch of all was
// refused with an error. It reports that error to the others when the records say that they
// are overtaken. The replica that is asked may be behind: then too many are returned.
func (g *group) current(ctx context.Context, writes []*write, refused error) []*write {
	if !overtaken(refused) {
		return writes
	}
	subjects := make([]string, len(writes))
	for i, w := range writes {
		subjects[i] = w.messages[0].Subject
	}
	last, err := pipeline.LastSequences(ctx, g.js, stream, subjects)
	if err != nil {
		return writes
	}
	var rest []*write
	for _, w := range writes {
		if last[w.messages[0].Subject] > w.revision {
			w.finish(0, refused)
		} else {
			rest = append(rest, w)
		}
	}
	return rest
}

// finish reports the outcome.
func (w *write) finish(sequence uint64, err error) {
	w.sequence, w.err = sequence, err
	close(w.done)
}

// errBusy: the time of a call was over before its write was sent, or other replicas were
// always faster.
var errBusy = errors.New("too many other writers")
