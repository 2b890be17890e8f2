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
