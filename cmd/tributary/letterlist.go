package main

import (
	"io"
	"strconv"

	"tributary/cmd/internal/letters"
	"tributary/cmd/internal/terminal"
	"tributary/pipeline/events"
)

// letterList prints dead letters line by line, as a table or as JSON.
type letterList struct {
	json         io.Writer       // nil for a table
	wide, narrow bool            // which columns the terminal has room for
	letters      *terminal.Lines // of dead letters
	groups       *terminal.Lines
}

// The widths of a terminal from which the table of dead letters has further columns.
const (
	withSince   = 110 // columns: when the dead letter was stored
	withSession = 150 // columns: the whole session id
)

// newLetterList returns a list that writes to standard output, in whole lines for other programs.
func newLetterList(a *app, asJSON bool) *letterList {
	if asJSON {
		return &letterList{json: a.stdout}
	}
	p := a.printer()
	width := terminal.TableWidth(a.stdout)
	bold := func(line string) string { return p.Style(terminal.Bold, line) }
	list := &letterList{wide: width >= withSession, narrow: width < withSince}
	columns := []terminal.Column{{Head: "SEQUENCE", Width: 9, Right: true}, {Head: "STATUS", Width: 9}}
	if !list.narrow {
		columns = append(columns, terminal.Column{Head: "SINCE", Width: 19})
	}
	session := terminal.Column{Head: "SESSION", Width: terminal.ShortID}
	if list.wide {
		session.Width = 36
	}
	columns = append(columns, terminal.Column{Head: "AGENT", Width: 11}, terminal.Column{Head: "REASON", Width: 13},
		terminal.Column{Head: "SIZE", Width: 8, Right: true}, session, terminal.Column{Head: "ERROR"})
	list.letters = terminal.NewLines(p, width, bold, columns...)
	list.groups = terminal.NewLines(p, width, bold, []terminal.Column{
		{Head: "RECORDS", Width: 9, Right: true},
		{Head: "REASON", Width: 15},
		{Head: "AGENT", Width: 11},
		{Head: "SIZE", Width: 10, Right: true},
		{Head: "FIRST", Width: 19},
		{Head: "LAST", Width: 19},
		{Head: "EXAMPLE"},
	}...)
	return list
}

// letter prints a dead letter.
func (t *letterList) letter(l *events.DeadLetter) error {
	if t.json != nil {
		return terminal.WriteJSON(t.json, toJSON(l, nil))
	}
	row := []string{strconv.FormatUint(l.Sequence, 10), string(l.Standing)}
	if !t.narrow {
		row = append(row, terminal.DateTime(l.Stored))
	}
	session := terminal.OneLine(l.Session)
	if !t.wide {
		session = terminal.Truncate(session, terminal.ShortID, "")
	}
	return t.letters.Add(append(row, terminal.OneLine(string(l.Source)), terminal.OneLine(l.Reason), terminal.Size(l.RecordSize()), session, terminal.OneLine(l.Error))...)
}

// group prints the counts of a group.
func (t *letterList) group(c *letters.Count) error {
	if t.json != nil {
		return terminal.WriteJSON(t.json, c)
	}
	return t.groups.Add(terminal.Thousands(int64(c.Records)), terminal.OneLine(c.Reason), terminal.OneLine(string(c.Source)), terminal.Size(c.Bytes),
		terminal.DateTime(c.First), terminal.DateTime(c.Last), strconv.FormatUint(c.Example, 10))
}
