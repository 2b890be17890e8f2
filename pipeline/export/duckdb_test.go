package export_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

// question is a query of questions.sql.
type question = pipelinetest.Statement

// questions returns the queries of questions.sql.
func questions(tb testing.TB) []question {
	tb.Helper()
	return pipelinetest.Statements(tb, ".")
}

// answer is what a query returns.
type answer struct {
	Rows []map[string]any
	MS   int
}

// ask runs queries with DuckDB in the folder that has events.
func ask(tb testing.TB, dir string, list []question) map[string]answer {
	tb.Helper()
	answers := map[string]answer{}
	for name, a := range pipelinetest.Ask(tb, ".", dir, list) {
		rows := make([]map[string]any, len(a.Rows))
		for i, row := range a.Rows {
			if err := json.Unmarshal(row, &rows[i]); err != nil {
				tb.Fatal(err)
			}
		}
		answers[name] = answer{rows, a.MS}
	}
	return answers
}

// storeStory stores events of which every question has something to say.
func storeStory(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	var messages []*nats.Msg
	sequences := map[string]uint64{}
	add := func(source envelopes.Source, session string, day, second int, kind envelopes.EventType, change func(*envelopes.AgentEventV1)) {
		sequences[session]++
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: source, SessionID: session, Sequence: sequences[session], EventID: fmt.Sprint("e", sequences[session]),
			ProjectHash: strings.Repeat("a", 64), TS: time.Date(2026, 3, day, 9, 0, second, 0, time.UTC).Format(time.RFC3339),
			EventType: kind, Role: &envelopes.RolesOf(kind)[0],
		}
		if change != nil {
			change(&e)
		}
		header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: 1}, envelopes.Binary)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: header, Data: data})
	}
	tokens := func(model, key string, n int64) func(*envelopes.AgentEventV1) {
		return func(e *envelopes.AgentEventV1) {
			e.Model, e.ProjectRoot = &model, new("/home/ada/ledger")
			e.Usage = &envelopes.Usage{Input: n, CacheRead: 4 * n, CacheWrite: 3 * n, Output: 2 * n, Key: key}
			e.TokensTotal = new(e.Usage.Total())
		}
	}
	tool := func(id string, status envelopes.ToolStatus, latency *int64, files ...string) func(*envelopes.AgentEventV1) {
		return func(e *envelopes.AgentEventV1) {
			e.ToolCallID, e.ToolName, e.ToolStatus, e.ToolLatencyMS = &id, new("Edit"), &status, latency
			if len(files) > 0 {
				e.FilePath, e.FileOp = &files[0], new(envelopes.OpModify)
			}
			for _, f := range files[min(1, len(files)):] {
				e.Files = append(e.Files, envelopes.File{Path: files[0], Op: envelopes.OpModify}, envelopes.File{Path: f, Op: envelopes.OpWrite})
			}
		}
	}
	vcs := func(repository, branch, request, user string, change func(*envelopes.AgentEventV1)) func(*envelopes.AgentEventV1) {
		return func(e *envelopes.AgentEventV1) {
			change(e)
			e.VCS = &envelopes.VCS{Repository: repository, Branch: branch, PullRequest: request, Commit: "0123abc"}
			e.Edge = &envelopes.Edge{Host: "laptop", User: user, Labels: map[string]string{"team": "payments", "env": "ci"}}
		}
	}
	const claude, codex = envelopes.ClaudeCode, envelopes.Codex
	add(claude, "one", 9, 0, envelopes.UserMessage, nil)
	add(claude, "one", 9, 10, envelopes.AssistantMessage, vcs("github.com/acme/shop", "main", "", "ada", tokens("claude-opus-4-5-20251101", "msg_1", 1000)))
	add(claude, "one", 9, 11, envelopes.ToolCall, tool("c1", envelopes.StatusInProgress, nil, "/a", "/b"))
	add(claude, "one", 9, 12, envelopes.ToolResult, tool("c1", envelopes.StatusInProgress, nil))
	add(claude, "one", 9, 20, envelopes.ToolResult, tool("c1", envelopes.StatusError, new(int64(9000))))
	add(claude, "one", 9, 900, envelopes.ToolCall, tool("c2", envelopes.StatusInProgress, nil, "/a"))
	add(claude, "one", 9, 901, envelopes.ToolResult, tool("c2", envelopes.StatusSuccess, new(int64(1000))))
	add(claude, "one", 10, 0, envelopes.AssistantMessage, tokens("claude-opus-4-5-20251101", "msg_2", 10))
	add(claude, "copy of one", 10, 0, envelopes.AssistantMessage, tokens("claude-opus-4-5-20251101", "msg_1", 1000))                                                                                 // a copy
	add(claude, "copy of one", 10, 1, envelopes.AssistantMessage, vcs("github.com/acme/shop", "fix", "https://github.com/acme/shop/pull/7", "ben", tokens("claude-opus-4-5-20251101", "msg_2", 20))) // the whole call
	add(claude, "bill", 11, 0, envelopes.UserMessage, nil)
	for _, u := range []struct {
		model string
		usage envelopes.Usage
	}{
		{"claude-opus-4-5-20251101", envelopes.Usage{Input: 3, CacheWrite: 20_000, CacheWrite1h: 15_000, Output: 5, Prompt: 20_003, Key: "msg_b1"}},
		{"claude-opus-4-5-20251101", envelopes.Usage{Output: 400, WebSearchRequests: 2, Prompt: 20_003, Key: "msg_b1"}},
		{"claude-sonnet-4-5-20250929", envelopes.Usage{Input: 1000, CacheRead: 180_000, CacheWrite: 30_000, CacheWrite1h: 30_000, Output: 702, Prompt: 211_000, Key: "msg_b2"}},
		{"claude-haiku-4-5-20251001", envelopes.Usage{Input: 10, CacheRead: 50_000, Output: 20, Prompt: 50_010, CostUSD: 0.00511, Key: "msg_b3"}},
	} {
		add(claude, "bill", 11, 1, envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) {
			e.Model, e.Usage, e.TokensTotal = &u.model, &u.usage, new(u.usage.Total())
		})
	}
	add(codex, "two", 10, 5, envelopes.UserMessage, func(e *envelopes.AgentEventV1) { e.Text = new("Slow down the ticker.") })
	add(codex, "two", 10, 6, envelopes.Meta, tokens("gpt-5", "7", 100))
	add(codex, "three", 10, 6, envelopes.Meta, tokens("gpt-5", "7", 100)) // a number of its session
	unnamed := func(key string) func(*envelopes.AgentEventV1) {
		return func(e *envelopes.AgentEventV1) {
			tokens("", key, 7)(e)
			e.Model = nil
		}
	}
	add(codex, "four", 10, 7, envelopes.Meta, unnamed("1")) // of the first model of its session
	add(codex, "four", 10, 8, envelopes.Meta, tokens("gpt-5", "2", 70))
	add(codex, "four", 10, 9, envelopes.Meta, unnamed("3")) // of the last model before it
	add(codex, "two", 10, 9, envelopes.Log, func(e *envelopes.AgentEventV1) {
		e.Metadata = &envelopes.Metadata{Extensions: map[string]jsontext.Value{"error": jsontext.Value(`{"code":"429","message":"Slow down"}`)}}
	})
	for _, second := range []int{0, 100, 40, 50, 110, 1000} { // its time goes back
		add(claude, "back", 17, second, envelopes.AssistantMessage, nil)
	}
	add(claude, "back", 17, 1010, envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) {
		tokens("claude-opus-4-5-20251101", "msg_s", 500)(e)
		e.IsInternal = true
	})
	pipelinetest.PublishMessages(t.Context(), t, js, messages...)
}

// TestQuestionsHaveTheirAnswers runs the questions of questions.sql with DuckDB. The answers are those of
// testdata/answers.json, which were checked by hand, and of the statistics of the same events.
func TestQuestionsHaveTheirAnswers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("may install DuckDB")
	}
	js := pipelinetest.NewServer(t).Provision(streams.Topology{Generation: "v1", Partitions: 1})
	storeStory(t, js)
	dir := t.TempDir()
	run(t, js, filepath.Join(dir, "events"), export.Parquet)
	list := questions(t)
	answers := ask(t, dir, slices.Concat(list, sums, []question{everySession(t, list)}))
	rows := map[string][]map[string]any{}
	for _, q := range list[1:] {
		rows[q.Name] = answers[q.Name].Rows
	}
	got, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/answers.json"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Error(diff)
	}
	checkSums(t, stepsOf(t, js), answers)
}

// TestQueriesDuringACompactionSeeEachEventOnce asks while files are there that a larger one has replaced, as they are until they
// are removed, and again when the next run has removed them.
func TestQueriesDuringACompactionSeeEachEventOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("may install DuckDB")
	}
	js, dir := stream(t, 30), t.TempDir()
	out := filepath.Join(dir, "events")
	cfg := export.Config{Dir: out, Generation: "v1", Format: export.Parquet, SpanBytes: 3000, Prices: prices.Builtin().CSV(), Logger: quiet}
	runConfig(t, js, cfg)
	before := t.TempDir()
	if err := os.CopyFS(before, os.DirFS(out)); err != nil {
		t.Fatal(err)
	}
	cfg.Compact = true
	if r := runConfig(t, js, cfg); r.Compacted < 20 || len(files(t, out)) != 2 {
		t.Errorf("%+v, %d files", r, len(files(t, out)))
	}
	for i, name := range names(t, before) {
		if data, err := os.ReadFile(filepath.Join(before, name)); i%3 > 0 {
			if err = errors.Join(err, os.WriteFile(filepath.Join(out, name), data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := []question{questions(t)[0], {Name: "count", SQL: "select count(*)::int as n, count(distinct stream_sequence)::int as events from events"}}
	for range 2 {
		if got := ask(t, dir, list)["count"].Rows[0]; fmt.Sprint(got["n"], got["events"]) != "60 60" {
			t.Errorf("%d files: %v, want 60 events", len(files(t, out)), got)
		}
		runConfig(t, js, cfg)
	}
	if len(files(t, out)) != 2 {
		t.Errorf("files that were replaced are left: %v", names(t, out))
	}
}

// sums ask SQL for what the statistics have, too.
var sums = []question{
	{Name: "costs", SQL: "select model, sum(usd) as usd, sum(vendor_usd) as vendor_usd from calls group by all"},
	sumsQuestion("day", "model"), sumsQuestion("source"), sumsQuestion("source", "session"), sumsQuestion("repo"), sumsQuestion("repo", "branch"),
	sumsQuestion("branch"), sumsQuestion("host"), sumsQuestion("user", "team"), sumsQuestion("user"), sumsQuestion("team"),
}

// sumsQuestion asks for the tokens and their cost by some dimensions of the statistics.
func sumsQuestion(by ...string) question {
	columns := map[string]string{"repo": "repository", "user": "user_name", "session": "session_id"}
	values := make([]string, len(by))
	for i, d := range by {
		values[i] = "coalesce(" + cmp.Or(columns[d], d) + "::text, '')"
	}
	name := "sums by " + strings.Join(by, ",")
	return question{Name: name, SQL: "select concat_ws(' ', " + strings.Join(values, ", ") + ") as value, sum(total)::text as total, sum(usd) as usd from calls group by all"}
}

// everySession returns the query of questions.sql that lists the longest sessions, without its limit.
func everySession(tb testing.TB, list []question) question {
	tb.Helper()
	for _, q := range list {
		if q.Name == "longest sessions" {
			sql, rest, ok := strings.Cut(q.SQL, " limit 20;")
			if !ok || strings.TrimSpace(rest) != "" {
				tb.Fatalf("the query does not end with its limit: %s", q.SQL)
			}
			return question{Name: "every session", SQL: sql}
		}
	}
	tb.Fatal("no query lists the longest sessions")
	return question{}
}

// stepsOf returns the steps of all events, which are read once.
func stepsOf(t *testing.T, js jetstream.JetStream) iter.Seq2[sessions.Step, error] {
	t.Helper()
	var list []sessions.Step
	for s, err := range summaries.Steps(t.Context(), js, "v1", events.Query{}, func(err error) { t.Error(err) }) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, *s.Detached())
	}
	return func(yield func(sessions.Step, error) bool) {
		for _, s := range list {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// checkSums compares the answers of SQL to [sums] and to [everySession] with the statistics.
func checkSums(t *testing.T, steps iter.Seq2[sessions.Step, error], answers map[string]answer) {
	t.Helper()
	for _, q := range sums {
		dimensions, is := strings.CutPrefix(q.Name, "sums by ")
		if !is {
			continue
		}
		tokens, costs := sumsBy(t, steps, strings.Split(dimensions, ","))
		inSQL := map[string]int64{}
		for _, r := range answers[q.Name].Rows {
			n, err := strconv.ParseInt(fmt.Sprint(r["total"]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			value := fmt.Sprint(r["value"])
			if n > 0 {
				inSQL[value] = n
			}
			if usd, _ := r["usd"].(float64); math.Abs(usd-costs[value]) > 1e-8 {
				t.Errorf("%s: %q cost %v dollars in SQL, %v in the statistics", q.Name, value, usd, costs[value])
			}
			delete(costs, value)
		}
		for value, usd := range costs {
			if usd > 0 {
				t.Errorf("%s: %q cost %v dollars in the statistics, and is not in SQL", q.Name, value, usd)
			}
		}
		if diff := gocmp.Diff(tokens, inSQL); diff != "" {
			t.Errorf("%s: statistics and SQL differ:\n%s", q.Name, diff)
		}
	}
	checkCosts(t, steps, answers["costs"])
	checkActive(t, steps, answers["every session"])
}

// checkActive compares the active time of each session with that of the statistics. SQL has whole microseconds.
func checkActive(t *testing.T, steps iter.Seq2[sessions.Step, error], a answer) {
	t.Helper()
	want := map[string]float64{}
	total, inSQL := 0.0, 0.0
	_, err := sessions.Stats(steps, sessions.StatsQuery{By: []sessions.Dimension{sessions.BySource, sessions.BySession}}, sessions.Memory{}, func(r *sessions.Row) error {
		want[strings.Join(r.Values, " ")] = r.Active().Seconds()
		total += r.Active().Seconds()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Rows) != len(want) || total == 0 {
		t.Errorf("%d sessions in SQL, %d in the statistics, active for %v seconds", len(a.Rows), len(want), total)
	}
	for _, r := range a.Rows {
		got, err := strconv.ParseFloat(fmt.Sprint(r["active_seconds"]), 64)
		if err != nil {
			t.Fatal(err)
		}
		inSQL += got
		if name := fmt.Sprint(r["source"], " ", r["session_id"]); want[name]-got < -0.01 || want[name]-got > 1.01 {
			t.Errorf("%s is active for %v seconds in SQL, for %v in the statistics", name, got, want[name])
		}
	}
	t.Logf("%v seconds in SQL, %v in the statistics", inSQL, total)
}

// checkCosts compares the cost by model of the statistics with that of SQL, and that of each dimension with the total.
func checkCosts(t *testing.T, steps iter.Seq2[sessions.Step, error], a answer) {
	t.Helper()
	total := math.NaN()
	divisions := [][]sessions.Dimension{{sessions.ByModel}, {}}
	for _, d := range sessions.Dimensions {
		divisions = append(divisions, []sessions.Dimension{d})
	}
	for _, by := range divisions {
		sum, stated := 0.0, 0.0
		costs := map[string]float64{}
		_, err := sessions.Stats(steps, sessions.StatsQuery{By: by, Models: true}, sessions.Memory{}, func(r *sessions.Row) error {
			stated = envelopes.AddUSD(stated, r.Usage.CostUSD)
			for model, cost := range costsOf(r) {
				sum += cost
				costs[model] += cost
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if math.IsNaN(total) {
			total = sum
			inSQL, statedInSQL := 0.0, 0.0
			for _, r := range a.Rows {
				usd, _ := r["usd"].(float64)
				vendor, _ := r["vendor_usd"].(float64)
				inSQL += usd
				statedInSQL += vendor
				if model, _ := r["model"].(string); math.Abs(usd-costs[model]) > 1e-8 {
					t.Errorf("%s: %v dollars in SQL, %v in the statistics", model, usd, costs[model])
				}
			}
			if math.Abs(inSQL-total) > 1e-6 || math.Abs(statedInSQL-stated) > 1e-6 || total == 0 {
				t.Errorf("%v dollars in SQL and %v of vendors, %v and %v in the statistics", inSQL, statedInSQL, total, stated)
			}
			t.Logf("%v dollars, and %v that vendors state", total, stated)
		}
		if math.Abs(sum-total) > 1e-6 {
			t.Errorf("by %v: %v dollars, want %v", by, sum, total)
		}
	}
}

// costsOf returns the cost of a row of the statistics by model, as far as there are prices.
func costsOf(r *sessions.Row) map[string]float64 {
	costs := map[string]float64{}
	for model, used := range r.Models {
		if p, err := prices.Builtin().Find(model, nil); err == nil {
			costs[model] = p.Cost(used).USD
		}
	}
	return costs
}

// sumsBy returns the tokens and their cost by some dimensions, by the statistics.
func sumsBy(t *testing.T, steps iter.Seq2[sessions.Step, error], dimensions []string) (tokens map[string]int64, costs map[string]float64) {
	t.Helper()
	var by []sessions.Dimension
	for _, d := range dimensions {
		by = append(by, sessions.Dimension(d))
	}
	tokens, costs = map[string]int64{}, map[string]float64{}
	_, err := sessions.Stats(steps, sessions.StatsQuery{By: by, Models: true}, sessions.Memory{}, func(r *sessions.Row) error {
		value := strings.Join(r.Values, " ")
		if n := r.Usage.Total(); n > 0 {
			tokens[value] = n
		}
		for _, cost := range costsOf(r) {
			costs[value] += cost
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens, costs
}
