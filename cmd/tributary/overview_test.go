package main

import (
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/cmd/internal/console"
)

// TestOverviewHasTheFiguresOfStats compares the overview of the console with stats, over the samples.
func TestOverviewHasTheFiguresOfStats(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t)
	fleet.shipSamples(t, "--identity", "plain")
	fleet.ship(t, "--identity", "plain", "testdata/questions/till.jsonl", "testdata/questions/tax.jsonl", "testdata/questions/stock.jsonl")
	fleet.settle(t)
	compareOverview(t, fleet)
}

// TestOverviewHasTheFiguresOfStatsOfCorpus is the same over the logs of TRIBUTARY_CORPUS.
//
//	TRIBUTARY_CORPUS=... go test ./cmd/tributary -v -run TestOverviewHasTheFiguresOfStatsOfCorpus -timeout 1h
func TestOverviewHasTheFiguresOfStatsOfCorpus(t *testing.T) {
	t.Parallel()
	corpus := os.Getenv("TRIBUTARY_CORPUS")
	if corpus == "" {
		t.Skip("TRIBUTARY_CORPUS is not set")
	}
	fleet := newFleet(t)
	p := start(t, fleet.home, fleet.url, "ship", "--once", "--identity", "plain", corpus)
	if code := p.wait(); code != 0 && !strings.Contains(p.stderr.String(), "not shipped: unknown_source") { // some files are no logs
		t.Fatalf("ship: exit code %d\n%s", code, &p.stderr)
	}
	fleet.settle(t)
	compareOverview(t, fleet)
}

// compareOverview compares every figure of the overview and of the tools with stats, for filters by what the events have most of.
func compareOverview(t *testing.T, fleet *fleet) {
	t.Helper()
	page, err := console.New(console.Config{JetStream: fleet.js, Zone: time.UTC, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(page.Close)
	days := slices.Sorted(maps.Keys(fleet.stats(t, "--by", "day", "--tz", "UTC")))
	first, last := days[0], days[len(days)-1]
	middle := days[len(days)/2]
	queries := []string{
		"", "tz=Pacific/Kiritimati&per=week&by=source&figure=total", "since=" + middle + "&until=" + last + "&figure=calls&by=repo",
		"since=" + first + "&until=" + middle + "&per=hour&figure=active_seconds", "per=month&figure=failures&by=project",
	}
	for _, name := range []string{"source", "project", "repo", "branch", "host", "user", "model"} {
		for value := range fleet.stats(t, "--by", name, "--limit", "1") {
			if value != "" {
				queries = append(queries, url.Values{name: {value}, "by": {name}, "since": {middle}, "until": {last}}.Encode(), url.Values{name: {value}, "figure": {"total"}}.Encode())
			}
		}
	}
	compared, tools := 0, 0
	for _, query := range queries {
		compared += compareOverviewOf(t, fleet, page, query)
		tools += compareToolsOf(t, fleet, page, query)
	}
	t.Logf("%d figures of %d pages are those of stats, and %d of tools", compared, len(queries), tools)
	if compared < 40*len(queries) || tools < 10*len(queries) {
		t.Errorf("%d figures were compared, and %d of tools", compared, tools)
	}
}

// pageOf returns the page of the console at a path with a query, and the query.
func pageOf(t *testing.T, page http.Handler, path, query string) (body string, of url.Values) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"?"+query, http.NoBody)
	r.Host = "localhost:8423"
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d: %.500s", query, w.Code, w.Body)
	}
	of, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return w.Body.String(), of
}

// filtersOf returns the filters of a query as flags of stats.
func filtersOf(of url.Values) (flags []string) {
	for _, name := range []string{"source", "project", "repo", "branch", "host", "user", "model", "since", "until"} {
		if value := of.Get(name); value != "" {
			flags = append(flags, "--"+name, value)
		}
	}
	return flags
}

// compareOverviewOf compares the page of a query, and returns how many figures it has compared.
func compareOverviewOf(t *testing.T, fleet *fleet, page http.Handler, query string) (compared int) {
	t.Helper()
	body, of := pageOf(t, page, "/", query)
	choice := func(name, fallback string) string {
		if value := of.Get(name); value != "" {
			return value
		}
		return fallback
	}
	args := []string{"--tz", choice("tz", "UTC")}
	args = append(args, filtersOf(of)...)
	everything := []string{"--by", ""}
	if of.Get("since") != "" {
		everything = append(everything, "--compare", "previous")
	}
	all := fleet.stats(t, slices.Concat(everything, args)...)[""]
	if strings.Contains(body, "No events are selected") {
		if len(all) > 0 {
			t.Errorf("%s: the page has no figure, stats prints %v", query, all)
		}
		return 1
	}
	figure, by := choice("figure", "cost_usd"), choice("by", "model")
	per := regexp.MustCompile(`<th scope="col">(hour|day|week|month)</th>`).FindStringSubmatch(body)[1]
	same := func(what, got string, want jsontext.Value) {
		compared++
		if got != string(want) {
			t.Errorf("%s: %s is %s, stats prints %s", query, what, got, want)
		}
	}
	tiles, rest, _ := strings.Cut(body, "</ul>\n\n<section")
	bars, values, _ := strings.Cut(rest, `id="values-table"`)

	// The tiles: one row of everything.
	for _, m := range regexp.MustCompile(`data-figure="(\w+)" data-value="([^"]*)" data-before="([^"]*)"`).FindAllStringSubmatch(tiles, -1) {
		same(m[1], html.UnescapeString(m[2]), all[m[1]])
		if m[3] != "" {
			same("previous "+m[1], html.UnescapeString(m[3]), all["previous_"+m[1]])
		}
	}

	// The bars and their parts: what stats has and the page has not is without events, or among the others.
	var series []string
	for _, m := range regexp.MustCompile(`data-series="([^"]*)"`).FindAllStringSubmatch(bars, -1) {
		series = append(series, html.UnescapeString(m[1]))
	}
	periods := fleet.stats(t, slices.Concat([]string{"--by", per}, args)...)
	parts := fleet.stats(t, slices.Concat([]string{"--by", per + "," + by}, args)...)
	cell := regexp.MustCompile(`data-(total|value)="([^"]*)"`)
	for _, m := range regexp.MustCompile(`<tr data-period="([^"]*)">(.*)</tr>`).FindAllStringSubmatch(bars, -1) {
		cells := cell.FindAllStringSubmatch(m[2], -1)
		total, rest := orNothing(periods[m[1]][figure]), 0.0
		same(figure+" of "+m[1], html.UnescapeString(cells[0][2]), total)
		for key, row := range parts {
			if period, value, _ := strings.Cut(key, "\x00"); period == m[1] && !slices.Contains(series, named(value)) {
				rest += number(t, row[figure])
			}
		}
		for i, name := range series {
			got := html.UnescapeString(cells[i+1][2])
			if name == "others" {
				if compared++; number(t, jsontext.Value(got))-rest > 1e-6 || rest-number(t, jsontext.Value(got)) > 1e-6 {
					t.Errorf("%s: %s of the others in %s is %s, stats adds up to %v", query, figure, m[1], got, rest)
				}
				continue
			}
			value := name
			if name == "(unknown)" {
				value = ""
			}
			same(figure+" of "+m[1]+", "+name, got, orNothing(parts[m[1]+"\x00"+value][figure]))
		}
	}

	// The rows of the values.
	byValue := fleet.stats(t, slices.Concat([]string{"--by", by}, args)...)
	for _, m := range regexp.MustCompile(`<tr data-row="([^"]*)">(.*)</tr>`).FindAllStringSubmatch(values, -1) {
		value := html.UnescapeString(m[1])
		for _, c := range regexp.MustCompile(`data-figure="(\w+)" data-value="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			same(c[1]+" of "+value, html.UnescapeString(c[2]), byValue[value][c[1]])
		}
	}
	return compared
}

// named is a value as the page names it.
func named(value string) string {
	if value == "" {
		return "(unknown)"
	}
	return value
}

// orNothing is a figure, 0 where stats has no row.
func orNothing(v jsontext.Value) jsontext.Value {
	if v == nil {
		return jsontext.Value("0")
	}
	return v
}

// number is a figure as a number, 0 for null.
func number(t *testing.T, v jsontext.Value) float64 {
	t.Helper()
	if string(v) == "null" {
		return 0
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stats returns the rows of stats by the values of their dimensions.
func (f *fleet) stats(t *testing.T, args ...string) map[string]map[string]jsontext.Value {
	t.Helper()
	by := "model"
	if i := slices.Index(args, "--by"); i >= 0 {
		by = args[i+1]
	}
	rows := map[string]map[string]jsontext.Value{}
	for line := range strings.Lines(f.run(t, slices.Concat([]string{"stats", "-o", "json"}, args)...)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var row map[string]jsontext.Value
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		var values []string
		for name := range strings.SplitSeq(by, ",") {
			var value string
			if name != "" && string(row[name]) != "null" {
				if err := json.Unmarshal(row[name], &value); err != nil {
					t.Fatal(err)
				}
			}
			values = append(values, value)
		}
		rows[strings.Join(values, "\x00")] = row
	}
	return rows
}
