package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"tributary/cmd/internal/figures"
	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/titles"
)

// sessionTable lists sessions for people, in lines of at most width columns, with costs if pricing is not nil. Titles
// get the room that they need before less important columns. An id is cut to a beginning that no other session has,
// neither in the list nor among the ids of others, unless the width is unlimited.
func sessionTable(list []sessionView, others []string, pricing *figures.Pricing, now time.Time, width int) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "SESSION", Text: true},
		{Head: "AGENT", Priority: 5},
		{Head: "STATE", Text: true},
		{Head: "LAST", Right: true, Priority: 10},
		{Head: "ACTIVE", Right: true, Priority: 4},
		{Head: "MODEL", Text: true, Priority: 3},
		{Head: "EVENTS", Right: true, Priority: 2},
		{Head: "TOKENS", Right: true, Priority: 8},
		{Head: "CALLS", Right: true, Priority: 2},
		{Head: "FAILED", Right: true, Priority: 2},
		{Head: "ERRORS", Right: true, Priority: 1},
	}}
	unread := slices.ContainsFunc(list, func(v sessionView) bool { return v.unread > 0 })
	if unread {
		t.Columns = append(t.Columns, terminal.Column{Head: "UNREAD", Right: true, Priority: 10})
	}
	if pricing != nil {
		t.Columns = append(t.Columns, terminal.Column{Head: "COST", Right: true, Priority: 9})
	}
	t.Columns = append(t.Columns, terminal.Column{Head: "PROJECT", Text: true, Priority: 6})
	repositories := slices.ContainsFunc(list, func(v sessionView) bool { return v.Repository != "" && base(v.Repository) != projectText(&v) })
	if repositories {
		t.Columns = append(t.Columns, terminal.Column{Head: "REPOSITORY", Text: true, Priority: 3})
	}
	branches := slices.ContainsFunc(list, func(v sessionView) bool { return v.Branch != "" })
	if branches {
		t.Columns = append(t.Columns, terminal.Column{Head: "BRANCH", Text: true, Priority: 4})
	}
	t.Columns = append(t.Columns, terminal.Column{Head: "TITLE", Text: true})
	ids := shortIDs(list, others, width)
	title := 0
	for i := range list {
		v := &list[i]
		values := []string{
			ids[i], terminal.OneLine(string(v.Source)), stateText(&v.Activity), ago(v.LastSeen, now), activeTime(v.ActiveMS), mainModel(v), terminal.Thousands(v.Events),
			terminal.Thousands(v.Usage.Total), terminal.Thousands(v.Calls), terminal.Thousands(v.Failures), terminal.Thousands(v.Errors),
		}
		if unread {
			values = append(values, terminal.Thousands(v.unread))
		}
		if pricing != nil {
			values = append(values, pricing.Cost(v.usage()).Text())
		}
		values = append(values, projectText(v))
		if repositories {
			values = append(values, terminal.OrDash(base(v.Repository)))
		}
		if branches {
			values = append(values, terminal.OrDash(v.Branch))
		}
		values = append(values, titleText(v))
		title = max(title, terminal.WidthOf(values[len(values)-1]))
		t.Rows = append(t.Rows, values)
	}
	t.Columns[0].Least = min(widestOf(ids), width/2)
	t.Columns[len(t.Columns)-1].Least = min(title, max(28, width*3/10))
	return t
}

// widestOf returns the width of the widest text.
func widestOf(texts []string) (width int) {
	for _, text := range texts {
		width = max(width, terminal.WidthOf(text))
	}
	return width
}

// shortIDs returns the ids of sessions for lines of at most width columns. others are ids from which they have to differ.
func shortIDs(list []sessionView, others []string, width int) []string {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = terminal.OneLine(list[i].Session)
	}
	if width == terminal.Uncut {
		return ids
	}
	sorted := slices.Concat(ids, others)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	for i, id := range ids {
		n, _ := slices.BinarySearch(sorted, id)
		need := terminal.ShortID
		if n > 0 {
			need = max(need, commonBytes(id, sorted[n-1])+1)
		}
		if n+1 < len(sorted) {
			need = max(need, commonBytes(id, sorted[n+1])+1)
		}
		for need < len(id) && !utf8.RuneStart(id[need]) {
			need++
		}
		ids[i] = id[:min(need, len(id))]
	}
	return ids
}

// commonBytes returns the length of the common beginning of two texts.
func commonBytes(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// stateText names what a session does, and the tool.
func stateText(a *sessions.Activity) string { return terminal.OrDash(a.Text()) }

// stateSentence describes what a session does, and since when.
func stateSentence(a *sessions.Activity, now time.Time) string {
	text := stateText(a) + ": " + a.Phase.Meaning()
	if a.Since.IsZero() {
		return text
	}
	text += " since " + terminal.DateTime(a.Since)
	if now.Sub(a.Since) < 24*time.Hour {
		text += ", " + ago(a.Since, now)
	}
	return text
}

// mainModel returns the model that a session used most.
func mainModel(v *sessionView) string {
	if len(v.Models) == 0 {
		return terminal.Unknown
	}
	return terminal.OrDash(slices.MaxFunc(v.Models, func(a, b sessions.ModelUse) int { return cmp.Compare(a.Total, b.Total) }).Model)
}

// projectText returns the project of a session: the last name of its path, else the beginning of its hash.
func projectText(v *sessionView) string {
	name := terminal.OrDash(base(v.ProjectName()))
	if v.Project == nil {
		name = terminal.Truncate(name, terminal.ShortID, "")
	}
	return name
}

// titleText returns the title of a session, with a star if it is pinned.
func titleText(v *sessionView) string {
	title := terminal.OrDash(v.Title)
	if v.Pinned {
		title = "* " + title
	}
	return title
}

// sessionFoot returns the last row of a table of sessions: their sum.
func sessionFoot(t *terminal.Table, total *sessionView, list []sessionView, pricing *figures.Pricing) []string {
	values := map[string]string{
		"SESSION": "all", "ACTIVE": activeTime(total.ActiveMS), "EVENTS": terminal.Thousands(total.Events), "TOKENS": terminal.Thousands(total.Usage.Total),
		"CALLS": terminal.Thousands(total.Calls), "FAILED": terminal.Thousands(total.Failures), "ERRORS": terminal.Thousands(total.Errors),
		"UNREAD": terminal.Thousands(total.unread), "TITLE": terminal.Plural(len(list), "session"),
	}
	if pricing != nil {
		values["COST"] = totalCost(list, pricing).Text()
	}
	foot := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		foot[i] = values[c.Head]
	}
	return foot
}

// base returns the last name of a path of any operating system.
func base(path string) string {
	path = strings.TrimRight(path, `/\`)
	return path[strings.LastIndexAny(path, `/\`)+1:]
}

// activeTime writes the active time of a session.
func activeTime(ms int64) string { return terminal.Rough(time.Duration(ms) * time.Millisecond) }

// ago writes how long ago t was, or its date if that is long.
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

// printSession prints everything that is known about a session.
func printSession(a *app, v *sessionView, pricing *figures.Pricing, now time.Time) error {
	width := terminal.TableWidth(a.stdout)
	var b strings.Builder
	lines := terminal.NewLines(&b, width, nil, terminal.Column{Width: 12}, terminal.Column{})
	add := func(name, text string) {
		if text = terminal.OneLine(text); text != "" {
			_ = lines.Add(name, text) // a builder never fails
		}
	}
	add("session", string(v.Source)+" "+v.Session)
	add("title", v.Title)
	if v.Title != "" {
		add("titled by", titleSources[v.TitleSource])
	}
	add("versions", fmt.Sprintf("title %d, metadata %d", v.TitleVersion, v.MetadataVersion))
	if v.Pinned {
		add("pinned", "yes")
	}
	add("state", stateSentence(&v.Activity, now))
	add("project", v.ProjectName())
	add("repository", v.Repository)
	add("branch", v.Branch)
	add("pull request", v.PullRequest)
	add("host", v.Host)
	add("user", v.User)
	add("labels", labelText(v.Labels))
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
	add("cost", costText(pricing.Cost(v.usage()), v.Usage.VendorCost))
	for _, t := range []*terminal.Table{modelTable(v, pricing), toolTable(v)} {
		if len(t.Rows) > 0 {
			b.WriteByte('\n')
			if err := t.Write(&b, width); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(a.stdout, b.String())
	reportPrices(a.stderr, pricing, []sessionView{*v})
	return err
}

// labelText writes labels in the form of TRIBUTARY_LABELS.
func labelText(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ",")
}

// titleSources describes the sources of titles for people.
var titleSources = map[sessions.TitleSource]string{
	sessions.TitleOfVendor: "the vendor",
	sessions.TitleOfAgent:  "the agent, in a summary",
	sessions.TitleOfPrompt: "nobody: made from the first prompt",

	sessions.TitleSource(titles.SourceManual):   "a user",
	sessions.TitleSource(titles.SourceAuto):     "a model",
	sessions.TitleSource(titles.SourceFallback): "a program, from the first prompt",
}

// modelTable lists the tokens of a session by model, and their cost.
func modelTable(v *sessionView, pricing *figures.Pricing) *terminal.Table {
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
	used := v.usage()
	for _, m := range v.Models {
		t.Rows = append(t.Rows, []string{
			terminal.OrDash(m.Model), terminal.Thousands(m.Input), terminal.Thousands(m.CacheRead), terminal.Thousands(m.CacheWrite), terminal.Thousands(m.Output), terminal.Thousands(m.Reasoning), terminal.Thousands(m.Total),
			pricing.Cost(map[string]*sessions.Billed{m.Model: used[m.Model]}).Text(),
		})
	}
	return t
}

// toolTable lists the calls of a session by tool.
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
