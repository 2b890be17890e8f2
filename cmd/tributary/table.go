package main

import (
	"fmt"
	"io"
	"strings"
)

// tableColumn is a column of a table.
type tableColumn struct {
	head  string
	right bool // a number
	text  bool // can be cut, down to minText
	keep  int  // how important it is: columns with the lowest are left out first; 0 is never left out
}

// minText is the width to which a column of text is cut before other columns are left out.
const minText = 12

// table is a table for people.
type table struct {
	columns []tableColumn
	rows    [][]string
	foot    []string                 // a last row, of sums; nil for none
	style   func(line string) string // of the heading and the foot; nil for none
}

// write prints the table with lines of at most width characters: columns of text are cut, then
// the least important columns left out. A table without rows has no heading either.
func (t *table) write(w io.Writer, width int) error {
	if len(t.rows) == 0 {
		return nil
	}
	widths := t.widths()
	shown := make([]bool, len(t.columns))
	for i := range shown {
		shown[i] = true
	}
	for !t.fit(widths, shown, width) {
		last := t.leastImportant(shown)
		if last < 0 {
			break
		}
		shown[last] = false
		widths = t.widths()
	}
	heads := make([]string, len(t.columns))
	for i, c := range t.columns {
		heads[i] = c.head
	}
	lines := append([][]string{heads}, t.rows...)
	if t.foot != nil {
		lines = append(lines, t.foot)
	}
	for i, cells := range lines {
		line := t.line(cells, widths, shown)
		if t.style != nil && (i == 0 || i > len(t.rows)) {
			line = t.style(line)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// widths returns the width of each column.
func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = terminalWidth.String(c.head)
	}
	for _, row := range append(t.rows, t.foot) {
		for i, cell := range row {
			widths[i] = max(widths[i], terminalWidth.String(cell))
		}
	}
	return widths
}

// gap is the space between columns.
const gap = 2

// fit cuts the columns of text, the widest first, and reports whether the table then fits.
func (t *table) fit(widths []int, shown []bool, width int) bool {
	for {
		total, widest := -gap, -1
		for i, c := range t.columns {
			if !shown[i] {
				continue
			}
			total += widths[i] + gap
			if c.text && widths[i] > minText && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if total <= width {
			return true
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
}

// leastImportant returns the column to leave out next, -1 for none.
func (t *table) leastImportant(shown []bool) int {
	last := -1
	for i, c := range t.columns {
		if shown[i] && c.keep > 0 && (last < 0 || c.keep < t.columns[last].keep) {
			last = i
		}
	}
	return last
}

// line returns a line of the table.
func (t *table) line(cells []string, widths []int, shown []bool) string {
	var b strings.Builder
	for i, c := range t.columns {
		if !shown[i] {
			continue
		}
		cell := terminalWidth.TruncateString(cells[i], widths[i], "…")
		space := strings.Repeat(" ", widths[i]-terminalWidth.String(cell))
		if b.Len() > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		if c.right {
			b.WriteString(space + cell)
		} else {
			b.WriteString(cell + space)
		}
	}
	return strings.TrimRight(b.String(), " ")
}
