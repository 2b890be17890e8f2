// Package ship is the edge of the pipeline: it finds the logs of coding agents on this
// machine, follows them, and publishes every record once to the raw stream, in the order
// of its file.
//
// Make a [Ship] with [New] from a [Config] and call [Ship.Run], which blocks.
// [Ship.Summary] returns the progress at any time. README.md beside this package has the
// order of the files, what identifies a file, and what is lost.
//
// The invariant: the offset of a file advances only after the broker has acknowledged
// everything before it. So a crash or a lost acknowledgement sends a record twice, but
// never loses one; the second copy is dropped by message id within the duplicate window
// of the broker, and by its position in its file ever after.
//
// Non-obvious:
//   - No framing state is stored. What a record needs from the lines before it (source,
//     session, time) is rebuilt by reading the file again from its start.
//   - A file has two identities. On this machine it is its inode and its first KiB, so a
//     rename changes nothing. For the stage it is its path below the root of its agent and
//     its first line, so losing the offsets changes nothing.
//   - [Config.Input] cannot be read again: what was read of it is sent even after the
//     context has ended.
//   - No file stays open between two visits: a renamed file is found again by its inode.
package ship

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/ship/offsets"
)

// Ship publishes logs to the raw stream. Make one with [New] and run it once.
type Ship struct {
	config    Config
	publisher *publisher
	room      *semaphore.Weighted // for files with large records
	tally     *tally
	attached  atomic.Bool // the raw stream is there
	looping   broker.Step // of the present loop

	offsets     *offsets.Store // offsets in the raw stream found by the publisher
	offsetsFile *offsets.File

	loop *loop // loop of the present pass
}

// New returns a Ship that publishes through nc, which may be nil for a dry run. The caller keeps nc, which should
// reconnect without limit, and closes it after Run. New returns an error if c has nothing to ship, or an Edge that a
// record cannot state.
func New(nc *nats.Conn, c Config) (*Ship, error) {
	c = c.withDefaults()
	if len(c.Paths) == 0 && len(c.Roots) == 0 && c.Input == nil {
		return nil, errNothingToShip
	}
	if err := records.CheckEdge(c.Edge); err != nil {
		return nil, err
	}
	s := &Ship{
		config:    c,
		room:      semaphore.NewWeighted(roomBytes),
		tally:     newTally(c.Progress),
		publisher: &publisher{nc: nc, records: c.BatchRecords, logger: c.Logger, once: c.Once},
	}
	s.publisher.onStall = s.tally.stall
	s.publisher.onRevived = func() { s.tally.change(func(sum *Summary) { sum.Revived++ }) }
	s.reset()
	if c.DryRun {
		return s, nil
	}
	var err error
	s.publisher.js, err = jetstream.New(nc)
	s.publisher.claims = claims.NewStore(s.publisher.js)
	return s, err
}

// reset forgets the files, for another pass over all of them.
func (s *Ship) reset() {
	s.loop = newLoop(s)
	s.publisher.submitted = make(chan *submission)
	s.tally.reset()
}

// Summary returns what was done so far. Any goroutine may call it at any time.
func (s *Ship) Summary() Summary { return s.tally.summary() }

// Ready returns nil while the broker accepts records, else the reason why it does not. Any goroutine may call it.
func (s *Ship) Ready() error {
	if s.config.DryRun {
		return nil
	}
	if !s.publisher.nc.IsConnected() {
		return s.publisher.notConnected()
	}
	if err := s.Summary().Stalled; err != nil {
		return err
	}
	if !s.attached.Load() {
		return errNotAttached
	}
	return nil
}

// Alive returns an error when the Ship is stuck and will not recover by itself. A broker that is away is no reason.
// Any goroutine may call it.
func (s *Ship) Alive() error { return s.looping.Check("the search for changed logs") }

// Run ships until ctx ends, and then returns nil. With Once it returns when the broker has acknowledged everything,
// or with the error of ctx if that ends first. An Input is shipped to its end, or until ctx ends; what was read of it
// is sent even then. Run waits while the broker is away.
//
// It returns an error for a path that does not exist, offsets that cannot be read or written, an Input that cannot be
// read, and a closed connection. Problems of single files and records are in the [Summary].
func (s *Ship) Run(ctx context.Context) error {
	stop, err := s.startMetrics(s.config.Meter)
	if err != nil {
		return err
	}
	defer stop()
	if s.config.Input != nil {
		return s.runInput(ctx)
	}
	if s.offsetsFile, err = offsets.Read(ctx, s.config.offsets()); err != nil {
		return err
	}
	found, err := find(s.config)
	if err != nil {
		return err
	}
	if n := len(found.hidden); n > 0 {
		s.tally.change(func(sum *Summary) { sum.Hidden = n })
		s.config.Logger.WarnContext(ctx, "hidden folders are skipped: name a folder to ship what is in it",
			"folders", n, "first", found.hidden[:min(n, 5)])
	}
	stopHeartbeats := s.startHeartbeats(ctx)
	for again := s.config.Again; ; again = false {
		err = s.pass(ctx, found, again)
		if !errors.Is(err, errStreamChanged) {
			break
		}
		s.reset()
		found, _ = find(s.config) // the error names paths that are gone since
	}
	s.tally.behind(s.loop.files)
	stopHeartbeats()
	if !s.config.Once && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	if s.config.DryRun || s.offsets == nil {
		return err
	}
	if s.complete() {
		s.offsets.Prune()
	}
	return errors.Join(err, s.offsetsFile.Save(s.offsets))
}

// pass ships from the offsets in the present raw stream. It returns errStreamChanged when that was replaced
// meanwhile, or lost records.
func (s *Ship) pass(ctx context.Context, found finder, again bool) error {
	s.attached.Store(false)
	if err := s.attach(ctx, s.offsetsFile); err != nil {
		return err
	}
	s.attached.Store(true)
	if again {
		s.offsets.Restart()
	}
	return s.runFiles(ctx, found)
}

// complete reports whether every log of this machine was visited, so that each offset has the present path of its
// file.
func (s *Ship) complete() bool {
	return len(s.config.Paths) == 0 && s.config.Source == "" && s.config.Since.IsZero() && len(s.loop.queue) == 0
}

// runFiles runs the loop, its workers and the publisher until all of them have ended.
func (s *Ship) runFiles(ctx context.Context, found finder) error {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	g, ctx := errgroup.WithContext(running)
	visits := make(chan *visit)
	done := make(chan *visit, s.config.Parallel) // buffered, because a worker can end after the loop
	var workers sync.WaitGroup
	workers.Add(s.config.Parallel)
	for range s.config.Parallel {
		g.Go(func() error {
			defer workers.Done()
			return work(ctx, visits, done)
		})
	}
	g.Go(func() error {
		defer close(visits)
		return s.loop.run(ctx, found, visits, done)
	})
	g.Go(func() error {
		workers.Wait()
		close(s.publisher.submitted)
		return nil
	})
	g.Go(func() error {
		s.publisher.run(ctx, fail)
		return nil
	})
	err := g.Wait()
	close(done)
	for v := range done {
		s.loop.returned(v) // the summary shows what it holds back
	}
	if cause := context.Cause(running); errors.Is(cause, errStreamChanged) {
		return cause
	}
	return err
}

// connect waits for the broker, unless nothing is sent.
func (s *Ship) connect(ctx context.Context) error {
	if s.config.DryRun {
		return nil
	}
	return s.publisher.connected(ctx)
}

// work makes visits until there are no more, or one ends the Ship.
func work(ctx context.Context, visits <-chan *visit, done chan<- *visit) error {
	buf := make([]byte, readBytes)
	for v := range visits {
		v.buf = buf
		if err := v.run(ctx); err != nil {
			return err
		}
		done <- v
	}
	return nil
}

// refuse counts a refusal and logs it.
func (s *Ship) refuse(ctx context.Context, r Refusal) {
	s.tally.refuse(r)
	where := []any{"path", r.Path}
	if r.Line > 0 {
		where = append(where, "line", r.Line)
	}
	s.config.Logger.With(where...).WarnContext(ctx, "not shipped", "reason", r.Reason, "error", r.Err)
}
