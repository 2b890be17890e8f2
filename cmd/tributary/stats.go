package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
)

// statsFlags are the flags of stats.
type statsFlags struct {
	by                       []string
	source, session, project string
	since, until, zone       string
	output                   string
	prices                   string
	providers                []string
	limit                    int
}

func statsCommand(a *app) *cobra.Command {
	var f statsFlags
	cmd := &cobra.Command{
		Use:   "stats [flags]",
		Short: "Sum up tokens, cost, tools and time of all sessions",
		Long: `Sum up the events of the broker by day, model, source, project, session and tool,
or by several of them. --since and --until select by the time of an event, and
--tz is the time zone of days and dates.

Tokens are counted in five parts that never overlap: input, cache_read,
cache_write, output and reasoning; total is their sum. An API call that several
sessions have, because a vendor copies history into forked and resumed sessions,
counts once; what is left out is printed. A tool call counts once, whatever number
of results it has, on the day on which it began. Tokens belong to no tool. An event
that names no model counts for the model that its session used last. Latencies are
those that vendors state, within 1%. Active is the time between events that are at
most 5 minutes apart.

` + pricesHelp + ` If
the providers in the file disagree about a model, --provider chooses. A cost that
vendors state themselves is beside ours, as vendor_cost_usd.

-o json prints one object per row, -o csv the same columns.`,
		Example: `  tributary stats
  tributary stats --by day,model --since 168h
  tributary stats --by tool -o json | jq -r 'select(.error_rate > 0.1) | .tool'
  tributary stats --by project --prices model_prices_and_context_window.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return printStats(cmd.Context(), a, &f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.by, "by", []string{string(sessions.ByModel)}, "dimensions, separated by commas: "+joined(sessions.Dimensions))
	completeFlag(cmd, "by", texts(sessions.Dimensions))
	sourceFlag(cmd, &f.source, "only sessions of this agent")
	flags.StringVar(&f.session, "session", "", "only this session: its whole id")
	flags.StringVar(&f.project, "project", "", "only sessions of this project: its path, or the end of it")
	flags.StringVar(&f.since, "since", "", "only events from then on: a duration, date or time")
	flags.StringVar(&f.until, "until", "", "only events before then: a duration, date or time")
	flags.StringVar(&f.zone, "tz", "Local", "time zone of days and dates, such as UTC or Europe/Berlin")
	pricesFlags(flags, &f.prices, &f.providers)
	flags.IntVar(&f.limit, "limit", 0, "print only so many rows, those with most tokens; 0 for all")
	flags.StringVarP(&f.output, "output", "o", "table", "table, json or csv")
	a.serverFlag(cmd)
	return cmd
}

// query returns what the flags select: events of the stream, and sums of them.
func (f *statsFlags) query(now time.Time) (events.Query, sessions.StatsQuery, error) {
	events := events.Query{Session: f.session}
	q := sessions.StatsQuery{Project: f.project, Models: true}
	for _, name := range f.by {
		d := sessions.Dimension(name)
		if !slices.Contains(sessions.Dimensions, d) {
			return events, q, usageError{fmt.Errorf("--by %q: write some of %s, separated by commas", name, joined(sessions.Dimensions))}
		}
		if !slices.Contains(q.By, d) {
			q.By = append(q.By, d)
		}
	}
	var err error
	if q.Zone, err = time.LoadLocation(f.zone); err != nil {
		return events, q, usageError{fmt.Errorf("--tz %q: write Local, UTC or a name such as Europe/Berlin", f.zone)}
	}
	if q.Since, err = parseTimeIn("since", f.since, now, q.Zone); err != nil {
		return events, q, err
	}
	if q.Until, err = parseTimeIn("until", f.until, now, q.Zone); err != nil {
		return events, q, err
	}
	if f.limit < 0 {
		return events, q, usageError{fmt.Errorf("--limit %d: write a number from 0 on", f.limit)}
	}
	events.Source, err = parseSource(f.source)
	return events, q, err
}

// printStats prints the statistics that the flags select.
func printStats(ctx context.Context, a *app, f *statsFlags) error {
	if err := checkOutput(f.output, "table", "json", "csv"); err != nil {
		return err
	}
	events, q, err := f.query(time.Now())
	if err != nil {
		return err
	}
	pricing, err := newPricing(f.prices, f.providers)
	if err != nil {
		return err
	}
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	rows := topList[sessions.Row]{limit: f.limit, order: moreTokens}
	steps, unreadable, err := statsSteps(ctx, a, js, events, &q)
	if err != nil {
		return a.noStream(err)
	}
	copies, err := sessions.Stats(steps, q, sessions.Memory{}, rows.add)
	if err != nil {
		return a.noStream(err)
	}
	list := statsList{by: q.By, rows: rowsInOrder(rows.sorted(), q.By), pricing: pricing}
	switch f.output {
	case "json":
		err = list.json(terminal.JSONWriter(a.stdout))
	case "csv":
		err = list.csv(a.stdout)
	default:
		err = list.table().Write(a.stdout, terminal.TableWidth(a.stdout))
	}
	if err != nil {
		return err
	}
	reportStats(a, list.rows, rows.left, copies, pricing)
	return unreadable.err()
}

// reportStats states what the rows leave out.
func reportStats(a *app, rows []sessions.Row, left int, copies sessions.Copies, pricing *pricing) {
	vendors := 0.0
	for i := range rows {
		vendors = envelopes.AddUSD(vendors, rows[i].Usage.CostUSD)
	}
	if len(rows) == 0 {
		fmt.Fprintf(a.stderr, "no such event in generation %s\n", a.config.Generation)
	}
	if left > 0 {
		fmt.Fprintf(a.stderr, "left out by --limit: %s\n", terminal.Plural(left, "row"))
	}
	if copies.Calls > 0 {
		fmt.Fprintf(a.stderr, "left out: %s tokens of %s that other sessions have, too\n", terminal.Thousands(copies.Usage.Total()), terminal.Plural(int(copies.Calls), "API call"))
	}
	pricing.report(a.stderr)
	if vendors > 0 {
		fmt.Fprintf(a.stderr, "vendors state a cost of their own: %s\n", dollars(vendors))
	}
}

// unreadable counts events that cannot be read, and prints why.
type unreadable struct {
	*app
	count int
}

func (u *unreadable) add(err error) {
	u.count++
	fmt.Fprintf(u.stderr, "skipped: %v\n", err)
}

// err is nil if every event was read.
func (u *unreadable) err() error {
	if u.count == 0 {
		return nil
	}
	return partlyError(terminal.Plural(u.count, "event") + " could not be read")
}

// statsSteps returns the steps of the events that statistics need: with limits of time or a project, those from the
// first event of the sessions in question on.
func statsSteps(ctx context.Context, a *app, js jetstream.JetStream, events events.Query, q *sessions.StatsQuery) (iter.Seq2[sessions.Step, error], *unreadable, error) {
	view, unreadable, err := openSummaries(ctx, a, js)
	if err != nil {
		return nil, nil, err
	}
	if q.Since.IsZero() && q.Until.IsZero() && q.Project == "" {
		return summaries.Steps(ctx, js, a.config.Generation, events, unreadable.add), unreadable, nil
	}
	steps, err := view.Steps(ctx, events, func(r *summaries.Record) bool {
		return (q.Since.IsZero() || !r.LastSeen.Before(q.Since)) && (q.Until.IsZero() || r.FirstSeen.Before(q.Until)) && r.InProject(q.Project)
	})
	return steps, unreadable, err
}
