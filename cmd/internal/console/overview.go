package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/moment"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
)

// overviewRequest is a request of the overview.
type overviewRequest struct{ *request }

// Limits of what the overview shows and keeps in memory.
const (
	maxPeriods = 130 // the latest bars
	maxSeries  = 8   // parts of a bar; if there are more values, the last part sums up the others
	maxValues  = 50  // rows of a dimension

	overviewMemory = 128 << 20 // bytes for summing up events; the rest goes to temporary files
	maxOverviews   = 2         // overviews at once; others wait
)

// unaskedSince begins the range of a long stream if the address names none: see [Limits.Unasked].
const unaskedSince = "28d"

// overview answers with the figures of the selected events, each as stats prints it.
func (r overviewRequest) overview() error {
	ctx := r.Context()
	generation, err := r.generation(ctx)
	if err != nil {
		return err
	}
	stored, err := r.suitableRange(ctx, generation)
	if err != nil {
		return err
	}
	choice, err := r.overviewChoice()
	if err != nil {
		return err
	}
	unreadable := 0
	view, err := summaries.Open(ctx, r.config.JetStream, generation, func(error) { unreadable++ })
	if err != nil {
		return err
	}
	d, err := r.newOverview(choice)
	if err != nil {
		return err
	}
	select {
	case r.overviews <- struct{}{}:
		defer func() { <-r.overviews }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := figures.Read(ctx, view, sessions.Memory{Bytes: overviewMemory}, d.total, d.byValue, d.byPeriod, d.byBoth); err != nil {
		return err
	}
	d.Unreadable, d.Stored = unreadable, stored
	r.filter.own = url.Values{}
	for _, name := range []string{"figure", "per", "by"} {
		if value := r.URL.Query().Get(name); value != "" {
			r.filter.own.Set(name, value)
		}
	}
	return r.page("overview", "Overview", d)
}

// suitableRange sets a range if the address names none and the stream is long; then it returns the number of events
// in the stream.
func (r *request) suitableRange(ctx context.Context, generation string) (stored uint64, err error) {
	f := &r.filter
	if f.Since != "" || f.Until != "" {
		return 0, nil
	}
	stored, err = events.Count(ctx, r.config.JetStream, generation, nil)
	if err != nil || stored <= r.limits.Unasked {
		return 0, err
	}
	f.Since = unaskedSince
	f.From, err = moment.Parse(f.Since, r.now, f.Zone)
	return stored, err
}

// overviewChoice is what a person chooses in the overview beside the filter.
type overviewChoice struct {
	Figure string
	Per    sessions.Dimension
	By     sessions.Dimension
}

// chartFigures are the figures for bars: figures whose parts add up.
var chartFigures = []struct{ name, label string }{
	{"cost_usd", "Cost"},
	{"total", "Tokens"},
	{"prompts", "Prompts"},
	{"calls", "Calls"},
	{"failures", "Failed calls"},
	{"errors", "Errors"},
	{"active_seconds", "Active time"},
}

// chartPeriods are the periods of bars, and chartDimensions what bars are divided by; both are also names of the
// filter.
var (
	chartPeriods    = []sessions.Dimension{sessions.ByHour, sessions.ByDay, sessions.ByWeek, sessions.ByMonth}
	chartDimensions = []struct {
		dimension sessions.Dimension
		label     string
	}{
		{sessions.ByModel, "Model"},
		{sessions.BySource, "Agent"},
		{sessions.ByRepository, "Repository"},
		{sessions.ByProject, "Project"},
		{sessions.ByBranch, "Branch"},
		{sessions.ByHost, "Host"},
		{sessions.ByUser, "User"},
	}
)

// overviewChoice parses the choice of the query. By default bars show the cost by model, in periods that suit the
// range.
func (r overviewRequest) overviewChoice() (overviewChoice, error) {
	query := r.URL.Query()
	c := overviewChoice{
		Figure: cmp.Or(query.Get("figure"), chartFigures[0].name),
		Per:    cmp.Or(sessions.Dimension(query.Get("per")), r.suitablePeriod()),
		By:     cmp.Or(sessions.Dimension(query.Get("by")), chartDimensions[0].dimension),
	}
	switch {
	case c.figure() < 0:
		return c, invalid("figure names no figure of the bars", "choose one of the page")
	case !slices.Contains(chartPeriods, c.Per):
		return c, invalid("per names no period", "write hour, day, week or month")
	case c.dimension() < 0:
		return c, invalid("by names nothing that bars are divided by", "choose one of the page")
	}
	return c, nil
}

// figure returns the index of the figure in [chartFigures], -1 for none.
func (c *overviewChoice) figure() int {
	for i := range chartFigures {
		if chartFigures[i].name == c.Figure {
			return i
		}
	}
	return -1
}

// dimension returns the index of the dimension in [chartDimensions], -1 for none.
func (c *overviewChoice) dimension() int {
	for i := range chartDimensions {
		if chartDimensions[i].dimension == c.By {
			return i
		}
	}
	return -1
}

// suitablePeriod returns the default period of bars for the range of the filter.
func (r overviewRequest) suitablePeriod() sessions.Dimension {
	until := r.filter.To
	if until.IsZero() {
		until = r.now
	}
	const day = 24 * time.Hour
	switch length := until.Sub(r.filter.From); {
	case r.filter.From.IsZero():
		return sessions.ByDay
	case length <= 2*day:
		return sessions.ByHour
	case length <= 100*day:
		return sessions.ByDay
	case length <= 900*day:
		return sessions.ByWeek
	default:
		return sessions.ByMonth
	}
}

// overview is the data of the template.
type overview struct {
	Choice     overviewChoice
	Unreadable int    // events that could not be read
	Stored     uint64 // events of the stream, if the page chose the range; else 0

	request  *request
	previous *sessions.StatsQuery // nil if there is no range to compare with
	total    *figures.List        // of everything
	byValue  *figures.List        // of each value of the dimension
	byPeriod *figures.List        // of the latest periods
	byBoth   *figures.List        // of the latest periods by the largest values
	series   []string             // those values, once byValue is read
}

// others stands for the values without their own series. It is no possible value.
const others = "\x00"

// newOverview returns a view before reading.
func (r overviewRequest) newOverview(choice overviewChoice) (*overview, error) {
	f := &r.filter
	d := &overview{Choice: choice, request: r.request}
	all := f.query()
	if before, ok := figures.Before(all.Stats, r.now); ok {
		d.previous, all.Before = &before, &before
	}
	values := f.query(choice.By)
	values.Sort, values.Limit = choice.Figure, maxValues
	periods := f.query(choice.Per)
	periods.Sort, periods.Limit = string(choice.Per)+":desc", maxPeriods
	both := f.query(choice.Per, choice.By)
	both.Group = d.group
	for _, l := range []struct {
		list  **figures.List
		query figures.Query
	}{{&d.total, all}, {&d.byValue, values}, {&d.byPeriod, periods}, {&d.byBoth, both}} {
		var err error
		if *l.list, err = figures.New(l.query, r.config.Pricing); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// group returns the bar and the part to which a period and a value are added, false for a period that is not shown.
func (d *overview) group(values []string) ([]string, bool) {
	if d.series == nil {
		d.series = largest(d)
	}
	oldest := d.byPeriod.Rows[len(d.byPeriod.Rows)-1].Values[0] // the latest come first
	if values[0] < oldest {
		return nil, false
	}
	if !slices.Contains(d.series, values[1]) {
		return []string{values[0], others}, true
	}
	return values, true
}

// largest returns the values that get their own part of bars.
func largest(d *overview) []string {
	list := []string{}
	most := maxSeries
	if len(d.byValue.Rows) > maxSeries {
		most--
	}
	figure := figures.FigureOf(d.Choice.Figure)
	for i := range d.byValue.Rows {
		row := &d.byValue.Rows[i]
		if n, _ := figures.Number(figure.Of(row)); n > 0 && len(list) < most {
			list = append(list, row.Values[0])
		}
	}
	return list
}

// Any reports whether the filter selects an event, or the previous range has one.
func (d *overview) Any() bool { return len(d.total.Rows) > 0 }

// Compared states the previous range; empty for none.
func (d *overview) Compared() string {
	if d.previous == nil {
		return ""
	}
	text := func(t time.Time) string { return t.In(d.request.filter.Zone).Format("2006-01-02 15:04") }
	return text(d.previous.Since) + " to " + text(d.previous.Until)
}

// tile is a figure of everything and its change.
type tile struct {
	Label     string
	Figure    string // its name in stats -o json
	Value     string // for people
	Raw       string // in JSON
	Change    string // since the previous range; empty if unknown
	Before    string // of the previous range, for people
	RawBefore string // in JSON; empty without a previous range
	Tone      string // class of the change, good or bad
	Parts     []tile // figures that belong to it
}

// Moved returns the change of a part, empty if it has no percentage.
func (t tile) Moved() string {
	if strings.HasSuffix(t.Change, "%") {
		return t.Change
	}
	return ""
}

// Tiles returns the figures of everything.
func (d *overview) Tiles() []tile {
	cost := d.tile("Cost", "cost_usd", "")
	cost.Parts = []tile{d.tile("tokens without a price", "unpriced", ""), d.tile("stated by vendors", "vendor_cost_usd", "")}
	tokens := d.tile("Tokens", "total", "")
	tokens.Parts = []tile{
		d.tile("input", "input", ""), d.tile("cache read", "cache_read", ""), d.tile("cache write", "cache_write", ""),
		d.tile("output", "output", ""), d.tile("reasoning", "reasoning", ""),
	}
	calls := d.tile("Tool calls", "calls", "")
	calls.Parts = []tile{d.tile("failed", "failures", "bad"), d.tile("of all calls", "error_rate", "bad")}
	sessions := d.tile("Sessions", "sessions", "")
	sessions.Parts = []tile{d.tile("events", "events", "")}
	return []tile{
		cost, tokens, d.tile("Cache hits", "cache_hit_rate", "good"), sessions, d.tile("Active time", "active_seconds", ""),
		d.tile("Prompts", "prompts", ""), calls, d.tile("Errors", "errors", "bad"),
	}
}

// tile returns a figure of everything. more is the class of an increase, empty if that is neither good nor bad.
func (d *overview) tile(label, name, more string) tile {
	figure := figures.FigureOf(name)
	row := &d.total.Total
	t := tile{Label: label, Figure: name, Value: figureText(name, row), Raw: figureJSON(figure.Of(row))}
	if d.previous == nil || row.Before == nil {
		return t
	}
	t.Before, t.RawBefore = figureText(name, row.Before), figureJSON(figure.Of(row.Before))
	if t.Change = figure.Change(row); t.Change == "?" {
		t.Change = ""
	}
	less := map[string]string{"good": "bad", "bad": "good"}[more]
	switch {
	case strings.HasPrefix(t.Change, "+"), t.Change == "new":
		t.Tone = more
	case strings.HasPrefix(t.Change, "-"):
		t.Tone = less
	}
	return t
}

// figureText writes a figure of a row for people.
func figureText(name string, row *figures.Row) string {
	switch value := figures.FigureOf(name).Of(row).(type) {
	case int64:
		return terminal.Thousands(value)
	case float64:
		switch name {
		case "cost_usd":
			return row.Cost.Text()
		case "vendor_cost_usd":
			return figures.Dollars(value)
		case "active_seconds":
			return terminal.Rough(row.Active().Round(time.Second))
		default: // a rate
			return fmt.Sprintf("%.1f%%", 100*value)
		}
	default:
		if name == "cost_usd" {
			return row.Cost.Text()
		}
		return terminal.Unknown
	}
}

// figureJSON writes a figure in the form of stats -o json.
func figureJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil { // a number or nil never fails
		return "null"
	}
	return string(data)
}

// option is a choice that a link offers.
type option struct {
	Name, Query string
	Current     bool
}

// Everything returns the address of the same view without a range.
func (d *overview) Everything() string { return d.request.filter.With("since", allTime) }

// Own returns the values of the view in the query, for the form of the filter.
func (d *overview) Own() url.Values { return d.request.filter.own }

// Figures returns the figures to choose for bars.
func (d *overview) Figures() []option {
	var list []option
	for _, f := range chartFigures {
		list = append(list, option{f.label, d.request.filter.With("figure", f.name), f.name == d.Choice.Figure})
	}
	return list
}

// Periods returns the periods to choose for bars.
func (d *overview) Periods() []option {
	var list []option
	for _, p := range chartPeriods {
		list = append(list, option{string(p), d.request.filter.With("per", string(p)), p == d.Choice.Per})
	}
	return list
}

// Dimensions returns what to divide bars by.
func (d *overview) Dimensions() []option {
	var list []option
	for _, c := range chartDimensions {
		list = append(list, option{c.label, d.request.filter.With("by", string(c.dimension)), c.dimension == d.Choice.By})
	}
	return list
}

// FigureLabel names the figure of the bars.
func (d *overview) FigureLabel() string { return chartFigures[d.Choice.figure()].label }

// ByLabel names what divides the bars, for the head of a column.
func (d *overview) ByLabel() string { return chartDimensions[d.Choice.dimension()].label }

// ByWord is [overview.ByLabel] within a sentence.
func (d *overview) ByWord() string { return strings.ToLower(d.ByLabel()) }

// Unit returns the unit of the bars: usd, seconds or empty.
func (d *overview) Unit() string {
	switch d.Choice.Figure {
	case "cost_usd":
		return "usd"
	case "active_seconds":
		return "seconds"
	default:
		return ""
	}
}

// valueRow is a value of the dimension with its figures.
type valueRow struct {
	Value string // empty if unknown
	Query string // for the overview of this value; empty if it cannot be chosen
	Cells []valueCell
}

// valueCell is a figure of a value.
type valueCell struct{ Label, Figure, Text, Raw string }

// valueFigures are the figures of a value, with their heads.
var valueFigures = []struct{ name, label string }{
	{"sessions", "Sessions"},
	{"prompts", "Prompts"},
	{"active_seconds", "Active"},
	{"calls", "Calls"},
	{"failures", "Failed"},
	{"errors", "Errors"},
	{"total", "Tokens"},
	{"cache_hit_rate", "Cache hits"},
	{"unpriced", "Unpriced"},
	{"cost_usd", "Cost"},
}

// ValueHeads returns the heads of the figures of a value.
func (d *overview) ValueHeads() []string {
	var list []string
	for _, f := range valueFigures {
		list = append(list, f.label)
	}
	return list
}

// Values returns the values of the dimension, the largest first.
func (d *overview) Values() []valueRow {
	var list []valueRow
	for i := range d.byValue.Rows {
		r := &d.byValue.Rows[i]
		row := valueRow{Value: r.Values[0], Cells: valueCells(r)}
		if row.Value != "" {
			row.Query = d.request.filter.With(string(d.Choice.By), row.Value)
		}
		list = append(list, row)
	}
	return list
}

// All returns the figures of all values together.
func (d *overview) All() []valueCell { return valueCells(&d.total.Total) }

func valueCells(r *figures.Row) []valueCell {
	var list []valueCell
	for _, f := range valueFigures {
		list = append(list, valueCell{f.label, f.name, figureText(f.name, r), figureJSON(figures.FigureOf(f.name).Of(r))})
	}
	return list
}

// LeftOut returns how many values have no row.
func (d *overview) LeftOut() int { return d.byValue.Left }

// Unpriced returns what the cost lacks.
func (d *overview) Unpriced() []string { return unpricedTexts(d.total.Unpriced()) }

// UnpricedBefore returns what the cost of the previous range lacks.
func (d *overview) UnpricedBefore() []string { return unpricedTexts(d.total.UnpricedBefore()) }

func unpricedTexts(list []figures.Unpriced) []string {
	var texts []string
	for i := range list {
		texts = append(texts, list[i].Text())
	}
	return texts
}

// Prices names the table of prices.
func (d *overview) Prices() string { return d.request.config.Pricing.Source() }

// Copies describes the API calls that several sessions have and that count once; empty for none.
func (d *overview) Copies() string {
	c := &d.total.Copies
	if c.Calls == 0 {
		return ""
	}
	return fmt.Sprintf("%s tokens of %s that other sessions have, too, are left out", terminal.Thousands(c.Usage.Total()), terminal.Plural(int(c.Calls), "API call"))
}
