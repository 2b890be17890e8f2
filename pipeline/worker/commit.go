package worker

import (
	"context"
	"slices"
	"time"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// The committer is one goroutine for each cell of a [Stage]. It stores one batch at a time, with the waiting chunks
// of all partitions of the cell. Meanwhile the partitions normalize into their next chunks, so batches grow with the
// load.

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
			c.commit(ctx, b)
			c.signalRoom()
			if c.stage.config.Pacer.rest(ctx, time.Since(began)) != nil {
				return
			}
		}
	}
}

// sealWait is how long a batch waits for a record in progress, to include its chunk.
const sealWait = 5 * time.Millisecond

// collect fills a batch with the waiting chunks of the partitions of the cell, oldest chunk first, so that no chunk
// is left out every time.
func (c *cell) collect(ctx context.Context) *batch {
	type waiting struct {
		*outbox
		since time.Time
	}
	var all []waiting
	for _, p := range c.stage.assigned.list() {
		if o := p.ownership(); o != nil && p.cell == c {
			if since, ok := o.outbox.waitingSince(); ok {
				all = append(all, waiting{o.outbox, since})
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

// commit stores a batch and reports the outcome to its partitions. After an error their ownerships end: acquiring the
// partition again shows what is stored. A fenced batch is certainly not stored, so its entries are sent again without
// the stale ones.
func (c *cell) commit(ctx context.Context, b *batch) {
	for _, e := range b.entries {
		defer e.outbox.sending.Release()
	}
	last, err := c.store(ctx, b)
	for broker.Fenced(err) {
		rest := c.dropStale(ctx, b, err)
		if rest.empty() {
			return
		}
		if len(rest.entries) == len(b.entries) {
			break // no stale entry was found
		}
		b = rest
		last, err = c.store(ctx, b)
	}
	if err == nil {
		c.stage.config.Handover.Hand(c.name, func() (events.HandedBatch, bool) { return b.steps(last) })
	}
	for i, e := range b.entries {
		if err != nil {
			e.outbox.refuse(e, err)
			continue
		}
		c.stage.report(ctx, e)
		e.outbox.acknowledge(e, b.sequence(i, last), b.stateSequence(i, last))
	}
}

// dropStale ends the ownerships in a fenced batch that were overtaken, and returns a batch of the other entries. It
// asks the leader of the stream, the only one to know. The result is a guess: the fence checks each entry again.
func (c *cell) dropStale(ctx context.Context, b *batch, cause error) *batch {
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	rest := &batch{limits: b.limits}
	for _, e := range b.entries {
		_, sequence, err := streams.ReadCheckpoint(ctx, c.stage.js, c.name, e.outbox.p.number)
		switch {
		case err == nil && sequence == e.expected:
			rest.add(e)
		case err != nil:
			cause = err
			fallthrough
		default:
			e.outbox.refuse(e, cause)
		}
	}
	return rest
}

// report counts and logs the stored part of an entry.
func (s *Stage) report(ctx context.Context, e entry) {
	if e.last {
		s.telemetry.add(ctx, e.chunk.tally)
		s.telemetry.count(ctx, s.telemetry.archived, e.chunk.archived)
		logGaps(e.outbox.p.log, e.chunk.notes)
	}
}

// store publishes a batch and returns the stream sequence of its last message.
func (c *cell) store(ctx context.Context, b *batch) (uint64, error) {
	messages, err := b.seal()
	if err != nil {
		return 0, err
	}
	return c.stage.telemetry.commit(ctx, b, messages, func() (uint64, error) { //nolint:contextcheck // the link ends with ctx, too
		// Bounds the wait: partitions cannot be reacquired until the outcome is known.
		ctx, cancel := context.WithTimeout(c.stage.link.context(), broker.RequestTimeout)
		defer cancel()
		if err := c.stage.room.Take(ctx, messages); err != nil {
			return 0, err
		}
		return broker.PublishSized(ctx, c.stage.nc, messages, b.size.bytes)
	})
}
