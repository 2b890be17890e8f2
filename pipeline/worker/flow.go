package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker/feed"
)

// The flow of records through an ownership. One goroutine runs the first four stages, the committer runs the last.
// Each stage hands a value to the next:
//
//	receive    a message of the raw stream becomes a [received]: a record, or the reason why it cannot be read
//	load       the states of the sessions that records belong to are read from the events stream
//	normalize  a record changes its session and becomes a [normalized]: its events, or a dead letter
//	append     these join the [chunk] that is built, with the session
//	commit     the chunks of all partitions are stored in one atomic [batch], with their checkpoints
//
// Before normalize, a record waits for room in the chunk, for its body if that is a large object, and for what the
// raw stream has about its place if its session has passed that ([normalizer.findEarlier]).

// received is a message of the raw stream and the record in it.
type received struct {
	core.Record

	raw  broker.Message
	body *body        // source of Data; nil when that came with the message
	hits []redact.Hit // the replaced parts of Data
	err  error        // reason why the record becomes a dead letter; nil if it is normalized

	erased bool // the record arrived after its session was erased, and yields nothing
}

func (r *received) key() records.SessionKey {
	return records.SessionKey{Source: r.Source, ID: r.Session}
}

// addressed reports whether the session of the record is known. It may be known although the rest of the record cannot
// be read. A record of an erased session belongs to none.
func (r *received) addressed() bool { return r.Source != envelopes.UnknownSource && !r.erased }

// normalized is the result of a record.
type normalized struct {
	messages []message
	stored   int          // messages that an earlier commit has stored
	session  *liveSession // session changed by the record; nil for none
}

// work reads the partition from its checkpoint on. It returns nil once the partition is drained and everything is
// stored, else the reason why the ownership ended.
func (o *ownership) work() error {
	source, err := o.p.cell.feed.Subscribe(o.ctx, o.p.number, o.resume.Raw+1)
	if err != nil {
		return err
	}
	defer o.occupy(source.Close)()
	o.p.open.Store(0)
	if source.Idle {
		o.p.waiting.Store(0)
	}
	archives := newArchiver(o, source)
	defer archives.close()
	for {
		messages, err := source.Read(o.ctx, o.p.drain, archives.due())
		if errors.Is(err, feed.ErrIdle) {
			if err := archives.step(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if messages == nil {
			break // drained
		}
		if err := o.runAll(messages); err != nil {
			return err
		}
	}
	if err := o.outbox.waitUntil(o.outbox.allStored); err != nil {
		return err
	}
	return o.forgetAttempt()
}

// forgetAttempt takes back the attempt of an ownership that ended well, unless the attempts already concern a single
// record.
func (o *ownership) forgetAttempt() error {
	if c, _ := o.outbox.newest(); c.Tries == 0 || c.Tries > streams.MaxTogether {
		return nil
	}
	return o.outbox.storeTries(0)
}

// runAll runs the messages of one read through the stages, until the partition is drained.
func (o *ownership) runAll(messages []broker.Message) error {
	o.p.stage.received.Store(time.Now().UnixNano())
	if messages = o.withoutErased(messages); len(messages) == 0 {
		return nil
	}
	o.p.open.Add(int64(len(messages)))
	o.p.waiting.Store(messages[0].Stored.UnixNano())
	o.received = o.p.receive(messages, o.received[:0], o.erased)
	defer clear(o.received)
	for records := o.received; len(records) > 0 && !broker.Closed(o.p.drain); {
		n, err := o.load(records)
		if err != nil {
			return err
		}
		if err := o.runLoaded(records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	o.p.waiting.Store(0)
	return nil
}

// withoutErased leaves out erased records, which a replica may still have. The checkpoint counts them as done.
func (o *ownership) withoutErased(messages []broker.Message) []broker.Message {
	if len(o.erased) == 0 {
		return messages
	}
	return slices.DeleteFunc(messages, func(m broker.Message) bool {
		return o.erased[envelopes.RawSessionPart(m.Subject)].Has(m.Sequence)
	})
}

// receive is the first stage: it appends the records of messages to a list.
func (p *partition) receive(messages []broker.Message, list []received, erased streams.Erased) []received {
	for _, m := range messages {
		r := received{raw: m}
		session := envelopes.RawSessionPart(m.Subject)
		if _, is := erased[session]; is {
			source, _, _ := strings.Cut(session, ".")
			r.Sequence, r.Source, r.erased = m.Sequence, envelopes.Source(source), true
			list = append(list, r)
			continue
		}
		var claim claims.Claim
		r.Record, claim, r.err = records.Read(m.Msg, m.Sequence, m.Stored)
		if r.addressed() && !p.cell.holds(m.Subject) {
			r.Source, r.Session, r.err = envelopes.UnknownSource, m.Subject, records.ErrMisplaced
		}
		if cause := p.condemned[m.Sequence]; cause != nil {
			r.err = cause
		}
		if r.addressed() && r.err == nil && claim != (claims.Claim{}) {
			r.body = &body{claim: claim, traceparent: r.Origin.Traceparent, tracestate: r.Origin.Tracestate}
		}
		list = append(list, r)
	}
	return list
}

// load is the second stage: it loads the sessions of the next records, as many as fit in memory, and returns the
// number of those records.
func (o *ownership) load(batch []received) (n int, err error) {
	c := o.sessions
	c.evict(o.outbox.lastStored())
	checkpoint, sequence := o.outbox.newest()
	hits, misses := 0, 0
	defer func() {
		t := o.p.stage.telemetry
		t.count(o.ctx, t.lookups, hits, attribute.String("result", "hit"))
		t.count(o.ctx, t.lookups, misses, attribute.String("result", "miss"))
		o.p.cached.Store(int64(c.bytes))
	}()
	for before := c.bytes; n < len(batch) && c.bytes-before <= c.limit; {
		var missing []records.SessionKey
		for ; n < len(batch) && len(missing) < loadTogether; n++ {
			switch k := batch[n].key(); {
			case !batch[n].addressed():
			case c.live[k] != nil || slices.Contains(missing, k):
				hits++
			default:
				missing = append(missing, k)
				misses++
			}
		}
		if len(missing) == 0 {
			break
		}
		if err := c.load(o.ctx, missing, sequence, checkpoint.ArchivedTo); err != nil {
			return 0, err
		}
		c.logLoaded(o.p.log, missing)
	}
	return n, nil
}

// runLoaded runs records whose sessions are loaded through the remaining stages, until the partition is drained. It
// fetches their bodies ahead, unless one of the records is suspect: then it fetches each body when its record runs.
func (o *ownership) runLoaded(records []received) error {
	if o.suspicion.none() {
		defer o.prefetch(records)()
	}
	for _, r := range records {
		if broker.Closed(o.p.drain) {
			return nil
		}
		if err := o.runNext(r); err != nil {
			return err
		}
		o.giveWay()
	}
	return nil
}

// turnTime is how long a partition works before it yields to other goroutines. Go would do so only after 10 ms, and
// the committer, for which all partitions wait, needs to be scheduled for each write to the connection.
const turnTime = time.Millisecond

// giveWay yields to other goroutines when the partition has worked for turnTime.
func (o *ownership) giveWay() {
	if time.Since(o.turn) >= turnTime {
		runtime.Gosched()
		o.turn = time.Now()
	}
}

// prefetch begins to fetch the bodies of records. The caller calls end once it needs none of them.
func (o *ownership) prefetch(records []received) (end func()) {
	var ahead []*body
	for _, r := range records {
		if r.body != nil {
			ahead = append(ahead, r.body)
		}
	}
	if len(ahead) == 0 {
		return func() {}
	}
	return o.occupy(o.p.stage.bodies.begin(o.ctx, ahead...))
}

// runNext runs a record when the chunk has room for it.
func (o *ownership) runNext(r received) error {
	o.p.waiting.Store(r.raw.Stored.UnixNano())
	switch {
	case r.Sequence == o.resume.Slow:
		return o.trySlow(r)
	case o.suspicion.next:
		return o.trySuspect(r)
	}
	if err := o.awaitRoom(); err != nil {
		return err
	}
	return o.run(r)
}

// awaitRoom waits until the chunk that is built accepts a record: until it is not full, or, while records are
// committed one at a time, until everything before is stored.
func (o *ownership) awaitRoom() error {
	if o.suspicion.careful > 0 {
		o.suspicion.careful--
		return o.outbox.waitUntil(o.outbox.allStored)
	}
	return o.outbox.waitUntil(o.outbox.hasRoom)
}

// run fetches the body of a record, normalizes the record and appends the result.
func (o *ownership) run(r received) error {
	if r.body != nil {
		release, err := o.fetch(r.Sequence, r.body)
		if err != nil {
			return err
		}
		defer release()
		r.Data, r.err = r.body.data, r.body.err
	}
	if r.erased {
		return o.apply(r)
	}
	if err := o.normalizer.redact(&r); err != nil {
		return err
	}
	if err := o.normalizer.findEarlier(&r); err != nil {
		return err
	}
	if len(r.Data) > largeRecord {
		return o.applyLarge(r)
	}
	return o.apply(r)
}

// fetch waits for the body of a record. If the object does not match its claim check, the record gets the error. Any
// other error ends the ownership, and the next one asks the broker again. The caller calls release when it is done
// with the record.
func (o *ownership) fetch(sequence uint64, b *body) (release func(), err error) {
	bodies := o.p.stage.bodies
	end := func() {}
	if b.done == nil {
		end = bodies.begin(o.ctx, b)
	}
	release = o.occupy(func() {
		bodies.release(b)
		end()
	})
	<-b.done // closed at the latest when o.ctx ends
	if _, permanent := records.Reason(b.err); b.err == nil || permanent {
		return release, nil
	}
	defer release()
	if o.ctx.Err() != nil {
		return nil, context.Cause(o.ctx)
	}
	return nil, fmt.Errorf("record %d: %w", sequence, b.err)
}

// apply normalizes a record and appends the result to the chunk that is built. The normalizer
// runs without the lock of the outbox, so that a slow record stops neither the committer nor the metrics.
func (o *ownership) apply(r received) error {
	if pacer := o.p.stage.config.Pacer; pacer != nil {
		if err := pacer.acquire(o.ctx); err != nil {
			return err
		}
		defer o.occupy(pacer.release)()
	}
	b := o.outbox
	if err := b.between.Acquire(o.ctx); err != nil {
		return err
	}
	defer func() {
		b.between.Release()
		o.p.cell.signalPending() // not earlier: the committer would skip the chunk and wait for the next record
	}()
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	out, err := o.normalizer.normalize(r, b.building)
	if err != nil {
		o.cancel(err) // the session may be half changed, so the committer must not seal the chunk
		return err
	}
	b.append(r, out)
	return nil
}

// largeRecord is the length of a record, in bytes, from which a worker normalizes and stores it while no other large
// record is in memory: normalizing may take many times as much memory.
const largeRecord = 1 << 20

// applyLarge is [ownership.apply] for a large record. Only one partition of the worker at a time has a large record
// in memory, from its normalization until it is stored.
func (o *ownership) applyLarge(r received) error {
	large := o.p.stage.large
	if err := large.Acquire(o.ctx); err != nil {
		return err
	}
	defer o.occupy(large.Release)()
	if err := o.apply(r); err != nil {
		return err
	}
	return o.outbox.waitUntil(o.outbox.allStored)
}
