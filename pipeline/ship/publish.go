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

// How long to wait before the same is sent again.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// batchHeaders are what [pipeline.PublishBatch] adds to a message, with their longest
// values.
var batchHeaders = map[string]string{
	"Nats-Batch-Id":       "0123456789012345678901",
	"Nats-Batch-Sequence": "1000",
	"Nats-Batch-Commit":   "1",
}

// Server codes of a batch or message that is refused for what it holds.
const (
	codeMessageTooLarge = 10054 // longer than the stream takes
	codeHeadersTooLarge = 10097
	codeIncompleteBatch = 10176 // a message of it was refused; only its own answer tells why
	codeDuplicate       = 10201 // a message of it is stored already
)

// publisher stores messages in the raw stream. Every message carries an id, so that the
// same may be sent again whatever became of it before.
//
// One atomic batch is on its way at a time, and the files that are ready when it comes
// back share the next: a batch has its price whatever its size, so batches grow with
// load by themselves.
type publisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	claims  *pipeline.Claims
	records int // in one batch at most
	bytes   int
	logger  *slog.Logger
	stalled func(error) // told why the broker takes nothing, nil when it does

	submitted chan *submission
	cause     string // of the stall
}

// submission is what one file has for the broker.
type submission struct {
	msgs   []parcel
	bytes  int // of records, those that travel by claim check included
	stored chan receipt
}

// receipt is what became of the messages of a submission. Without err those that are
// not refused are stored.
type receipt struct {
	known   map[int]bool  // messages that the broker already had
	refused map[int]error // messages that it will never take
	err     error         // of the context, or [ErrClosed]
}

// connected waits until the broker was reached once, for only then its limits are known.
func (p *publisher) connected(ctx context.Context) error {
	return p.untilAnswered(ctx, func(context.Context) error { return nil })
}

// publish stores messages in their order, and returns when they are. It waits for a
// broker that is away. It may be called concurrently while run runs.
func (p *publisher) publish(msgs []parcel, bytes int) receipt {
	s := &submission{msgs, bytes, make(chan receipt, 1)}
	p.submitted <- s
	return <-s.stored
}

// run stores what is submitted until no more can be.
func (p *publisher) run(ctx context.Context) {
	for next := range p.submitted {
		for next != nil {
			var group []*submission
			group, next = p.gather(next)
			p.store(ctx, group)
		}
	}
}

// gather returns first and what waits behind it, up to a full batch. What waits but does
// not fit is rest.
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
			if records > p.records || bytes > p.bytes {
				return group, s
			}
			group = append(group, s)
		default:
			return group, nil
		}
	}
}

// store stores a group in one batch. One that the broker refuses for something in it is
// stored in smaller steps: each submission alone, then each message alone.
func (p *publisher) store(ctx context.Context, group []*submission) {
	var parcels []parcel
	for _, s := range group {
		parcels = append(parcels, s.msgs...)
	}
	if len(parcels) == 1 {
		group[0].stored <- p.singly(ctx, parcels)
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
	case !refuses(err):
		for _, s := range group {
			s.stored <- receipt{err: err}
		}
	case len(group) == 1:
		group[0].stored <- p.singly(ctx, parcels)
	default:
		for _, s := range group {
			p.store(ctx, []*submission{s})
		}
	}
}

// singly stores messages one after the other: a later one must not be stored before an
// earlier one, for the position of the later would make the earlier a duplicate.
func (p *publisher) singly(ctx context.Context, msgs []parcel) receipt {
	r := receipt{known: map[int]bool{}, refused: map[int]error{}}
	for i, m := range msgs {
		for name := range batchHeaders {
			m.Header.Del(name)
		}
		err := p.untilStored(ctx, msgs[i:i+1], func(ctx context.Context) error {
			ack, err := p.js.PublishMsg(ctx, m.Msg)
			if err == nil && ack.Duplicate {
				r.known[i] = true
			}
			return err
		})
		switch {
		case refuses(err):
			r.refused[i] = err
		case err != nil:
			r.err = err
			return r
		}
	}
	return r
}

// untilStored is untilAnswered with an attempt that stores messages. Each attempt puts the
// objects that they name before it: an object that nobody names for long may be removed,
// and who knows how long the attempt before has waited. One that is there costs little.
// To be cut off by ctx in the middle of an object loses nothing.
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

// wireSize is what of a message the broker holds against its limit, in a batch.
func wireSize(m *nats.Msg) int64 {
	size := m.Size() - len(m.Subject)
	for name, value := range batchHeaders {
		if m.Header.Get(name) == "" {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return int64(size)
}

// refuses reports whether err is the broker's verdict on what was sent, so that sending
// the same in the same way will not help.
func refuses(err error) bool {
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

// untilAnswered tries until the broker accepts or refuses. An attempt that has begun is
// not cut off by ctx but ends by its own timeout, so that its answer is not lost.
func (p *publisher) untilAnswered(ctx context.Context, attempt func(context.Context) error) error {
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := p.notConnected()
		if p.nc.IsConnected() {
			if err = attempt(context.WithoutCancel(ctx)); errors.Is(err, nats.ErrNoResponders) {
				err = fmt.Errorf("%w: start a worker (tributary run), which makes it: %w", errNoStream, err)
			}
		}
		switch {
		case err == nil || refuses(err):
			p.stall(ctx, nil)
			return err
		case p.nc.IsClosed() || p.nc.IsDraining():
			return fmt.Errorf("%w: %w", ErrClosed, err)
		}
		p.stall(ctx, err)
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// notConnected is the error while there is no broker, or none that lets us in.
func (p *publisher) notConnected() error {
	var hosts []string
	for _, server := range p.nc.Servers() {
		if u, err := url.Parse(server); err == nil {
			hosts = append(hosts, u.Host) // without the user
		}
	}
	at := strings.Join(hosts, ", ")
	if err := p.nc.LastError(); errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return fmt.Errorf("%w at %s: mend the NATS_ settings that say who we are: %w", errNotConnected, at, err)
	}
	return fmt.Errorf("%w at %s: start it, or name another one", errNotConnected, at)
}

// stall tells when the broker stops to take records, when the cause changes, and when it
// takes them again.
func (p *publisher) stall(ctx context.Context, err error) {
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
	p.stalled(err)
}
