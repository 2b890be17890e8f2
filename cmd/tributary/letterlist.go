package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/pipeline/events"
)

// letterList prints dead letters line by line, as a table or as JSON.
type letterList struct {
	*printer
	json   io.Writer // nil for a table
	headed bool      // the heading of the table is printed
}

func (a *app) newLetterList(asJSON bool) *letterList {
	t := &letterList{printer: a.newPrinter()}
	if !terminal.IsTerminal(a.stdout) {
		t.width = math.MaxInt // other programs get whole lines
	}
	if asJSON {
		t.json = a.stdout
	}
	return t
}

// row prints a row of the table, below its heading.
func (t *letterList) row(heading, row string) error {
	if !t.headed {
		t.headed = true
		if _, err := fmt.Fprintln(t.w, t.fit(t.style(terminal.Bold, heading))); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(t.w, t.fit(strings.TrimRight(row, " ")))
	return err
}

// letter prints a dead letter.
func (t *letterList) letter(l *events.DeadLetter) error {
	if t.json != nil {
		return terminal.WriteJSON(t.json, toJSON(l, nil))
	}
	return t.row(t.letterRow("SEQUENCE", "STATUS", "SINCE", "AGENT", "REASON", "SIZE", "SESSION", "ERROR"),
		t.letterRow(strconv.FormatUint(l.Sequence, 10), string(l.Standing), terminal.DateTime(l.Stored), terminal.OneLine(string(l.Source)),
			terminal.OneLine(l.Reason), terminal.Size(l.RecordSize()), terminal.OneLine(l.Session), terminal.OneLine(l.Error)))
}

// The widths of terminals from which the table of dead letters has more.
const (
	withSince   = 110 // columns: when the dead letter was stored
	withSession = 150 // columns: the whole session id
)

// letterRow lays out a row: on a narrow terminal it leaves room for the error.
func (t *letterList) letterRow(sequence, status, since, source, reason, size, session, text string) string {
	row := fmt.Sprintf("%9s  %-9s  ", sequence, status)
	if t.width >= withSince {
		row += fmt.Sprintf("%-19s  ", since)
	}
	if idWidth := 36; t.width >= withSession {
		session = terminal.Pad(session, idWidth)
	} else {
		session = terminal.Pad(terminal.Truncate(session, terminal.ShortID, ""), terminal.ShortID)
	}
	return row + fmt.Sprintf("%-11s  %-13s  %8s  %s  %s", source, reason, size, session, text)
}

// group prints the counts of a group.
func (t *letterList) group(c *letterCount) error {
	if t.json != nil {
		return terminal.WriteJSON(t.json, c)
	}
	const columns = "%9s  %-15s  %-11s  %10s  %-19s  %-19s  %s"
	return t.row(fmt.Sprintf(columns, "RECORDS", "REASON", "AGENT", "SIZE", "FIRST", "LAST", "EXAMPLE"),
		fmt.Sprintf(columns, terminal.Thousands(int64(c.Records)), terminal.OneLine(c.Reason), terminal.OneLine(string(c.Source)), terminal.Size(c.Bytes),
			terminal.DateTime(c.First), terminal.DateTime(c.Last), strconv.FormatUint(c.Example, 10)))
}

// letterGroup is the key by which dead letters are counted.
type letterGroup struct {
	reason string
	source envelopes.Source
}

// letterCount is the count of a group.
type letterCount struct {
	Reason  string           `json:"reason"`
	Source  envelopes.Source `json:"source"`
	Records int              `json:"records"`
	Bytes   int64            `json:"bytes"`
	First   time.Time        `json:"first"` // when the first one was stored
	Last    time.Time        `json:"last"`
	Example uint64           `json:"example"` // sequence of the newest
}

// letterCounts counts dead letters by reason and source.
type letterCounts map[letterGroup]*letterCount

func (counts letterCounts) add(l *events.DeadLetter) {
	key := letterGroup{l.Reason, l.Source}
	c := counts[key]
	if c == nil {
		c = &letterCount{Reason: l.Reason, Source: l.Source, First: l.Stored}
		counts[key] = c
	}
	c.Records++
	c.Bytes += l.RecordSize()
	c.Last, c.Example = l.Stored, l.Sequence
}

// sorted returns the counts, the largest first.
func (counts letterCounts) sorted() []*letterCount {
	return slices.SortedFunc(maps.Values(counts), func(a, b *letterCount) int {
		return cmp.Or(b.Records-a.Records, strings.Compare(a.Reason, b.Reason), strings.Compare(string(a.Source), string(b.Source)))
	})
}
