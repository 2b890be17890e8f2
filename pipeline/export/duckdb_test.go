package export_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// duckVersion is the version of @duckdb/node-api that runs the queries of README.md.
const duckVersion = "1.5.6-r.1"

// question is a query of README.md.
type question struct {
	Name   string `json:"name"`
	SQL    string `json:"sql"`
	Script bool   `json:"script"` // several statements without an answer
}

// questions returns the queries of README.md.
func questions(tb testing.TB) []question {
	tb.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		tb.Fatal(err)
	}
	var out []question
	for _, m := range regexp.MustCompile("(?s)<!-- query: (.*?) -->\n```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		out = append(out, question{m[1], m[2], m[1] == "views"})
	}
	if len(out) != 11 {
		tb.Fatalf("README.md has %d queries, want the views and ten questions", len(out))
	}
	return out
}

// answer is what a query returns.
type answer struct {
	Rows []map[string]any `json:"rows"`
	MS   int              `json:"ms"`
}

// ask runs queries with DuckDB in the folder that has events. Without Node and its packages the test is
// skipped.
func ask(tb testing.TB, dir string, list []question) map[string]answer {
	tb.Helper()
	node, packages := pipelinetest.NodePackages(tb, "@duckdb/node-api@"+duckVersion)
	script, err := filepath.Abs("testdata/duckdb.mjs")
	if err != nil {
		tb.Fatal(err)
	}
	input, err := json.Marshal(list)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), node, script, packages)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("duckdb: %v\n%s", err, &stderr)
	}
	var answers map[string]answer
	if err := json.Unmarshal(out, &answers); err != nil {
		tb.Fatal(err)
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
	const claude, codex = envelopes.ClaudeCode, envelopes.Codex
	add(claude, "one", 9, 0, envelopes.UserMessage, nil)
	add(claude, "one", 9, 10, envelopes.AssistantMessage, tokens("claude-opus-4-5-20251101", "msg_1", 1000))
	add(claude, "one", 9, 11, envelopes.ToolCall, tool("c1", envelopes.StatusInProgress, nil, "/a", "/b"))
	add(claude, "one", 9, 12, envelopes.ToolResult, tool("c1", envelopes.StatusInProgress, nil))
	add(claude, "one", 9, 20, envelopes.ToolResult, tool("c1", envelopes.StatusError, new(int64(9000))))
	add(claude, "one", 9, 900, envelopes.ToolCall, tool("c2", envelopes.StatusInProgress, nil, "/a"))
	add(claude, "one", 9, 901, envelopes.ToolResult, tool("c2", envelopes.StatusSuccess, new(int64(1000))))
	add(claude, "one", 10, 0, envelopes.AssistantMessage, tokens("claude-opus-4-5-20251101", "msg_2", 10))
	add(claude, "copy of one", 10, 0, envelopes.AssistantMessage, tokens("claude-opus-4-5-20251101", "msg_1", 1000)) // a copy
	add(claude, "copy of one", 10, 1, envelopes.AssistantMessage, tokens("claude-opus-4-5-20251101", "msg_2", 20))   // the whole call
	add(claude, "bill", 11, 0, envelopes.UserMessage, nil)
	for _, u := range []struct {
		model string
		usage envelopes.Usage
	}{
		{"claude-opus-4-5-20251101", envelopes.Usage{Input: 3, CacheWrite: 20_000, CacheWrite1h: 15_000, Output: 5, Prompt: 20_003, Key: "msg_b1"}},
		{"claude-opus-4-5-20251101", envelopes.Usage{Output: 400, WebSearchRequests: 2, Prompt: 20_003, Key: "msg_b1"}},
		{"claude-sonnet-4-5-20250929", envelopes.Usage{Input: 1000, CacheRead: 180_000, CacheWrite: 30_000, CacheWrite1h: 30_000, Output: 700, Prompt: 211_000, Key: "msg_b2"}},
		{"claude-haiku-4-5-20251001", envelopes.Usage{Input: 10, CacheRead: 50_000, Output: 20, Prompt: 50_010, CostUSD: 0.00511, Key: "msg_b3"}},
	} {
		add(claude, "bill", 11, 1, envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) {
			e.Model, e.Usage, e.TokensTotal = &u.model, &u.usage, new(u.usage.Total())
		})
	}
	add(codex, "two", 10, 5, envelopes.UserMessage, nil)
	add(codex, "two", 10, 6, envelopes.Meta, tokens("gpt-5", "7", 100))
	add(codex, "three", 10, 6, envelopes.Meta, tokens("gpt-5", "7", 100)) // a number of its session
	add(codex, "two", 10, 9, envelopes.Log, func(e *envelopes.AgentEventV1) {
		e.Metadata = &envelopes.Metadata{Extensions: map[string]jsontext.Value{"error": jsontext.Value(`{"code":"429","message":"Slow down"}`)}}
	})
	pipelinetest.PublishMessages(t.Context(), t, js, messages...)
}

// TestQuestionsHaveTheirAnswers runs the ten questions of README.md with DuckDB. The answers are those of
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
	answers := ask(t, dir, list)
	rows := map[string][]map[string]any{}
	for name, a := range answers {
		rows[name] = a.Rows
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
	if diff := gocmp.Diff(tokensByDay(t, js), answered(t, answers["tokens by model and day"])); diff != "" {
		t.Errorf("statistics and SQL differ:\n%s", diff)
	}
	checkCosts(t, js, ask(t, dir, costsOfTable(t, list))["costs"])
}

// costsOfTable asks for the cost by model with the table that is built in, and its columns.
func costsOfTable(tb testing.TB, list []question) []question {
	tb.Helper()
	table, err := filepath.Abs("../sessions/prices/builtin.tsv")
	if err != nil {
		tb.Fatal(err)
	}
	const all = `with tsv as (select * from read_csv('%s', delim = '\t', comment = '#', header = true, null_padding = true)), prices as (
  select model, 0 as above, input, cache_read, cache_write, cache_write_1h, output, web_search as search from tsv
  union all
  select model, above, input_above, coalesce(cache_read_above, cache_read), coalesce(cache_write_above, cache_write),
    coalesce(cache_write_1h_above, cache_write_1h), output_above, web_search from tsv where above is not null
)`
	views, cost := list[0], list[0]
	for _, q := range list {
		if q.Name == "cost by model" {
			cost = q
		}
	}
	begin, rest, ok := strings.Cut(cost.SQL, "\n)\n")
	if !ok || !strings.HasPrefix(begin, "with prices(") {
		tb.Fatalf("the query does not begin with its prices: %s", begin)
	}
	// What is not stated costs nothing here, as a part without tokens does.
	for _, column := range []string{"cache_read", "cache_write", "cache_write_1h", "search"} {
		rest = regexp.MustCompile(`p\.`+column+`\b`).ReplaceAllString(rest, "coalesce(p."+column+", 0)")
	}
	rest = strings.ReplaceAll(rest, ", 4)", ", 9)")
	return []question{views, {Name: "costs", SQL: fmt.Sprintf(all, table) + "\n" + rest}}
}

// checkCosts compares the cost by model of the statistics with that of SQL, and that of each dimension with the total.
func checkCosts(t *testing.T, js jetstream.JetStream, a answer) {
	t.Helper()
	table := prices.Builtin()
	total := math.NaN()
	divisions := [][]sessions.Dimension{{sessions.ByModel}, {}}
	for _, d := range sessions.Dimensions {
		divisions = append(divisions, []sessions.Dimension{d})
	}
	for _, by := range divisions {
		sum, stated := 0.0, 0.0
		costs := map[string]float64{}
		steps := summaries.Steps(t.Context(), js, "v1", events.Query{}, func(err error) { t.Error(err) })
		_, err := sessions.Stats(steps, sessions.StatsQuery{By: by, Models: true}, sessions.Memory{}, func(r *sessions.Row) error {
			stated = envelopes.AddUSD(stated, r.Usage.CostUSD)
			for model, used := range r.Models {
				p, err := table.Find(model, nil)
				if err != nil {
					continue
				}
				cost := p.Cost(used).USD
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

// tokensByDay returns the tokens by day and model, by the statistics.
func tokensByDay(t *testing.T, js jetstream.JetStream) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	steps := summaries.Steps(t.Context(), js, "v1", events.Query{}, func(err error) { t.Error(err) })
	_, err := sessions.Stats(steps, sessions.StatsQuery{By: []sessions.Dimension{sessions.ByDay, sessions.ByModel}}, sessions.Memory{}, func(r *sessions.Row) error {
		if n := r.Usage.Total(); n > 0 {
			out[r.Values[0]+" "+r.Values[1]] = n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// answered returns the same of an answer of DuckDB, which writes large numbers as text.
func answered(t *testing.T, a answer) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, r := range a.Rows {
		n, err := strconv.ParseInt(fmt.Sprint(r["total"]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		model, _ := r["model"].(string)
		if n > 0 {
			out[fmt.Sprint(r["day"], " ", model)] += n
		}
	}
	return out
}
