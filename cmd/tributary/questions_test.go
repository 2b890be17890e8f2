package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// everyday are the questions that one command answers, or one statement of the page of SQL.
var everyday = []struct {
	question  string
	args      []string
	statement string
}{
	{"cost by model and week", []string{"stats", "--by", "week,model"}, "cost by model and week"},
	{"the most expensive sessions", []string{"sessions", "ls", "--sort", "cost", "--limit", "5"}, "most expensive sessions"},
	{"tokens by repository", []string{"stats", "--by", "repo"}, "tokens by repository"},
	{"cache hit rate", []string{"stats", "--by", "source", "--sort", "cache_hit_rate", "-o", "csv"}, "cache hit rate"},
	{"tools that fail most", []string{"stats", "--by", "tool", "--sort", "failures", "--limit", "5"}, "tools that fail most"},
	{"the longest sessions", []string{"sessions", "ls", "--sort", "active", "--limit", "5"}, "longest sessions"},
	{"stuck sessions", []string{"sessions", "ls", "--state", "ended_in_tool"}, ""},
	{"by user and machine", []string{"stats", "--by", "team,user,host", "-o", "csv"}, "user and machine"},
	{"by branch", []string{"stats", "--by", "repo,branch"}, "branches"},
	{"by pull request", nil, "pull requests"},
	{"files most edited", nil, "files most edited"},
	{"the conversation of a session", []string{"sessions", "read", "7c1e0001"}, ""},
	{"a text in all sessions", []string{"tail", "--since", "all", "--once", "--grep", "(?i)rounding"}, "a text in all sessions"},
	{"two weeks compared", []string{"stats", "--by", "source", "--since", "2026-03-16", "--until", "2026-03-23", "--tz", "UTC", "--compare", "previous"}, "two weeks compared"},
	{"errors by kind", nil, "errors by kind"},
	{"prompts a day", []string{"stats", "--by", "day"}, "prompts a day"},
	{"what subagents cost", nil, "cost of subagents"},
}

// TestEverydayQuestions asks of the samples and three more sessions. testdata/questions/answers.txt has the answers, which
// -update rewrites.
func TestEverydayQuestions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("may install DuckDB")
	}
	fleet := newFleet(t)
	fleet.shipSamples(t, "--labels", "team=garden")
	fleet.ship(t, "--identity", "plain", "--labels", "team=payments", "testdata/questions/till.jsonl", "testdata/questions/tax.jsonl", "testdata/questions/stock.jsonl")
	fleet.settle(t)
	var b strings.Builder
	statements := fleet.ask(t)
	for i, q := range everyday {
		fmt.Fprintf(&b, "%d. %s\n", i+1, q.question)
		if q.args != nil {
			fmt.Fprintf(&b, "\n$ tributary %s\n%s", strings.Join(q.args, " "), fleet.run(t, q.args...))
		}
		if q.statement != "" {
			fmt.Fprintf(&b, "\nSQL: %s\n%s", q.statement, statements[q.statement])
		}
		b.WriteByte('\n')
	}
	compareWithFile(t, "testdata/questions/answers.txt", fleet.masked(t, b.String()))
}

// TestEverydayQuestionsOfCorpus asks of the logs of TRIBUTARY_CORPUS, by agent: every question has an answer.
//
//	TRIBUTARY_CORPUS=... go test ./cmd/tributary -v -run TestEverydayQuestionsOfCorpus -timeout 1h
func TestEverydayQuestionsOfCorpus(t *testing.T) {
	t.Parallel()
	corpus := os.Getenv("TRIBUTARY_CORPUS")
	if corpus == "" {
		t.Skip("TRIBUTARY_CORPUS is not set")
	}
	fleet := newFleet(t)
	p := start(t, fleet.home, fleet.url, "ship", "--once", "--identity", "plain", "--labels", "team=payments", corpus)
	if code := p.wait(); code != 0 && !strings.Contains(p.stderr.String(), "not shipped: unknown_source") { // some files are no logs
		t.Fatalf("ship: exit code %d\n%s", code, &p.stderr)
	}
	fleet.settle(t)
	statements := fleet.ask(t)
	for _, q := range everyday {
		answer := statements[q.statement]
		switch {
		case q.args != nil && q.args[0] == "sessions" && q.args[1] == "read":
			id, _, _ := strings.Cut(strings.Split(fleet.run(t, "sessions", "ls", "--sort", "tokens", "--limit", "1"), "\n")[1], " ")
			answer += fleet.run(t, "sessions", "read", strings.TrimSuffix(id, "…"))
		case q.args != nil:
			answer += fleet.run(t, q.args...)
		}
		least := 1
		if q.args != nil {
			least = 2 // with its heading
		}
		if lines := strings.Count(answer, "\n"); lines < least {
			t.Errorf("%s: %s", q.question, answer)
		} else {
			t.Logf("%s: %d lines", q.question, lines)
		}
	}
}

// fleet is a worker with a broker, and the machine that ships logs.
type fleet struct {
	home, url string
	js        jetstream.JetStream
	top       streams.Topology
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{home: t.TempDir(), top: streams.DefaultTopology()}
	server := pipelinetest.NewServer(t)
	f.url, f.js = server.URL(), server.Provision(f.top)
	start(t, f.home, f.url, "run")
	return f
}

// ship ships logs.
func (f *fleet) ship(t *testing.T, args ...string) {
	t.Helper()
	f.run(t, append([]string{"ship", "--once"}, args...)...)
}

// shipSamples ships the built-in samples, one after the other: a session of two files has one order.
func (f *fleet) shipSamples(t *testing.T, args ...string) {
	t.Helper()
	logs := t.TempDir()
	if _, err := copySamples(logs); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(logs, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			f.ship(t, append(slices.Clone(args), path)...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// settle waits until every record has its events, and every session its record.
func (f *fleet) settle(t *testing.T) {
	t.Helper()
	if err := replay.CatchUp(t.Context(), f.js, f.top); err != nil {
		t.Fatal(err)
	}
	awaitRecords(t, f.js, f.top.Generation)
}

// run runs a command and returns its standard output.
func (f *fleet) run(t *testing.T, args ...string) string {
	t.Helper()
	stdout, _ := succeed(t, f.home, f.url, args...)
	return stdout
}

// ask exports the events, and returns the answers to the questions in SQL, by their names: a row a line.
func (f *fleet) ask(t *testing.T) map[string]string {
	t.Helper()
	const export = "../../pipeline/export"
	list := pipelinetest.Statements(t, export)
	for i := range list {
		list[i].SQL = strings.ReplaceAll(list[i].SQL, "slow down", "rounding")
	}
	dir := t.TempDir()
	f.run(t, "export", "--out", filepath.Join(dir, "events"))
	rows := pipelinetest.Ask(t, export, dir, list)
	answers := map[string]string{}
	for name, answer := range rows {
		for _, row := range answer.Rows {
			answers[name] += string(row) + "\n"
		}
	}
	for _, q := range everyday {
		if _, is := rows[q.statement]; !is && q.statement != "" {
			t.Errorf("the page of SQL has no statement %q", q.statement)
		}
	}
	return answers
}

// masked replaces what is of this machine.
func (f *fleet) masked(t *testing.T, text string) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`"`+host+`"`, `"HOST"`, `"`+u.Username+`"`, `"USER"`, ","+u.Username+","+host+",", ",USER,HOST,").Replace(text)
}
