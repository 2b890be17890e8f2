package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
)

// statsFlags are the flags of stats.
type statsFlags struct {
	by                       []string
	source, session, project string
	since, until, zone       string
	compare, sort            string
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
		Long: `Sum up the events of the broker by hour, day, week, month, model, source, project,
repo, branch, session, tool, host, user or team, or by several of them. team is the
label of this name, label:NAME any other one. Worktrees of one repository are one
repo. What events do not state is a row of its own: the rows of any dimensions have
the same sum. --since and --until select by the time of an event, and --tz is the
time zone of periods and dates. A week begins on Monday.

Tokens are counted in five parts that never overlap: input, cache_read,
cache_write, output and reasoning; total is their sum. An API call that several
sessions have, because a vendor copies history into forked and resumed sessions,
counts once; what is left out is printed. A tool call counts once, whatever number
of results it has, in the period in which it began. Tokens belong to no tool. An
event that names no model counts for the model that its session used last. Active is
the time between events that are at most 5 minutes apart.

Latencies are those that vendors state, within 1%. Those of other calls are
measured from the call to its result, with the time that somebody took to permit
it, and are apart as measured; a call and a result with one time are not measured.

--compare previous compares with the period before, which is as long and ends at
--since: the table has the change in percent, -o json each figure of that period as
previous_ and the difference as delta_. --sort names a column of -o json; figures come
with the largest first, names in their order, and :asc or :desc behind the column
chooses. The row all is the sum of all rows, also of those that --limit leaves out.

` + pricesHelp + ` If
the providers in the file disagree about a model, --provider chooses. A cost that
vendors state themselves is beside ours, as vendor_cost_usd.

-o json prints one object per row, -o csv the same columns. tokens_input and
tokens_output are the old names of input and output, and end with the next release.`,
		Example: `  tributary stats
  tributary stats --by week,model --since 28d
  tributary stats --by repo,branch --sort cost_usd --limit 10
  tributary stats --by model --since 7d --compare previous
  tributary stats --by tool -o json | jq -r 'select(.error_rate > 0.1) | .tool'
  tributary stats --by project --prices model_prices_and_context_window.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return printStats(cmd.Context(), a, &f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.by, "by", []string{string(sessions.ByModel)}, "dimensions, separated by commas: "+joined(sessions.Dimensions)+", label:NAME")
	completeFlag(cmd, "by", texts(sessions.Dimensions))
	sourceFlag(cmd, &f.source, "only sessions of this agent")
	flags.StringVar(&f.session, "session", "", "only this session: its whole id")
	flags.StringVar(&f.project, "project", "", "only sessions of this project: its path, or the end of it")
	flags.StringVar(&f.since, "since", "", "only events from then on: a duration such as 7d, a date or a time")
	flags.StringVar(&f.until, "until", "", "only events before then: a duration, date or time")
	flags.StringVar(&f.compare, "compare", "", "previous: compare with the period before")
	completeFlag(cmd, "compare", []string{comparePrevious})
	flags.StringVar(&f.zone, "tz", "Local", "time zone of periods and dates, such as UTC or Europe/Berlin")
	pricesFlags(flags, &f.prices, &f.providers)
	flags.StringVar(&f.sort, "sort", "", "`column` that rows are sorted by, such as cost_usd or calls:asc; without it periods, then total")
	columns := texts(sessions.Dimensions)
	for _, figure := range statsFigures {
		columns = append(columns, figure.name)
	}
	completeFlag(cmd, "sort", columns)
	flags.IntVar(&f.limit, "limit", 0, "print only so many rows, the first ones; 0 for all")
	flags.StringVarP(&f.output, "output", "o", "table", "table, json or csv")
	a.serverFlag(cmd)
	return cmd
}

// comparePrevious is the value of --compare.
const comparePrevious = "previous"

// query returns what the flags select: events of the stream, and sums of them.
func (f *statsFlags) query(now time.Time) (events.Query, sessions.StatsQuery, error) {
	events := events.Query{Session: f.session}
	q := sessions.StatsQuery{Project: f.project, Models: true}
	named := map[sessions.Dimension]bool{}
	for _, name := range f.by {
		d := sessions.Dimension(name)
		if !d.Valid() {
			return events, q, usageError{fmt.Errorf("--by %q: write some of %s, label:NAME, separated by commas", name, joined(sessions.Dimensions))}
		}
		if !named[d] {
			named[d] = true
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

// previous returns the query of the period before the one of q, nil if the flags do not compare.
func (f *statsFlags) previous(q sessions.StatsQuery, now time.Time) (*sessions.StatsQuery, error) {
	if f.compare == "" {
		return nil, nil
	}
	if !strings.EqualFold(f.compare, comparePrevious) {
		return nil, usageError{fmt.Errorf("--compare %q: write previous", f.compare)}
	}
	for _, d := range q.By {
		if d.IsPeriod() {
			return nil, usageError{fmt.Errorf("--compare previous: no %s is in both periods: leave %s out of --by", d, d)}
		}
	}
	until := q.Until
	if until.IsZero() {
		until = now
	}
	if q.Since.IsZero() || !q.Since.Before(until) {
		return nil, usageError{errors.New("--compare previous: pass --since, before --until, for the period to compare")}
	}
	q.Until = q.Since
	days := int(math.Round(until.Sub(q.Since).Hours() / 24))
	if q.Since.In(q.Zone).AddDate(0, 0, days).Equal(until) { // a day at a change of the clock has not 24 hours
		q.Since = q.Since.In(q.Zone).AddDate(0, 0, -days)
	} else {
		q.Since = q.Since.Add(-until.Sub(q.Since))
	}
	return &q, nil
}

// printStats prints the statistics that the flags select.
func printStats(ctx context.Context, a *app, f *statsFlags) error {
	if err := checkOutput(f.output, "table", "json", "csv"); err != nil {
		return err
	}
	now := time.Now()
	events, q, err := f.query(now)
	if err != nil {
		return err
	}
	previous, err := f.previous(q, now)
	if err != nil {
		return err
	}
	list := statsList{dimensions: q.Dimensions(), compared: previous != nil}
	list.lines.limit = f.limit
	if list.lines.order, err = list.order(f.sort); err != nil {
		return err
	}
	if list.pricing, err = newPricing(f.prices, f.providers); err != nil {
		return err
	}
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	view, unreadable, err := openSummaries(ctx, a, js)
	if err != nil {
		return a.noStream(err)
	}
	sum := func(q sessions.StatsQuery, add func(*sessions.Row) error) (sessions.Copies, error) {
		steps, err := statsSteps(ctx, a, js, view, events, &q, unreadable)
		if err != nil {
			return sessions.Copies{}, err
		}
		return sessions.Stats(steps, q, sessions.Memory{}, add)
	}
	if previous != nil {
		if _, err := sum(*previous, list.addPrevious); err != nil {
			return a.noStream(err)
		}
	}
	copies, err := sum(q, list.add)
	if err != nil {
		return a.noStream(err)
	}
	list.finish(f.sort == "")
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
	list.report(a, copies)
	return unreadable.err()
}

// report states what the rows leave out.
func (l *statsList) report(a *app, copies sessions.Copies) {
	if len(l.rows) == 0 {
		fmt.Fprintf(a.stderr, "no such event in generation %s\n", a.config.Generation)
	}
	if l.lines.left > 0 {
		fmt.Fprintf(a.stderr, "left out by --limit: %s\n", terminal.Plural(l.lines.left, "row"))
	}
	if copies.Calls > 0 {
		fmt.Fprintf(a.stderr, "left out: %s tokens of %s that other sessions have, too\n", terminal.Thousands(copies.Usage.Total()), terminal.Plural(int(copies.Calls), "API call"))
	}
	l.pricing.report(a.stderr)
	if vendors := l.total.Usage.CostUSD; vendors > 0 {
		fmt.Fprintf(a.stderr, "vendors state a cost of their own: %s\n", dollars(vendors))
	}
}

// unreadable counts events that cannot be read, and prints why.
type unreadable struct {
	*app
	seen map[string]bool // what is printed
}

func (u *unreadable) add(err error) {
	text := err.Error()
	if u.seen[text] {
		return // read again, for another period
	}
	if u.seen == nil {
		u.seen = map[string]bool{}
	}
	u.seen[text] = true
	fmt.Fprintf(u.stderr, "skipped: %v\n", err)
}

// err is nil if every event was read.
func (u *unreadable) err() error {
	if len(u.seen) == 0 {
		return nil
	}
	return partlyError(terminal.Plural(len(u.seen), "event") + " could not be read")
}

// statsSteps returns the steps of the events that statistics need: with limits of time or a project, those from the
// first event of the sessions in question on.
func statsSteps(ctx context.Context, a *app, js jetstream.JetStream, view *summaries.View, events events.Query, q *sessions.StatsQuery, unreadable *unreadable) (iter.Seq2[sessions.Step, error], error) {
	if q.Since.IsZero() && q.Until.IsZero() && q.Project == "" {
		return summaries.Steps(ctx, js, a.config.Generation, events, unreadable.add), nil
	}
	return view.Steps(ctx, events, func(r *summaries.Record) bool {
		return (q.Since.IsZero() || !r.LastSeen.Before(q.Since)) && (q.Until.IsZero() || r.FirstSeen.Before(q.Until)) && r.InProject(q.Project)
	})
}
