package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"tributary/pipeline/events"
	"tributary/pipeline/runner"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

func runCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Run a worker: turn raw records into events",
		Long: `Create the streams that are missing, then normalize raw records and store their events
until a signal arrives. Any number of workers share the partitions: a worker that joins
takes over its part, and the partitions of a dead worker move to others within seconds.
Each event is stored once, even if workers crash. While the broker is away or elects a
leader, a worker waits. Workers also answer the requests that title and pin sessions, as
the NATS micro service tributary-sessions, and one of them keeps the records of
sessions.

A worker follows the live generation, and builds replays beside it in the time that
is left (tributary replay --help). With TRIBUTARY_GENERATION it works on that
generation alone.`,
		Example: `  tributary run
  NATS_URL=nats://nats.example:4222 NATS_CREDS=worker.creds tributary run`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			telemetry, err := a.startTelemetry(ctx, hostname())
			if err != nil {
				return err
			}
			defer a.shutdown(ctx, telemetry)
			stop, err := a.serveHTTP(ctx, telemetry)
			if err != nil {
				return err
			}
			defer stop()
			top, err := redactedTopology(a)
			if err != nil {
				return err
			}
			js, err := a.startWorker(ctx, top)
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			a.log.InfoContext(ctx, "worker is running", "partitions", top.Partitions, "worker", a.config.workerName())
			if err := runWorker(ctx, a, js, telemetry, top, nuid.Next(), a.log, nil); err != nil {
				return err
			}
			a.log.InfoContext(ctx, "drained")
			return nil
		},
	}
	a.redactFlags(cmd, "replace secrets before records are normalized; --redact=metadata_only replaces all content, full nothing; default the mode of the generation, in a new one full")
	a.serverFlag(cmd)
	return cmd
}

// errDrainTimeout ends a drain that takes too long. Nothing is lost: the next worker processes the records whose
// events are not stored.
var errDrainTimeout = errors.New("drain took too long: the next worker processes the rest again")

// runWorker runs a worker, the service of titles and pins, and the keeper of the records of sessions, until ctx ends,
// then drains them. member is the worker's key in the list of workers; log is for the worker; filters reports whether
// filters of searches are wanted, nil for always.
func runWorker(ctx context.Context, a *app, js jetstream.JetStream, t *telemetry, top streams.Topology, member string, log *slog.Logger, filters func() bool) error {
	handover := events.NewHandover()
	runner := runner.New(js, worker.Config{
		Topology:     top,
		Worker:       a.config.workerName(),
		Member:       member,
		ArchiveAfter: a.config.ArchiveAfter,
		Logger:       log,
		Tracer:       t.tracer(),
		Meter:        t.metrics.Meter(scope),
		Redact:       a.config.redactor,
		Handover:     handover,
	})
	a.health.watch(workerHealth{runner, js.Conn()})
	sessions, err := titles.New(js, titles.Config{
		ChangesMaxAge: a.config.ChangesMaxAge,
		Mode:          a.config.CloudEvents,
		Logger:        a.log,
		Meter:         t.metrics.Meter(scope),
	})
	if err != nil {
		return err
	}
	keeper, err := summaries.New(js, summaries.Config{
		Generation:   top.Generation,
		Worker:       a.config.workerName(),
		EventsMaxAge: top.EventsMaxAge,
		Filters:      filters,
		Handover:     handover,
		Logger:       a.log,
		Meter:        t.metrics.Meter(scope),
	})
	if err != nil {
		return err
	}
	working, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := sessions.Serve(working); err != nil {
			kill(err)
		}
	})
	serving.Go(func() { _ = keeper.Run(working) }) // ends with working, or is drained
	defer serving.Wait()
	defer keeper.Drain()
	defer sessions.Drain()
	stop := context.AfterFunc(ctx, func() {
		runner.Drain()
		sessions.Drain()
		limit := time.AfterFunc(a.config.DrainTimeout, func() { kill(errDrainTimeout) })
		context.AfterFunc(working, func() { limit.Stop() })
	})
	defer stop()
	return runner.Run(working)
}

// workerName is the worker's name among the owners of partitions.
func (c *config) workerName() string {
	if c.Worker != "" {
		return c.Worker
	}
	return fmt.Sprintf("%s-%d", cmp.Or(hostname(), "worker"), os.Getpid())
}
