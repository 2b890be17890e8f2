package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// replayRetry is the wait before a failed replay is tried again.
const replayRetry = 10 * time.Second

// Runner runs a [worker.Stage] for each generation that a worker has to work on:
//   - the live generation. When another becomes live, the runner drains the stage of the old one and continues with
//     the new one.
//   - beside it, each replay that was started ([replay.Start]), with the settings of the replay, in the time that the
//     live stage leaves.
//
// A runner works only on generations of its own revision. Beside a live generation of another revision it only builds
// replays, and is not ready. If its topology names a Generation, it works on that one alone.
//
// Make one with [New] and run it once.
type Runner struct {
	js     jetstream.JetStream
	config worker.Config
	pacer  *worker.Pacer

	drain    chan struct{} // closed by Drain
	draining sync.Once
	ended    chan struct{} // signaled when a stage has ended

	// These belong to the goroutine of Run.
	failed map[string]time.Time // when to try a failed replay again
	live   string               // live generation whose stage was started last; empty before the first

	since time.Time   // creation time of the Runner
	step  broker.Step // of [Runner.Run]
	last  *lastError

	mu      sync.Mutex
	started bool                     // the generations were read
	unready time.Time                // since when the worker is not ready; zero while it is
	foreign *streams.Generation      // the live generation if it has another revision
	stages  map[string]*runningStage // by generation
}

// runningStage is a stage that a [Runner] runs.
type runningStage struct {
	*worker.Stage
	live    bool
	started time.Time // creation time of the generation; a dropped one of the same name has another
	drained bool      // on purpose: its error does not matter
	done    chan struct{}
	err     error // set before done is closed
}

// New returns a runner for the server of js, which must have the topology of cfg.
func New(js jetstream.JetStream, cfg worker.Config) *Runner {
	cfg = cfg.WithDefaults()
	last := new(lastError)
	cfg.Logger = slog.New(last.handler(cfg.Logger.Handler()))
	r := &Runner{
		js:     js,
		since:  time.Now().UTC(),
		config: cfg,
		last:   last,
		drain:  make(chan struct{}),
		ended:  make(chan struct{}, 1),
		failed: make(map[string]time.Time),
		stages: make(map[string]*runningStage),
	}
	r.pacer = worker.NewPacer(r.liveActive)
	return r
}

// Run works until [Runner.Drain] is called, ctx ends, or the stage of the live generation cannot go on. It returns
// what [worker.Stage.Run] returns for that stage. A replay that cannot go on is logged and tried again later.
func (r *Runner) Run(ctx context.Context) error {
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := r.answer()
	if err != nil {
		return err
	}
	defer stop()
	tick := time.NewTicker(r.config.Heartbeat)
	defer tick.Stop()
	for {
		r.step.Begin()
		if err := r.reap(); err != nil {
			cancel(err)
			return errors.Join(err, r.wait(false))
		}
		if err := r.round(working); err != nil {
			cancel(err)
			return errors.Join(err, r.wait(false))
		}
		r.beat(working)
		r.noteReady()
		r.step.End()
		select {
		case <-r.ended:
		case <-tick.C:
		case <-r.drain:
			return r.wait(true)
		case <-ctx.Done():
			_ = r.wait(false) // each stage ends with the cause
			return context.Cause(ctx)
		}
	}
}

// Drain makes [Runner.Run] drain its stages and return. It does not wait. It may be called by any goroutine,
// repeatedly.
func (r *Runner) Drain() { r.draining.Do(func() { close(r.drain) }) }

// Ready is [worker.Stage.Ready] for the stage of the live generation. A runner is not ready while the live generation
// has another revision: otherwise an orchestrator could replace all workers by ones that do not process the stream.
func (r *Runner) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		return errors.New("the generations have not been read yet")
	}
	if r.foreign != nil {
		return r.notLive()
	}
	for _, s := range r.stages {
		if s.live {
			return s.Ready()
		}
	}
	return nil
}

// notLive says what a runner does while the live generation has another revision, with the cure. The caller holds mu.
func (r *Runner) notLive() error {
	does, cure := "does nothing", "build one of this revision with tributary replay start NAME, then make it live with tributary replay promote NAME"
	if replays := slices.Sorted(maps.Keys(r.stages)); len(replays) > 0 {
		does, cure = "only builds "+strings.Join(replays, ", "), "make one live with tributary replay promote NAME"
	}
	return fmt.Errorf("%w: %s has revision %d, this worker has %d: it %s: %s", streams.ErrRevision, r.foreign.Name, r.foreign.Revision, r.config.Revision, does, cure)
}

// Alive is [worker.Stage.Alive] for all stages, and checks the runner itself.
func (r *Runner) Alive() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := []error{r.step.Check("the choice of generations")}
	for name, s := range r.stages {
		if err := s.Alive(); err != nil {
			errs = append(errs, fmt.Errorf("generation %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// wait waits until every stage has ended, and returns why the live one could not go on. With drained, stages end
// cleanly.
func (r *Runner) wait(drained bool) error {
	r.mu.Lock()
	stages := slices.Collect(maps.Values(r.stages))
	r.mu.Unlock() // the pacer of the replays needs the lock until they have ended
	var errs []error
	for _, s := range stages {
		if drained {
			s.Drain()
		}
	}
	for _, s := range stages {
		<-s.done
		if s.live && !r.meant(s) {
			errs = append(errs, s.err)
		}
	}
	return errors.Join(errs...)
}

// meant reports whether an ended stage was meant to end: the runner follows the live generation, and that is now
// another one.
func (r *Runner) meant(s *runningStage) bool {
	return s.drained || errors.Is(s.err, streams.ErrRetired) && r.config.Topology.Generation == ""
}

// reap removes the stages that have ended. It returns the error of the live generation's stage, unless the stage was
// meant to end or the broker is unavailable; the next round then starts it again.
func (r *Runner) reap() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.stages {
		if !broker.Closed(s.done) {
			continue
		}
		delete(r.stages, name)
		switch {
		case r.meant(s):
		case s.live && broker.Unavailable(s.err):
			r.config.Logger.Warn("stage of the live generation failed: trying again", slog.String("generation", name), slog.Any("error", s.err))
		case s.live:
			return s.err
		case s.err != nil:
			r.config.Logger.Error("replay stopped: trying again later", slog.String("generation", name), slog.Any("error", s.err))
			r.failed[name] = time.Now().Add(replayRetry)
		}
	}
	return nil
}

// round starts and drains stages until the wanted ones run.
func (r *Runner) round(ctx context.Context) error {
	wanted, foreign, err := r.wanted(ctx)
	if err != nil {
		r.config.Logger.WarnContext(ctx, "generations cannot be read: going on with the known ones", slog.Any("error", err))
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if foreign != nil && (r.foreign == nil || r.foreign.Name != foreign.Name) {
		r.config.Logger.WarnContext(ctx, "live generation has another revision: this worker only builds replays",
			slog.String("generation", foreign.Name), slog.Int("revision", foreign.Revision), slog.Int("own_revision", r.config.Revision),
			slog.String("cure", "tributary replay start NAME, unless one is under way"))
	}
	r.started, r.foreign = true, foreign
	for name, s := range r.stages {
		if g, ok := wanted[name]; (!ok || g.IsLive() != s.live || !g.Started.Equal(s.started)) && !s.drained {
			s.drained = true
			s.Drain()
		}
	}
	for name, g := range wanted {
		if r.stages[name] == nil && !time.Now().Before(r.failed[name]) {
			if r.stages[name], err = r.start(ctx, g); err != nil {
				delete(r.stages, name)
				return err
			}
		}
	}
	return nil
}

// beat writes the heartbeat of a worker without a generation to work on, so that others see it.
func (r *Runner) beat(ctx context.Context) {
	r.mu.Lock()
	idle := r.foreign != nil && len(r.stages) == 0
	r.mu.Unlock()
	if !idle || r.config.Member == "" {
		return
	}
	err := worker.Within(ctx, r.config.Heartbeat, func(ctx context.Context) error {
		data, err := json.Marshal(streams.Worker{Name: r.config.Worker, Revision: r.config.Revision, Partitions: []int{}, Since: r.since})
		if err != nil {
			return err
		}
		_, err = r.js.Publish(ctx, streams.WorkerSubject(streams.WaitingName, r.config.Member), data)
		return err
	})
	if err != nil {
		r.config.Logger.WarnContext(ctx, "heartbeat of this waiting worker cannot be written", slog.Any("error", err))
	}
}

// wanted returns the generations to work on by name, and the live one if it has another revision.
func (r *Runner) wanted(ctx context.Context) (wanted map[string]streams.Generation, foreign *streams.Generation, err error) {
	if named := r.config.Topology.Generation; named != "" {
		return map[string]streams.Generation{named: {Name: named, State: streams.StateLive}}, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, broker.RequestTimeout)
	defer cancel()
	all, err := streams.ReadGenerations(ctx, r.js)
	if err != nil {
		return nil, nil, err
	}
	if all.Live == "" {
		return nil, nil, streams.ErrKeysLost
	}
	live, err := all.Find(all.Live)
	if err != nil {
		return nil, nil, fmt.Errorf("bucket %s: %w", streams.ControlBucket, err)
	}
	if live.Revision != r.config.Revision {
		foreign = &live
	}
	wanted = make(map[string]streams.Generation)
	for _, g := range all.List {
		if g.Revision == r.config.Revision && (g.IsLive() || g.Replay) {
			wanted[g.Name] = g
		}
	}
	return wanted, foreign, nil
}

// start runs a stage.
func (r *Runner) start(ctx context.Context, g streams.Generation) (*runningStage, error) {
	cfg := r.config
	if g.Name != cfg.Topology.Generation {
		cfg.Topology.Generation = g.Name
		cfg.Topology.Settings = streams.Settings{} // they apply only to the generation that the worker provisioned
	}
	if !g.IsLive() {
		cfg.Pacer = r.pacer
		cfg.SessionBytes /= 4
		cfg.ClaimBytes = max(cfg.ClaimBytes/2, core.MaxRecordBytes)
	}
	cfg.Logger = cfg.Logger.With(slog.String("generation", g.Name))
	stage, err := worker.New(r.js, cfg)
	if err != nil {
		return nil, fmt.Errorf("generation %s: %w", g.Name, err)
	}
	s := &runningStage{Stage: stage, live: g.IsLive(), started: g.Started, done: make(chan struct{})}
	switch {
	case !g.IsLive():
		r.config.Logger.InfoContext(ctx, "builds a generation", slog.String("generation", g.Name))
	case r.live == "": // expected when a worker starts
		r.config.Logger.DebugContext(ctx, "works on the live generation", slog.String("generation", g.Name))
	case r.live != g.Name:
		r.config.Logger.InfoContext(ctx, "another generation is live: the worker goes on with it", slog.String("from", r.live), slog.String("generation", g.Name))
	}
	if g.IsLive() && r.live != g.Name {
		r.live, r.unready = g.Name, time.Time{} // not since the stage of another generation stopped
	}
	go func() {
		s.err = stage.Run(ctx)
		close(s.done)
		select {
		case r.ended <- struct{}{}:
		default:
		}
	}()
	return s, nil
}

// liveActive reports whether the stage of the live generation has records, or had some recently.
func (r *Runner) liveActive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.stages {
		if s.live && s.Active() {
			return true
		}
	}
	return false
}
