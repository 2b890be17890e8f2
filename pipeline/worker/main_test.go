package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/runner"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(nil); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	goleak.VerifyTestMain(m, pipelinetest.ServerLeaks()...)
}

// topology returns the topology of most tests: few partitions, so that several sessions are
// in each.
func topology(partitions int) streams.Topology {
	return streams.Topology{Generation: "v1", Partitions: partitions}
}

// running is a running stage.
type running struct {
	*worker.Stage
	cancel context.CancelFunc
	result chan error
}

// start runs a stage, which ends with the test at the latest.
func start(tb testing.TB, js jetstream.JetStream, cfg worker.Config) *running {
	tb.Helper()
	return startCrashing(tb, js, cfg, nil)
}

// startCrashing is start with a stage that is killed before it normalizes a record for which
// crash returns true.
func startCrashing(tb testing.TB, js jetstream.JetStream, cfg worker.Config, crash func(core.Record) bool) *running {
	tb.Helper()
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 50 * time.Millisecond
	}
	if cfg.Logger == nil && testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context())) // it outlives the cleanup
	if crash != nil {
		normalize := cfg.Normalize
		if normalize == nil {
			normalize = normalizers.Normalize
		}
		cfg.Normalize = func(s *core.Session, r core.Record) (core.Result, error) {
			if crash(r) {
				cancel()
			}
			return normalize(s, r)
		}
	}
	s, err := worker.New(js, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r := &running{Stage: s, cancel: cancel, result: make(chan error, 1)}
	go func() {
		err := s.Run(ctx)
		if err != nil && ctx.Err() == nil {
			tb.Logf("the stage has ended: %v", err)
		}
		r.result <- err
	}()
	tb.Cleanup(r.kill)
	return r
}

// kill ends the stage as abruptly as a process can from inside: it drops what it has in
// memory or in flight.
func (r *running) kill() {
	r.cancel()
	r.result <- <-r.result
}

// wait waits for the stage to end by itself and returns the result.
func (r *running) wait(tb testing.TB) error {
	tb.Helper()
	select {
	case err := <-r.result:
		r.result <- err
		return err
	case <-deadline(tb).Done():
		tb.Fatal("the stage does not end")
		return nil
	}
}

// stop drains the stage, and fails the test when that fails.
func (r *running) stop(tb testing.TB) {
	tb.Helper()
	r.Drain()
	if err := r.wait(tb); err != nil {
		tb.Fatalf("stage: %v", err)
	}
}

// difference is [cmp.Diff], which takes long for much data, even if that is equal.
func difference[T any](want, got T) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

// deadline returns a context for what must happen soon.
func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), 3*time.Minute, errors.New("the test waits in vain"))
	tb.Cleanup(cancel)
	return ctx
}

// work runs a worker that follows the live generation, which ends with the test at the latest.
func work(tb testing.TB, js jetstream.JetStream, cfg worker.Config) *following {
	tb.Helper()
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 200 * time.Millisecond
	}
	if cfg.Logger == nil && testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	cfg.Topology.Generation = ""
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context())) // it outlives the cleanup
	w := &following{Runner: runner.New(js, cfg), cancel: cancel, result: make(chan error, 1)}
	go func() { w.result <- w.Run(ctx) }()
	tb.Cleanup(w.kill)
	return w
}

// following is a running [runner.Runner].
type following struct {
	*runner.Runner
	cancel context.CancelFunc
	result chan error
}

// kill ends the worker as [running.kill] does a stage.
func (w *following) kill() {
	w.cancel()
	w.result <- <-w.result
}

// stop drains the worker, and fails the test when that fails.
func (w *following) stop(tb testing.TB) {
	tb.Helper()
	w.Drain()
	select {
	case err := <-w.result:
		w.result <- err
		if err != nil {
			tb.Fatalf("worker: %v", err)
		}
	case <-deadline(tb).Done():
		tb.Fatal("the worker does not end")
	}
}
