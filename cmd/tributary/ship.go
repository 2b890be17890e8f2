package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"tributary/pipeline/ship"
)

// shipFlags are the flags of ship.
type shipFlags struct {
	source, since string
	once, dryRun  bool
	sessionLogs   sessionLogs
}

func (a *app) shipCommand() *cobra.Command {
	var f shipFlags
	cmd := &cobra.Command{
		Use:   "ship [flags] [PATH... | -]",
		Short: "Send the logs of this machine to the broker",
		Example: `  tributary ship                           follow all logs of this machine
  tributary ship --once --dry-run          show what would be sent
  tributary ship --once --since 720h       send the logs of the last 30 days
  tributary ship --source SOURCE old.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.shipConfig(&f, args)
			if err != nil {
				return err
			}
			if c.DryRun {
				return a.ship(cmd.Context(), nil, c)
			}
			return a.shipToBroker(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.once, "once", false, "send the records that exist now, then stop")
	flags.BoolVar(&f.dryRun, "dry-run", false, "send nothing, show what would be sent")
	flags.StringVar(&f.since, "since", "", "only logs that were written to since then: a time, a date or a duration such as 24h")
	sourceFlag(cmd, &f.source, "only logs of this agent; the agent that wrote the files that are named")
	f.sessionLogs.addFlags(flags)
	a.serverFlag(cmd)
	cmd.Long = `Follow the logs of the agents on this machine, or the files and folders that are
named, and store every record once in the raw stream. The progress is stored in the
data folder. While the broker is away, ship waits. A record that is too large for a
message becomes an object in the bucket CLAIMS.

The progress of the first pass is shown on a terminal, otherwise logged every 10
seconds; --log-level warn disables it.

With - standard input is sent until it ends. Plain text does not state its session.
For such text, ` + f.sessionLogs.names() + ` names the folder in which its agent creates a log
that is named after the session (the agent's --log-dir). The text waits for that log;
after ten minutes without one it is sent without its session.`
	return cmd
}

// shipConfig returns the configuration of the flags and arguments.
func (a *app) shipConfig(f *shipFlags, args []string) (ship.Config, error) {
	c := ship.Config{Paths: args, Once: f.once, DryRun: f.dryRun, Logger: a.log}
	var err error
	if c.Source, err = parseSource(f.source); err != nil {
		return c, err
	}
	if c.Since, err = parseSince(f.since, time.Now()); err != nil {
		return c, err
	}
	if err := a.useInput(&c, args, f.sessionLogs); err != nil {
		return c, err
	}
	if c.Roots, err = a.config.roots(); err != nil {
		return c, err
	}
	c.Offsets, err = a.config.offsets()
	return c, err
}

// useInput makes standard input the input of ship if the argument is -.
func (a *app) useInput(c *ship.Config, args []string, logs sessionLogs) error {
	c.Discovery = logs.discovery()
	d := c.Discovery
	if !slices.Contains(args, "-") {
		if d != nil {
			return usageError{fmt.Errorf("--%s is for standard input: pass - for it", d.Flag())}
		}
		return nil
	}
	if len(args) > 1 {
		return usageError{errors.New("pass either - or paths")}
	}
	c.Input, c.Paths = a.stdin, nil
	switch {
	case d == nil:
	case c.Source == "":
		c.Source = d.Source
	case c.Source != d.Source:
		return usageError{fmt.Errorf("--%s is for %s, not for %s", d.Flag(), d.Source, c.Source)}
	}
	return nil
}

// shipToBroker connects to the broker, also to one that is away, and ships.
func (a *app) shipToBroker(ctx context.Context, c ship.Config) error {
	if err := os.MkdirAll(filepath.Dir(c.Offsets), 0o700); err != nil {
		return fmt.Errorf("data folder: name another one in TRIBUTARY_DATA: %w", err)
	}
	traced := *a.config
	traced.MetricsExporter = "none" // ship has no metrics, and the port belongs to the worker
	telemetry, err := newTelemetry(ctx, &traced)
	if err != nil {
		return err
	}
	defer a.shutdown(ctx, telemetry)
	c.Tracer = telemetry.tracer()
	nc, err := a.connect(ctx, nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	return a.ship(ctx, nc, c)
}

// ship runs ship and reports the result.
func (a *app) ship(ctx context.Context, nc *nats.Conn, c ship.Config) error {
	s, err := ship.New(nc, c)
	if err != nil {
		return err
	}
	stop := a.progress(ctx, s, c)
	err = s.Run(ctx)
	stop()
	sum := s.Summary()
	printShipped(a.stderr, sum, c.DryRun)
	if err != nil {
		return err
	}
	return refusals(sum)
}

// printShipped prints what was sent, or would be sent in a dry run.
func printShipped(w io.Writer, sum ship.Summary, dryRun bool) {
	verb := "shipped"
	if dryRun {
		verb = "would ship"
	}
	fmt.Fprintf(w, "%s %s (%s) of %s in %s", verb, plural(sum.Records, "record"), size(sum.Bytes), plural(sum.Sessions, "session"), plural(sum.Files, "file"))
	if sum.Duplicates > 0 {
		fmt.Fprintf(w, ", %s known already", plural(sum.Duplicates, "record"))
	}
	fmt.Fprintln(w)
}

// refusals returns the error of what was not shipped, nil if everything was.
func refusals(sum ship.Summary) error {
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(sum.Refused)) {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, sum.Refused[reason]))
	}
	if reasons == nil {
		return nil
	}
	return partlyError("not shipped: " + strings.Join(reasons, ", "))
}
