package pipeline

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Limit is a limit of the account, and how much of it is used.
type Limit struct {
	Name  string `json:"name"` // storage, memory, streams, consumers
	Used  int64  `json:"used"`
	Max   int64  `json:"max"`
	Bytes bool   `json:"bytes,omitzero"` // else a number
}

// AccountLimits reads the limits of the account of js for streams with so many replicas: those that there are.
func AccountLimits(ctx context.Context, js jetstream.JetStream, replicas int) ([]Limit, error) {
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("limits of the account: %w", err)
	}
	t := info.Tier
	if tier, ok := info.Tiers["R"+strconv.Itoa(max(replicas, 1))]; ok {
		t = tier
	}
	var list []Limit
	for _, l := range []Limit{
		{"storage", int64(t.Store), t.Limits.MaxStore, true},  //nolint:gosec // bytes of a disk
		{"memory", int64(t.Memory), t.Limits.MaxMemory, true}, //nolint:gosec // bytes of memory
		{"streams", int64(t.Streams), int64(t.Limits.MaxStreams), false},
		{"consumers", int64(t.Consumers), int64(t.Limits.MaxConsumers), false},
	} {
		if l.Max > 0 {
			list = append(list, l)
		}
	}
	return list, nil
}

// room knows how much the account may still store. A server alone tears a batch that does not fit
// (torn.go), and keeps one of its 50 places for batches until it is restarted: a batch that does
// not fit is better not sent.
type room struct {
	js       jetstream.JetStream
	replicas int

	mu   sync.Mutex
	next time.Time // when the account is to be asked again
	left int64     // bytes, as far as this worker knows
	is   Limit     // of the storage; Max is 0 for none
}

// How often the account is asked: before each batch while less than roomNear is left.
const (
	roomNear  = 64 << 20
	roomFresh = time.Second
	roomRest  = 10 * time.Second // without a limit, or an answer
)

// fullError says that a batch was not sent, because it does not fit.
type fullError struct {
	need int64
	is   Limit
}

// Error ends in the cure.
func (e *fullError) Error() string {
	return fmt.Sprintf("the storage of the account is full: %d of %d bytes are used, a batch takes %d: raise the limit of the account, or remove records or events", e.is.Used, e.is.Max, e.need)
}

// take returns a [fullError] when the messages of a batch do not fit in the account. While the account does not say
// what it may store, everything fits.
func (r *room) take(ctx context.Context, messages []*nats.Msg) error {
	const overhead = 160 // of a message: headers of the batch, and what the server adds
	need := int64(0)
	for _, m := range messages {
		need += int64(m.Size() + overhead)
	}
	need *= int64(max(r.replicas, 1))
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.After(r.next) || r.is.Max > 0 && r.left < roomNear {
		r.ask(ctx, now)
	}
	if r.is.Max == 0 {
		return nil
	}
	if need > r.left {
		return &fullError{need, r.is}
	}
	r.left -= need
	return nil
}

func (r *room) ask(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r.is, r.next = Limit{}, now.Add(roomRest)
	limits, err := AccountLimits(ctx, r.js, r.replicas)
	if err != nil {
		return // the server refuses what does not fit
	}
	for _, l := range limits {
		if l.Name == "storage" {
			r.is, r.left, r.next = l, l.Max-l.Used, now.Add(roomFresh)
		}
	}
}
