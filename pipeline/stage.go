// Package pipeline runs the normalizers over the raw stream and stores what they yield:
// exactly once, and in order, through any crash.
//
// Start with [Stage]. The one invariant: events, dead letters, session states and the
// [Checkpoint] of a piece of work are stored in one atomic batch, or not at all, and
// only by the worker that knows the checkpoint before it. Everything in memory is a
// cache of what is stored, and is dropped when anything is in doubt.
//
// Of the rest this is not obvious:
//   - The outcome of a batch is known only from its acknowledgement. Without one nothing
//     is sent again: the partition is claimed anew, which either finds the batch stored or
//     makes sure that it never will be.
//   - A record may be normalized many times; it is stored once, because the result is a
//     pure function of the records before it.
//   - A record that cannot be read is a dead letter, and its session knows that it is open.
//     Given back by [Requeue] it is another record of that session, which takes it while
//     the first is open: so what is requeued is still a function of the raw stream.
//   - Owning a partition is a matter of speed. Two workers that own the same one hinder
//     each other and store nothing wrong.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Config says what a [Stage] works on, and how. Only Topology must be set.
type Config struct {
	Topology Topology       // what [Provision] made
	Worker   string         // name of this worker in checkpoints; default "worker"
	Member   string         // key of this worker in [WorkersBucket], one token; empty when it shares with no other
	Mode     envelopes.Mode // of the CloudEvents; default [envelopes.Binary]

	// Profile is of the tool_metadata of events; default [normalizers.ProfileOpenCode]. A
	// generation keeps to one: what is stored stays as it is.
	Profile normalizers.Profile

	SessionBytes int           // memory for the states of live sessions; default 256 MiB
	ClaimBytes   int64         // of large records that are fetched or folded at a time; default 128 MiB
	Heartbeat    time.Duration // between two signs of life; default 0.7 s

	// Normalize folds a record into its session; default [normalizers.Normalize], whose
	// contract it keeps: deterministic, and on an error the session is as it was. When it
	// panics all the same, the record becomes a dead letter.
	Normalize func(*normalizers.Session, normalizers.Record) (normalizers.Result, error)

	Logger *slog.Logger // nil for silence
	Tracer trace.Tracer // nil for no traces
	Meter  metric.Meter // nil for no metrics
}

// minPayload is the smallest max_payload of a server that takes every event.
const minPayload = normalizers.MaxEventBytes + 128<<10

// CheckPayload returns a [TopologyError] when not every event fits into a message of the
// server, as its max_payload is.
func CheckPayload(nc *nats.Conn) error {
	have := nc.MaxPayload()
	if have >= minPayload {
		return nil
	}
	return &TopologyError{
		Name:        "server",
		Differences: []Difference{{"max_payload", strconv.FormatInt(have, 10), strconv.Itoa(minPayload) + " or more"}},
		Cure:        "set max_payload to 1MB in the configuration of nats-server",
	}
}

// withDefaults returns c with its defaults filled in.
func (c Config) withDefaults() Config {
	if c.Worker == "" {
		c.Worker = "worker"
	}
	if c.Mode == "" {
		c.Mode = envelopes.Binary
	}
	if c.Profile == "" {
		c.Profile = normalizers.ProfileOpenCode
	}
	if c.SessionBytes <= 0 {
		c.SessionBytes = 256 << 20
	}
	if c.ClaimBytes <= 0 {
		c.ClaimBytes = 2 * normalizers.MaxRecordBytes
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = defaultHeartbeat
	}
	if c.Normalize == nil {
		c.Normalize = normalizers.Normalize
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Stage is a worker: it reads the partitions of the raw stream, normalizes, and commits.
// Each partition has a goroutine that reads and normalizes into its next chunk; one
// goroutine takes the chunks of all partitions into one atomic batch at a time, and while
// a batch is on its way the partitions go on.
//
// Stages with a Member share the partitions of their generation: each works on its part,
// takes over from one that is dead within a few seconds, and hands over to one that joins
// or when it is drained.
//
// Make one with [New], run it once.
type Stage struct {
	js        jetstream.JetStream
	nc        *nats.Conn
	config    Config
	owner     string // of this stage, different from that of any other
	telemetry *telemetry
	bodies    *bodies
	ttl       string        // of an event; empty when it is kept for ever
	wake      chan struct{} // a chunk is waiting
	alone     chan struct{} // held by the one who tries a suspect record
	large     chan struct{} // held by the one who has a large record in its hands

	turn int // belongs to the committer: which partition is asked first for the next batch

	drain    chan struct{} // closed by Drain
	draining sync.Once
	ended    chan struct{} // a partition has ended

	mu         sync.Mutex
	partitions map[int]*partition
	assigned   []int // partitions that this worker has to work on
	started    bool
	link       context.Context // ends when the connection does
	unlink     context.CancelCauseFunc
}

// New returns a stage for a server that holds the topology of cfg.
func New(js jetstream.JetStream, cfg Config) (*Stage, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Topology.Validate(); err != nil {
		return nil, err
	}
	if cfg.Mode != envelopes.Binary && cfg.Mode != envelopes.Structured {
		return nil, fmt.Errorf("mode %q is neither %s nor %s", cfg.Mode, envelopes.Binary, envelopes.Structured)
	}
	if cfg.Profile != normalizers.ProfileOpenCode && cfg.Profile != normalizers.ProfileCurrent {
		return nil, fmt.Errorf("profile %q is neither %s nor %s", cfg.Profile, normalizers.ProfileOpenCode, normalizers.ProfileCurrent)
	}
	s := &Stage{
		js:         js,
		nc:         js.Conn(),
		config:     cfg,
		owner:      cfg.Worker + "-" + nuid.Next(),
		bodies:     newBodies(NewClaims(js), cfg.ClaimBytes),
		wake:       make(chan struct{}, 1),
		alone:      make(chan struct{}, 1),
		large:      make(chan struct{}, 1),
		drain:      make(chan struct{}),
		ended:      make(chan struct{}, 1),
		partitions: make(map[int]*partition),
	}
	if age := cfg.Topology.EventsMaxAge; age > 0 {
		s.ttl = strconv.FormatInt(int64(age/time.Second), 10) + "s"
	}
	var err error
	if s.telemetry, err = newTelemetry(cfg); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return s, nil
}

// Run works until [Stage.Drain], after which it returns nil, until ctx ends, when it drops
// what is in memory and returns the cause, or until no partition can be worked on any
// more, when it returns why. A lost connection is none of these: it waits for it to come
// back. A partition that cannot go on stops alone, is logged, and fails [Stage.Ready].
func (s *Stage) Run(ctx context.Context) error {
	if err := check(ctx, s.js, s.config.Topology); err != nil {
		return err
	}
	if err := CheckPayload(s.nc); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.connected(ctx)

	lag, err := s.telemetry.observe(s.list)
	if err != nil {
		return fmt.Errorf("observe lag: %w", err)
	}
	defer func() { _ = lag.Unregister() }()
	var background sync.WaitGroup
	background.Go(func() { s.watch(ctx, cancel) })
	background.Go(func() { s.commit(ctx) })
	err = s.share(ctx, cancel)
	cause := context.Cause(ctx)
	cancel(nil)
	background.Wait()
	if err != nil {
		return err
	}
	return cause
}

// Drain makes [Stage.Run] stop reading, commit what is normalized, and return. It does
// not wait, may be called from anywhere, and more than once.
func (s *Stage) Drain() { s.draining.Do(func() { close(s.drain) }) }

// Ready returns nil while every partition that is this worker's is owned and read, else
// what is missing.
func (s *Stage) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return errors.New("not started")
	}
	var errs []error
	for _, n := range s.assigned {
		err := errHeld
		if p := s.partitions[n]; p != nil {
			err = p.ready()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("partition %d: %w", n, err))
		}
	}
	return errors.Join(errs...)
}

// errHeld is why a partition is not worked on that has another owner still.
var errHeld = errors.New("not handed over yet by another worker")

// assign makes mine the partitions of this worker: those that it works on and that are not
// among them are released, those that are new are started, unless another worker has to
// hand them over first. Where a partition finds that none can be trusted, it calls fail.
func (s *Stage) assign(ctx context.Context, mine []int, held map[int]bool, fail context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned, s.started = mine, true
	for n, p := range s.partitions {
		is := slices.Contains(mine, n)
		if !is {
			p.release()
		}
		if over, err := p.over(); over && (err == nil || !is) {
			delete(s.partitions, n)
		}
	}
	for _, n := range mine {
		if s.partitions[n] == nil && !held[n] {
			s.partitions[n] = s.start(ctx, n, fail)
		}
	}
}

// start begins to work on a partition, until it is released, ctx ends, or it cannot go on.
func (s *Stage) start(ctx context.Context, number int, fail context.CancelCauseFunc) *partition {
	p := newPartition(s, number)
	go func() {
		err := p.run(ctx)
		if errors.Is(err, ErrNoCheckpoint) {
			fail(err) // a generation that was tampered with: not one partition of it is trusted
		}
		p.finish(err)
		select {
		case s.ended <- struct{}{}:
		default:
		}
	}()
	return p
}

// stopped returns why no partition of this worker can be worked on any more, nil while
// one can.
func (s *Stage) stopped() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, n := range s.assigned {
		p := s.partitions[n]
		if p == nil {
			return nil
		}
		_, err := p.over()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// await waits until every partition has ended, and returns why those that could not go
// on did.
func (s *Stage) await() error {
	var errs []error
	for _, p := range s.list() {
		errs = append(errs, p.wait())
	}
	return errors.Join(errs...)
}

// list returns the partitions that were started, by number.
func (s *Stage) list() []*partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.partitions), func(a, b *partition) int { return a.number - b.number })
}

// errDisconnected ends all work that began on a connection that was lost.
var errDisconnected = errors.New("connection lost")

// connected begins a new link: the time between two losses of the connection.
func (s *Stage) connected(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.unlink = context.WithCancelCause(ctx)
}

// linked is the context of the present link.
func (s *Stage) linked() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// watch ends the link when the connection is lost, so that nobody waits for an answer
// that will not come.
func (s *Stage) watch(ctx context.Context, fail context.CancelCauseFunc) {
	status := s.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer s.nc.RemoveStatusListener(status)
	for {
		select {
		case <-ctx.Done():
			s.unlink(context.Cause(ctx))
			return
		case now := <-status:
			s.unlink(errDisconnected)
			if now == nats.CLOSED {
				fail(nats.ErrConnectionClosed)
				return
			}
			s.connected(ctx)
		}
	}
}
