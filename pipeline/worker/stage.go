// Package worker runs the normalizers over the raw stream and stores the events that they
// emit: exactly once, in order, through any crash.
//
// Start with [Stage], a worker of one generation: [streams.Provision] creates the streams, [New] and
// [Stage.Run] work on them. [runner.Runner] runs a stage for the live generation and for each replay
// beside it ([replay.Start], [replay.Compare], [replay.Promote]). Around it are the producer's side ([records.Message],
// [records.ClaimMessage], [claims.Store]), the consumer's side ([events.Read]), and operation ([replay.ReadStatus],
// [events.DeadLetters], [events.Requeue]).
// README.md beside this file explains the room: the life of a record, the commit protocol,
// and which failures are survived.
//
// The invariant: events, dead letters, changed session states and the [streams.Checkpoint] behind them
// are stored in one atomic batch, or not at all, and only by the worker that knows the
// checkpoint before it. Everything in memory is a cache of what is stored, and is dropped
// when anything is in doubt.
//
// What is not obvious:
//   - The outcome of a batch is known only from its acknowledgement. Without one, the batch
//     is never sent again: the partition is acquired again, which either finds the batch
//     stored or makes sure that it never will be.
//   - A record may be normalized many times. It is stored once, because its events are a
//     pure function of the records before it.
//   - A record that cannot be read becomes a dead letter, and its session notes it as open.
//     [events.Requeue] appends a copy of it to the session, which reads the copy while the first is
//     open: so requeued events are still a function of the raw stream.
//   - Ownership of a partition is a matter of speed. Two workers that own the same partition
//     hinder each other and store nothing wrong.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/redact"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
)

// Config configures a [Stage]. Only Topology must be set.
type Config struct {
	Topology streams.Topology // created by [streams.Provision]
	Worker   string           // name of this worker in checkpoints; default "worker"
	Member   string           // key of this worker in the bucket of the workers, one subject token; empty to work on every partition alone

	SessionBytes int           // memory for the states of live sessions, in bytes; default 256 MiB
	ClaimBytes   int64         // memory for large records from their fetch until they are normalized, in bytes; default 128 MiB
	Heartbeat    time.Duration // interval between two heartbeats; default 0.7 s

	// RecordTimeout is how long the normalizer may take for one record; default 30 s. A record that exceeds it three
	// times becomes a dead letter.
	RecordTimeout time.Duration

	// ArchiveAfter is how long the state of a session stays under its own subject after it was stored, by the
	// broker's clock. Then it moves to an archive, after another quarter of that time at most
	// (pipeline/states/README.md, Archives). Reads return the same either way. 0 means for ever.
	ArchiveAfter time.Duration
	archiving    archiving

	// Normalize normalizes a record into its session; default [normalizers.Normalize]. It must be deterministic, and
	// leave the session unchanged on an error. A record at which it panics becomes a dead letter.
	Normalize func(*core.Session, core.Record) (core.Result, error)
	Revision  int // revision of Normalize; default [normalizers.Revision]

	// Redact returns the redactor of a mode, for a generation whose records are redacted. A worker without it (nil)
	// has no key and refuses such a generation.
	Redact func(redact.Mode) (*redact.Redactor, error)

	Handover *events.Handover // gets the stored events; nil for none

	retentionEvery time.Duration // see [retentionEvery]

	Pacer *Pacer // for a replay beside a live generation, else nil

	Logger *slog.Logger // nil for no logs
	Tracer trace.Tracer // nil for no traces
	Meter  metric.Meter // nil for no metrics
}

// minPayload is the smallest max_payload of a server that accepts every event.
const minPayload = core.MaxEventBytes + 128<<10

// CheckPayload returns an error when the max_payload of the server is too small for the largest event.
func CheckPayload(nc *nats.Conn) error {
	have := nc.MaxPayload()
	if have >= minPayload {
		return nil
	}
	return &streams.TopologyError{
		Name:        "server",
		Differences: []streams.Difference{{Setting: "max_payload", Have: strconv.FormatInt(have, 10), Want: strconv.Itoa(minPayload) + " or more"}},
		Cure:        "set max_payload to 1MB in the configuration of nats-server",
	}
}

// WithDefaults returns a copy of c with defaults for the fields that are zero.
func (c Config) WithDefaults() Config {
	if c.Worker == "" {
		c.Worker = "worker"
	}
	if c.SessionBytes <= 0 {
		c.SessionBytes = 256 << 20
	}
	if c.ClaimBytes <= 0 {
		c.ClaimBytes = 2 * core.MaxRecordBytes
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = streams.DefaultHeartbeat
	}
	if c.retentionEvery <= 0 {
		c.retentionEvery = retentionEvery
	}
	if c.RecordTimeout <= 0 {
		c.RecordTimeout = defaultRecordTimeout
	}
	if c.Normalize == nil {
		c.Normalize = normalizers.Normalize
	}
	if c.Revision == 0 {
		c.Revision = normalizers.Revision
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Stage is a worker: it reads the partitions of the raw stream, normalizes their records, and commits the results.
// Each partition has a goroutine that reads and normalizes into its next chunk, see [ownership]. Each cell has a
// goroutine, the committer, that stores the chunks of its partitions, one atomic batch at a time.
//
// Stages with a Member divide the partitions of their generation among themselves. A stage takes over from a dead one
// within a few seconds. It hands partitions over to one that joins, and when it is drained.
//
// Make one with [New] and run it once.
type Stage struct {
	js        jetstream.JetStream
	nc        *nats.Conn
	config    Config
	owner     string // name of this stage in checkpoints, unique to this process
	telemetry *telemetry
	bodies    *bodies
	cells     []*cell
	room      *streams.Room
	ttl       string // of events; empty when they do not expire
	changes   *changes
	trial     broker.Limit // held while a suspect record is tried, see poison.go
	large     broker.Limit // held while a large record is in memory
	acquiring broker.Limit // held during the requests of an acquisition
	sweeping  broker.Limit // held while a partition moves states to archives

	began      time.Time
	lag        atomic.Int64       // as last reported
	received   atomic.Int64       // when records were last received, in Unix nanoseconds
	generation streams.Generation // set by Run before any partition starts
	redactor   *redact.Redactor

	coordinating broker.Step // of [Stage.coordinate]

	claimMissing sync.Once // logs the first record whose object is missing

	hanging hanging     // normalizers that were left behind
	blind   atomic.Bool // heartbeats of the workers cannot be exchanged

	drain    chan struct{} // closed by Drain
	draining sync.Once

	link      link
	assigned  *assigned
	retention *retention
}

// New returns a stage for the server of js, which must have the topology of cfg.
func New(js jetstream.JetStream, cfg Config) (*Stage, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Topology.Validate(); err != nil {
		return nil, err
	}
	s := &Stage{
		began:     time.Now(),
		js:        js,
		nc:        js.Conn(),
		room:      &streams.Room{JS: js, Replicas: cfg.Topology.Replicas},
		config:    cfg,
		owner:     cfg.Worker + "-" + nuid.Next(),
		changes:   newChanges(cfg.Logger),
		trial:     broker.NewExclusive(),
		large:     broker.NewExclusive(),
		acquiring: broker.NewLimit(streams.MaxAcquiring),
		sweeping:  broker.NewExclusive(),
		drain:     make(chan struct{}),
	}
	s.assigned, s.retention = newAssigned(s), newRetention(s)
	if age := cfg.Topology.EventsMaxAge; age > 0 {
		s.ttl = strconv.FormatInt(int64(age/time.Second), 10) + "s"
	}
	for c := range cfg.Topology.Layout().Cells {
		s.cells = append(s.cells, newCell(s, c))
	}
	var err error
	if s.telemetry, err = newTelemetry(cfg); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	s.bodies = newBodies(claims.NewStore(js), &s.telemetry.traces, cfg.ClaimBytes)
	return s, nil
}

// Run works until one of these happens:
//   - [Stage.Drain] is called: Run stores what is normalized and returns nil.
//   - ctx ends: Run drops what is in memory and returns the cause.
//   - No partition can go on, or the server lacks the topology: Run returns the reason. Only an operator can help.
//
// Run waits for a lost connection to return. A partition that cannot go on stops alone: it is logged, and
// [Stage.Ready] reports it.
func (s *Stage) Run(ctx context.Context) error {
	var err error
	if s.generation, err = streams.CheckGeneration(ctx, s.js, s.config.Topology, s.config.Revision); err != nil {
		return err
	}
	if s.redactor, err = newRedactor(s.generation, s.config.Redact); err != nil {
		return err
	}
	for _, c := range s.cells {
		c.feed.Part, c.feed.Ahead = s.generation.Part, s.config.Pacer.ahead()
	}
	if err := CheckPayload(s.nc); err != nil {
		return err
	}
	if err := states.CheckArchives(ctx, s.js, streams.CellNames(s.generation.Name, s.config.Topology.Layout().Cells)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.link.begin(ctx)

	s.telemetry.zero(ctx)
	metrics, err := s.telemetry.observe(s.assigned.list, s.countLag, s.retention.expiredOpen.Load, s.retention.limits.Load)
	if err != nil {
		return fmt.Errorf("observe partitions: %w", err)
	}
	defer func() { _ = metrics.Unregister() }()
	var background sync.WaitGroup
	background.Go(func() { s.link.watch(ctx, s.nc, cancel) })
	background.Go(func() { s.retention.watchExpired(ctx) })
	background.Go(func() { s.retention.watchLimits(ctx) })
	for _, c := range s.cells {
		background.Go(func() { c.commitBatches(ctx) })
		background.Go(func() { c.feed.Run(ctx, s.link.context, s.readerEnded) })
	}
	err = s.coordinate(ctx, cancel)
	cause := context.Cause(ctx)
	cancel(nil)
	background.Wait()
	s.changes.write()
	if err != nil {
		return err
	}
	return cause
}

// Drain makes [Stage.Run] stop reading, commit what is normalized, and return. It does not wait. It may be called by
// any goroutine, repeatedly.
func (s *Stage) Drain() { s.draining.Do(func() { close(s.drain) }) }

// Ready returns nil while every partition assigned to this worker is owned and read, and no normalizer was left
// behind; else an error that names what is missing.
func (s *Stage) Ready() error {
	var errs []error
	for _, sequence := range s.hanging.list() {
		errs = append(errs, fmt.Errorf("record %d: the normalizer has not returned", sequence))
	}
	return errors.Join(append(errs, s.assigned.ready()...)...)
}

// Alive returns an error when the stage is stuck and will not recover by itself: one of its loops, or the normalizer,
// has not returned for minutes. A broker that is away is no reason.
func (s *Stage) Alive() error {
	errs := []error{s.coordinating.Check("the assignment of partitions")}
	for _, c := range s.cells {
		errs = append(errs, c.committing.Check("the storage of events"))
	}
	for _, p := range s.assigned.list() {
		errs = append(errs, p.normalizing.Check(fmt.Sprintf("the normalizer in partition %d", p.number)))
	}
	return errors.Join(errs...)
}

// unread returns how many records of the partitions are unread or queued, and the number of partitions that it knows
// this of.
func (s *Stage) unread() (n int64, known int) {
	for _, c := range s.cells {
		more, of := c.feed.Waiting()
		n, known = n+more, known+of
	}
	return n, known
}

// countLag returns how many records of the partitions are not done. While a partition is being acquired its number is
// unknown: the result is then at least the previous one.
func (s *Stage) countLag() int64 {
	n, known := s.unread()
	for _, p := range s.assigned.list() {
		n += p.open.Load()
		if ended, _ := p.ended(); !ended {
			known--
		}
	}
	if known < 0 {
		n = max(n, s.lag.Load())
	}
	s.lag.Store(n)
	return n
}

// readerEnded counts a failed reading of the raw stream.
func (s *Stage) readerEnded(ctx context.Context, err error) {
	cause := "other"
	switch {
	case errors.Is(err, broker.ErrSilent):
		cause = "silent"
	case errors.Is(err, broker.ErrGap):
		cause = "gap"
	case errors.Is(err, broker.ErrLate):
		cause = "late"
	case errors.Is(err, broker.ErrDisconnected):
		cause = "disconnected"
	}
	s.telemetry.count(ctx, s.telemetry.readerRestarts, 1, attribute.String("cause", cause))
}

// errAwaited is why an assigned partition is not started yet.
var errAwaited = errors.New("not handed over yet by another worker")

// link is the time between two losses of the connection, as a context. Every ownership and every commit belongs to
// the link in which it began, so none waits for an answer that was lost with the connection.
type link struct {
	mu  sync.Mutex
	ctx context.Context
	end context.CancelCauseFunc
}

// begin begins a new link, within ctx.
func (l *link) begin(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.end = context.WithCancelCause(ctx)
}

// context returns the context of the present link.
func (l *link) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}

// watch ends the link when the connection is lost and begins the next one. It returns when ctx ends, or when the
// connection is closed for good; then it calls fail.
func (l *link) watch(ctx context.Context, nc *nats.Conn, fail context.CancelCauseFunc) {
	status := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	for {
		select {
		case <-ctx.Done():
			l.end(context.Cause(ctx))
			return
		case now := <-status:
			l.end(broker.ErrDisconnected)
			if now == nats.CLOSED {
				fail(nats.ErrConnectionClosed)
				return
			}
			l.begin(ctx)
		}
	}
}
