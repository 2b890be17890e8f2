package streams

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Room tracks how much the account may still store. A server without replicas tears a batch that does not fit
// (pipeline/worker/torn.go), and keeps one of its 50 slots for batches until it restarts. So a batch that does not
// fit should not be sent.
type Room struct {
	JS       jetstream.JetStream
	Replicas int

	mu   sync.Mutex
	next time.Time // when to ask about the account again
	left int64     // bytes, as far as this process knows
	used int64
	max  int64 // 0 for no limit
}

// The account is asked about at these intervals, and before each batch while less than roomNear is left.
const (
	roomNear  = 64 << 20
	roomFresh = time.Second
	roomRest  = 10 * time.Second // without a limit, or an answer
)

// FullError means that a batch was not sent because it does not fit.
type FullError struct {
	need, used, max int64
}

// Error names the sizes and the cure.
func (e *FullError) Error() string {
	return fmt.Sprintf("the storage of the account is full: %d of %d bytes are used, a batch needs %d: raise the limit of the account, or remove records or events", e.used, e.max, e.need)
}

// Take returns a [FullError] if the messages of a batch do not fit in the account. If the limit is unknown,
// everything fits.
func (r *Room) Take(ctx context.Context, messages []*nats.Msg) error {
	const overhead = 1 << 10 // per message: subject and headers, whose sizes take long to add up, and what the server adds
	need := int64(0)
	for _, m := range messages {
		need += int64(len(m.Data) + overhead)
	}
	need *= int64(max(r.Replicas, 1))
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.After(r.next) || r.max > 0 && r.left < roomNear {
		r.ask(ctx, now)
	}
	if r.max == 0 {
		return nil
	}
	if need > r.left {
		return &FullError{need, r.used, r.max}
	}
	r.left -= need
	return nil
}

func (r *Room) ask(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r.max, r.next = 0, now.Add(roomRest)
	tier, err := accountTier(ctx, r.JS, r.Replicas)
	if err != nil || tier.Limits.MaxStore <= 0 {
		return // the server refuses what does not fit
	}
	r.used, r.max, r.next = int64(tier.Store), tier.Limits.MaxStore, now.Add(roomFresh) //nolint:gosec // bytes of a disk
	r.left = r.max - r.used
}
