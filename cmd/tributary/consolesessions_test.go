package main

import (
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"tributary/cmd/internal/console"
	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

var (
	cellOf = regexp.MustCompile(`(?s)<t[dh][^>]*>(.*?)</t[dh]>`)
	timeOf = regexp.MustCompile(`<time datetime="([^"]*)"`)
	tagOf  = regexp.MustCompile(`<[^>]*>`)
)

// TestConsoleListsWhatLsPrints compares each cell of the list of the console with what sessions ls prints of the samples, in each
// order and for some filters that both have.
func TestConsoleListsWhatLsPrints(t *testing.T) {
	t.Parallel()
	logs, home := t.TempDir(), t.TempDir()
	if _, err := copySamples(logs); err != nil {
		t.Fatal(err)
	}
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.DefaultTopology())
	start(t, home, server.URL(), "run")
	if code, out := finish(t, home, server.URL(), "ship", "--once", logs); code != 0 {
		t.Fatalf("ship: exit code %d\n%s", code, out)
	}
	if err := replay.CatchUp(t.Context(), js, streams.DefaultTopology()); err != nil {
		t.Fatal(err)
	}
	awaitRecords(t, js, "v1")
	c, err := console.New(console.Config{JetStream: js, Zone: time.UTC, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	page := func(query string) [][]string {
		t.Helper()
		for begun := time.Now(); ; {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/sessions"+query, http.NoBody)
			w := httptest.NewRecorder()
			c.ServeHTTP(w, r)
			switch {
			case w.Code != http.StatusOK || time.Since(begun) > patience:
				t.Fatalf("/sessions%s: status %d: %s", query, w.Code, w.Body)
			case !strings.Contains(w.Body.String(), "The list is being made"):
				return shownCells(w.Body.String())
			}
		}
	}
	ls := func(args ...string) [][]string {
		t.Helper()
		stdout, _ := succeed(t, home, server.URL(), append([]string{"sessions", "ls", "--limit", "0", "-o", "json"}, args...)...)
		var rows [][]string
		for line := range strings.Lines(stdout) {
			var v sessionView
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, wantedCells(&v))
		}
		return rows
	}
	if n := len(page("")); n != 26 {
		t.Fatalf("%d sessions", n)
	}
	for _, order := range sessionOrders {
		if diff := cmp.Diff(ls("--sort", order.name), page("?sort="+order.name)); diff != "" {
			t.Errorf("order %s (-ls +console):\n%s", order.name, diff)
		}
	}
	for _, filter := range [][2]string{
		{"state", "waiting"},
		{"state", "failed"},
		{"state", "idle"},
		{"source", "codex"},
		{"project", "src/ledger"},
		{"model", "claude"},
		{"since", "2026-03-09T10:00:00Z"},
		{"until", "2026-03-09T10:00:00Z"},
	} {
		want, got := ls("--"+filter[0], filter[1]), page("?"+filter[0]+"="+filter[1])
		if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
			t.Errorf("filter %s of %d sessions (-ls +console):\n%s", filter, len(want), diff)
		}
	}
}

// shownCells returns the cells of the rows of a page: times as they are in its source, everything else as it is shown.
func shownCells(page string) (rows [][]string) {
	for i, row := range strings.Split(page, `<tr id="s-`) {
		if i == 0 {
			continue
		}
		row, _, _ = strings.Cut(row, "</tr>")
		var cells []string
		for _, cell := range cellOf.FindAllStringSubmatch(row, -1) {
			text := cell[1]
			if at := timeOf.FindStringSubmatch(text); at != nil {
				text = at[1]
			}
			text = html.UnescapeString(tagOf.ReplaceAllString(text, " "))
			cells = append(cells, strings.Join(strings.Fields(text), " "))
		}
		rows = append(rows, cells)
	}
	return rows
}

// wantedCells returns the cells of a session as ls prints it in JSON.
func wantedCells(v *sessionView) []string {
	join := func(texts ...string) string {
		return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), " ")
	}
	name := v.Title
	if name == "" {
		name = v.Session
	}
	project := string(v.Source)
	if at := v.ProjectName(); at != "" && v.Project != nil {
		project += " · " + terminal.CutPath(at, 40)
	} else if at != "" {
		project += " · " + terminal.Cut(at, 9)
	}
	cost := figures.Cost{Unpriced: v.Unpriced}
	if v.Cost != nil {
		cost.USD, cost.Priced = *v.Cost, true
	}
	model := mainModel(v)
	if model == terminal.Unknown {
		model = ""
	}
	return []string{
		join(terminal.Cut(name, 120), project), v.Activity.Text(), join(v.Repository, v.Branch), join(v.Host, v.User), terminal.Cut(model, 28), v.LastSeen.Format(time.RFC3339),
		activeTime(v.ActiveMS), terminal.Thousands(v.Prompts), terminal.Thousands(v.Calls), terminal.Thousands(v.Failures), cost.Text(),
	}
}
