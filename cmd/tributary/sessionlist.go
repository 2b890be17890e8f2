package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// sessionTable returns sessions for people, with costs if pricing is not nil.
func sessionTable(list []sessionView, pricing *pricing, now time.Time) *table {
	t := &table{columns: []tableColumn{
		{head: "SESSION", text: true},
		{head: "AGENT", keep: 6},
		{head: "STATE", keep: 9},
		{head: "LAST", right: true, keep: 9},
		{head: "ACTIVE", right: true, keep: 4},
		{head: "MODEL", text: true, keep: 3},
		{head: "EVENTS", right: true, keep: 2},
		{head: "TOKENS", right: true, keep: 10},
		{head: "CALLS", right: true, keep: 5},
		{head: "FAILED", right: true, keep: 2},
		{head: "ERRORS", right: true, keep: 1},
	}}
	unread := slices.ContainsFunc(list, func(v sessionView) bool { return v.unread > 0 })
	if unread {
		t.columns = append(t.columns, tableColumn{head: "UNREAD", right: true, keep: 10})
	}
	if pricing != nil {
		t.columns = append(t.columns, tableColumn{head: "COST", right: true})
	}
	t.columns = append(t.columns, tableColumn{head: "PROJECT", text: true, keep: 7}, tableColumn{head: "TITLE", text: true})
	for i := range list {
		v := &list[i]
		model := ""
		if len(v.Models) > 0 {
			model = slices.MaxFunc(v.Models, func(a, b sessions.ModelUse) int { return cmp.Compare(a.Total, b.Total) }).Model
		}
		title := cell(v.Title)
		if v.Pinned {
			title = "* " + title
		}
		cells := []string{
			oneLine(v.Session), oneLine(string(v.Source)), string(v.State), ago(v.LastSeen, now), activeTime(v.ActiveMS), cell(model), thousands(v.Events),
			thousands(v.Usage.Total), thousands(v.Calls), thousands(v.Failures), thousands(v.Errors),
		}
		if unread {
			cells = append(cells, thousands(v.unread))
		}
		if pricing != nil {
			cells = append(cells, pricing.of(v.usage()).text())
		}
		t.rows = append(t.rows, append(cells, cell(base(v.ProjectName())), title))
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
func (t *table) sessionFoot(total *sessionView, list []sessionView, pricing *pricing) []string {
	values := map[string]string{
		"SESSION": "all", "ACTIVE": activeTime(total.ActiveMS), "EVENTS": thousands(total.Events), "TOKENS": thousands(total.Usage.Total),
		"CALLS": thousands(total.Calls), "FAILED": thousands(total.Failures), "ERRORS": thousands(total.Errors),
		"UNREAD": thousands(total.unread), "TITLE": plural(len(list), "session"),
	}
	if pricing != nil {
		values["COST"] = pricing.sum(list).text()
	}
	foot := make([]string, len(t.columns))
	for i, c := range t.columns {
		foot[i] = values[c.head]
	}
	return foot
}

// base is the last name of a path of any system.
func base(path string) string {
	path = strings.TrimRight(path, `/\`)
	return path[strings.LastIndexAny(path, `/\`)+1:]
}

// activeTime writes the active time of a session.
func activeTime(ms int64) string { return rough(time.Duration(ms) * time.Millisecond) }

// ago writes how long ago a time was, and the date of one that is long ago.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return unknownValue
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
func (a *app) printSession(v *sessionView, now time.Time) error {
	p := a.newPrinter()
	if !isTerminal(a.stdout) {
		p.width = a.tableWidth()
	}
	var b strings.Builder
	line := func(name, text string) {
		if text = oneLine(text); text != "" {
			fmt.Fprintln(&b, p.fit(fmt.Sprintf("%-12s %s", name, text)))
		}
	}
	line("session", string(v.Source)+" "+v.Session)
	line("title", v.Title)
	if v.Pinned {
		line("pinned", "yes")
	}
	line("state", string(v.State))
	line("project", v.ProjectName())
	line("resume id", v.ResumeID)
	if !v.FirstSeen.IsZero() {
		line("first event", dateTime(v.FirstSeen))
		last := dateTime(v.LastSeen)
		if now.Sub(v.LastSeen) < 24*time.Hour {
			last += ", " + ago(v.LastSeen, now)
		}
		line("last event", last)
	}
	line("active", activeTime(v.ActiveMS))
	var kinds []string
	for _, t := range envelopes.EventTypes {
		if n := v.Types[t]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %s", t, thousands(n)))
		}
	}
	line("events", thousands(v.Events)+": "+strings.Join(kinds, ", "))
	if v.Errors > 0 {
		line("errors", thousands(v.Errors)+", the last: "+v.LastError)
	}
	line("last prompt", v.LastPrompt)
	if _, err := fmt.Fprint(a.stdout, b.String()); err != nil {
		return err
	}
	for _, t := range []*table{modelTable(v), toolTable(v)} {
		if len(t.rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(a.stdout); err != nil {
			return err
		}
		if err := t.write(a.stdout, p.width); err != nil {
			return err
		}
	}
	return nil
}

// modelTable has the tokens of a session by model.
func modelTable(v *sessionView) *table {
	t := &table{columns: []tableColumn{
		{head: "MODEL", text: true},
		{head: "INPUT", right: true, keep: 4},
		{head: "CACHE READ", right: true, keep: 3},
		{head: "CACHE WRITE", right: true, keep: 2},
		{head: "OUTPUT", right: true, keep: 4},
		{head: "REASONING", right: true, keep: 1},
		{head: "TOTAL", right: true},
	}}
	for _, m := range v.Models {
		t.rows = append(t.rows, []string{
			cell(m.Model), thousands(m.Input), thousands(m.CacheRead), thousands(m.CacheWrite), thousands(m.Output), thousands(m.Reasoning), thousands(m.Total),
		})
	}
	return t
}

// toolTable has the calls of a session by tool.
func toolTable(v *sessionView) *table {
	t := &table{columns: []tableColumn{
		{head: "TOOL", text: true},
		{head: "CALLS", right: true},
		{head: "FAILED", right: true},
		{head: "P50", right: true, keep: 1},
		{head: "P95", right: true, keep: 1},
	}}
	for _, u := range v.Tools {
		t.rows = append(t.rows, []string{cell(u.Tool), thousands(u.Calls), percent(u.Failures, u.Calls), millis(u.P50), millis(u.P95)})
	}
	return t
}
