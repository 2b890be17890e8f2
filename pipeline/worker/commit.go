package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// The committer is one goroutine of each cell of a [Stage]. It stores one batch at a time, each with
// the chunks of all partitions of the cell that wait. While a batch is in flight the partitions go on
// normalizing into their next chunks, so batches grow with the load by themselves.

// signalPending signals the committer that a partition has something to store.
func (c *cell) signalPending() {
	select {
	case c.pending <- struct{}{}:
	default:
	}
}

// commitBatches stores one batch after another until ctx ends.
func (c *cell) commitBatches(ctx context.Context) {
	for {
		c.committing.End()
		select {
		case <-c.pending:
		case <-ctx.Done():
			return
		}
		for b := c.collect(ctx); !b.empty(); b = c.collect(ctx) {
			c.committing.Begin()
			began := time.Now()
			c.stage.commit(ctx, b)
			c.stage.signalRoom()
			if c.stage.config.Pacer.rest(ctx, time.Since(began)) != nil {
				return
			}
		}
	}
}

// sealWait is how long a batch waits for records in progress whose chunks it could store.
const sealWait = 5 * time.Millisecond

// collect fills a batch with the waiting chunks of the partitions of the cell. The chunk that was begun
// first goes first, so that none is always the one that no longer fits.
func (c *cell) collect(ctx context.Context) *batch {
	type waiting struct {
		*ownership
		since time.Time
	}
	var all []waiting
	for _, p := range c.stage.list() {
		if o := p.ownership(); o != nil && p.cell == c {
			if since, ok := o.waitingSince(); ok {
				all = append(all, waiting{o, since})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b waiting) int { return a.since.Compare(b.since) })
	ctx, cancel := context.WithTimeout(ctx, sealWait)
	defer cancel()
	_, limits := c.stage.config.Pacer.limits()
	b := &batch{limits: limits}
	for _, w := range all {
		w.addTo(ctx, b)
	}
	return b
}

// stopBetween waits until no record is in progress, and keeps the next one from beginning; the
// caller calls release of o.between. It returns false when the record takes longer than ctx: its
// chunk is then left out of this batch, and of those that follow until the record is done.
func (o *ownership) stopBetween(ctx context.Context) bool {
	select {
	case o.between <- struct{}{}:
		return true
	default:
	}
	call := o.calls.number.Load()
	if call == o.skipped {
		return false
	}
	if o.between.Acquire(ctx) == nil {
		return true
	}
	o.skipped = call
	return false
}

// addTo adds the waiting chunk of the partition to a batch that accepts it.
func (o *ownership) addTo(ctx context.Context, b *batch) {
	o.mu.Lock()
	seal := o.sealed == nil
	o.mu.Unlock()
	if seal {
		if !o.stopBetween(ctx) {
			return
		}
		defer o.between.Release()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return
	}
	c := o.sealed
	if c == nil {
		c = o.building
	}
	if c.empty() || !b.accepts(c) {
		return
	}
	if c == o.building {
		o.seal()
	}
	e, err := o.entry(c)
	if err != nil {
		o.cancel(err)
		return
	}
	o.sending <- struct{}{} // free, because the committer stores one batch at a time
	b.add(e)
}

// seal hands the building chunk to the committer and begins the next one.
func (o *ownership) seal() {
	c := o.building
	c.seal(o.p.cell.name, o.p.number)
	o.sealed, o.building = c, newChunk(c.number+1)
	o.signalRoom()
}

// entry returns the next entry of a sealed chunk. A chunk that exceeds one batch goes out
// in several: its messages first, its states with the last of them.
func (o *ownership) entry(c *chunk) (entry, error) {
	e := entry{owner: o, chunk: c, last: c.fitsOneBatch(), expected: o.sequence, tries: o.tries}
	e.sent = c.unsent()
	if e.last {
		e.states = c.states
		e.checkpoint = o.checkpoint
		if c.records > 0 { // archives are no progress: the attempts on the next record stay counted
			e.checkpoint = e.checkpoint.Done(c.raw, c.rawTime, c.records)
		}
		e.checkpoint.Gaps = e.checkpoint.Gaps.With(c.gaps)
		e.checkpoint.Rewritten = e.checkpoint.Rewritten.With(c.rewritten)
		e.checkpoint.Archived += uint64(c.archived)
		e.checkpoint.ArchivedTo = max(e.checkpoint.ArchivedTo, c.archivedTo)
	} else {
		e.sent = c.head()
		last := e.sent[len(e.sent)-1]
		e.checkpoint = o.checkpoint.Partly(last.raw, last.part)
	}
	var err error
	if e.messages, err = o.encode(e.sent, &e.blocks); err != nil {
		return entry{}, err
	}
	e.measure()
	return e, nil
}

// encode returns what is sent of a list of messages. Those that still have to be encoded are in blocks.
func (o *ownership) encode(list []message, b *blocks) ([]*nats.Msg, error) {
	out := make([]*nats.Msg, len(list))
	for i, m := range list {
		if m.Msg == nil {
			var err error
			if m, err = o.eventMessage(m.event, b); err != nil {
				return nil, err
			}
		}
		out[i] = m.Msg
	}
	return out, nil
}

// commit stores a batch and reports the outcome to the partitions in it. After an error
// their ownerships end: acquiring the partition again finds out what is stored. A batch that
// was fenced is surely not stored: its entries are sent again without those that are stale.
func (s *Stage) commit(ctx context.Context, b *batch) {
	for _, e := range b.entries {
		defer e.owner.sending.Release()
	}
	last, err := s.store(ctx, b)
	for broker.Fenced(err) {
		rest := s.dropStale(ctx, b, err)
		if rest.empty() {
			return
		}
		if len(rest.entries) == len(b.entries) {
			break // none of them was found
		}
		b = rest
		last, err = s.store(ctx, b)
	}
	if err == nil {
		s.config.Handover.Hand(b.entries[0].owner.p.cell.name, func() (events.HandedBatch, bool) { return b.steps(last) })
	}
	for i, e := range b.entries {
		if err != nil {
			e.owner.p.unconfirmed.Store(&e)
			e.owner.cancel(fmt.Errorf("commit: %w", err))
			continue
		}
		s.report(ctx, e)
		e.owner.acknowledge(e, b.sequence(i, last), b.stateSequence(i, last))
	}
}

// dropStale ends the ownerships of a fenced batch that were overtaken, which only the leader of
// the stream knows, and returns a batch of the other entries. It decides nothing: the fence
// checks each of them again.
func (s *Stage) dropStale(ctx context.Context, b *batch, cause error) *batch {
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	rest := &batch{limits: b.limits}
	for _, e := range b.entries {
		_, sequence, err := streams.ReadCheckpoint(ctx, s.js, e.owner.p.cell.name, e.owner.p.number)
		switch {
		case err == nil && sequence == e.expected:
			rest.add(e)
		case err != nil:
			cause = err
			fallthrough
		default:
			e.owner.p.unconfirmed.Store(&e)
			e.owner.cancel(fmt.Errorf("commit: %w", cause))
		}
	}
	return rest
}

// report counts and logs what is stored of an entry.
func (s *Stage) report(ctx context.Context, e entry) {
	if e.last {
		s.telemetry.add(ctx, e.chunk.tally)
		s.telemetry.count(ctx, s.telemetry.archived, e.chunk.archived)
		e.owner.p.logGaps(e.chunk.notes)
	}
}

// reportUnconfirmed reports the entry whose outcome was unknown, when the checkpoint that was
// fenced says that it is stored: this worker wrote it, and no other can have since.
func (p *partition) reportUnconfirmed(ctx context.Context, last streams.Checkpoint) {
	e := p.unconfirmed.Swap(nil)
	if e != nil && last.Owner == p.stage.owner && last.Epoch <= e.checkpoint.Epoch+1 && last.Raw >= e.checkpoint.Raw && last.Archived >= e.checkpoint.Archived {
		p.stage.report(ctx, *e)
	}
}

// store publishes a batch and returns the stream sequence of its last message.
func (s *Stage) store(ctx context.Context, b *batch) (uint64, error) {
	messages, err := b.seal()
	if err != nil {
		return 0, err
	}
	return s.telemetry.commit(ctx, b, messages, func() (uint64, error) { //nolint:contextcheck // the link ends with ctx, too
		// Bounds the wait: partitions cannot be reacquired until the outcome is known.
		ctx, cancel := context.WithTimeout(s.linked(), broker.RequestTimeout)
		defer cancel()
		if err := s.room.Take(ctx, messages); err != nil {
			return 0, err
		}
		return broker.PublishSized(ctx, s.nc, messages, b.size.bytes)
	})
}

// acknowledge notes that an entry is stored, with its checkpoint at a stream sequence and its states
// at those from states on. If the ownership has ended meanwhile, the next one finds the checkpoint in the stream.
func (o *ownership) acknowledge(e entry, sequence, states uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return
	}
	o.checkpoint, o.sequence = e.checkpoint, sequence
	if e.chunk.records > 0 {
		o.tries = 0
		o.advanced = o.advanced || e.last
	}
	before := e.chunk.bytes
	e.chunk.acknowledge(len(e.messages))
	e.blocks.free()
	o.wait(e.chunk.bytes - before)
	if e.last {
		e.chunk.blocks.free()
		for i, s := range e.chunk.changed {
			s.isStored(states + uint64(i))
		}
		o.sealed, o.stored = nil, e.chunk.number
		o.p.open.Add(-int64(e.chunk.records))
	}
	o.signalRoom()
}

// signalRoom signals the partitions that wait because others have too much to store.
func (s *Stage) signalRoom() {
	for _, p := range s.list() {
		if o := p.ownership(); o != nil {
			o.signalRoom()
		}
	}
}

// signalRoom signals the goroutine of the partition that there is room again, or that
// something is stored.
func (o *ownership) signalRoom() {
	select {
	case o.room <- struct{}{}:
	default:
	}
}
