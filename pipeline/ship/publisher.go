package ship

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/ship/offsets"
	"tributary/pipeline/streams"
)

// Bounds of the wait before a message is sent again.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// batchBytes is the maximum size of a batch in bytes of records; its last record may exceed it.
const batchBytes = 4 << 20

// batchHeaders are the headers that [broker.PublishBatch] adds to a message, with their longest values.
var batchHeaders = map[string]string{
	"Nats-Batch-Id":       "0123456789012345678901",
	"Nats-Batch-Sequence": "1000",
	"Nats-Batch-Commit":   "1",
}

// publisher stores messages in the raw stream. Every message has an id, so it can be sent again whatever happened to
// the previous attempt.
//
// One atomic batch is in flight at a time. The files that are ready when it is acknowledged share the next one: most
// of the cost of a batch does not depend on its size, so batches grow with the load.
type publisher struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	claims    *claims.Store
	records   int // limit of a batch, beside batchBytes
	logger    *slog.Logger
	onRevived func()         // called for each message stored under another id, see storeOne
	onStall   func(error)    // called with the reason when the broker stops accepting records, and with nil when it accepts them again
	layout    streams.Layout // of the broker; zero for one cell
	guards    []*guard       // by cell
	watched   []*guard       // nil for an input
	once      bool           // does not wait for a missing stream

	pending   atomic.Int64     // messages passed to publish and not stored
	submitted chan *submission // closed when nothing more is published
	cause     string           // reason of the present stall; empty for none
	missing   time.Time        // since when the broker has had no stream; zero when it has one
	looks     <-chan time.Time // when to check the stream; nil for an interval
}

// submission is the batch of one file, with messages of one cell. The publisher may join several into one atomic
// batch.
type submission struct {
	cell   int
	msgs   []parcel
	bytes  int // bytes of records, including large objects
	stored chan receipt
}

// receipt is the outcome of a submission, by index of its messages. Without err, all messages that are not rejected
// are stored.
type receipt struct {
	duplicate map[int]bool      // the broker already had the message
	rejected  map[int]error     // the broker will never take the message
	last      streams.Positions // highest sequences of the messages, by cell; nil when all are rejected
	err       error             // of the context, errClosed, errStreamChanged, or errNoStream in a Once run
}

// connected waits for the first connection, which makes the limits of the broker known.
func (p *publisher) connected(ctx context.Context) error {
	return p.untilAnswered(ctx, func(context.Context) error { return nil })
}

// publish stores messages in order, and returns when they are stored. It waits while the broker is away. It may be
// called concurrently while run runs.
func (p *publisher) publish(msgs []parcel, bytes int) receipt {
	p.pending.Add(int64(len(msgs)))
	defer p.pending.Add(-int64(len(msgs)))
	all := receipt{duplicate: map[int]bool{}, rejected: map[int]error{}}
	for cell := range max(1, p.layout.Cells) {
		s := &submission{cell: cell, stored: make(chan receipt, 1)}
		var at []int // index in msgs
		for i, m := range msgs {
			if m.cell == cell {
				s.msgs, at = append(s.msgs, m), append(at, i)
			}
		}
		if at == nil {
			continue
		}
		s.bytes = bytes * len(at) / len(msgs)
		p.submitted <- s
		r := <-s.stored
		for i, duplicate := range r.duplicate {
			all.duplicate[at[i]] = duplicate
		}
		for i, err := range r.rejected {
			all.rejected[at[i]] = err
		}
		if n := r.last.In(cell); n > 0 {
			all.last = all.last.With(cell, n)
		}
		if all.err = r.err; all.err != nil {
			break
		}
	}
	return all
}

// run stores submissions until submitted is closed. Meanwhile it checks that the raw stream keeps what it
// acknowledged, and calls fail once if it does not.
func (p *publisher) run(ctx context.Context, fail func(error)) {
	looks := p.looks
	if looks == nil {
		watch := time.NewTicker(guardEvery / 4)
		defer watch.Stop()
		looks = watch.C
	}
	for {
		select {
		case next, ok := <-p.submitted:
			if !ok {
				return
			}
			for next != nil {
				var group []*submission
				group, next = p.gather(next)
				p.store(ctx, group)
			}
		case <-looks:
			if p.watched == nil || ctx.Err() != nil || !p.nc.IsConnected() {
				continue // a dry run watches nothing, and may have no connection
			}
			switch err := p.requireAll(context.WithoutCancel(ctx)); {
			case errors.Is(err, errStreamChanged):
				fail(err)
			case err == nil, errors.Is(err, errNoStream):
				p.reportStall(ctx, err) // any other error shows when something is published
			}
		}
	}
}

// requireAll is [guard.require] for all cells.
func (p *publisher) requireAll(ctx context.Context) error {
	for _, g := range p.watched {
		if err := g.require(ctx); err != nil {
			return err
		}
	}
	return nil
}

// gather returns first and the submissions waiting behind it, up to a full batch. rest is a submission that no longer
// fits, or belongs to another cell.
func (p *publisher) gather(first *submission) (group []*submission, rest *submission) {
	group = []*submission{first}
	records, bytes := len(first.msgs), first.bytes
	for {
		select {
		case s, ok := <-p.submitted:
			if !ok {
				return group, nil
			}
			records, bytes = records+len(s.msgs), bytes+s.bytes
			if records > p.records || bytes > batchBytes || s.cell != first.cell {
				return group, s
			}
			group = append(group, s)
		default:
			return group, nil
		}
	}
}

// store stores a group in one batch. It splits a batch that the broker rejects for its content: first into its
// submissions, then into single messages.
func (p *publisher) store(ctx context.Context, group []*submission) {
	var parcels []parcel
	for _, s := range group {
		parcels = append(parcels, s.msgs...)
	}
	if len(parcels) == 1 {
		group[0].stored <- p.storeSingly(ctx, group[0].cell, parcels)
		return
	}
	msgs := make([]*nats.Msg, len(parcels))
	for i, m := range parcels {
		msgs[i] = m.Msg
	}
	var last uint64
	cell := group[0].cell
	err := p.untilStored(ctx, cell, parcels, func(ctx context.Context) (err error) {
		last, err = broker.PublishBatch(ctx, p.nc, msgs)
		return err
	})
	switch {
	case err == nil:
		err = p.acknowledged(cell, last, msgs[len(msgs)-1])
		at := last - uint64(len(msgs))
		for _, s := range group {
			at += uint64(len(s.msgs))
			s.stored <- receipt{last: streams.Positions(nil).With(cell, at), err: err}
		}
	case !broker.Rejects(err):
		for _, s := range group {
			s.stored <- receipt{err: err}
		}
	case len(group) == 1:
		group[0].stored <- p.storeSingly(ctx, group[0].cell, parcels)
	default:
		for _, s := range group {
			p.store(ctx, []*submission{s})
		}
	}
}

// acknowledged notes that the broker stored m at a sequence. It returns errStreamChanged if the stream had given out
// that sequence before.
func (p *publisher) acknowledged(cell int, seq uint64, m *nats.Msg) error {
	o := p.guards[cell].offsets
	if o == nil || o.Acknowledge(cell, offsets.Checkpoint{Seq: seq, ID: m.Header.Get(nats.MsgIdHdr)}) {
		return nil
	}
	return errStreamChanged
}

// storeSingly stores messages one by one. A later message must not be stored before an earlier one: its position
// would make the earlier one a duplicate.
func (p *publisher) storeSingly(ctx context.Context, cell int, msgs []parcel) receipt {
	r := receipt{duplicate: map[int]bool{}, rejected: map[int]error{}}
	for i, m := range msgs {
		for name := range batchHeaders {
			m.Header.Del(name)
		}
		var ack *jetstream.PubAck
		err := p.untilStored(ctx, cell, msgs[i:i+1], func(ctx context.Context) (err error) {
			ack, err = p.storeOne(ctx, cell, m.Msg)
			return err
		})
		switch {
		case broker.Rejects(err):
			r.rejected[i] = err
			continue
		case err == nil:
			r.duplicate[i] = ack.Duplicate
			err = p.acknowledged(cell, ack.Sequence, m.Msg)
			if ack.Duplicate {
				err = nil // it may be of any sequence
			} else if id := m.Header.Get(nats.MsgIdHdr); strings.Contains(id, goneMark) {
				p.guards[cell].noteRevived(ctx, id)
				p.onRevived()
			}
		}
		if err != nil {
			r.err = err
			return r
		}
		r.last = r.last.With(cell, max(r.last.In(cell), ack.Sequence))
	}
	return r
}

// storeOne stores a message. The broker remembers message ids for a while, including those of purged messages. If it
// takes the message for a duplicate of a purged one, storeOne stores it under another id. That id contains the
// sequence of the purged message, so a retry after a lost acknowledgement is not stored twice.
func (p *publisher) storeOne(ctx context.Context, cell int, m *nats.Msg) (*jetstream.PubAck, error) {
	id := m.Header.Get(nats.MsgIdHdr)
	id, _, _ = strings.Cut(id, goneMark)
	for {
		ack, err := p.js.PublishMsg(ctx, m)
		if err != nil || !ack.Duplicate || ack.Sequence == 0 {
			return ack, err
		}
		holds, err := p.guards[cell].holds(ctx, ack.Sequence, m.Header.Get(nats.MsgIdHdr))
		if err != nil || holds {
			return ack, err
		}
		m.Header.Set(nats.MsgIdHdr, id+goneMark+strconv.FormatUint(ack.Sequence, 10))
	}
}

// goneMark separates the id of a message from the sequence of an equal message that was purged.
const goneMark = "-"

// untilStored is untilAnswered for an attempt that stores messages. Each attempt first puts the objects that the
// messages name, because objects that no message names are removed after a while, and the previous attempt may have
// waited for long. Putting an object again costs little. Nothing is lost if ctx ends meanwhile.
func (p *publisher) untilStored(ctx context.Context, cell int, msgs []parcel, attempt func(context.Context) error) error {
	return p.untilAnswered(ctx, func(whole context.Context) error {
		if err := p.guards[cell].require(whole); err != nil {
			return err
		}
		for _, m := range msgs {
			if m.claimed == nil {
				continue
			}
			if err := p.put(ctx, m); err != nil {
				return err
			}
		}
		return attempt(whole)
	})
}

// put stores the object of a message, in a span of the record's trace.
func (p *publisher) put(ctx context.Context, m parcel) error {
	ctx, span := m.span.TracerProvider().Tracer("tributary/pipeline/ship").Start(trace.ContextWithSpan(ctx, m.span), "put object",
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("put")))
	claim, err := p.claims.Put(ctx, m.claimed)
	if err == nil && span.IsRecording() {
		span.SetAttributes(records.ObjectAttributes(claim)...)
	}
	endSpan(span, err)
	return err
}

// wireSize returns the size of a message in a batch, as it counts against the limit of the broker.
func wireSize(m *nats.Msg) int64 {
	size := m.Size() - len(m.Subject)
	for name, value := range batchHeaders {
		if m.Header.Get(name) == "" {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return int64(size)
}

// untilAnswered repeats an attempt until the broker accepts or rejects. An attempt ends by its own timeout, not by
// ctx, so that its answer is not lost.
func (p *publisher) untilAnswered(ctx context.Context, attempt func(context.Context) error) error {
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := p.notConnected()
		if p.nc.IsConnected() {
			if err = attempt(context.WithoutCancel(ctx)); errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, errNoStream) {
				err = noStream(err)
			}
		}
		switch {
		case err == nil, broker.Rejects(err), errors.Is(err, errStreamChanged):
			p.missing = time.Time{}
			p.reportStall(ctx, nil)
			return err
		case p.once && (p.streamMissing(err) || errors.Is(err, errDiscards)):
			return err
		case p.nc.IsClosed() || p.nc.IsDraining():
			return fmt.Errorf("%w: %w", errClosed, err)
		}
		p.reportStall(ctx, err)
		for _, g := range p.guards {
			g.compared = time.Time{} // whatever keeps the broker from answering may change the stream
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// missingLimit is how long a Once run waits for a missing stream: long enough for a worker that starts at the same
// time.
const missingLimit = 15 * time.Second

// streamMissing reports whether the stream has been missing for missingLimit.
func (p *publisher) streamMissing(err error) bool {
	switch {
	case !errors.Is(err, errNoStream):
		p.missing = time.Time{}
	case p.missing.IsZero():
		p.missing = time.Now()
	}
	return !p.missing.IsZero() && time.Since(p.missing) >= missingLimit
}

// notConnected returns an error while no broker accepts the connection of this client.
func (p *publisher) notConnected() error {
	var hosts []string
	for _, server := range p.nc.Servers() {
		if u, err := url.Parse(server); err == nil {
			hosts = append(hosts, u.Host) // without the user
		}
	}
	at := strings.Join(hosts, ", ")
	if err := p.nc.LastError(); errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return fmt.Errorf("%w at %s: check the credentials in the NATS_ settings: %w", errNotConnected, at, err)
	}
	return fmt.Errorf("%w at %s: start it, or name another one", errNotConnected, at)
}

// reportStall logs and reports why the broker accepts no records: when it stops accepting them, when the reason
// changes, and when it accepts them again.
func (p *publisher) reportStall(ctx context.Context, err error) {
	cause := ""
	if err != nil {
		cause = err.Error()
	}
	if err != nil {
		p.logger.WarnContext(ctx, "broker takes no records: waiting, nothing is lost", "error", err)
	}
	if p.cause == cause {
		return
	}
	p.cause = cause
	if err == nil {
		p.logger.InfoContext(ctx, "broker takes records again")
	}
	p.onStall(err)
}
