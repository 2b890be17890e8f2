package main

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	rowOfPage  = regexp.MustCompile(`<tr data-row="([^"]*)">(.*)</tr>`)
	cellOfPage = regexp.MustCompile(`data-figure="(\w+)" data-value="([^"]*)"`)

	countOfPage = regexp.MustCompile(`data-label="Count">([\d,]+)<`)
)

// compareToolsOf compares the tools of the console with stats --by tool, and returns how many figures it has compared.
func compareToolsOf(t *testing.T, fleet *fleet, page http.Handler, query string) (compared int) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/tools?"+query, http.NoBody)
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
	args := []string{"--by", "tool", "--tz", "UTC"}
	for _, name := range []string{"source", "project", "repo", "branch", "host", "user", "model", "since", "until", "tz"} {
		if value := of.Get(name); value != "" {
			args = append(args, "--"+name, value)
		}
	}
	want := fleet.stats(t, args...)
	delete(want, "") // what is no call
	for _, row := range rowOfPage.FindAllStringSubmatch(w.Body.String(), -1) {
		tool := html.UnescapeString(row[1])
		for _, cell := range cellOfPage.FindAllStringSubmatch(row[2], -1) {
			compared++
			if got := html.UnescapeString(cell[2]); got != string(want[tool][cell[1]]) {
				t.Errorf("%s: %s of %s is %s, stats prints %s", query, cell[1], tool, got, want[tool][cell[1]])
			}
		}
		delete(want, tool)
	}
	for tool := range want {
		t.Errorf("%s: the page has no %s", query, tool)
	}
	if of.Get("model") != "" { // the model of an error is that of its event on the page, and that of its session in stats
		return compared
	}
	errors := 0.0
	_, list, _ := strings.Cut(w.Body.String(), `id="errors"`)
	for _, cell := range countOfPage.FindAllStringSubmatch(list, -1) {
		errors += number(t, jsontext.Value(strings.ReplaceAll(cell[1], ",", "")))
	}
	args[1] = ""
	if stated := number(t, orNothing(fleet.stats(t, args...)[""]["errors"])); errors != stated {
		t.Errorf("%s: the page has %v errors of vendors, stats prints %v", query, errors, stated)
	}
	return compared + 1
}
