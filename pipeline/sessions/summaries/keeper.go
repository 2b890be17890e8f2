package summaries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/metric"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// Config configures a [Keeper]. Its zero value is valid.
type Config struct {
	Generation   string        // keep only the records of this generation; empty for the live one and each replay
	Worker       string        // name in checkpoints; default "worker"
	Bytes        int           // approximate memory for folds per generation, in bytes; default 32 MiB
	Idle         int           // number of other events after which an unused fold leaves memory; default 131,072
	Every        time.Duration // how long changes wait to be stored together; default 1 s
	Beat         time.Duration // interval of checkpoints while there is nothing to store; default 2 s
	EventsMaxAge time.Duration // how long events are kept, in whole seconds, and records after their last change; 0 for ever
	FilterBytes  int           // of the events of one filter of searches, about; default 4 MiB

	// Filters reports whether filters of searches are wanted now, from any goroutine; nil for always.
	Filters func() bool

	// Handover has events that the stages of this process stored, which the keeper need not read then; nil for none.
	Handover *events.Handover

	Logger *slog.Logger // nil for no logs
	Meter  metric.Meter // nil for no metrics
}

func (c Config) withDefaults() Config {
	if c.Worker == "" {
		c.Worker = "worker"
	}
	if c.Bytes <= 0 {
		c.Bytes = 32 << 20
	}
	if c.Idle <= 0 {
		c.Idle = 128 << 10
	}
	if c.Every <= 0 {
		c.Every = time.Second
	}
	if c.Beat <= 0 {
		c.Beat = defaultBeat
	}
	if c.FilterBytes <= 0 {
		c.FilterBytes = 4 << 20
	}
	if c.Filters == nil {
		c.Filters = func() bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// The checkpoint of a keeper is its heartbeat.
const (
	defaultBeat = 2 * time.Second
	silentBeats = 3 // a keeper is replaced after so many heartbeats without a checkpoint

	// Patience is how long after its last checkpoint a keeper has certainly been replaced, if a worker runs.
	Patience = (silentBeats + 2) * defaultBeat
)

// Keeper keeps the session records of the live generation and of each replay up to date with their events. Any number
// of keepers, in any number of processes, may run: one of them works on a generation, and another takes over when it
// stops or is silent. Make one with [New] and run it once.
type Keeper struct {
	js        jetstream.JetStream
	config    Config
	owner     string // unique to this keeper
	telemetry *telemetry

	drain    chan struct{} // closed by Drain
	draining sync.Once

	keeping map[string]*keeping // by generation; belongs to the goroutine of Run
}

// keeping is the work on one generation.
type keeping struct {
	started time.Time // creation time of the generation; a dropped one of the same name has another
	cancel  context.CancelFunc
	done    chan struct{}
}

// New returns a keeper for a server prepared by [streams.Provision].
func New(js jetstream.JetStream, cfg Config) (*Keeper, error) {
	cfg = cfg.withDefaults()
	t, err := newTelemetry(cfg.Meter)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return &Keeper{
		js: js, config: cfg, owner: cfg.Worker + "-" + nuid.Next(), telemetry: t,
		drain: make(chan struct{}), keeping: make(map[string]*keeping),
	}, nil
}

// Run works until [Keeper.Drain] is called, when it stores what it has read and returns nil, or until ctx ends, when
// it drops what is in memory and returns the cause. Failures are logged and tried again.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(k.config.Beat)
	defer tick.Stop()
	failing := false
	for {
		if err := k.round(ctx); err != nil && ctx.Err() == nil {
			if !failing {
				k.config.Logger.WarnContext(ctx, "generations cannot be read: going on with the records of the known ones", slog.Any("error", err))
			}
			failing = true
		} else {
			failing = false
		}
		select {
		case <-tick.C:
			continue
		case <-k.drain:
		case <-ctx.Done():
		}
		for _, one := range k.keeping {
			<-one.done
			one.cancel()
		}
		return context.Cause(ctx)
	}
}

// Drain makes [Keeper.Run] store what it has read, and return. It does not wait. It may be called by any goroutine,
// repeatedly.
func (k *Keeper) Drain() { k.draining.Do(func() { close(k.drain) }) }

// round begins to work on new generations, and stops working on ended ones.
func (k *Keeper) round(ctx context.Context) error {
	wanted, err := k.wanted(ctx)
	if err != nil {
		return err
	}
	for name, one := range k.keeping {
		if started, ok := wanted[name]; !ok || !started.Equal(one.started) {
			one.cancel()
			<-one.done
			delete(k.keeping, name)
		}
	}
	for name, started := range wanted {
		if k.keeping[name] == nil {
			working, cancel := context.WithCancel(ctx)
			one := &keeping{started: started, cancel: cancel, done: make(chan struct{})}
			k.keeping[name] = one
			go func() {
				defer close(one.done)
				k.keep(working, name)
			}()
		}
	}
	return nil
}

// wanted returns the generations to work on with their start times.
func (k *Keeper) wanted(ctx context.Context) (map[string]time.Time, error) {
	if k.config.Generation != "" {
		return map[string]time.Time{k.config.Generation: {}}, nil
	}
	all, err := streams.ReadGenerations(ctx, k.js)
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]time.Time)
	for _, g := range all.List {
		switch g.State {
		case streams.StateRetired, streams.StateStarting, streams.StateDropping:
		default:
			wanted[g.Name] = g.Started
		}
	}
	return wanted, nil
}

// keep keeps the records of a generation, or waits to take over, until ctx ends or the keeper is drained.
func (k *Keeper) keep(ctx context.Context, generation string) {
	log := k.config.Logger.With(slog.String("generation", generation))
	c := &candidate{keeper: k, store: store{k.js, generation}, log: log}
	failing := false
	for {
		l, err := c.acquire(ctx)
		if l != nil {
			failing = false
			err = l.lead(ctx)
		}
		wait := k.config.Beat
		switch {
		case ctx.Err() != nil, broker.Closed(k.drain):
			return
		case err == nil:
		case errors.Is(err, jetstream.ErrStreamNotFound): // the generation is being dropped
			log.DebugContext(ctx, "records of sessions are not kept", slog.Any("error", err))
		case broker.Fenced(err): // by another keeper, or by an erasure
			log.DebugContext(ctx, "records of sessions were taken over", slog.Any("error", err))
		case errors.Is(err, errInterrupted):
			log.DebugContext(ctx, "records of sessions are taken over again", slog.Any("error", err))
			wait = 0
		case errors.Is(err, errDamaged), errors.Is(err, events.ErrWentBack):
			log.WarnContext(ctx, "making the records of sessions again from the events", slog.Any("error", err))
			c.rebuild, wait = true, 0
		case !failing:
			failing = true
			log.WarnContext(ctx, "records of sessions are not kept: trying again", slog.Any("error", err))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-k.drain:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
