package receive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/streams"
)

// batchBytes is the maximum size of an atomic batch in bytes of messages; its last message may exceed it.
const batchBytes = 4 << 20

// errAway refuses requests while there is no connection.
var errAway = refuseFor(http.StatusServiceUnavailable, awayRetry, "the broker is away: try again")

// publisher stores messages in the raw stream. One atomic batch is in flight in each cell; the requests that wait
// meanwhile share the next one, because most of the cost of a batch does not depend on its size.
type publisher struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	claims *claims.Store

	mu     sync.Mutex
	layout streams.Layout // of the broker; zero while it is unknown, and after a failure
	cells  []*cell
}

func newPublisher(js jetstream.JetStream) *publisher {
	return &publisher{nc: js.Conn(), js: js, claims: claims.NewStore(js)}
}

// ready returns an error while the raw stream does not take messages.
func (p *publisher) ready(ctx context.Context) error {
	if !p.nc.IsConnected() {
		return errAway
	}
	_, _, err := p.open(ctx)
	return err
}

// failed forgets the layout, which is read again: after a failure the stream may be another one.
func (p *publisher) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.layout = streams.Layout{}
}

// store stores messages in their order, and returns when the broker has acknowledged all of them, by index except for
// those that the stream can never store. After an error any part of them may be stored.
func (p *publisher) store(ctx context.Context, msgs []parcel) (rejected map[int]bool, err error) {
	rejected = map[int]bool{}
	defer func() {
		if err != nil {
			p.failed()
		}
	}()
	if !p.nc.IsConnected() {
		return nil, errAway
	}
	layout, cells, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	for i, m := range msgs {
		if m.claimed == nil {
			continue
		}
		_, err := p.claims.Put(ctx, m.claimed)
		if errors.Is(err, core.ErrTooLarge) {
			rejected[i] = true
		} else if err != nil {
			return nil, err
		}
	}
	lists := make([][]*nats.Msg, len(cells))
	indexes := make([][]int, len(cells))
	for i, m := range msgs {
		if rejected[i] {
			continue
		}
		c := layout.Place(m.Msg, m.record.Source, m.record.Session)
		lists[c], indexes[c] = append(lists[c], m.Msg), append(indexes[c], i)
	}
	for c, list := range lists {
		for len(list) > 0 {
			n := fitting(list)
			r := cells[c].submit(list[:n]) //nolint:contextcheck // a batch has messages of several requests
			if r.err != nil {
				return nil, r.err
			}
			for i := range r.rejected {
				rejected[indexes[c][i]] = true
			}
			list, indexes[c] = list[n:], indexes[c][n:]
		}
	}
	return rejected, nil
}

// open returns the layout of the broker and a queue for each of its cells.
func (p *publisher) open(ctx context.Context) (streams.Layout, []*cell, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.layout.Cells > 0 {
		return p.layout, p.cells, nil
	}
	ctx, stop := context.WithTimeout(ctx, broker.RequestTimeout)
	defer stop()
	state, err := streams.ReadRawState(ctx, p.js, 0)
	switch {
	case err != nil:
		return streams.Layout{}, nil, fmt.Errorf("the raw stream cannot be read: start a worker, which creates it, and see the rights of this user: %w", err)
	case state.Discards:
		return streams.Layout{}, nil, streams.DiscardError(0)
	}
	p.layout = state.Layout
	p.layout.Cells = max(1, p.layout.Cells)
	for len(p.cells) < p.layout.Cells {
		p.cells = append(p.cells, &cell{publisher: p})
	}
	return p.layout, p.cells[:p.layout.Cells], nil
}

// fitting returns how many of the first messages fit one batch, at least one.
func fitting(msgs []*nats.Msg) int {
	size := 0
	for i, m := range msgs[:min(len(msgs), broker.MaxBatch)] {
		if size += m.Size(); size > batchBytes {
			return i + 1
		}
	}
	return min(len(msgs), broker.MaxBatch)
}

// cell is the queue of a raw stream.
type cell struct {
	*publisher

	mu      sync.Mutex
	queue   []*submission
	running bool
}

// submission is a part of a request that is stored together.
type submission struct {
	msgs   []*nats.Msg
	size   int
	stored chan receipt
}

// receipt is the outcome of a submission: the messages that the stream can never store, or an error.
type receipt struct {
	rejected map[int]bool
	err      error
}

// submit waits until msgs are stored. The wait is bounded by that for the answers to two batches.
func (c *cell) submit(msgs []*nats.Msg) receipt {
	s := &submission{msgs: msgs, stored: make(chan receipt, 1)}
	for _, m := range msgs {
		s.size += m.Size()
	}
	c.mu.Lock()
	c.queue = append(c.queue, s)
	if !c.running {
		c.running = true
		go c.run()
	}
	c.mu.Unlock()
	return <-s.stored
}

// run stores submissions until none waits.
func (c *cell) run() {
	for {
		group := c.next()
		if group == nil {
			return
		}
		err := c.storeGroup(group)
		if err == nil {
			continue
		}
		// What waits would wait as long: a broker that answers again gets it when the clients send it again.
		c.mu.Lock()
		group, c.queue = c.queue, nil
		c.mu.Unlock()
		for _, s := range group {
			s.stored <- receipt{err: err}
		}
	}
}

// next removes the submissions of the next batch from the queue; nil if there are none.
func (c *cell) next() (group []*submission) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, count, size := 0, 0, 0
	for _, s := range c.queue {
		count, size = count+len(s.msgs), size+s.size
		if n > 0 && (count > broker.MaxBatch || size > batchBytes) {
			break
		}
		n++
	}
	group, c.queue = c.queue[:n:n], c.queue[n:]
	if n == 0 {
		c.queue, c.running = nil, false
		return nil
	}
	return group
}

// storeGroup stores submissions in one batch. It splits a batch that the broker refuses for its content: first into its
// submissions, then into single messages. It returns the error of a broker that does not accept messages.
func (c *cell) storeGroup(group []*submission) error {
	var msgs []*nats.Msg
	for _, s := range group {
		msgs = append(msgs, s.msgs...)
	}
	var rejected map[int]bool
	var err error
	if len(msgs) > 1 {
		_, err = broker.PublishBatch(context.Background(), c.nc, msgs)
	}
	if len(msgs) == 1 || broker.Rejects(err) && len(group) == 1 {
		rejected, err = c.storeSingly(msgs)
	}
	if broker.Rejects(err) {
		for i, s := range group {
			if err := c.storeGroup([]*submission{s}); err != nil {
				for _, s := range group[i+1:] {
					s.stored <- receipt{err: err}
				}
				return err
			}
		}
		return nil
	}
	for _, s := range group {
		s.stored <- receipt{rejected, err}
	}
	return err
}

// storeSingly stores messages one by one, in order, without a wait in between. It stops to send at the first error.
func (c *cell) storeSingly(msgs []*nats.Msg) (rejected map[int]bool, err error) {
	ctx, stop := context.WithTimeout(context.Background(), broker.RequestTimeout)
	defer stop()
	ctx, cancel := broker.UntilDisconnected(ctx, c.nc)
	defer cancel()
	rejected = map[int]bool{}
	sent := map[int]jetstream.PubAckFuture{}
	for i, m := range msgs {
		for _, name := range []string{broker.BatchIDHeader, broker.BatchSequenceHeader, broker.BatchCommitHeader} {
			m.Header.Del(name)
		}
		future, failure := c.js.PublishMsgAsync(m)
		if broker.Rejects(failure) {
			rejected[i] = true
			continue
		}
		if failure != nil {
			err = failure
			break
		}
		sent[i] = future
	}
	for i, future := range sent {
		select {
		case <-future.Ok():
		case failure := <-future.Err():
			if broker.Rejects(failure) {
				rejected[i] = true
			} else {
				err = errors.Join(err, failure)
			}
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
	return rejected, err
}
