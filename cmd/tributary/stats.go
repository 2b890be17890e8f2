package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/sessions"
)

// statsFlags are the flags of stats.
type statsFlags struct {
	by                        []string
	source, session, project  string
	repository, branch, model string
	host, user                string
	since, until, zone        string
	compare, sort             string
	output                    string
	prices                    string
	providers                 []string
	limit                     int
}

func statsCommand(a *app) *cobra.Command {
	var f statsFlags
	cmd := &cobra.Command{
		Use:   "stats [flags]",
		Short: "Sum up tokens, cost, tools and time of all sessions",
		Long: `Sum up the events of the broker by hour, day, week, month, model, source, project, repo,
branch, session, tool, host, user, team or via, or by several of them. team is the label
of this name, label:NAME any other one. Worktrees of one repository are one repo, where
the agent states the repository: a path does not name it. via is log, telemetry or hooks:
with source or session, each way that it came on has a row, and one that it lacks has
none. Events that do not state a value have a row of their own, so the rows always have
the same sum.
--since and --until select by the time of an event, and --tz is the time zone of periods
and dates. A week begins on Monday. --repo, --branch, --host, --user and --model select
events by the same values.

Tokens are counted in five parts that never overlap: input, cache_read, cache_write,
output and reasoning; total is their sum. An API call that several sessions have,
because vendors copy history into forked and resumed sessions, counts once; the number
of copies is printed. A tool call counts once, with any number of results, in the period
in which it began. Tokens belong to no tool. An event that names no model counts for the
model that its session used last. Active is the time between events that are at most 5
minutes apart.

Latencies are those that vendors state, also by telemetry alone, within 1%. For other
calls they are measured from the call to its result, including the time that somebody
took to permit it, and listed as measured, unless call and result have the same time.

--compare previous compares with the previous period of the same length, which ends at
--since: the table has the change in percent, -o json each figure of that period as
previous_ and the difference as delta_. --sort names a column of -o json; figures are
sorted largest first, names alphabetically, and :asc or :desc behind the column chooses.
The row all is the sum of all rows, also of those that --limit leaves out.

` + pricesHelp + ` If
the providers in the file disagree about a model, --provider chooses. Costs that
vendors state themselves are listed beside ours, as vendor_cost_usd.

-o json prints one object per row, -o csv the same columns. tokens_input and
tokens_output are the old names of input and output, and end with the next release.`,
		Example: `  tributary stats
  tributary stats --by week,model --since 28d
  tributary stats --by repo,branch --sort cost_usd --limit 10
  tributary stats --by model --since 7d --compare previous
  tributary stats --by branch --repo acme/shop --user ada
  tributary stats --by source,session,via --since 7d
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
	flags.StringVar(&f.repository, "repo", "", "only events in this repository: its name, or the end of it")
	flags.StringVar(&f.branch, "branch", "", "only events on this branch")
	flags.StringVar(&f.host, "host", "", "only events of this host")
	flags.StringVar(&f.user, "user", "", "only events of this user")
	flags.StringVar(&f.model, "model", "", "only events of this model: its whole name")
	flags.StringVar(&f.since, "since", "", "only events from then on: a duration such as 7d, a date or a time")
	flags.StringVar(&f.until, "until", "", "only events before then: a duration, date or time")
	flags.StringVar(&f.compare, "compare", "", "previous: compare with the previous period")
	completeFlag(cmd, "compare", []string{comparePrevious})
	flags.StringVar(&f.zone, "tz", "Local", "time zone of periods and dates, such as UTC or Europe/Berlin")
	pricesFlags(flags, &f.prices, &f.providers)
	flags.StringVar(&f.sort, "sort", "", "`column` that rows are sorted by, such as cost_usd or calls:asc; without it periods, then total")
	columns := texts(sessions.Dimensions)
	for _, figure := range figures.Figures {
		columns = append(columns, figure.Name)
	}
	completeFlag(cmd, "sort", columns)
	flags.IntVar(&f.limit, "limit", 0, "print at most this many rows, the first ones; 0 for all")
	flags.StringVarP(&f.output, "output", "o", "table", "table, json or csv")
	a.serverFlag(cmd)
	return cmd
}

// comparePrevious is the value of --compare.
const comparePrevious = "previous"

// query returns what the flags select.
func (f *statsFlags) query(now time.Time) (figures.Query, error) {
	q := figures.Query{Session: f.session, Sort: f.sort, Limit: f.limit}
	q.Stats = sessions.StatsQuery{Project: f.project, Repository: f.repository, Branch: f.branch, Host: f.host, User: f.user, Model: f.model}
	named := map[sessions.Dimension]bool{}
	for _, name := range f.by {
		d := sessions.Dimension(name)
		if !d.Valid() {
			return q, usageError{fmt.Errorf("--by %q: write some of %s, label:NAME, separated by commas", name, joined(sessions.Dimensions))}
		}
		if !named[d] {
			named[d] = true
			q.Stats.By = append(q.Stats.By, d)
		}
	}
	var err error
	if q.Stats.Zone, err = time.LoadLocation(f.zone); err != nil {
		return q, usageError{fmt.Errorf("--tz %q: write Local, UTC or a name such as Europe/Berlin", f.zone)}
	}
	if q.Stats.Since, err = parseTimeIn("since", f.since, now, q.Stats.Zone); err != nil {
		return q, err
	}
	if q.Stats.Until, err = parseTimeIn("until", f.until, now, q.Stats.Zone); err != nil {
		return q, err
	}
	if f.limit < 0 {
		return q, usageError{fmt.Errorf("--limit %d: write a number from 0 on", f.limit)}
	}
	if q.Source, err = parseSource(f.source); err != nil {
		return q, err
	}
	q.Before, err = f.compared(q.Stats, now)
	return q, err
}

// compared returns the query of the period before q, nil if the flags do not compare.
func (f *statsFlags) compared(q sessions.StatsQuery, now time.Time) (*sessions.StatsQuery, error) {
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
	before, ok := figures.Before(q, now)
	if !ok {
		return nil, usageError{errors.New("--compare previous: pass --since, before --until, for the period to compare")}
	}
	return &before, nil
}

// printStats prints the statistics that the flags select.
func printStats(ctx context.Context, a *app, f *statsFlags) error {
	if err := checkOutput(f.output, "table", "json", "csv"); err != nil {
		return err
	}
	q, err := f.query(time.Now())
	if err != nil {
		return err
	}
	pricing, err := newPricing(f.prices, f.providers)
	if err != nil {
		return err
	}
	list, err := figures.New(q, pricing)
	if err != nil {
		return usageError{fmt.Errorf("--sort %q: write one of %s, and :asc or :desc behind it for the direction", f.sort, strings.Join(list.Sortable(), ", "))}
	}
	js, err := a.jetStreamLive(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	view, unreadable, err := openSummaries(ctx, a, js)
	if err == nil {
		err = list.Read(ctx, view)
	}
	if err != nil {
		return a.noStream(err)
	}
	switch f.output {
	case "json":
		err = writeStatsJSON(terminal.JSONWriter(a.stdout), list)
	case "csv":
		err = writeStatsCSV(a.stdout, list)
	default:
		err = statsTable(list).Write(a.stdout, terminal.TableWidth(a.stdout))
	}
	if err != nil {
		return err
	}
	reportStats(a, list, pricing)
	return unreadable.err()
}

// reportStats prints what the rows leave out.
func reportStats(a *app, l *figures.List, pricing *figures.Pricing) {
	if len(l.Rows) == 0 {
		fmt.Fprintf(a.stderr, "no such event in generation %s\n", a.config.Generation)
	}
	if l.Left > 0 {
		fmt.Fprintf(a.stderr, "left out by --limit: %s\n", terminal.Plural(l.Left, "row"))
	}
	if l.Copies.Calls > 0 {
		fmt.Fprintf(a.stderr, "left out: %s tokens of %s that other sessions have, too\n", terminal.Thousands(l.Copies.Usage.Total()), terminal.Plural(int(l.Copies.Calls), "API call"))
	}
	fmt.Fprintf(a.stderr, "prices: %s\n", pricing.Source())
	reportUnpriced(a.stderr, "no price", l.Unpriced())
	reportUnpriced(a.stderr, "no price in the period before", l.UnpricedBefore())
	if vendors := l.Total.Usage.CostUSD; vendors > 0 {
		fmt.Fprintf(a.stderr, "vendors state a cost of their own: %s\n", figures.Dollars(vendors))
	}
}
