package main

import (
	"cmp"
	"html"
	"net/http"
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
	body, of := pageOf(t, page, "/tools", query)
	args := append([]string{"--by", "tool", "--tz", cmp.Or(of.Get("tz"), "UTC")}, filtersOf(of)...)
	want := fleet.stats(t, args...)
	delete(want, "") // what is no call
	for _, row := range rowOfPage.FindAllStringSubmatch(body, -1) {
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
	_, list, _ := strings.Cut(body, `id="errors"`)
	for _, cell := range countOfPage.FindAllStringSubmatch(list, -1) {
		errors += number(t, jsontext.Value(strings.ReplaceAll(cell[1], ",", "")))
	}
	args[1] = ""
	if stated := number(t, orNothing(fleet.stats(t, args...)[""]["errors"])); errors != stated {
		t.Errorf("%s: the page has %v errors of vendors, stats prints %v", query, errors, stated)
	}
	return compared + 1
}
