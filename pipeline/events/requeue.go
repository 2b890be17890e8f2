package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Requeued is the outcome of requeuing a dead letter.
type Requeued string

// The outcomes.
const (
	RequeuedNow       Requeued = "requeued"   // a copy of the record is in the raw stream
	RequeuedBefore    Requeued = "waiting"    // a copy was stored minutes ago, so no second one was
	RequeuedSettled   Requeued = "settled"    // a copy was read, or is a dead letter itself
	RequeuedForgotten Requeued = "forgotten"  // the session no longer knows whether a copy was read
	RequeuedNowhere   Requeued = "no_session" // the subject names no session to append the copy to
	RequeuedGone      Requeued = "gone"       // no stream has the bytes
	RequeuedTooLarge  Requeued = "too_large"  // with its new headers, the copy does not fit a message
)

// Done reports whether the dead letter needs no further attempt.
func (r Requeued) Done() bool {
	return r == RequeuedNow || r == RequeuedBefore || r == RequeuedSettled
}

// requeueCures say why a dead letter was not requeued, and what helps.
var requeueCures = map[Requeued]string{
	RequeuedForgotten: "its session no longer knows whether it was read: process it in a new generation",
	RequeuedNowhere:   "its subject names no session: write its bytes to a file with dlq export, and ship the file",
	RequeuedGone:      "its bytes did not fit the dead letter, and are no longer in the raw stream",
	RequeuedTooLarge:  "with its headers it no longer fits a message of the broker: raise max_payload",
}

// Cure returns why a dead letter was not requeued, and what helps; empty for an outcome that is done.
func (r Requeued) Cure() string { return requeueCures[r] }

// Requeueable predicts the outcome of requeuing the dead letter from its headers and its session: [RequeuedNow] if it
// can be requeued.
func (l *DeadLetter) Requeueable() Requeued {
	switch {
	case !l.addressed():
		return RequeuedNowhere
	case l.Standing == core.StandingSettled:
		return RequeuedSettled
	case l.Standing == core.StandingForgotten:
		return RequeuedForgotten
	default:
		return RequeuedNow
	}
}

// Limits of the batches of a requeue.
const (
	requeueMessages = 200
	requeueBytes    = broker.BatchBytes
	requeueHeaders  = 128 // added by a batch to the headers of a message, first line included
)

// Requeue publishes copies of the records of dead letters to the raw stream, which appends them to their sessions. A
// copy has the bytes of the record and the headers that describe it, but not its position in its file. Requeue calls
// report with the outcome of each dead letter, in order, and skips messages that are no dead letters. It stops at the
// first error; reported outcomes stand.
//
// A record yields its events once, however often it is requeued and wherever Requeue is interrupted. A copy names the
// record that it repeats ([envelopes.HeaderRequeued]), and its session reads it only while that record is open. The
// session notes the record as open in the batch that stores the dead letter, and as settled in the batch that stores
// the events, or the dead letter, of a copy. So:
//   - Interrupted before the raw stream has the copy: the record is open, nothing happened.
//   - Interrupted after that, or requeued by two processes at once: within two minutes the broker drops a second
//     copy, because both have the same message id; the session drops it at any time.
//   - A worker that dies in between normalizes the copy again, from the state before it.
//   - Another generation has its own dead letters: if it could read the record, a copy is a duplicate.
//
// The dead letter stays in its stream, and may be purged before or after the copy is read.
//
// If ctx has a span, the publication of each copy is a span of the same tracer in the trace of its record, with a
// link to the publication of the dead letter, and the copy gets its context. Otherwise the copy has the context of
// the record.
func Requeue(ctx context.Context, js jetstream.JetStream, letters iter.Seq2[DeadLetter, error], report func(DeadLetter, Requeued)) error {
	layout, err := streams.ReadLayout(ctx, js)
	if err != nil {
		return fmt.Errorf("requeue: %w", err)
	}
	r := requeue{js: js, layout: layout, report: report}
	for l, err := range letters {
		if errors.Is(err, ErrDeadLetter) {
			continue
		}
		if err == nil {
			err = r.add(ctx, l)
		}
		if err != nil {
			return fmt.Errorf("requeue: %w", err)
		}
	}
	return broker.Wrap(r.flush(ctx), "requeue")
}

// requeue collects the copies of one batch, and the outcomes that depend on it.
type requeue struct {
	js       jetstream.JetStream
	layout   streams.Layout
	cell     int // of the batch
	report   func(DeadLetter, Requeued)
	outcomes []outcome   // not reported yet, in the order of the letters
	messages []*nats.Msg // the copies among them
	bytes    int         // of messages
}

// outcome is a dead letter whose outcome is not reported yet.
type outcome struct {
	letter DeadLetter
	is     Requeued
	sent   *nats.Msg  // the copy; nil if none is sent
	span   trace.Span // of the publication of the copy
}

// add adds a dead letter, and flushes the batch when it is full.
func (r *requeue) add(ctx context.Context, l DeadLetter) error {
	if l.Cell != r.cell { // a batch belongs to one stream
		if err := r.flush(ctx); err != nil {
			return err
		}
		r.cell = l.Cell
	}
	o, err := r.prepare(ctx, l)
	if err != nil {
		return err
	}
	if o.sent != nil {
		size := broker.MessageSize(o.sent)
		if len(r.messages) > 0 && r.bytes+size > requeueBytes {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
		r.messages, r.bytes = append(r.messages, o.sent), r.bytes+size
	}
	r.outcomes = append(r.outcomes, o)
	if len(r.outcomes) >= requeueMessages {
		return r.flush(ctx)
	}
	return nil
}

// prepare makes the copy of a dead letter's record, or sets why there is none.
func (r *requeue) prepare(ctx context.Context, l DeadLetter) (outcome, error) {
	o := outcome{letter: l, is: l.Requeueable(), span: noop.Span{}}
	if o.is != RequeuedNow {
		return o, nil
	}
	data, err := l.Load(ctx, r.js)
	if errors.Is(err, ErrRecordGone) {
		o.is = RequeuedGone
		return o, nil
	}
	if err != nil {
		return outcome{}, err
	}
	o.sent = l.requeuedMessage(r.layout, data)
	o.span = l.traceRequeue(ctx, o.sent)
	if int64(broker.MessageSize(o.sent)+requeueHeaders) > r.js.Conn().MaxPayload() {
		broker.FailSpan(o.span, "the copy does not fit a message", string(RequeuedTooLarge))
		o.span.End()
		o.is, o.sent, o.span = RequeuedTooLarge, nil, noop.Span{}
	}
	return o, nil
}

// requeuedMessage returns the copy of the record of l.
func (l *DeadLetter) requeuedMessage(layout streams.Layout, data []byte) *nats.Msg {
	m := nats.NewMsg("raw." + string(l.Source) + "." + l.token)
	if layout.Cells > 1 {
		m.Subject = "raw." + strconv.Itoa(l.Partition) + "." + string(l.Source) + "." + l.token
	}
	m.Data = data // empty if a claim check names the bytes
	for _, name := range requeuedHeaders {
		if v := l.Header[name]; len(v) > 0 {
			m.Header[name] = v
		}
	}
	m.Header[envelopes.HeaderRequeued] = []string{strconv.FormatUint(l.Sequence, 10)}
	m.Header[nats.MsgIdHdr] = []string{"requeue-" + strconv.FormatUint(l.Sequence, 10)}
	return m
}

// flush stores the copies and reports the outcomes.
func (r *requeue) flush(ctx context.Context) error {
	duplicates := make(map[*nats.Msg]bool)
	if len(r.messages) > 0 {
		_, err := broker.PublishBatch(ctx, r.js.Conn(), r.messages)
		if broker.IsDuplicate(err) {
			err = r.publishEach(ctx, duplicates)
		}
		if err != nil {
			r.endSpans(err)
			return err
		}
	}
	r.endSpans(nil)
	for _, o := range r.outcomes {
		if duplicates[o.sent] {
			o.is = RequeuedBefore
		}
		r.report(o.letter, o.is)
	}
	r.outcomes, r.messages, r.bytes = nil, nil, 0
	return nil
}

// endSpans ends the spans of the copies.
func (r *requeue) endSpans(err error) {
	for _, o := range r.outcomes {
		if err != nil && o.sent != nil {
			broker.FailSpan(o.span, "the copy was not stored", OutcomeOf(err))
		}
		o.span.End()
	}
}

// publishEach stores the copies one by one, and notes those that the broker already had.
func (r *requeue) publishEach(ctx context.Context, duplicates map[*nats.Msg]bool) error {
	for _, m := range r.messages {
		for _, name := range []string{broker.BatchIDHeader, broker.BatchSequenceHeader, broker.BatchCommitHeader} {
			m.Header.Del(name)
		}
		ack, err := r.js.PublishMsg(ctx, m)
		if err != nil {
			return err
		}
		duplicates[m] = ack.Duplicate
	}
	return nil
}
