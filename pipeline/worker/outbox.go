package worker

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"tributary/pipeline/broker"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
)

// outbox holds the results of an ownership until they are stored, and the checkpoint that they follow. The goroutine
// of the ownership fills one chunk while the committer stores the one before it.
type outbox struct {
	p        *partition
	ctx      context.Context // of the ownership
	fail     context.CancelCauseFunc
	encoder  *encoder
	sessions *sessionCache
	calls    *calls

	// between is held while a record is normalized and appended, and while the committer seals the chunk. Between
	// normalizing and appending, the sessions know a record that the chunk lacks: states encoded then would be ahead
	// of their checkpoint.
	between broker.Limit
	sending broker.Limit // held while a batch with an entry of the partition is in flight
	skipped uint64       // belongs to the committer: the normalizer call that it no longer waits for

	room chan struct{} // signaled when a chunk is sealed or stored

	mu         sync.Mutex
	checkpoint streams.Checkpoint // the newest one
	sequence   uint64             // of the checkpoint, in the events stream
	building   *chunk             // accepts records; the holder of between may read this field without the lock
	sealed     *chunk             // being stored; nil for none
	stored     uint64             // number of the last chunk stored in full
	advanced   bool               // a chunk with records was stored in full
	tries      int                // as in the checkpoint, without the attempt in progress
	waiting    int                // bytes of the messages waiting in its chunks, as counted in the cell
	ended      bool               // its chunks were dropped
}

// append is the fourth stage: it adds the record, its result and its session to the chunk that is built.
func (b *outbox) append(r received, out normalized) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.building
	if out.session != nil {
		c.change(out.session)
		b.sessions.changed(out.session, c.number)
	}
	before := c.bytes
	c.add(r.raw, out.messages, out.stored)
	b.wait(c.bytes - before)
	c.count(countRecords, r, 1)
	for _, hit := range r.hits {
		c.count(countRedactions, r, 1, hit.Rule)
	}
	if link, ok := b.p.stage.telemetry.link(b.ctx, &r); ok {
		c.links = append(c.links, link)
	}
}

// storeArchives hands the archives of a move to the committer and waits until they are stored. It must not be called
// while a chunk waits.
func (b *outbox) storeArchives(m moved) error {
	b.mu.Lock()
	c := b.building
	c.archives, c.archived, c.archivedTo, c.started = m.archives, m.states, m.to, time.Now()
	b.mu.Unlock()
	b.p.cell.signalPending()
	return b.waitUntil(b.allStored)
}

// newest returns the newest checkpoint and its sequence in the events stream.
func (b *outbox) newest() (streams.Checkpoint, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checkpoint, b.sequence
}

// lastStored returns the number of the last chunk stored in full.
func (b *outbox) lastStored() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stored
}

// setUnarchived notes how many states wait for room in their archives. The next commit stores the number.
func (b *outbox) setUnarchived(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkpoint.Unarchived = n
}

// areRemoved notes that messages of states are about to be removed from the stream. From then on no change may refer
// to them.
func (b *outbox) areRemoved(messages []broker.Place) {
	removed := make(map[uint64]bool, len(messages))
	for _, m := range messages {
		removed[m.Sequence] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.sessions.live {
		if removed[l.whole.Sequence] {
			l.whole = states.Whole{}
		}
	}
}

// end drops the chunks and returns the number of attempts without progress.
func (b *outbox) end() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.p.cell.waiting.Add(-int64(b.waiting))
	b.ended = true
	return b.tries
}

// wait adds to the bytes of waiting messages; a negative number subtracts. The caller holds the lock.
func (b *outbox) wait(bytes int) {
	if !b.ended {
		b.waiting += bytes
		b.p.cell.waiting.Add(int64(bytes))
	}
}

// hasRoom reports whether the chunk that is built accepts a record: it is not full, and it is empty if the chunks of
// the cell together exceed [maxWaiting]. The caller holds the lock.
func (b *outbox) hasRoom() bool {
	limits, _ := b.p.stage.config.Pacer.limits()
	return !b.building.full(limits) && (b.building.records == 0 || b.p.cell.waiting.Load() < maxWaiting)
}

// allStored reports whether no chunk waits. The caller holds the lock.
func (b *outbox) allStored() bool { return b.building.empty() && b.sealed == nil }

// waitUntil waits until condition returns true. It calls condition with the lock held.
func (b *outbox) waitUntil(condition func() bool) error {
	for {
		b.mu.Lock()
		done := condition()
		b.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-b.room:
		case <-b.ctx.Done():
			return context.Cause(b.ctx)
		}
	}
}

// progress reports whether records were stored.
func (b *outbox) progress() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.advanced
}

// oldest returns when the broker stored the oldest record waiting in a chunk; false for none.
func (b *outbox) oldest() (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.sealed != nil && b.sealed.records > 0:
		return b.sealed.oldest, true
	case b.building.records > 0:
		return b.building.oldest, true
	default:
		return time.Time{}, false
	}
}

// waitingSince returns when the oldest waiting chunk was begun; false for none.
func (b *outbox) waitingSince() (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.sealed != nil:
		return b.sealed.started, true
	case !b.building.empty():
		return b.building.started, true
	default:
		return time.Time{}, false
	}
}

// storeTries stores the checkpoint again with another count of attempts. No batch with an entry of the partition may
// be in flight.
func (b *outbox) storeTries(tries int) error {
	c, last := b.newest()
	c.Tries = tries
	sequence, err := c.Store(b.ctx, b.p.stage.js, b.p.cell.name, b.p.number, last)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkpoint, b.sequence = c, sequence
	return nil
}

// stopBetween waits until no record is in progress, and keeps the next one from beginning until the caller releases
// b.between. It returns false when the record takes longer than ctx: its chunk is then left out of the batches until
// the record is done.
func (b *outbox) stopBetween(ctx context.Context) bool {
	select {
	case b.between <- struct{}{}:
		return true
	default:
	}
	call := b.calls.number.Load()
	if call == b.skipped {
		return false
	}
	if b.between.Acquire(ctx) == nil {
		return true
	}
	b.skipped = call
	return false
}

// addTo adds the waiting chunk to a batch that accepts it. Only the committer calls it.
func (b *outbox) addTo(ctx context.Context, to *batch) {
	b.mu.Lock()
	seal := b.sealed == nil
	b.mu.Unlock()
	if seal {
		if !b.stopBetween(ctx) {
			return
		}
		defer b.between.Release()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return
	}
	c := b.sealed
	if c == nil {
		c = b.building
	}
	if c.empty() || !to.accepts(c) {
		return
	}
	select {
	case b.sending <- struct{}{}:
	default:
		return // the ownership is ending, see [partition.runOnce]
	}
	if c == b.building {
		b.seal()
	}
	e, err := b.entry(c)
	if err != nil {
		b.sending.Release()
		b.fail(err)
		return
	}
	to.add(e)
}

// seal hands the chunk to the committer and begins the next one.
func (b *outbox) seal() {
	c := b.building
	c.seal(b.p.cell.name, b.p.number)
	b.sealed, b.building = c, newChunk(c.number+1)
	b.signalRoom()
}

// entry returns the next entry of a sealed chunk. A chunk that exceeds one batch is sent in several entries: first
// its messages, then its states with the last of them.
func (b *outbox) entry(c *chunk) (entry, error) {
	e := entry{outbox: b, chunk: c, last: c.fitsOneBatch(), expected: b.sequence, tries: b.tries}
	e.sent = c.unsent()
	if e.last {
		e.states = c.states
		e.checkpoint = c.done(b.checkpoint)
	} else {
		e.sent = c.head()
		last := e.sent[len(e.sent)-1]
		e.checkpoint = b.checkpoint.Partly(last.raw, last.part)
	}
	e.messages = make([]*nats.Msg, len(e.sent))
	for i, m := range e.sent {
		if m.Msg == nil {
			var err error
			if m, err = b.encoder.event(m.event, &e.blocks); err != nil {
				return entry{}, err
			}
		}
		e.messages[i] = m.Msg
	}
	e.measure()
	return e, nil
}

// acknowledge notes that an entry is stored: its checkpoint at sequence, its states from states on. If the ownership
// has ended meanwhile, the next one finds the checkpoint in the stream.
func (b *outbox) acknowledge(e entry, sequence, states uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return
	}
	b.checkpoint, b.sequence = e.checkpoint, sequence
	if e.chunk.records > 0 {
		b.tries = 0
		b.advanced = b.advanced || e.last
	}
	before := e.chunk.bytes
	e.chunk.acknowledge(len(e.messages))
	e.blocks.free()
	b.wait(e.chunk.bytes - before)
	if e.last {
		e.chunk.blocks.free()
		for i, s := range e.chunk.changed {
			s.isStored(states + uint64(i))
		}
		b.sealed, b.stored = nil, e.chunk.number
		b.p.open.Add(-int64(e.chunk.records))
	}
	b.signalRoom()
}

// refuse ends the ownership after a batch with an unknown outcome. The next ownership finds out whether the entry is
// stored.
func (b *outbox) refuse(e entry, cause error) {
	b.p.unconfirmed.Store(&e)
	b.fail(broker.Wrap(cause, "commit"))
}

// signalRoom signals the goroutine of the partition that there is room, or that something was stored.
func (b *outbox) signalRoom() {
	select {
	case b.room <- struct{}{}:
	default:
	}
}
