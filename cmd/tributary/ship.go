package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/progress"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/ship"
)

// shipFlags are the flags of ship.
type shipFlags struct {
	source, since string
	once, dryRun  bool
	again         bool
	timeout       time.Duration
	sessionLogs   sessionLogs
}

func shipCommand(a *app) *cobra.Command {
	var f shipFlags
	cmd := &cobra.Command{
		Use:   "ship [flags] [PATH... | -]",
		Short: "Send the logs of this machine to the broker",
		Example: `  tributary ship                           follow all logs of this machine
  tributary ship --once --dry-run          show what would be sent
  tributary ship --once --since 720h       send the logs of the last 30 days
  tributary ship --source SOURCE old.jsonl
  tributary ship --redact --once --dry-run  list the secrets that redaction would replace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkRedactArgs(args); err != nil {
				return err
			}
			c, err := shipConfig(a, &f, args)
			if err != nil {
				return err
			}
			if err := useRedaction(a, &c); err != nil {
				return err
			}
			logRedaction(cmd.Context(), a, c.Redactor)
			if c.Edge, err = sender(cmd.Context(), a); err != nil {
				return err
			}
			logSender(cmd.Context(), a, c.Edge)
			if f.timeout != 0 && (!f.once || f.timeout < 0) {
				return usageError{errors.New("--timeout: pass a positive duration, together with --once")}
			}
			if c.DryRun {
				return runShip(cmd.Context(), a, nil, c)
			}
			return shipToBroker(cmd.Context(), a, c, f.timeout)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.once, "once", false, "send the records that exist now, then stop")
	flags.DurationVar(&f.timeout, "timeout", 0, "with --once: fail after this time, and say what was not sent (default none)")
	flags.BoolVar(&f.again, "again", false, "send everything once more, even what the broker has acknowledged")
	flags.DurationVar(&a.config.Idle, "idle", a.config.Idle, "time without a write after which a log counts as complete (TRIBUTARY_IDLE)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "send nothing, show what would be sent")
	flags.StringVar(&f.since, "since", "", "only logs written since then: a time, a date or a duration such as 24h")
	sourceFlag(cmd, &f.source, "only logs of this agent; for named files, the agent that wrote them")
	f.sessionLogs.addFlags(flags)
	flags.StringVar(&a.config.Identity, "identity", a.config.Identity, "how records name the host and the user that send them: plain, pseudonym or off (TRIBUTARY_IDENTITY)")
	completeFlag(cmd, "identity", []string{"plain", identityPseudonym, identityOff})
	flags.StringVar(&a.config.Labels, "labels", a.config.Labels, "`labels` of the records, such as team=payments,env=ci (TRIBUTARY_LABELS)")
	a.redactFlags(cmd, "replace secrets before they are sent; --redact=metadata_only replaces all content, full nothing")
	a.serverFlag(cmd)
	cmd.Long = `Follow the logs of the agents on this machine, or the files and folders that are
named, and store every record once in the raw stream. While the broker is away, ship
waits. A record that is too large for a message becomes an object in the bucket CLAIMS.

The progress is stored in the data folder, separately for each raw stream. Records that
the stream has acknowledged and lost are sent again; records that were purged are not,
unless you pass --again. One ship at a time uses a data folder. The last line of a log
is sent when it has a line end, or when it is complete and the log is idle.

The progress of the first pass is shown on a terminal, otherwise logged every 10
seconds; --log-level warn disables it.

Each record states who sends it: the host and the user, unless --identity is pseudonym
or off, and the --labels that are set. The events of the record have them as edge.

With - standard input is sent until it ends. Plain text does not state its session.
For such text, ` + f.sessionLogs.names() + ` names the folder in which its agent creates a log
named after the session (the agent's --log-dir). The text waits for that log;
after ten minutes without one it is sent without its session.`
	return cmd
}

// shipConfig returns the configuration that the flags and arguments ask for.
func shipConfig(a *app, f *shipFlags, args []string) (ship.Config, error) {
	c := ship.Config{
		Paths: args, Once: f.once, DryRun: f.dryRun, Again: f.again,
		Idle: a.config.Idle, Broker: a.config.broker(), Version: version(), Logger: a.log,
	}
	var err error
	if c.Source, err = parseSource(f.source); err != nil {
		return c, err
	}
	if c.Since, err = parseSince(f.since, time.Now()); err != nil {
		return c, err
	}
	if err := useInput(a, &c, args, f.sessionLogs); err != nil {
		return c, err
	}
	if c.Roots, err = a.config.roots(); err != nil {
		return c, err
	}
	state, err := a.config.shipState()
	c.Offsets = filepath.Join(state, "offsets.json")
	return c, err
}

// useInput makes ship read standard input if the argument is -.
func useInput(a *app, c *ship.Config, args []string, logs sessionLogs) error {
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

// shipToBroker ships until the work is done, also if the broker is away at first; a timeout of 0 is none.
func shipToBroker(ctx context.Context, a *app, c ship.Config, timeout time.Duration) error {
	if c.Input == nil { // standard input has no state
		unlock, err := lock(filepath.Dir(c.Offsets), "name another folder in TRIBUTARY_DATA")
		if err != nil {
			return err
		}
		defer unlock()
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	c.Host = hostname()
	if a.config.MetricsExporter == exporterPrometheus {
		a.config.MetricsExporter = "none" // the port belongs to the worker of this host
	}
	telemetry, err := a.startTelemetry(ctx, hostOf(c.Edge))
	if err != nil {
		return err
	}
	defer a.shutdown(ctx, telemetry)
	c.Tracer, c.Meter = telemetry.tracer(), telemetry.metrics.Meter(scope)
	stop, err := a.serveHTTP(ctx, telemetry)
	if err != nil {
		return err
	}
	defer stop()
	nc, err := a.connect(ctx, nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	return runShip(ctx, a, nc, c)
}

// runShip runs ship and reports the result.
func runShip(ctx context.Context, a *app, nc *nats.Conn, c ship.Config) error {
	s, err := ship.New(nc, c)
	if err != nil {
		return err
	}
	a.health.watch(s)
	stop := reportBackfill(ctx, a, s, c)
	err = s.Run(ctx)
	stop()
	sum := s.Summary()
	printShipped(a.stderr, sum, c.DryRun)
	switch {
	case err == nil:
		return refusals(sum)
	case errors.Is(context.Cause(ctx), errTimeout):
		return unsent(sum)
	default:
		return err
	}
}

// reportBackfill reports the backfill of s until stop, unless the level of the log disables this.
func reportBackfill(ctx context.Context, a *app, s *ship.Ship, c ship.Config) (stop func()) {
	if !a.log.Enabled(ctx, slog.LevelInfo) {
		return func() {}
	}
	p := &progress.Backfill{Summary: s.Summary, Verb: "shipping", Follows: !c.Once && !c.DryRun, Log: a.log, Columns: messageColumns}
	if c.DryRun {
		p.Verb = "reading"
	}
	if a.config.LogFormat == "text" {
		p.Status = a.status
	}
	return p.Start(ctx)
}

// errTimeout is the cause of a context that --timeout ended.
var errTimeout = errors.New("the time of --timeout is over")

// unsent returns the error of a run that --timeout ended. It names what was not sent.
func unsent(sum ship.Summary) error {
	if sum.Stalled != nil {
		return fmt.Errorf("%w, but not everything was sent: %w", errTimeout, sum.Stalled)
	}
	left := max(sum.Waiting-len(sum.Held), 0)
	if left == 0 { // nothing is known of the logs yet
		return fmt.Errorf("%w, but not everything was sent: pass a longer one", errTimeout)
	}
	return fmt.Errorf("%w, %s not sent in full: pass a longer one, or run ship again, which continues here", errTimeout, terminal.Plural(left, "log"))
}

// printShipped prints what was sent, or what a dry run would send.
func printShipped(w io.Writer, sum ship.Summary, dryRun bool) {
	verb := "shipped"
	if dryRun {
		verb = "would ship"
	}
	fmt.Fprintf(w, "%s %s (%s) of %s in %s", verb, terminal.Plural(sum.Records, "record"), terminal.Size(sum.Bytes), terminal.Plural(sum.Sessions, "session"), terminal.Plural(sum.Files, "file"))
	if sum.Duplicates > 0 {
		fmt.Fprintf(w, ", %s known already", terminal.Plural(sum.Duplicates, "record"))
	}
	fmt.Fprintln(w)
	if dryRun {
		for _, source := range slices.Sorted(maps.Keys(sum.Agents)) {
			of := sum.Agents[source]
			fmt.Fprintf(w, "  %s: %s of %s\n", source, terminal.Plural(of.Records, "record"), terminal.Plural(of.Sessions, "session"))
		}
	}
	printRedacted(w, sum.Redacted)
	for _, loss := range sum.Losses {
		fmt.Fprintf(w, "note: %v\n", loss)
	}
	if sum.Revived > 0 {
		fmt.Fprintf(w, "note: %s stored that the broker took for duplicates of messages that were removed\n", terminal.Plural(sum.Revived, "message"))
	}
	for i, held := range sum.Held {
		if i == maxHeld {
			fmt.Fprintf(w, "held back: the ends of %s more\n", terminal.Plural(len(sum.Held)-i, "file"))
			break
		}
		fmt.Fprintf(w, "held back: the last %s of %s, an incomplete record\n", terminal.Size(held.Bytes), terminal.OneLine(held.Path))
	}
}

// maxHeld limits the printed files that were held back.
const maxHeld = 20

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
