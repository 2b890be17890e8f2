package main

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
)

// column is a column of the table of the sessions.
type column struct {
	title string
	right bool // aligned to the right
	id    bool // a part of a cell is good enough
	most  int  // the widest that it gets; 0 for no limit
	cells []string
	width int
}

// The columns of the table, from left to right.
const (
	columnSession = iota
	columnAgent
	columnTitle
	columnProject
	columnModel
	columnEvents
	columnTokens
	columnDuration
	columnUnread
)

// shrinking lists in which order columns give way on a narrow terminal, and to which width. The
// agent is left out, because the model suggests it.
var shrinking = []struct{ column, least int }{
	{columnTitle, 36},
	{columnModel, 18},
	{columnProject, 12},
	{columnTitle, 24},
	{columnAgent, 0},
	{columnModel, 12},
	{columnProject, 8},
	{columnTitle, 16},
	{columnSession, shortID},
	{columnModel, 8},
	{columnTitle, 8},
}

// table writes a line for each session, in the order of their first events, and their total.
func (s *summary) table(b *bytes.Buffer, p *printer) {
	list := [...]column{
		columnSession: {title: "SESSION", id: true}, columnAgent: {title: "AGENT"},
		columnTitle: {title: "TITLE", most: 60}, columnProject: {title: "PROJECT", most: 30}, columnModel: {title: "MODEL", most: 30},
		columnEvents: {title: "EVENTS", right: true}, columnTokens: {title: "TOKENS", right: true}, columnDuration: {title: "DURATION", right: true},
		columnUnread: {title: "UNREAD", right: true},
	}
	add := func(cells ...string) {
		for i, cell := range cells {
			c := &list[i]
			if c.most > 0 {
				cell = cut(cell, c.most)
			}
			c.cells = append(c.cells, cell)
			c.width = max(c.width, terminalWidth.String(cell), len(c.title))
		}
	}
	keys := s.byStart()
	idWidth := distinct(keys)
	for _, key := range keys {
		of := s.sessions[key]
		duration := ""
		if !of.first.IsZero() {
			duration = span(of.last.Sub(of.first))
		}
		add(oneLine(strings.ToValidUTF8(key.id[:min(len(key.id), idWidth)], "")), oneLine(string(key.source)), of.title(), oneLine(baseName(of.project)), oneLine(of.model()),
			thousands(int64(of.count())), count(of.usage.Total()), duration, thousands(int64(of.unread)))
	}
	total := s.total()
	add("TOTAL", "", plural(len(keys), "session"), "", "", thousands(int64(total.count())), count(total.usage.Total()), "", thousands(int64(total.unread)))
	if total.unread == 0 {
		list[columnUnread].width = 0
	}
	shrink(list[:], p.width)
	for i := -1; i < len(list[0].cells); i++ {
		var cells []string
		for _, c := range list {
			if c.width > 0 {
				cells = append(cells, c.cell(i))
			}
		}
		line := strings.TrimRight(strings.Join(cells, "  "), " ")
		if i < 0 || i == len(keys) {
			line = p.style(bold, line)
		}
		b.WriteString(line + "\n")
	}
}

// cell is a cell in the width of its column; -1 is the title.
func (c *column) cell(i int) string {
	text, width := c.title, c.width
	if i >= 0 {
		text = c.cells[i]
	}
	if c.right {
		width = -width
	}
	if !c.id {
		text = cut(text, c.width)
	}
	return pad(terminalWidth.TruncateString(text, c.width, ""), width)
}

// shrink makes columns narrower until the table has a width, if it can.
func shrink(list []column, width int) {
	over := -2 - width
	for _, c := range list {
		if c.width > 0 {
			over += c.width + 2
		}
	}
	for _, step := range shrinking {
		c := &list[step.column]
		if over <= 0 || c.width <= step.least {
			continue
		}
		less := min(over, c.width-step.least)
		if step.least == 0 { // a column that is left out needs no gap
			less = c.width
			over -= 2
		}
		c.width -= less
		over -= less
	}
	// What was left out may have made more room than is needed.
	if over < 0 {
		c := &list[columnTitle]
		widest := len(c.title)
		for _, cell := range c.cells {
			widest = max(widest, terminalWidth.String(cell))
		}
		c.width = min(widest, c.width-over)
	}
}

// byStart lists the sessions in the order of their first events.
func (s *summary) byStart() []sessionKey {
	return slices.SortedFunc(maps.Keys(s.sessions), func(a, b sessionKey) int {
		return cmp.Or(s.sessions[a].first.Compare(s.sessions[b].first), cmp.Compare(a.source, b.source), cmp.Compare(a.id, b.id))
	})
}

// How many bytes of an id are shown, at least and at most.
const (
	shortID = 8
	longID  = 13 // the time of a UUID of version 7
)

// distinct returns how many bytes of their ids distinguish sessions, if so many can be shown.
func distinct(keys []sessionKey) int {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = key.id
	}
	slices.Sort(ids)
	n := shortID
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] {
			continue
		}
		same := 0
		for same < len(ids[i-1]) && ids[i][same] == ids[i-1][same] {
			same++
		}
		n = max(n, same+1)
	}
	return min(n, longID)
}

// baseName is the last element of a path of any system.
func baseName(path string) string {
	path = strings.TrimRight(path, `/\`)
	return path[strings.LastIndexAny(path, `/\`)+1:]
}

// count writes a number; 0 is empty, because it is unknown.
func count(n int64) string {
	if n == 0 {
		return ""
	}
	return thousands(n)
}
