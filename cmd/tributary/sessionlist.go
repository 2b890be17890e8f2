package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// sessionTable returns sessions for people, with costs if pricing is not nil.
func sessionTable(list []sessionView, pricing *pricing, now time.Time) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "SESSION", Text: true},
		{Head: "AGENT", Priority: 6},
		{Head: "STATE", Priority: 9},
		{Head: "LAST", Right: true, Priority: 9},
		{Head: "ACTIVE", Right: true, Priority: 4},
		{Head: "MODEL", Text: true, Priority: 3},
		{Head: "EVENTS", Right: true, Priority: 2},
		{Head: "TOKENS", Right: true, Priority: 10},
		{Head: "CALLS", Right: true, Priority: 5},
		{Head: "FAILED", Right: true, Priority: 2},
		{Head: "ERRORS", Right: true, Priority: 1},
	}}
	unread := slices.ContainsFunc(list, func(v sessionView) bool { return v.unread > 0 })
	if unread {
		t.Columns = append(t.Columns, terminal.Column{Head: "UNREAD", Right: true, Priority: 10})
	}
	if pricing != nil {
		t.Columns = append(t.Columns, terminal.Column{Head: "COST", Right: true})
	}
	t.Columns = append(t.Columns, terminal.Column{Head: "PROJECT", Text: true, Priority: 7}, terminal.Column{Head: "TITLE", Text: true})
	for i := range list {
		v := &list[i]
		model := ""
		if len(v.Models) > 0 {
			model = slices.MaxFunc(v.Models, func(a, b sessions.ModelUse) int { return cmp.Compare(a.Total, b.Total) }).Model
		}
		title := terminal.OrDash(v.Title)
		if v.Pinned {
			title = "* " + title
		}
		values := []string{
			terminal.OneLine(v.Session), terminal.OneLine(string(v.Source)), string(v.State), ago(v.LastSeen, now), activeTime(v.ActiveMS), terminal.OrDash(model), terminal.Thousands(v.Events),
			terminal.Thousands(v.Usage.Total), terminal.Thousands(v.Calls), terminal.Thousands(v.Failures), terminal.Thousands(v.Errors),
		}
		if unread {
			values = append(values, terminal.Thousands(v.unread))
		}
		if pricing != nil {
			values = append(values, pricing.of(v.usage()).text())
		}
		t.Rows = append(t.Rows, append(values, terminal.OrDash(base(v.ProjectName())), title))
	}
	return t
}

// usage returns the tokens of a session by model.
func (v *sessionView) usage() map[string]*sessions.Billed {
	models := make(map[string]*sessions.Billed, len(v.Models))
	for _, m := range v.Models {
		models[m.Model] = &sessions.Billed{Usage: m.Usage(), Large: m.Large}
	}
	return models
}

// sessionFoot returns the last row of a table of sessions: their sum.
func sessionFoot(t *terminal.Table, total *sessionView, list []sessionView, pricing *pricing) []string {
	values := map[string]string{
		"SESSION": "all", "ACTIVE": activeTime(total.ActiveMS), "EVENTS": terminal.Thousands(total.Events), "TOKENS": terminal.Thousands(total.Usage.Total),
		"CALLS": terminal.Thousands(total.Calls), "FAILED": terminal.Thousands(total.Failures), "ERRORS": terminal.Thousands(total.Errors),
		"UNREAD": terminal.Thousands(total.unread), "TITLE": terminal.Plural(len(list), "session"),
	}
	if pricing != nil {
		values["COST"] = pricing.sum(list).text()
	}
	foot := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		foot[i] = values[c.Head]
	}
	return foot
}

// base is the last name of a path of any system.
func base(path string) string {
	path = strings.TrimRight(path, `/\`)
	return path[strings.LastIndexAny(path, `/\`)+1:]
}

// activeTime writes the active time of a session.
func activeTime(ms int64) string { return terminal.Rough(time.Duration(ms) * time.Millisecond) }

// ago writes how long ago a time was, and the date of one that is long ago.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return terminal.Unknown
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	default:
		return t.Local().Format(time.DateOnly)
	}
}

// printSession prints a session with everything that is known about it.
func printSession(a *app, v *sessionView, pricing *pricing, now time.Time) error {
	width := terminal.TableWidth(a.stdout)
	var b strings.Builder
	lines := terminal.NewLines(&b, width, nil, terminal.Column{Width: 11}, terminal.Column{})
	add := func(name, text string) {
		if text = terminal.OneLine(text); text != "" {
			_ = lines.Add(name, text) // a builder never fails
		}
	}
	add("session", string(v.Source)+" "+v.Session)
	add("title", v.Title)
	if v.Pinned {
		add("pinned", "yes")
	}
	add("state", string(v.State))
	add("project", v.ProjectName())
	add("resume id", v.ResumeID)
	if !v.FirstSeen.IsZero() {
		add("first event", terminal.DateTime(v.FirstSeen))
		last := terminal.DateTime(v.LastSeen)
		if now.Sub(v.LastSeen) < 24*time.Hour {
			last += ", " + ago(v.LastSeen, now)
		}
		add("last event", last)
	}
	add("active", activeTime(v.ActiveMS))
	var kinds []string
	for _, t := range envelopes.EventTypes {
		if n := v.Types[t]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %s", t, terminal.Thousands(n)))
		}
	}
	add("events", terminal.Thousands(v.Events)+": "+strings.Join(kinds, ", "))
	if v.Errors > 0 {
		add("errors", terminal.Thousands(v.Errors)+", the last: "+v.LastError)
	}
	add("last prompt", v.LastPrompt)
	add("cost", costText(pricing.of(v.usage()), v.Usage.VendorCost))
	for _, t := range []*terminal.Table{modelTable(v, pricing), toolTable(v)} {
		if len(t.Rows) > 0 {
			b.WriteByte('\n')
			if err := t.Write(&b, width); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(a.stdout, b.String())
	pricing.report(a.stderr)
	return err
}

// modelTable has the tokens of a session by model, and what they cost.
func modelTable(v *sessionView, pricing *pricing) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "MODEL", Text: true},
		{Head: "INPUT", Right: true, Priority: 4},
		{Head: "CACHE READ", Right: true, Priority: 3},
		{Head: "CACHE WRITE", Right: true, Priority: 2},
		{Head: "OUTPUT", Right: true, Priority: 4},
		{Head: "REASONING", Right: true, Priority: 1},
		{Head: "TOTAL", Right: true},
		{Head: "COST", Right: true},
	}}
	clear(pricing.missing) // each model is priced again
	used := v.usage()
	for _, m := range v.Models {
		t.Rows = append(t.Rows, []string{
			terminal.OrDash(m.Model), terminal.Thousands(m.Input), terminal.Thousands(m.CacheRead), terminal.Thousands(m.CacheWrite), terminal.Thousands(m.Output), terminal.Thousands(m.Reasoning), terminal.Thousands(m.Total),
			pricing.of(map[string]*sessions.Billed{m.Model: used[m.Model]}).text(),
		})
	}
	return t
}

// toolTable has the calls of a session by tool.
func toolTable(v *sessionView) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "TOOL", Text: true},
		{Head: "CALLS", Right: true},
		{Head: "FAILED", Right: true},
		{Head: "P50", Right: true, Priority: 1},
		{Head: "P95", Right: true, Priority: 1},
	}}
	for _, u := range v.Tools {
		t.Rows = append(t.Rows, []string{terminal.OrDash(u.Tool), terminal.Thousands(u.Calls), terminal.Percent(u.Failures, u.Calls), terminal.Millis(u.P50), terminal.Millis(u.P95)})
	}
	return t
}
