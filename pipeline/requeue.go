package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Requeued is what became of a dead letter that was to be requeued.
type Requeued string

// The outcomes of a requeue.
const (
	RequeuedNow       Requeued = "requeued"   // its record is in the raw stream again
	RequeuedBefore    Requeued = "waiting"    // it was, minutes ago: nothing was stored
	RequeuedSettled   Requeued = "settled"    // the record was read since, or is dead again as another
	RequeuedForgotten Requeued = "forgotten"  // the session cannot tell whether it was
	RequeuedNowhere   Requeued = "no_session" // its subject names no session to append it to
	RequeuedGone      Requeued = "gone"       // no stream has the bytes any more
	RequeuedTooLarge  Requeued = "too_large"  // with its new headers it does not fit a message
)

// Done reports whether nothing is left to do about the dead letter.
func (r Requeued) Done() bool {
	return r == RequeuedNow || r == RequeuedBefore || r == RequeuedSettled
}

// Requeueable returns what would become of the dead letter if it were requeued, as far as
// its headers and its session tell: [RequeuedNow] when it can be.
func (l *DeadLetter) Requeueable() Requeued {
	switch {
	case !l.addressed():
		return RequeuedNowhere
	case l.Standing == normalizers.StandingSettled:
		return RequeuedSettled
	case l.Standing == normalizers.StandingForgotten:
		return RequeuedForgotten
	default:
		return RequeuedNow
	}
}

// How many messages of a requeue are on their way together, and how large they are.
const (
	requeueMessages = 200
	requeueBytes    = batchBytes
	requeueHeaders  = 128 // bytes that a batch adds to the headers of a message, first line included
)

// Requeue publishes the records of dead letters to the raw stream again, where they are
// appended to their sessions: the bytes, and the headers that say what the record is, but
// not where it stood in its file. It tells what became of each, in their order; letters
// that cannot be read are left out. An error ends it: what was told stays.
//
// A record yields its events once, however often it is requeued and wherever that is cut
// off. The new record names the one that it repeats ([envelopes.HeaderRequeued]), and its
// session takes it only while that one is open: the session noted it as open in the batch
// that stored the dead letter, and notes it as settled in the batch that stores the
// events, or the next dead letter. So:
//   - Cut off before the raw stream has the record: the dead letter is open, nothing
//     happened.
//   - Cut off after it, or requeued by two at once: the second copy is dropped by the
//     broker within ten minutes, for both have the same message id, and by the session
//     ever after.
//   - A worker that dies in between does the record again, from the state before it.
//   - Another generation has its own dead letters: where the first record could be read,
//     its copies are duplicates.
//
// The dead letter stays where it is, and may be purged before or after its record is read.
func Requeue(ctx context.Context, js jetstream.JetStream, letters iter.Seq2[DeadLetter, error], tell func(DeadLetter, Requeued)) error {
	r := requeue{js: js, tell: tell}
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
	return wrap(r.flush(ctx), "requeue")
}

// requeue is the work of [Requeue].
type requeue struct {
	js       jetstream.JetStream
	tell     func(DeadLetter, Requeued)
	waiting  []outcome   // in the order of the letters
	messages []*nats.Msg // of those in waiting that are on their way
	bytes    int
}

// outcome is a dead letter whose outcome is not told yet.
type outcome struct {
	letter DeadLetter
	is     Requeued
	sent   *nats.Msg // nil when nothing is to be sent
}

// add takes a dead letter in.
func (r *requeue) add(ctx context.Context, l DeadLetter) error {
	o := outcome{letter: l, is: l.Requeueable()}
	if o.is == RequeuedNow {
		data, err := l.Load(ctx, r.js)
		switch {
		case errors.Is(err, ErrRecordGone):
			o.is = RequeuedGone
		case err != nil:
			return err
		default:
			o.sent = l.message(data)
		}
	}
	if m := o.sent; m != nil {
		size := headerSize(m.Header) + len(m.Data)
		switch {
		case int64(size+requeueHeaders) > r.js.Conn().MaxPayload():
			o.is, o.sent = RequeuedTooLarge, nil
		case len(r.messages) == requeueMessages || len(r.messages) > 0 && r.bytes+size > requeueBytes:
			if err := r.flush(ctx); err != nil {
				return err
			}
			fallthrough
		default:
			r.messages, r.bytes = append(r.messages, m), r.bytes+size
		}
	}
	r.waiting = append(r.waiting, o)
	if len(r.waiting) >= requeueMessages {
		return r.flush(ctx)
	}
	return nil
}

// message is the raw record that repeats that of l.
func (l *DeadLetter) message(data []byte) *nats.Msg {
	m := nats.NewMsg("raw." + string(l.Source) + "." + l.token)
	m.Data = data // empty where a claim names the bytes
	for _, name := range requeuedHeaders {
		if v := l.Header[name]; len(v) > 0 {
			m.Header[name] = v
		}
	}
	m.Header[envelopes.HeaderRequeued] = []string{strconv.FormatUint(l.Sequence, 10)}
	m.Header[nats.MsgIdHdr] = []string{"requeue-" + strconv.FormatUint(l.Sequence, 10)}
	return m
}

// codeDuplicate is what the server says of a batch with a message that it has already.
const codeDuplicate = 10201

// flush stores what is waiting and tells the outcomes.
func (r *requeue) flush(ctx context.Context) error {
	duplicates := make(map[*nats.Msg]bool)
	if len(r.messages) > 0 {
		_, err := PublishBatch(ctx, r.js.Conn(), r.messages)
		if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeDuplicate {
			err = r.singly(ctx, duplicates)
		}
		if err != nil {
			return err
		}
	}
	for _, o := range r.waiting {
		if duplicates[o.sent] {
			o.is = RequeuedBefore
		}
		r.tell(o.letter, o.is)
	}
	r.waiting, r.messages, r.bytes = nil, nil, 0
	return nil
}

// singly stores the messages one after the other, and notes those that the broker had.
func (r *requeue) singly(ctx context.Context, duplicates map[*nats.Msg]bool) error {
	for _, m := range r.messages {
		for _, name := range []string{batchIDHeader, batchSequenceHeader, batchCommitHeader} {
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
