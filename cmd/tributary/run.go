package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"tributary/pipeline"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Work at the broker: turn raw records into events",
		Long: `Make the streams that are missing, then normalize raw records and store their
events, until told to stop. Any number of workers share the partitions: one that
joins takes its part, the part of one that dies is taken over within seconds.
Whatever happens to them, each event is stored once.`,
		Example: `  tributary run
  NATS_URL=nats://nats.example:4222 NATS_CREDS=worker.creds tributary run`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			telemetry, err := newTelemetry(ctx, a.config)
			if err != nil {
				return err
			}
			defer a.shutdown(ctx, telemetry)
			js, err := a.jetStream(ctx)
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			if err := pipeline.CheckPayload(js.Conn()); err != nil {
				return err
			}
			if err := pipeline.Provision(ctx, js, a.config.topology()); err != nil {
				return err
			}
			a.log.InfoContext(ctx, "working", "generation", a.config.Generation, "partitions", a.config.Partitions, "worker", a.config.workerName())
			if err := a.work(ctx, js, telemetry, nuid.Next()); err != nil {
				return err
			}
			a.log.InfoContext(ctx, "drained")
			return nil
		},
	}
	a.serverFlag(cmd)
	return cmd
}

// errDrainTimeout ends work that did not come to its end in time. Nothing of it is lost:
// it is done again by the next worker.
var errDrainTimeout = errors.New("drain took too long: what was not stored is done again next time")

// work runs a stage until ctx ends, and then lets it finish what is on its way. Its key
// among the workers is member.
func (a *app) work(ctx context.Context, js jetstream.JetStream, t *telemetry, member string) error {
	stage, err := pipeline.New(js, pipeline.Config{
		Topology: a.config.topology(),
		Worker:   a.config.workerName(),
		Member:   member,
		Mode:     a.config.CloudEvents,
		Profile:  a.config.ToolMetadata,
		Logger:   a.log,
		Tracer:   t.stageTracer(),
		Meter:    t.metrics.Meter(scope),
	})
	if err != nil {
		return err
	}
	working, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	stop := context.AfterFunc(ctx, func() {
		stage.Drain()
		limit := time.AfterFunc(a.config.DrainTimeout, func() { kill(errDrainTimeout) })
		context.AfterFunc(working, func() { limit.Stop() })
	})
	defer stop()
	return stage.Run(working)
}

// topology is what the settings want the broker to hold.
func (c *config) topology() pipeline.Topology {
	return pipeline.Topology{
		Generation:   c.Generation,
		Partitions:   c.Partitions,
		Replicas:     c.Replicas,
		RawMaxAge:    c.RawMaxAge,
		EventsMaxAge: c.EventsMaxAge,
	}
}
