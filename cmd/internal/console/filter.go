package console

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"tributary/cmd/internal/moment"
	"tributary/envelopes"
)

// filter is the part of the stream that a page shows. It is the query of the address, with the names of the flags of
// stats, so that people can share the address.
type filter struct {
	Since, Until, TZ                                 string // as written
	Source, Project, Repo, Branch, Host, User, Model string

	From, To time.Time // of Since and Until; zero for none
	Zone     *time.Location

	own url.Values // values of the query that belong to the view: links to the same view keep them
}

// filterFields are the values of a filter, in their order in the query.
var filterFields = []struct {
	name, label, hint string
	of                func(*filter) *string
}{
	{"since", "Since", "7d, 2026-03-09", func(f *filter) *string { return &f.Since }},
	{"until", "Until", "2026-03-31", func(f *filter) *string { return &f.Until }},
	{"tz", "Time zone", "Europe/Berlin", func(f *filter) *string { return &f.TZ }},
	{"source", "Agent", "", func(f *filter) *string { return &f.Source }},
	{"project", "Project", "", func(f *filter) *string { return &f.Project }},
	{"repo", "Repository", "", func(f *filter) *string { return &f.Repo }},
	{"branch", "Branch", "", func(f *filter) *string { return &f.Branch }},
	{"host", "Host", "", func(f *filter) *string { return &f.Host }},
	{"user", "User", "", func(f *filter) *string { return &f.User }},
	{"model", "Model", "", func(f *filter) *string { return &f.Model }},
}

// allTime as the beginning of a range selects everything, even if the view shows less by default.
const allTime = "all"

// longestValue bounds a value of the query.
const longestValue = 1024

// parseFilter parses the filter of a query. Other names in the query belong to the view. zone is the default time
// zone.
func parseFilter(query url.Values, now time.Time, zone *time.Location) (filter, error) {
	var f filter
	for _, field := range filterFields {
		value := query.Get(field.name)
		if len(value) > longestValue || !utf8.ValidString(value) {
			return f, invalid(field.name+" cannot be read", "write at most 1,024 bytes of text")
		}
		*field.of(&f) = value
	}
	var err error
	f.Zone = zone
	if f.TZ != "" {
		if f.Zone, err = time.LoadLocation(f.TZ); err != nil {
			return f, invalid("tz names no time zone", "write Local, UTC or a name such as Europe/Berlin")
		}
	}
	if f.Since != allTime {
		if f.From, err = moment.Parse(f.Since, now, f.Zone); err != nil {
			return f, invalid("since "+err.Error(), "")
		}
	}
	if f.To, err = moment.Parse(f.Until, now, f.Zone); err != nil {
		return f, invalid("until "+err.Error(), "")
	}
	if f.Source != "" && !slices.Contains(envelopes.Sources, envelopes.Source(f.Source)) {
		return f, invalid("source names no agent", "choose one of the list")
	}
	return f, nil
}

// values returns the filter as a query.
func (f *filter) values() url.Values {
	query := url.Values{}
	for _, field := range filterFields {
		if value := *field.of(f); value != "" {
			query.Set(field.name, value)
		}
	}
	return query
}

// Query returns the filter for the end of an address, with a question mark; empty for no filter.
func (f filter) Query() string { return queryOf(f.values()) }

// all returns the query with the filter and the values of the view.
func (f *filter) all() url.Values {
	query := f.values()
	maps.Copy(query, f.own)
	return query
}

// With returns the query of the same view with another value for a name of the filter or of the view. An empty value
// removes the name.
func (f filter) With(name, value string) string {
	query := f.all()
	query.Set(name, value)
	if value == "" {
		query.Del(name)
	}
	return queryOf(query)
}

func queryOf(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

// Any reports whether the filter selects anything but everything.
func (f filter) Any() bool {
	for _, field := range filterFields {
		if value := *field.of(&f); field.name != "tz" && value != "" && (field.name != "since" || value != allTime) {
			return true
		}
	}
	return false
}

// filterField is an input of the form of a filter.
type filterField struct {
	Name, Label, Value, Hint string
	Options                  []string // to choose from; nil for any text
}

// Range returns the inputs of the range of time.
func (f filter) Range() []filterField { return f.fields(0, 3) }

// Fields returns the inputs of the other values.
func (f filter) Fields() []filterField { return f.fields(3, len(filterFields)) }

func (f *filter) fields(from, to int) []filterField {
	var list []filterField
	for _, field := range filterFields[from:to] {
		one := filterField{Name: field.name, Label: field.label, Value: *field.of(f), Hint: field.hint}
		if field.name == "source" {
			for _, s := range envelopes.Sources {
				one.Options = append(one.Options, string(s))
			}
		}
		list = append(list, one)
	}
	return list
}

// chip is a value of the filter, and the address without it.
type chip struct{ Label, Value, Without string }

// Chips returns the values that select sessions.
func (f filter) Chips() []chip {
	var list []chip
	for _, field := range filterFields[3:] {
		if value := *field.of(&f); value != "" {
			list = append(list, chip{field.label, value, cmp.Or(f.With(field.name, ""), "?")})
		}
	}
	return list
}

// period is a range of time that a link chooses.
type period struct {
	Name, Query string
	Current     bool
}

// Periods returns the ranges of time that are links.
func (f filter) Periods() []period {
	var list []period
	for _, p := range []struct{ name, since string }{{"24 h", "24h"}, {"7 days", "7d"}, {"28 days", "28d"}, {"90 days", "90d"}, {"all", allTime}} {
		other := f
		other.Since, other.Until = p.since, ""
		list = append(list, period{p.name, cmp.Or(queryOf(other.all()), "?"), cmp.Or(f.Since, allTime) == p.since && f.Until == ""})
	}
	return list
}
