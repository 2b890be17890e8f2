package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"tributary/normalizers"
	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(map[string]pipelinetest.Program{workerProgram: runWorker}); is {
		os.Exit(code)
	}
	// The server forgets this one when it is shut down while a batch is being stored.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"))
}

// topology is that of most tests: few partitions, so that sessions share them.
func topology(partitions int) pipeline.Topology {
	return pipeline.Topology{Generation: "v1", Partitions: partitions}
}

// running is a stage that runs.
type running struct {
	*pipeline.Stage
	cancel context.CancelFunc
	result chan error
}

// start runs a stage that ends with the test at the latest.
func start(tb testing.TB, js jetstream.JetStream, cfg pipeline.Config) *running {
	tb.Helper()
	return startCrashing(tb, js, cfg, nil)
}

// startCrashing is start with a stage that ends as by kill when crash says so of a record
// that is about to be normalized.
func startCrashing(tb testing.TB, js jetstream.JetStream, cfg pipeline.Config, crash func(normalizers.Record) bool) *running {
	tb.Helper()
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 50 * time.Millisecond
	}
	if cfg.Logger == nil && testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context())) // which outlives the cleanup
	if crash != nil {
		normalize := cfg.Normalize
		if normalize == nil {
			normalize = normalizers.Normalize
		}
		cfg.Normalize = func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
			if crash(r) {
				cancel()
			}
			return normalize(s, r)
		}
	}
	s, err := pipeline.New(js, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r := &running{Stage: s, cancel: cancel, result: make(chan error, 1)}
	go func() { r.result <- s.Run(ctx) }()
	tb.Cleanup(r.kill)
	return r
}

// kill ends the stage as hard as a process can end it from inside: whatever it has in
// memory or on its way is left.
func (r *running) kill() {
	r.cancel()
	r.result <- <-r.result
}

// wait returns how the stage ended by itself.
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

// stop drains the stage and fails the test when it does not end well.
func (r *running) stop(tb testing.TB) {
	tb.Helper()
	r.Drain()
	if err := r.wait(tb); err != nil {
		tb.Fatalf("stage: %v", err)
	}
}

// deadline is a context for what must happen soon.
func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), time.Minute, errors.New("the test waits in vain"))
	tb.Cleanup(cancel)
	return ctx
}
