package ship

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
)

// Bounds of the wait before a message is sent again.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// batchHeaders are the headers that [pipeline.PublishBatch] adds to a message, with their
// longest values.
var batchHeaders = map[string]string{
	"Nats-Batch-Id":       "0123456789012345678901",
	"Nats-Batch-Sequence": "1000",
	"Nats-Batch-Commit":   "1",
}

// Codes with which the server rejects a batch or message for its content.
const (
	codeMessageTooLarge = 10054 // exceeds max_msg_size of the stream
	codeHeadersTooLarge = 10097
	codeIncompleteBatch = 10176 // a message of it was rejected; only sending that one alone shows why
	codeDuplicate       = 10201 // a message of it is stored already
)

// publisher stores messages in the raw stream. Every message has an id, so it can be sent
// again whatever happened to the attempt before.
//
// One atomic batch is in flight at a time. The files that are ready when it is
// acknowledged go into the next one together: most of the cost of a batch does not depend
// on its size, so batches grow with the load.
type publisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	claims  *pipeline.Claims
	records int // limit of a batch, beside batchBytes
	logger  *slog.Logger
	onStall func(error) // called with why the broker takes no records, and with nil when it does again

	submitted chan *submission // closed when nothing more is published
	cause     string           // of the present stall; empty for none
}

// submission is the batch of one file. The publisher may join several into one atomic
// batch.
type submission struct {
	msgs   []parcel
	bytes  int // of records, those that travel by claim check included
	stored chan receipt
}

// receipt is the outcome of a submission, by index of its messages. Without err, all that
// are not rejected are stored.
type receipt struct {
	duplicate map[int]bool  // the broker already had the message
	rejected  map[int]error // the broker will never take the message
	err       error         // of the context, or errClosed
}

// connected waits for the first connection, which makes the limits of the broker known.
func (p *publisher) connected(ctx context.Context) error {
	return p.untilAnswered(ctx, func(context.Context) error { return nil })
}

// publish stores messages in their order and returns when they are stored. It waits for a
// broker that is away. It may be called concurrently, while run runs.
func (p *publisher) publish(msgs []parcel, bytes int) receipt {
	s := &submission{msgs, bytes, make(chan receipt, 1)}
	p.submitted <- s
	return <-s.stored
}

// run stores submissions until submitted is closed.
func (p *publisher) run(ctx context.Context) {
	for next := range p.submitted {
		for next != nil {
			var group []*submission
			group, next = p.gather(next)
			p.store(ctx, group)
		}
	}
}

// gather returns first and the submissions that wait behind it, up to a full batch. rest is
// the one that no longer fits.
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
			if records > p.records || bytes > batchBytes {
				return group, s
			}
			group = append(group, s)
		default:
			return group, nil
		}
	}
}

// store stores a group in one batch. A batch that the broker rejects for its content is
// split: into its submissions, then into its messages.
func (p *publisher) store(ctx context.Context, group []*submission) {
	var parcels []parcel
	for _, s := range group {
		parcels = append(parcels, s.msgs...)
	}
	if len(parcels) == 1 {
		group[0].stored <- p.storeSingly(ctx, parcels)
		return
	}
	msgs := make([]*nats.Msg, len(parcels))
	for i, m := range parcels {
		msgs[i] = m.Msg
	}
	err := p.untilStored(ctx, parcels, func(ctx context.Context) error {
		_, err := pipeline.PublishBatch(ctx, p.nc, msgs)
		return err
	})
	switch {
	case !rejects(err):
		for _, s := range group {
			s.stored <- receipt{err: err}
		}
	case len(group) == 1:
		group[0].stored <- p.storeSingly(ctx, parcels)
	default:
		for _, s := range group {
			p.store(ctx, []*submission{s})
		}
	}
}

// storeSingly stores messages one after the other. A later message must not be stored
// before an earlier one: its position would make the earlier one a duplicate.
func (p *publisher) storeSingly(ctx context.Context, msgs []parcel) receipt {
	r := receipt{duplicate: map[int]bool{}, rejected: map[int]error{}}
	for i, m := range msgs {
		for name := range batchHeaders {
			m.Header.Del(name)
		}
		err := p.untilStored(ctx, msgs[i:i+1], func(ctx context.Context) error {
			ack, err := p.js.PublishMsg(ctx, m.Msg)
			if err == nil && ack.Duplicate {
				r.duplicate[i] = true
			}
			return err
		})
		switch {
		case rejects(err):
			r.rejected[i] = err
		case err != nil:
			r.err = err
			return r
		}
	}
	return r
}

// untilStored is untilAnswered with an attempt that stores messages. Each attempt first puts
// the objects that the messages name, since objects that no message names are removed
// after a while, and the attempt before may have waited for long. To put an object that
// exists costs little. If ctx ends while an object is being put, nothing is lost.
func (p *publisher) untilStored(ctx context.Context, msgs []parcel, attempt func(context.Context) error) error {
	return p.untilAnswered(ctx, func(whole context.Context) error {
		for _, m := range msgs {
			if m.claimed == nil {
				continue
			}
			if _, err := p.claims.Put(ctx, m.claimed); err != nil {
				return err
			}
		}
		return attempt(whole)
	})
}

// wireSize is the size of a message in a batch that counts against the limit of the broker.
func wireSize(m *nats.Msg) int64 {
	size := m.Size() - len(m.Subject)
	for name, value := range batchHeaders {
		if m.Header.Get(name) == "" {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return int64(size)
}

// rejects reports whether err rejects the content of what was sent, so that sending the
// same in the same way fails again.
func rejects(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) {
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	switch api.ErrorCode {
	case codeMessageTooLarge, codeHeadersTooLarge, codeIncompleteBatch, codeDuplicate:
		return true
	default:
		return false
	}
}

// untilAnswered repeats an attempt until the broker accepts or rejects. The end of ctx does
// not cancel an attempt, which ends by its own timeout, so that its answer is not lost.
func (p *publisher) untilAnswered(ctx context.Context, attempt func(context.Context) error) error {
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := p.notConnected()
		if p.nc.IsConnected() {
			if err = attempt(context.WithoutCancel(ctx)); errors.Is(err, nats.ErrNoResponders) {
				err = fmt.Errorf("%w: start a worker (tributary run), which creates it: %w", errNoStream, err)
			}
		}
		switch {
		case err == nil || rejects(err):
			p.reportStall(ctx, nil)
			return err
		case p.nc.IsClosed() || p.nc.IsDraining():
			return fmt.Errorf("%w: %w", errClosed, err)
		}
		p.reportStall(ctx, err)
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// notConnected returns the error while there is no broker, or none that admits this client.
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

// reportStall reports when the broker stops taking records, when the cause changes, and
// when the broker takes them again.
func (p *publisher) reportStall(ctx context.Context, err error) {
	cause := ""
	if err != nil {
		cause = err.Error()
	}
	if p.cause == cause {
		return
	}
	p.cause = cause
	if err == nil {
		p.logger.InfoContext(ctx, "broker takes records again")
	} else {
		p.logger.WarnContext(ctx, "broker takes no records: waiting, nothing is lost", "error", err)
	}
	p.onStall(err)
}
