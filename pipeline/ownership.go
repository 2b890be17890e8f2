package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/normalizers"
)

// ownership is one claim of a partition, with everything that this worker has in memory
// about it: all of it is dropped, as one, when anything is in doubt. The goroutine of the
// partition reads and normalizes; the committer takes what is there between two records.
type ownership struct {
	p      *partition
	ctx    context.Context // ends with the ownership; its cause says why
	cancel context.CancelCauseFunc

	// These belong to the goroutine of the partition.
	sessions *sessions
	resume   Checkpoint // where it began
	suspect  bool       // the next record may be the one that ends processes
	crashed  bool       // it is, and must not be tried any more
	careful  int        // records still to be committed one at a time

	moved chan struct{} // something was taken or stored

	mu         sync.Mutex
	checkpoint Checkpoint // the newest
	sequence   uint64     // of it in the events stream
	building   *chunk     // takes records
	sealed     *chunk     // is being stored; nil when none is
	stored     uint64     // number of the last chunk that is stored in full
	tries      int        // as in the checkpoint, without an attempt that is under way
}

func newOwnership(ctx context.Context, p *partition, c Checkpoint, sequence uint64) *ownership {
	cfg := p.stage.config
	o := &ownership{
		p:          p,
		sessions:   newSessions(p.stage.js, cfg.Topology.Generation, p.number, cfg.SessionBytes/cfg.Topology.Partitions, cfg.Profile),
		resume:     c,
		suspect:    c.Tries > maxTogether,
		crashed:    c.Tries > maxAlone,
		moved:      make(chan struct{}, 1),
		checkpoint: c,
		sequence:   sequence,
		building:   newChunk(1),
		tries:      c.Tries,
	}
	if o.suspect {
		o.careful = aloneFor
	}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	return o
}

// end ends the ownership and returns the attempts without progress.
func (o *ownership) end() int {
	o.cancel(nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tries
}

// progress reports whether anything was stored.
func (o *ownership) progress() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stored > 0
}

// oldest is when the broker stored the oldest record that is in memory and not done;
// false when there is none.
func (o *ownership) oldest() (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.sealed != nil:
		return o.sealed.oldest, true
	case o.building.records > 0:
		return o.building.oldest, true
	default:
		return time.Time{}, false
	}
}

// work reads the partition from behind its checkpoint, until it is drained and all is
// stored (nil), or the ownership ends (why).
func (o *ownership) work() error {
	r, err := openReader(o.ctx, o.p.stage.js, o.p.number, o.checkpoint.Raw+1)
	if err != nil {
		return err
	}
	defer r.close()
	o.p.unread.Store(int64(r.pending))
	if r.pending == 0 {
		o.p.behind.Store(0)
	}
	for {
		run, err := r.next(o.ctx, o.p.drain)
		if err != nil {
			return err
		}
		if run == nil {
			return o.settle()
		}
		o.p.unread.Store(int64(run[len(run)-1].pending))
		o.p.open.Add(int64(len(run)))
		o.p.behind.Store(run[0].stored.UnixNano())
		for records := o.read(run); len(records) > 0 && !closed(o.p.drain); {
			n, err := o.load(records)
			if err != nil {
				return err
			}
			if err := o.handleAll(records[:n]); err != nil {
				return err
			}
			records = records[n:]
		}
		o.p.behind.Store(0)
	}
}

// handleAll brings records into the next chunks, until the partition is to be drained.
// Bodies are fetched ahead of their turn, unless one of the records may be the one that
// ends processes: then each is fetched when it is tried.
func (o *ownership) handleAll(records []record) error {
	if !o.suspect && o.careful == 0 {
		var ahead []*body
		for _, r := range records {
			if r.body != nil && o.p.condemned[r.Sequence] == nil { // whose body nobody waits for
				ahead = append(ahead, r.body)
			}
		}
		defer o.p.stage.bodies.begin(o.ctx, ahead...)()
	}
	for _, r := range records {
		if closed(o.p.drain) {
			return nil
		}
		if err := o.handle(r); err != nil {
			return err
		}
	}
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// record is a raw message that has been read, or the reason why it cannot be.
type record struct {
	raw rawMessage
	normalizers.Record
	body *body // of which its Data come; nil when they came with the message
	err  error
}

func (r *record) key() sessionKey { return sessionKey{r.Source, r.Session} }

// addressed reports whether the subject tells the session of r, also where the rest of it
// cannot be read.
func (r *record) addressed() bool { return r.Source != envelopes.UnknownSource }

// read reads the messages of a run.
func (o *ownership) read(run []rawMessage) []record {
	records := make([]record, len(run))
	for i, m := range run {
		r := record{raw: m}
		var claim Claim
		r.Record, claim, r.err = ReadRecord(m.Msg, m.sequence, m.stored)
		if r.addressed() && r.err == nil && claim != (Claim{}) {
			r.body = &body{claim: claim}
		}
		records[i] = r
	}
	return records
}

// load loads the sessions of the next records, as many as memory allows, and returns of how
// many records.
func (o *ownership) load(records []record) (n int, err error) {
	o.mu.Lock()
	stored, sequence := o.stored, o.sequence
	o.mu.Unlock()
	c := o.sessions
	c.trim(stored)
	for before := c.bytes; n < len(records) && c.bytes-before <= c.limit; {
		var missing []sessionKey
		for ; n < len(records) && len(missing) < loadTogether; n++ {
			if k := records[n].key(); records[n].addressed() && c.live[k] == nil && !slices.Contains(missing, k) {
				missing = append(missing, k)
			}
		}
		if len(missing) == 0 {
			break
		}
		if err := c.load(o.ctx, missing, sequence); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// handle brings a record into the next chunk, when there is room for it.
func (o *ownership) handle(r record) error {
	o.p.behind.Store(r.raw.stored.UnixNano())
	if o.suspect {
		return o.handleSuspect(r)
	}
	room := func() bool { return !o.building.full() }
	if o.careful > 0 {
		o.careful--
		room = o.idle
	}
	if err := o.await(room); err != nil {
		return err
	}
	return o.process(r)
}

// handleSuspect tries a record alone and notes the attempt before: one that ends the
// process is found by the attempts that nobody survived. Whatever else can end a process
// must not be held against it, so no other record is tried alone meanwhile, and after an
// attempt that failed the next one waits for a while: death from outside, or by a record
// of another partition, then finds it waiting.
func (o *ownership) handleSuspect(r record) error {
	o.suspect = false
	if o.crashed {
		return o.process(r)
	}
	if n := o.tries - maxTogether - 1; n > 0 {
		wait := retryAlone << (2 * (n - 1))
		if err := pause(o.ctx, wait+rand.N(wait)); err != nil {
			return err
		}
	}
	select {
	case o.p.stage.alone <- struct{}{}:
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	}
	defer func() { <-o.p.stage.alone }()
	if err := o.restate(o.tries + 1); err != nil {
		return err
	}
	if err := o.process(r); err != nil {
		return err
	}
	return o.await(o.idle)
}

// settle waits until everything is stored. A clean end is no failed attempt: the count is
// taken back, unless it is already about one record.
func (o *ownership) settle() error {
	if err := o.await(o.idle); err != nil {
		return err
	}
	if tries := o.checkpoint.Tries; tries == 0 || tries > maxTogether {
		return nil
	}
	return o.restate(0)
}

// idle reports whether nothing is left to be stored.
func (o *ownership) idle() bool { return o.building.records == 0 && o.sealed == nil }

// await waits until ok, which is called with the lock held.
func (o *ownership) await(ok func() bool) error {
	for {
		o.mu.Lock()
		done := ok()
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-o.moved:
		case <-o.ctx.Done():
			return context.Cause(o.ctx)
		}
	}
}

// restate stores the checkpoint again with another count of attempts. Nothing else of
// the partition may be on its way.
func (o *ownership) restate(tries int) error {
	o.mu.Lock()
	c, last := o.checkpoint, o.sequence
	o.mu.Unlock()
	c.Tries = tries
	s := o.p.stage
	sequence, err := c.store(o.ctx, s.js, s.config.Topology.Generation, o.p.number, last)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkpoint, o.sequence = c, sequence
	return nil
}

// process fetches what is missing of a record, folds it into its session, and puts what
// it yields into the chunk.
func (o *ownership) process(r record) error {
	if r.body == nil || o.crashed || o.p.condemned[r.Sequence] != nil {
		return o.store(r)
	}
	bodies := o.p.stage.bodies
	if r.body.done == nil {
		defer bodies.begin(o.ctx, r.body)()
	}
	<-r.body.done // which ends with o.ctx
	defer bodies.release(r.body)
	r.Data = r.body.data
	if r.err = r.body.err; r.err != nil {
		if _, permanent := Reason(r.err); !permanent {
			if o.ctx.Err() != nil {
				return context.Cause(o.ctx)
			}
			return fmt.Errorf("record %d: %w", r.Sequence, r.err) // the broker is asked again
		}
	}
	return o.store(r)
}

// large is the length of a record that is worked on alone: while it is read, and until what
// it yields is stored, it may take many times as much memory.
const large = 1 << 20

// store folds a record into its session and puts what it yields into the chunk. Of all
// partitions only one at a time has a large record in its hands.
func (o *ownership) store(r record) error {
	if len(r.Data) <= large {
		return o.add(r)
	}
	select {
	case o.p.stage.large <- struct{}{}:
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	}
	defer func() { <-o.p.stage.large }()
	if err := o.add(r); err != nil {
		return err
	}
	return o.await(o.idle)
}

// add is [ownership.store] for a record whose turn it is.
func (o *ownership) add(r record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	cause := r.err
	if err := o.p.condemned[r.Sequence]; err != nil {
		cause = err
	}
	crashed := o.crashed
	if crashed {
		cause, o.crashed = ErrCrashed, false
	}
	var messages []message
	var err error
	if cause == nil {
		if messages, cause, err = o.fold(r); err != nil {
			// The session may be half changed. The committer must not take it, and it
			// could, between the end of this lock and the end of the work.
			o.cancel(err)
			return err
		}
	}
	if cause != nil {
		messages = o.reject(r, cause)
	}
	skip := 0
	switch {
	case crashed: // what is stored of it came of an attempt; this is new
	case r.Sequence < o.resume.Out:
		skip = len(messages)
	case r.Sequence == o.resume.Out && o.resume.Part <= len(messages): // else it can be read no more
		skip = o.resume.Part
	}
	c := o.building
	c.tally.add(countRecords, r.Source, "", 1)
	c.add(r.raw, messages, skip)
	if o.p.stage.telemetry.tracing {
		if link := contextOf(o.ctx, r.Origin.Traceparent, r.Origin.Tracestate); link.IsValid() {
			c.links = append(c.links, trace.Link{SpanContext: link})
		}
	}
	o.p.stage.waken()
	return nil
}

// fold normalizes a record. A cause makes it a dead letter; an error ends the ownership.
func (o *ownership) fold(r record) (messages []message, cause, err error) {
	live := o.sessions.use(r.key())
	forgotten := live.state.Forgotten()
	result, panicked, err := o.normalize(live.state, r.Record)
	switch _, permanent := Reason(err); {
	case panicked:
		return nil, nil, o.p.condemn(r.Sequence, err)
	case permanent:
		return nil, err, nil
	case err != nil:
		return nil, nil, err
	}
	c := o.building
	messages = make([]message, len(result.Events))
	size := 0
	for i := range result.Events {
		if messages[i], err = o.event(&result.Events[i]); err != nil {
			return nil, nil, o.p.condemn(r.Sequence, err)
		}
		if size += messages[i].size; size > commitBytes {
			// The events share what they repeat, messages do not: of a short record they
			// can be gigabytes.
			messages[i].Msg, messages[i].event = nil, &result.Events[i]
		}
		c.tally.add(countEvents, r.Source, string(result.Events[i].Event.EventType), 1)
	}
	if result.Skip != "" {
		c.tally.add(countSkipped, r.Source, string(result.Skip), 1)
	}
	if result.Gap {
		c.tally.add(countGaps, r.Source, "", 1)
	}
	c.tally.add(countForgotten, r.Source, "", int64(live.state.Forgotten()-forgotten))
	c.change(live)
	o.sessions.changed(live, c.number)
	return messages, nil, nil
}

// normalize calls the normalizer. A panic that comes out of it leaves the session in
// doubt, unlike one that it has caught itself.
func (o *ownership) normalize(s *normalizers.Session, r normalizers.Record) (result normalizers.Result, panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, &normalizers.PanicError{Value: v, Stack: debug.Stack()}
		}
		if caught, ok := errors.AsType[*normalizers.PanicError](err); ok {
			o.p.log.Error("normalizer panicked", slog.Uint64("sequence", r.Sequence), slog.String("source", string(r.Source)),
				slog.String("error", caught.Error()), slog.String("stack", string(caught.Stack)))
		}
	}()
	result, err = o.p.stage.config.Normalize(s, r)
	return result, false, err
}

// event is the message of an event.
func (o *ownership) event(e *normalizers.Emitted) (message, error) {
	cfg := o.p.stage.config
	header, data, err := envelopes.EncodeEvent(&e.Event, envelopes.Provenance{
		Generation:  cfg.Topology.Generation,
		Partition:   o.p.number,
		RawStream:   RawStream,
		RawSequence: e.Sequence,
		Traceparent: e.Traceparent,
		Tracestate:  e.Tracestate,
	}, cfg.Mode)
	if err != nil {
		return message{}, err
	}
	h := nats.Header(header)
	if hashed(e.Event.SessionID) {
		h[envelopes.HeaderSession] = []string{envelopes.EncodeHeaderValue(e.Event.SessionID)}
	}
	if o.p.stage.ttl != "" {
		h[jetstream.MsgTTLHeader] = []string{o.p.stage.ttl}
	}
	if contextOf(o.ctx, e.Traceparent, e.Tracestate).IsValid() {
		setTrace(h, e.Traceparent, e.Tracestate)
	}
	m := &nats.Msg{Subject: envelopes.EventSubject(cfg.Topology.Generation, &e.Event), Header: h, Data: data}
	size := headerSize(h)
	if size > maxHeaderBytes || int64(size+len(data)+batchHeaderBytes) > o.p.stage.nc.MaxPayload() {
		return message{}, ErrUnpublishable
	}
	return message{Msg: m, size: size + len(data)}, nil
}

// reject makes a record that cannot be read a dead letter, and its session remember that
// it is open: stored with it, in one batch. A duplicate is nothing.
func (o *ownership) reject(r record, cause error) []message {
	if r.addressed() {
		c, live := o.building, o.sessions.use(r.key())
		if !live.state.Reject(r.Record) {
			c.tally.add(countSkipped, r.Source, string(normalizers.SkipDuplicate), 1)
			return nil
		}
		c.change(live)
		o.sessions.changed(live, c.number)
	}
	return []message{o.deadLetter(r, cause)}
}

// deadLetter is the message of a record that cannot be read.
func (o *ownership) deadLetter(r record, cause error) message {
	reason, _ := Reason(cause)
	o.building.tally.add(countDeadLetters, r.Source, reason, 1)
	s := o.p.stage
	r.Data = r.raw.Data // of a claim the reference is kept, in the headers, and not the bytes
	m := deadLetter(s.config.Topology.Generation, o.p.number, r.Record, r.raw.Header, cause, s.nc.MaxPayload())
	return message{Msg: m, size: headerSize(m.Header) + len(m.Data)}
}
