package figures_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/cmd/internal/figures"
	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
)

// pricing has a price of opus.
func pricing(t *testing.T) *figures.Pricing {
	t.Helper()
	table, err := prices.Read(strings.NewReader(`{"opus":{"input_cost_per_token":0.5,"output_cost_per_token":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	return figures.NewPricing(table, "a test", nil)
}

// row is a row of a source with the input tokens of a model.
func row(source, model string, input int64) *sessions.Row {
	u := envelopes.Usage{Input: input}
	return &sessions.Row{Values: []string{source}, Sessions: 1, Sums: sessions.Sums{Events: 1, Usage: u}, Models: map[string]*sessions.Billed{model: {Usage: u}}}
}

// list returns an empty list of sources.
func list(t *testing.T, compared bool) *figures.List {
	t.Helper()
	q := figures.Query{Stats: sessions.StatsQuery{By: []sessions.Dimension{sessions.BySource}}}
	if compared {
		q.Before = &q.Stats
	}
	l, err := figures.New(q, pricing(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestUnpricedIsOfOnePeriod compares two periods: what has no price in one is not stated for the other.
func TestUnpricedIsOfOnePeriod(t *testing.T) {
	t.Parallel()
	l := list(t, true)
	l.AddBefore(row("codex", "gpt", 7))
	l.AddBefore(row("gemini", "haiku", 20))
	l.Add(row("codex", "haiku", 5))
	l.Add(row("claude_code", "opus", 4))
	l.Finish()
	if diff := cmp.Diff([]figures.Unpriced{{Model: "haiku", Tokens: 5}}, l.Unpriced()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]figures.Unpriced{{Model: "haiku", Tokens: 20}, {Model: "gpt", Tokens: 7}}, l.UnpricedBefore()); diff != "" {
		t.Errorf("of the period before:\n%s", diff)
	}
	if got := l.Total.Cost; got.Text() != "$2.00+" || got.Unpriced != 5 {
		t.Errorf("the cost is %+v", got)
	}
	if got := list(t, false).UnpricedBefore(); got != nil {
		t.Errorf("without a period before: %v", got)
	}
}

// TestCostsOfOtherSessionsAreNotInTheNote asks for costs, and then what has no price.
func TestCostsOfOtherSessionsAreNotInTheNote(t *testing.T) {
	t.Parallel()
	p := pricing(t)
	models := map[string]*sessions.Billed{"haiku": {Usage: envelopes.Usage{Input: 3, WebSearchRequests: 1}}, "opus": {Usage: envelopes.Usage{Input: 1, CacheRead: 9}}}
	for range 3 {
		if c := p.Cost(models); c.Unpriced != 12 || c.USD != 0.5 || c.Searches != 1 {
			t.Errorf("the cost is %+v", c)
		}
	}
	var got []string
	for _, u := range p.Unpriced(models) {
		got = append(got, u.Text())
	}
	want := []string{"opus: 9 tokens are not in the cost (some kinds of tokens)", "haiku: 3 tokens and 1 web search request are not in the cost"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestFiguresHaveTheColumnsOfTheList looks a row up by names.
func TestFiguresHaveTheColumnsOfTheList(t *testing.T) {
	t.Parallel()
	l := list(t, true)
	l.AddBefore(row("codex", "opus", 6))
	l.Add(row("codex", "opus", 4))
	l.Finish()
	object := l.Object(&l.Rows[0])
	var names []string
	values := map[string]any{}
	for _, m := range object {
		names = append(names, m.Name)
		values[m.Name] = m.Value
	}
	if diff := cmp.Diff(l.Columns(), names); diff != "" {
		t.Error(diff)
	}
	if values["source"] != "codex" || values["cost_usd"] != 2.0 || values["previous_cost_usd"] != 3.0 || values["delta_cost_usd"] != -1.0 || values["error_rate"] != nil {
		t.Errorf("got %v", values)
	}
	if !slices.Contains(l.Sortable(), "delta_total") || slices.Contains(l.Sortable(), "tokens_input") {
		t.Errorf("rows are sorted by %v", l.Sortable())
	}
	if _, err := figures.New(figures.Query{Sort: "delta_total"}, pricing(t)); !errors.Is(err, figures.ErrColumn) {
		t.Errorf("a column of another period: %v", err)
	}
}

// TestBeforeIsAsLong has the periods before several ones.
func TestBeforeIsAsLong(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	day := func(d int) time.Time { return time.Date(2026, 3, d, 0, 0, 0, 0, berlin) }
	for name, c := range map[string]struct {
		q           sessions.StatsQuery
		since       time.Time
		hasNoBefore bool
	}{
		"two weeks with a change of the clock": {sessions.StatsQuery{Since: day(23), Until: day(30), Zone: berlin}, day(16), false},
		"hours without an end":                 {sessions.StatsQuery{Since: now.Add(-5 * time.Hour)}, now.Add(-10 * time.Hour), false},
		"no beginning":                         {sessions.StatsQuery{Until: now}, now, true},
		"an end before the beginning":          {sessions.StatsQuery{Since: now, Until: day(1)}, now, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := figures.Before(c.q, now)
			if ok == c.hasNoBefore || ok && (!got.Since.Equal(c.since) || !got.Until.Equal(c.q.Since)) {
				t.Errorf("from %v until %v, %v", got.Since, got.Until, ok)
			}
		})
	}
}

// TestGroupsAddRowsUp has rows that count in one, and one that is left out.
func TestGroupsAddRowsUp(t *testing.T) {
	t.Parallel()
	q := figures.Query{Stats: sessions.StatsQuery{By: []sessions.Dimension{sessions.BySource}}}
	q.Group = func(values []string) ([]string, bool) {
		if values[0] == "codex" {
			return values, true
		}
		return []string{"others"}, values[0] != "pi"
	}
	l, err := figures.New(q, pricing(t))
	if err != nil {
		t.Fatal(err)
	}
	for source, n := range map[string]int64{"codex": 2, "gemini": 3, "cursor": 4, "pi": 5} {
		l.Add(row(source, "opus", n))
	}
	l.Finish()
	got := map[string][]any{}
	for i := range l.Rows {
		r := &l.Rows[i]
		got[r.Values[0]] = []any{r.Usage.Input, r.Sessions, r.Cost.Text()}
	}
	want := map[string][]any{"codex": {int64(2), int64(1), "$1.00"}, "others": {int64(7), int64(0), "$3.50"}}
	if diff := cmp.Diff(want, got); diff != "" || l.Total.Usage.Input != 9 {
		t.Errorf("of %d tokens:\n%s", l.Total.Usage.Input, diff)
	}
}
