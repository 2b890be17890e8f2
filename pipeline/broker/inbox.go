package broker

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// Inbox receives any number of answers to requests, in order. Unlike [nats.Conn.SubscribeSync], it does not allocate
// a queue of 4 MiB.
type Inbox struct {
	Subject string // reply subject for the requests

	sub     *nats.Subscription
	answers chan *nats.Msg
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when the subscription has ended, for example with its connection
	once    sync.Once
}

// waitingAnswers is how many answers wait for [Inbox.Next], so that not each one needs two goroutines to take turns.
const waitingAnswers = 16

// OpenInbox subscribes to a new inbox, which the caller closes.
func OpenInbox(nc *nats.Conn) (*Inbox, error) {
	b := &Inbox{
		Subject: nc.NewInbox(),
		answers: make(chan *nats.Msg, waitingAnswers),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
	}
	var err error
	if b.sub, err = nc.Subscribe(b.Subject, b.pass); err != nil {
		return nil, err
	}
	b.sub.SetClosedHandler(func(string) { close(b.ended) })
	if err := b.sub.SetPendingLimits(-1, -1); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// pass waits while there is no room for an answer; the client queues further ones.
func (b *Inbox) pass(m *nats.Msg) {
	select {
	case b.answers <- m:
	case <-b.closing:
	}
}

// Next returns the next answer. It waits until ctx ends or the connection is closed for good; a lost connection may
// return.
func (b *Inbox) Next(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-b.answers:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.ended:
	}
	select {
	case m := <-b.answers: // it arrived before the end
		return m, nil
	default:
		return nil, nats.ErrConnectionClosed
	}
}

// Close ends the subscription and drops later answers. It may be called repeatedly.
func (b *Inbox) Close() {
	b.once.Do(func() {
		close(b.closing)
		_ = b.sub.Unsubscribe() // fails only on a closed connection, where the subscription has ended
	})
}
