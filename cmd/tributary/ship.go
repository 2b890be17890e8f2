package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/spf13/pflag"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/ship"
)

func (a *app) shipCommand() *cobra.Command {
	var source, since string
	var logs sessionLogs
	var once, dryRun bool
	cmd := &cobra.Command{
		Use:   "ship [flags] [PATH... | -]",
		Short: "Send the logs of this machine to the broker",
		Long: `Follow the logs of the agents on this machine, or the files and folders that are
named, and store every record once in the raw stream. What was sent is
remembered in the data folder; a broker that is away is waited for. Records that
are too large for a message go into the object bucket CLAIMS.

How far the first pass is shows on a terminal, else every 10 seconds in the log;
with --log-level warn not at all.

With - what comes from standard input is sent, until it ends. Plain text does not
state its session: --copilot-logs names the folder, the agent's --log-dir, in which
the agent makes a log that is named after the session. The text waits for that log;
after ten minutes without one it is sent without its session.`,
		Example: `  tributary ship                           follow all logs of this machine
  tributary ship --once --dry-run          show what would be sent
  tributary ship --once --since 720h       send the logs of the last 30 days
  tributary ship --source claude_code old.jsonl
  copilot -p "fix it" --log-level debug --log-dir logs | tributary ship --copilot-logs logs -`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx := cmd.Context()
			c := ship.Config{Paths: args, Once: once, DryRun: dryRun}
			if c.Source, c.Since, err = parseFilters(source, since, time.Now()); err != nil {
				return err
			}
			if err := a.pipe(&c, args, logs); err != nil {
				return err
			}
			if c.Roots, err = a.config.roots(); err != nil {
				return err
			}
			if c.Offsets, err = a.offsets(); err != nil {
				return err
			}
			if dryRun {
				return a.ship(ctx, nil, c)
			}
			if err := os.MkdirAll(filepath.Dir(c.Offsets), 0o700); err != nil {
				return fmt.Errorf("data folder: name another one in TRIBUTARY_DATA: %w", err)
			}
			traced := *a.config
			traced.MetricsExporter = "none" // it has none, and the port is the worker's
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
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&once, "once", false, "send what is there and stop")
	flags.BoolVar(&dryRun, "dry-run", false, "send nothing, say what would be sent now")
	flags.StringVar(&since, "since", "", "only logs written to since: a time, a date or a duration such as 24h")
	flags.StringVar(&source, "source", "", "only logs of this agent, and what the named files are: "+sourceNames())
	logs.addFlags(flags)
	a.serverFlag(cmd)
	completeSources(cmd)
	return cmd
}

// sessionLogs are the folders in which agents that print plain text make logs that are named
// after their sessions: the value of a flag for each such agent.
type sessionLogs []struct {
	vendor *normalizers.Vendor
	dir    *string
}

// addFlags adds the flags of the agents.
func (l *sessionLogs) addFlags(flags *pflag.FlagSet) {
	for _, v := range normalizers.Vendors() {
		if text := v.Framing.PrintedText; text != nil {
			dir := flags.String(text.Flag, "", "with -: folder in which "+v.Name+" makes a log that is named after the session")
			*l = append(*l, struct {
				vendor *normalizers.Vendor
				dir    *string
			}{v, dir})
		}
	}
}

// discovery returns how the session of the input is found; nil where no flag is given.
func (l sessionLogs) discovery() *ship.Discovery {
	for _, f := range l {
		if *f.dir != "" {
			return &ship.Discovery{Source: f.vendor.Source, Dir: *f.dir}
		}
	}
	return nil
}

// pipe makes standard input the input of ship, where the arguments ask for it.
func (a *app) pipe(c *ship.Config, args []string, logs sessionLogs) error {
	c.Discovery = logs.discovery()
	if !slices.Contains(args, "-") {
		if d := c.Discovery; d != nil {
			return usageError{fmt.Errorf("--%s is for what comes from standard input: write - for it", d.Flag())}
		}
		return nil
	}
	if len(args) > 1 {
		return usageError{errors.New("either - or paths")}
	}
	c.Input, c.Paths = a.stdin, nil
	d := c.Discovery
	switch {
	case d == nil:
	case c.Source == "":
		c.Source = d.Source
	case c.Source != d.Source:
		return usageError{fmt.Errorf("--%s is for %s, not for %s", d.Flag(), d.Source, c.Source)}
	}
	return nil
}

// offsets is the file that remembers what was sent to the broker of the settings. Every
// broker has its own: what one has, another may not.
func (a *app) offsets() (string, error) {
	dir, err := a.config.dataDir()
	if err != nil {
		return "", err
	}
	broker := sha256.Sum256([]byte(a.config.NATSContext + "\n" + a.config.NATSURL))
	return filepath.Join(dir, "ship", hex.EncodeToString(broker[:8])+".json"), nil
}

// ship ships and tells what was done.
func (a *app) ship(ctx context.Context, nc *nats.Conn, c ship.Config) error {
	c.Logger = a.log
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

// printShipped tells what was sent, or in a dry run would be.
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

// refusals is the error of what was not shipped, nil when all was.
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

// size is a number of bytes for a person.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
}

// parseFilters reads the values of --source and --since.
func parseFilters(source, since string, now time.Time) (envelopes.Source, time.Time, error) {
	s, err := parseSource(source)
	if err != nil {
		return "", time.Time{}, err
	}
	t, err := parseSince(since, now)
	return s, t, err
}

// parseSince reads a time, a date, or how long ago; empty is the zero time.
func parseSince(since string, now time.Time) (time.Time, error) {
	if since == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(since); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if t, err := time.Parse(time.RFC3339, since); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, since, time.Local); err == nil {
		return t, nil
	}
	return time.Time{}, usageError{fmt.Errorf("--since %q: write a duration such as 24h, a date such as 2026-03-09, or a time such as 2026-03-09T14:00:00Z", since)}
}
