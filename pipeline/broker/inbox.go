package broker

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// Inbox receives the answers to requests, any number of them, in their order. [nats.Conn.SubscribeSync] does so too, but
// allocates a queue of 4 MiB for each subscription.
type Inbox struct {
	Subject string // the answers are to be sent here

	sub     *nats.Subscription
	answers chan *nats.Msg
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when the subscription has ended, as with its connection
	once    sync.Once
}

// OpenInbox subscribes to a new inbox, which the caller closes.
func OpenInbox(nc *nats.Conn) (*Inbox, error) {
	b := &Inbox{
		Subject: nc.NewInbox(),
		answers: make(chan *nats.Msg),
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

// pass waits until Next takes an answer; the client keeps those behind it.
func (b *Inbox) pass(m *nats.Msg) {
	select {
	case b.answers <- m:
	case <-b.closing:
	}
}

// Next returns the next answer. It waits until ctx ends or the connection is closed; one that is only lost may come back.
func (b *Inbox) Next(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-b.answers:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.ended:
		return nil, nats.ErrConnectionClosed
	}
}

// Close ends the subscription; answers that come later are dropped. It may be called again.
func (b *Inbox) Close() {
	b.once.Do(func() {
		close(b.closing)
		_ = b.sub.Unsubscribe() // fails where the connection is closed, and the subscription with it
	})
}
