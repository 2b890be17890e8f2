package sessions_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

var million = flag.Int("sessions.count", 20_000, "sessions in TestMemoryDoesNotGrowWithSessions")

// stepsOf yields steps.
func stepsOf(list []sessions.Step) iter.Seq2[sessions.Step, error] {
	return func(yield func(sessions.Step, error) bool) {
		for _, s := range list {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// anySteps draws the steps of some sessions, with keys that occur in several of them.
func anySteps(t *rapid.T) []sessions.Step {
	sequences := map[string]uint64{}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sessions.Step {
		s := sessions.Step{
			Source:  rapid.SampledFrom([]envelopes.Source{envelopes.ClaudeCode, envelopes.Codex}).Draw(t, "source"),
			Session: rapid.StringMatching(`[a-f]`).Draw(t, "session"),
			Type:    rapid.SampledFrom(envelopes.EventTypes).Draw(t, "type"),
			Model:   rapid.SampledFrom([]string{"", "", "opus", "haiku"}).Draw(t, "model"),
			Root:    rapid.SampledFrom([]string{"", "/p"}).Draw(t, "root"),
			Time:    time.Date(2026, 3, 9, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 3*1440).Draw(t, "minute")) * time.Minute).UnixNano(),
			Failed:  rapid.Bool().Draw(t, "failed"),

			Repository: rapid.SampledFrom([]string{"", "github.com/acme/shop", "github.com/acme/till"}).Draw(t, "repository"),
			Branch:     rapid.SampledFrom([]string{"", "main", "fix\x00main"}).Draw(t, "branch"),
			Host:       rapid.SampledFrom([]string{"", "mars"}).Draw(t, "host"),
			User:       rapid.SampledFrom([]string{"", "ada"}).Draw(t, "user"),
			Labels:     map[string]string{"team": rapid.SampledFrom([]string{"", "payments"}).Draw(t, "team"), "env": rapid.SampledFrom([]string{"ci", "dev"}).Draw(t, "env")},
		}
		if s.Type == envelopes.ToolCall || s.Type == envelopes.ToolResult {
			s.Call = rapid.StringMatching(`[a-c]`).Draw(t, "call")
			s.Tool = "tool " + s.Call
			s.Status = rapid.SampledFrom([]envelopes.ToolStatus{envelopes.StatusInProgress, envelopes.StatusError, envelopes.StatusSuccess}).Draw(t, "status")
			s.Latency = new(int64(rapid.IntRange(0, 1000).Draw(t, "latency")))
		}
		if rapid.Bool().Draw(t, "tokens") {
			s.Usage = &envelopes.Usage{
				Key:   rapid.SampledFrom([]string{"", "@7", "short", "msg_of_20_bytes_or_more_1", "msg_of_20_bytes_or_more_2"}).Draw(t, "key"),
				Input: int64(rapid.IntRange(0, 9).Draw(t, "input")), Output: int64(rapid.IntRange(0, 9).Draw(t, "output")),
				CacheWrite: 9, CacheWrite1h: int64(rapid.IntRange(0, 9).Draw(t, "hour")),
				WebSearchRequests: int64(rapid.IntRange(0, 2).Draw(t, "searches")),
				Prompt:            rapid.SampledFrom([]int64{0, 9, 200_000, 200_001, 300_000}).Draw(t, "prompt"),
				CostUSD:           float64(rapid.IntRange(0, 99).Draw(t, "cost")) / 1e4,
			}
		}
		sequences[s.Session]++
		s.Sequence = sequences[s.Session]
		return s
	}), 0, 60).Draw(t, "steps")
}

// stats returns the rows of a query in their order.
func stats(t interface{ Fatal(...any) }, list []sessions.Step, q sessions.StatsQuery, m sessions.Memory) ([]sessions.Row, sessions.Copies) {
	var rows []sessions.Row
	copies, err := sessions.Stats(stepsOf(list), q, m, func(r *sessions.Row) error {
		rows = append(rows, *r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b sessions.Row) int { return slices.Compare(a.Values, b.Values) })
	return rows, copies
}

// figures are tokens and the cost that vendors state, in ten-thousandths of a dollar.
type figures struct{ tokens, cost int64 }

func figuresOf(u *envelopes.Usage) figures {
	return figures{u.Total(), int64(math.Round(u.CostUSD * 1e4))}
}

// fleetTotal is the rule of envelopes/README.md (Sums over a fleet), applied to all steps at once.
func fleetTotal(list []sessions.Step) (total, copied figures) {
	type use struct{ source, key, session string }
	uses := map[use]figures{}
	for _, s := range list {
		if s.Usage == nil {
			continue
		}
		n := figuresOf(s.Usage)
		total.tokens, total.cost = total.tokens+n.tokens, total.cost+n.cost
		if s.Usage.KeyIsUnique(s.Source) {
			key := use{string(s.Source), s.Usage.Key, s.Session}
			uses[key] = figures{uses[key].tokens + n.tokens, uses[key].cost + n.cost}
		}
	}
	for u, n := range uses {
		for other, m := range uses {
			if other.source == u.source && other.key == u.key &&
				cmp.Or(cmp.Compare(n.tokens, m.tokens), cmp.Compare(n.cost, m.cost), cmp.Compare(other.session, u.session)) < 0 {
				copied.tokens, copied.cost = copied.tokens+n.tokens, copied.cost+n.cost
				break
			}
		}
	}
	return figures{total.tokens - copied.tokens, total.cost - copied.cost}, copied
}

// TestRowsAddUpToTheFleet divides random sessions by random dimensions, in memory of any size: all
// divisions have the same sums, and the tokens are those of the rule for fleets.
func TestRowsAddUpToTheFleet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		list := anySteps(t)
		all, copies := stats(t, list, sessions.StatsQuery{}, sessions.Memory{})
		total, copied := fleetTotal(list)
		var want sessions.Sums
		if len(all) > 0 {
			want = all[0].Sums
		}
		if got, left := figuresOf(&want.Usage), figuresOf(&copies.Usage); want.Events != int64(len(list)) || got != total || left != copied {
			t.Fatalf("%d events, %+v, copied %+v, want %d, %+v and %+v", want.Events, got, left, len(list), total, copied)
		}
		by := rapid.SliceOfNDistinct(rapid.SampledFrom(append(slices.Clone(sessions.Dimensions), "label:env")), 0, 6, rapid.ID).Draw(t, "by")
		rows, _ := stats(t, list, sessions.StatsQuery{By: by, Models: true}, sessions.Memory{Bytes: rapid.IntRange(1, 20_000).Draw(t, "memory"), Dir: dir})
		var sum sessions.Sums
		var models sessions.Billed
		for i := range rows {
			sum.Merge(&rows[i].Sums)
			for _, tokens := range rows[i].Models {
				models.Merge(tokens)
			}
		}
		if diff := gocmp.Diff(want, sum); diff != "" {
			t.Errorf("by %v:\n%s", by, diff)
		}
		if diff := gocmp.Diff(want.Billed(), models); diff != "" {
			t.Errorf("the tokens of the models:\n%s", diff)
		}
		roomy, _ := stats(t, list, sessions.StatsQuery{By: by, Models: true}, sessions.Memory{})
		if diff := gocmp.Diff(roomy, rows); diff != "" {
			t.Errorf("the rows depend on the memory:\n%s", diff)
		}
	})
}

// TestFiltersSelectRowsOfADivision filters random sessions: the rows are those that a division by the dimensions of the
// filters has for their values, and what is left out as copies adds up, too.
func TestFiltersSelectRowsOfADivision(t *testing.T) {
	t.Parallel()
	filters := map[sessions.Dimension]struct {
		set  func(*sessions.StatsQuery, string)
		list []string
	}{
		sessions.ByRepository: {func(q *sessions.StatsQuery, v string) { q.Repository = v }, []string{"github.com/acme/shop", "none"}},
		sessions.ByBranch:     {func(q *sessions.StatsQuery, v string) { q.Branch = v }, []string{"main", "fixmain", "none"}},
		sessions.ByHost:       {func(q *sessions.StatsQuery, v string) { q.Host = v }, []string{"mars"}},
		sessions.ByUser:       {func(q *sessions.StatsQuery, v string) { q.User = v }, []string{"ada"}},
		sessions.ByModel:      {func(q *sessions.StatsQuery, v string) { q.Model = v }, []string{"opus", "haiku", "none"}},
	}
	names := slices.Sorted(maps.Keys(filters))
	rapid.Check(t, func(t *rapid.T) {
		list := anySteps(t)
		by := rapid.SliceOfNDistinct(rapid.SampledFrom(sessions.Dimensions), 0, 3, rapid.ID).Draw(t, "by")
		if slices.Contains(by, sessions.BySession) { // which has the source before it
			by = append([]sessions.Dimension{sessions.BySource}, slices.DeleteFunc(by, func(d sessions.Dimension) bool { return d == sessions.BySource })...)
		}
		filtered := sessions.StatsQuery{By: by, Models: true}
		divided := filtered
		var wanted []string
		for _, d := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(t, "filters") {
			value := rapid.SampledFrom(filters[d].list).Draw(t, "value")
			filters[d].set(&filtered, value)
			if i := slices.Index(by, d); i >= 0 {
				continue // checked below: its column has this value
			}
			divided.By = append(slices.Clone(divided.By), d)
			wanted = append(wanted, value)
		}
		rows, _ := stats(t, list, divided, sessions.Memory{})
		var want []sessions.Row
		for _, r := range rows {
			own := r.Values[len(by):]
			ok := slices.Equal(own, wanted)
			for i, d := range by {
				for name, value := range map[sessions.Dimension]string{
					sessions.ByRepository: filtered.Repository, sessions.ByBranch: filtered.Branch, sessions.ByHost: filtered.Host,
					sessions.ByUser: filtered.User, sessions.ByModel: filtered.Model,
				} {
					ok = ok && (name != d || value == "" || r.Values[i] == value)
				}
			}
			if ok {
				r.Values = r.Values[:len(by)]
				want = append(want, r)
			}
		}
		got, _ := stats(t, list, filtered, sessions.Memory{})
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%+v:\n%s", filtered, diff)
		}
	})
}

// TestFiltersNameARepositoryByItsEnd has two repositories of one name.
func TestFiltersNameARepositoryByItsEnd(t *testing.T) {
	t.Parallel()
	list := []sessions.Step{
		{Session: "a", Repository: "github.com/acme/shop"}, {Session: "b", Repository: "github.com/other/shop"}, {Session: "c", Repository: "github.com/acme/workshop"},
	}
	for name, want := range map[string]int64{"shop": 2, "/shop": 2, "acme/shop": 1, "github.com/acme/workshop": 1, "github.com": 0, "hop": 0} {
		rows, _ := stats(t, list, sessions.StatsQuery{Repository: name}, sessions.Memory{})
		got := int64(0)
		for _, r := range rows {
			got += r.Sessions
		}
		if got != want {
			t.Errorf("%s: %d sessions, want %d", name, got, want)
		}
	}
}

// TestQueriesAtOnce compares several queries over one reading of random steps with each alone.
func TestQueriesAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		list := anySteps(t)
		queries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sessions.StatsQuery {
			q := sessions.StatsQuery{Models: true, By: rapid.SliceOfNDistinct(rapid.SampledFrom(sessions.Dimensions), 0, 2, rapid.ID).Draw(t, "by")}
			q.Since = time.Date(2026, 3, rapid.IntRange(9, 11).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
			return q
		}), 1, 3).Draw(t, "queries")
		rows := make([][]sessions.Row, len(queries))
		copies, err := sessions.StatsOfAll(stepsOf(list), queries, sessions.Memory{Bytes: rapid.IntRange(1, 20_000).Draw(t, "memory"), Dir: dir}, func(i int, r *sessions.Row) error {
			rows[i] = append(rows[i], *r)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range queries {
			slices.SortFunc(rows[i], func(a, b sessions.Row) int { return slices.Compare(a.Values, b.Values) })
			want, left := stats(t, list, q, sessions.Memory{})
			if diff := gocmp.Diff(want, rows[i]) + gocmp.Diff(left, copies[i]); diff != "" {
				t.Errorf("query %d, %+v:\n%s", i, q, diff)
			}
		}
	})
}

// TestMemoryOfOneSessionIsBounded sums up one session whose events have branches, labels and API calls of their own: beyond a
// bound its memory does not grow, and no sum changes.
func TestMemoryOfOneSessionIsBounded(t *testing.T) {
	t.Parallel()
	const few, many = 20_000, 100_000
	steps := func(n int) []sessions.Step {
		list := make([]sessions.Step, n)
		for i := range list {
			list[i] = sessions.Step{
				Source: envelopes.ClaudeCode, Session: "a", Sequence: uint64(i + 1), Type: envelopes.AssistantMessage, Time: int64(i+1) * int64(time.Hour),
				Branch: "branch-" + strconv.Itoa(i), Labels: map[string]string{"run": strconv.Itoa(i)},
				Usage: &envelopes.Usage{Input: 3, Key: fmt.Sprintf("msg_of_20_bytes_or_more_%d", i)},
			}
		}
		return list
	}
	by := []sessions.Dimension{sessions.ByHour, sessions.ByBranch, "label:run"}
	size := func(n int, keyed bool) int {
		f := sessions.NewFold(sessions.Division{By: by, Keyed: keyed})
		for _, s := range steps(n) {
			f.Add(&s)
		}
		return f.Size()
	}
	if a, b := size(few, false), size(many, false); a != b {
		t.Errorf("%d bytes for %d events, %d for %d", a, few, b, many)
	}
	if n, limit := size(many, true), 64<<20; n > limit {
		t.Errorf("%d bytes for %d API calls, want at most %d", n, many, limit)
	}
	rows, copies := stats(t, steps(many), sessions.StatsQuery{By: by, Models: true}, sessions.Memory{})
	var sum sessions.Sums
	for i := range rows {
		sum.Merge(&rows[i].Sums)
	}
	if sum.Events != many || sum.Usage.Input != 3*many || copies.Calls != 0 {
		t.Errorf("%d events, %d tokens, %+v", sum.Events, sum.Usage.Input, copies)
	}
	rest := slices.IndexFunc(rows, func(r sessions.Row) bool {
		return slices.Equal(r.Values, []string{sessions.OtherName, sessions.OtherName, sessions.OtherName})
	})
	if rest < 0 || len(rows) > few || rows[rest].Events != int64(many-len(rows)+1) {
		t.Errorf("%d rows, that of the others is row %d", len(rows), rest)
	}
}

// TestDimensions has one session of every dimension.
func TestDimensions(t *testing.T) {
	t.Parallel()
	late := time.Date(2026, 3, 31, 23, 30, 0, 0, time.UTC)
	list := []sessions.Step{
		{Source: "claude_code", Session: "a", Type: envelopes.UserMessage, Time: late.UnixNano(), Branch: "main", Via: envelopes.ViaTelemetry},
		{Source: "claude_code", Session: "a", Type: envelopes.AssistantMessage, Time: late.Add(time.Minute).UnixNano(), Model: "opus", Root: "/p", Usage: &envelopes.Usage{Input: 1, Key: "msg_1"}},
		{Source: "claude_code", Session: "a", Type: envelopes.ToolCall, Time: late.Add(29 * time.Minute).UnixNano(), Call: "c", Tool: "Bash", Branch: "main", Repository: "github.com/acme/shop", Host: "mars"},
		{
			Source: "claude_code", Session: "a", Type: envelopes.ToolResult, Time: late.Add(31 * time.Minute).UnixNano(), Call: "c", Tool: "Bash", Status: envelopes.StatusError, Usage: &envelopes.Usage{Input: 5},
			Branch: "fix", Repository: "github.com/acme/shop", User: "ada", Labels: map[string]string{"team": "payments", "env": "ci"},
		},
	}
	line := func(r *sessions.Row) string {
		return fmt.Sprintf("%s: %d sessions, %d events, %d tokens, %d calls, %d failures, %v", strings.Join(r.Values, "|"),
			r.Sessions, r.Events, r.Usage.Total(), r.Calls, r.Failures, r.Active())
	}
	by := func(d ...sessions.Dimension) sessions.StatsQuery { return sessions.StatsQuery{By: d} }
	for name, c := range map[string]struct {
		query sessions.StatsQuery
		want  []string
	}{
		"none":  {by(), []string{": 1 sessions, 4 events, 6 tokens, 1 calls, 1 failures, 3m0s"}},
		"model": {by(sessions.ByModel), []string{"opus: 1 sessions, 4 events, 6 tokens, 1 calls, 1 failures, 3m0s"}},
		"project, session and source": {
			by(sessions.ByProject, sessions.BySession, sessions.BySource),
			[]string{"/p|a|claude_code: 1 sessions, 4 events, 6 tokens, 1 calls, 1 failures, 3m0s"},
		},
		"session: with its source": {by(sessions.BySession), []string{"claude_code|a: 1 sessions, 4 events, 6 tokens, 1 calls, 1 failures, 3m0s"}},
		"tool": {by(sessions.ByTool), []string{
			": 1 sessions, 2 events, 6 tokens, 0 calls, 0 failures, 1m0s",
			"Bash: 1 sessions, 2 events, 0 tokens, 1 calls, 1 failures, 2m0s",
		}},
		"day: a call counts on the day of its first event": {by(sessions.ByDay), []string{
			"2026-03-31: 1 sessions, 3 events, 1 tokens, 1 calls, 1 failures, 1m0s",
			"2026-04-01: 1 sessions, 1 events, 5 tokens, 0 calls, 0 failures, 2m0s",
		}},
		"day in another zone": {sessions.StatsQuery{By: []sessions.Dimension{sessions.ByDay}, Zone: time.FixedZone("", 3600)}, []string{
			"2026-04-01: 1 sessions, 4 events, 6 tokens, 1 calls, 1 failures, 3m0s",
		}},
		"hour and month": {by(sessions.ByHour, sessions.ByMonth), []string{
			"2026-03-31 23:00|2026-03: 1 sessions, 3 events, 1 tokens, 1 calls, 1 failures, 1m0s",
			"2026-04-01 00:00|2026-04: 1 sessions, 1 events, 5 tokens, 0 calls, 0 failures, 2m0s",
		}},
		"week": {by(sessions.ByWeek), []string{"2026-W14: 1 sessions, 4 events, 6 tokens, 1 calls, 1 failures, 3m0s"}},
		"branch: that of the event": {by(sessions.ByBranch), []string{
			": 1 sessions, 1 events, 1 tokens, 0 calls, 0 failures, 1m0s",
			"fix: 1 sessions, 1 events, 5 tokens, 0 calls, 0 failures, 2m0s",
			"main: 1 sessions, 2 events, 0 tokens, 1 calls, 1 failures, 0s",
		}},
		"tool, repository and model": {by(sessions.ByTool, sessions.ByRepository, sessions.ByModel), []string{
			"||opus: 1 sessions, 2 events, 1 tokens, 0 calls, 0 failures, 1m0s",
			"|github.com/acme/shop|opus: 1 sessions, 0 events, 5 tokens, 0 calls, 0 failures, 0s",
			"Bash|github.com/acme/shop|opus: 1 sessions, 2 events, 0 tokens, 1 calls, 1 failures, 2m0s",
		}},
		"host, user, team and label": {by(sessions.ByHost, sessions.ByUser, sessions.ByTeam, "label:env"), []string{
			"|||: 1 sessions, 2 events, 1 tokens, 0 calls, 0 failures, 1m0s",
			"|ada|payments|ci: 1 sessions, 1 events, 5 tokens, 0 calls, 0 failures, 2m0s",
			"mars|||: 1 sessions, 1 events, 0 tokens, 1 calls, 1 failures, 0s",
		}},
		"session and via": {by(sessions.BySession, sessions.ByVia), []string{
			"claude_code|a|log: 1 sessions, 3 events, 6 tokens, 1 calls, 1 failures, 3m0s",
			"claude_code|a|telemetry: 1 sessions, 1 events, 0 tokens, 0 calls, 0 failures, 0s",
		}},
		"since": {sessions.StatsQuery{By: []sessions.Dimension{sessions.ByModel, sessions.ByProject}, Since: late.Add(30 * time.Minute)}, []string{
			"opus|/p: 1 sessions, 1 events, 5 tokens, 0 calls, 0 failures, 2m0s",
		}},
		"until":           {sessions.StatsQuery{Until: late.Add(30 * time.Minute)}, []string{": 1 sessions, 3 events, 1 tokens, 1 calls, 1 failures, 1m0s"}},
		"another project": {sessions.StatsQuery{Project: "q"}, nil},
		"the project":     {sessions.StatsQuery{Project: "p"}, []string{": 1 sessions, 4 events, 6 tokens, 1 calls, 1 failures, 3m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, _ := stats(t, list, c.query, sessions.Memory{})
			var got []string
			for i := range rows {
				got = append(got, line(&rows[i]))
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCallsWithoutLatencyAreMeasured covers the orders in which the events of a call come.
func TestCallsWithoutLatencyAreMeasured(t *testing.T) {
	t.Parallel()
	const running, done = envelopes.StatusInProgress, envelopes.StatusSuccess
	call := func(second int) envelopes.AgentEventV1 {
		return event(1, second, envelopes.ToolCall, tool("a", "Bash", running, nil))
	}
	result := func(second int, s envelopes.ToolStatus, latency *int64) envelopes.AgentEventV1 {
		return event(2, second, envelopes.ToolResult, tool("a", "Bash", s, latency))
	}
	for name, c := range map[string]struct {
		events           []envelopes.AgentEventV1
		stated, measured int64 // in milliseconds; 0 for none
	}{
		"a call and its result":            {[]envelopes.AgentEventV1{call(1), result(3, done, nil)}, 0, 2000},
		"a latency of the vendor":          {[]envelopes.AgentEventV1{call(1), result(3, done, new(int64(500)))}, 500, 0},
		"a latency of a later result":      {[]envelopes.AgentEventV1{call(1), result(3, done, nil), result(9, done, new(int64(500)))}, 500, 0},
		"the first result that is the end": {[]envelopes.AgentEventV1{call(1), result(3, running, nil), result(6, done, nil), result(9, done, nil)}, 0, 5000},
		"no result":                        {[]envelopes.AgentEventV1{call(1), result(3, running, nil)}, 0, 0},
		"a result alone":                   {[]envelopes.AgentEventV1{result(3, done, nil)}, 0, 0},
		"a result before its call":         {[]envelopes.AgentEventV1{result(3, done, nil), call(4)}, 0, 0},
		"both at one time":                 {[]envelopes.AgentEventV1{call(3), result(3, done, nil)}, 0, 0},
		"a clock that goes back":           {[]envelopes.AgentEventV1{call(3), result(2, done, nil)}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near := func(got *int64, want int64) bool {
				return got == nil && want == 0 || got != nil && math.Abs(float64(*got-want)) <= float64(want)/100
			}
			u := summarize(c.events...).Tools[0]
			if !near(u.P50, c.stated) || !near(u.MeasuredP95, c.measured) {
				t.Errorf("stated %v, measured %v, want %d and %d", u.P50, u.MeasuredP95, c.stated, c.measured)
			}
		})
	}
}

// TestErrorsOfStepsEndTheSums covers a stream that breaks, and files that cannot be written.
func TestErrorsOfStepsEndTheSums(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	_, err := sessions.Stats(func(yield func(sessions.Step, error) bool) {
		_ = yield(sessions.Step{Session: "a"}, nil) && yield(sessions.Step{}, broken)
	}, sessions.StatsQuery{}, sessions.Memory{}, func(*sessions.Row) error { return errors.New("a row of half a stream") })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	list := []sessions.Step{{Session: "a"}, {Session: "b"}}
	_, err = sessions.Stats(stepsOf(list), sessions.StatsQuery{}, sessions.Memory{Bytes: 1, Dir: t.TempDir() + "/missing"}, func(*sessions.Row) error { return nil })
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestLatenciesAreWithinOnePercent compares quantiles with those of the sorted list.
func TestLatenciesAreWithinOnePercent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int64Range(1, 1<<53-1), 1, 200).Draw(t, "latencies")
		var steps []sessions.Step
		for i, ms := range list {
			steps = append(steps, sessions.Step{Session: "a", Type: envelopes.ToolResult, Call: strconv.Itoa(i), Latency: &ms})
		}
		rows, _ := stats(t, steps, sessions.StatsQuery{}, sessions.Memory{})
		slices.Sort(list)
		for _, q := range []int{50, 95} {
			want := list[(q*len(list)+99)/100-1]
			got, ok := rows[0].Latencies.Quantile(float64(q) / 100)
			const halfClass = 0.00996 // the square root of 1.02, less 1
			if off := math.Abs(float64(got - want)); !ok || off > halfClass*float64(want)+0.5 {
				t.Errorf("p%d is %d, want %d within 1%%, rounded to a millisecond", q, got, want)
			}
		}
	})
}

// TestMemoryDoesNotGrowWithSessions sums up many interleaved sessions, of which every tenth is a copy
// of another one, and measures the live heap.
//
//	go test ./pipeline/sessions -v -run TestMemory -sessions.count 1000000 -timeout 1h
func TestMemoryDoesNotGrowWithSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const memory, rounds = 4 << 20, 3
	peak := uint64(0)
	look := func(n int) {
		if n%max(1, *million/4) == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	}
	steps := func(yield func(sessions.Step, error) bool) {
		for round := range rounds {
			for i := range *million {
				look(i)
				key := i - i%10/9 // the tenth is a copy of the ninth
				s := sessions.Step{
					Source: envelopes.ClaudeCode, Session: "session-" + strconv.Itoa(i), Sequence: uint64(round + 1), Type: envelopes.AssistantMessage,
					Model: "opus", Time: int64(round+1) * int64(time.Hour), Usage: &envelopes.Usage{Input: 7, Key: fmt.Sprintf("message-%d-%d", key, round)},
				}
				if !yield(s, nil) {
					return
				}
			}
		}
	}
	rows := 0
	var sum sessions.Sums
	copies, err := sessions.Stats(steps, sessions.StatsQuery{By: []sessions.Dimension{sessions.BySession}}, sessions.Memory{Bytes: memory, Dir: t.TempDir()}, func(r *sessions.Row) error {
		look(rows)
		rows++
		sum.Merge(&r.Sums)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n := int64(*million)
	if int64(rows) != n || sum.Events != rounds*n || sum.Usage.Total() != 7*rounds*(n-n/10) || copies.Usage.Total() != 7*rounds*(n/10) || copies.Calls != rounds*(n/10) {
		t.Errorf("%d rows, %d events, %d tokens, %+v", rows, sum.Events, sum.Usage.Total(), copies)
	}
	t.Logf("%d sessions: live heap of %d MiB at most", n, peak>>20)
	// Three groups of states at a time, and the buffers of at most 2*16 files on each of three levels.
	if limit := uint64(3*memory + 3*2*16*(256<<10) + 16<<20); peak > limit {
		t.Errorf("live heap of %d MiB, want at most %d", peak>>20, limit>>20)
	}
}
