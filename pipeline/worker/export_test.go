package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// What the tests, which are a package of their own, need from inside.
var (
	MessageOf = streams.Checkpoint.Message
)

// IdleRecords is how many records of a partition a live session may be without one of its own.
const IdleRecords = idleRecords

// RemoveMessages sends what an owner sends after a move: to remove messages, by their sequences, and those before them.
func RemoveMessages(ctx context.Context, js jetstream.JetStream, stream string, messages []*jetstream.RawStreamMsg) error {
	var at []broker.Place
	for _, m := range messages {
		at = append(at, broker.Place{Subject: m.Subject, Sequence: m.Sequence})
	}
	return broker.RemoveMessages(ctx, js, stream, at)
}

// Archiving changes of a configuration how often an owner looks at the oldest state, how old a state
// is, and how many bytes an archive may have; a zero value changes nothing.
func Archiving(cfg Config, every time.Duration, age func(stored, now time.Time) time.Duration, limit int) Config {
	cfg.archiving = archiving{age: age, every: every, limit: limit}
	return cfg
}

// NewTestHandover returns a handover that reads from the broker for a short time alone after events of others, and
// in which at most so many steps wait.
func NewTestHandover(quiet time.Duration, most int) *events.Handover {
	h := events.NewHandover()
	h.Quiet, h.Silence, h.Most = quiet, quiet, most
	return h
}

// Limits and names that tests check against.
const (
	MaxTimeouts = maxTimeouts
	MaxAlone    = maxAlone
)

// Feed is a [feed] with limits of a test.
type Feed struct{ *feed }

// NewFeed returns a feed that is full with a few messages, and impatient.
func NewFeed(js jetstream.JetStream, partitions, messages int, slack uint64, patience time.Duration) Feed {
	return Feed{newFeed(js, streams.RawStream, partitions, feedLimits{messages: messages, bytes: 1 << 20, slack: slack, settle: time.Millisecond, patience: patience})}
}

// Run is [feed.run] on one link.
func (f Feed) Run(ctx context.Context) {
	f.run(ctx, func() context.Context { return ctx }, func(context.Context, error) {})
}

// Alone returns how many partitions read alone.
func (f Feed) Alone() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.apart)
}

// Subscribe is [feed.subscribe].
func (f Feed) Subscribe(ctx context.Context, partition int, from uint64) (Subscription, error) {
	s, err := f.subscribe(ctx, partition, from)
	return Subscription{s}, err
}

// Subscription is a [subscription].
type Subscription struct{ *subscription }

// Read is [subscription.read] of sequences.
func (s Subscription) Read(ctx context.Context, stop <-chan struct{}) ([]uint64, error) {
	messages, err := s.read(ctx, stop, nil)
	sequences := make([]uint64, len(messages))
	for i, m := range messages {
		sequences[i] = m.Sequence
	}
	return sequences, err
}

// Close is [subscription.close].
func (s Subscription) Close() {
	if s.subscription != nil {
		s.close()
	}
}

// TracesOff does what a stage does for traces with a batch of one record and its large object,
// without a tracer.
func TracesOff(traceparent string) {
	var t traces
	r := received{}
	r.Origin.Traceparent = traceparent
	_, _ = t.link(context.Background(), &r)
	_, got := t.traceGet(context.Background(), &body{traceparent: traceparent})
	got(nil)
	_, committed := t.traceCommit(context.Background(), nil, nil)
	committed(nil, "")
}

// Members are the views of workers that do nothing but exchange heartbeats.
type Members []*membership

// Join returns workers of a topology.
func Join(ctx context.Context, js jetstream.JetStream, t streams.Topology, workers int) (Members, error) {
	var all Members
	for n := range workers {
		name := fmt.Sprintf("w%d", n)
		s, err := New(js, Config{Topology: t, Worker: name, Member: name, Heartbeat: time.Minute})
		if err != nil {
			return nil, err
		}
		m := newMembership(s)
		if err := m.exchange(ctx); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// Exchange makes each of them exchange heartbeats several times.
func (m Members) Exchange(ctx context.Context, times int) error {
	for range times {
		for _, w := range m {
			if err := w.exchange(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Alive returns how many workers the first of them sees.
func (m Members) Alive() int { return len(m[0].alive()) }

// Looking changes of a configuration how often a stage looks for records that expired unread.
func Looking(cfg Config, every time.Duration) Config {
	cfg.retentionEvery = every
	return cfg
}
