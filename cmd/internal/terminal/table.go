package terminal

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Column is a column of a table.
type Column struct {
	Head     string
	Right    bool // align to the right, for numbers
	Text     bool // may be cut, down to Least
	Path     bool // a text cut at its beginning: its last elements stay
	Wrap     bool // may wrap, down to minWrap
	Width    int  // the least width
	Least    int  // the least width of a cut text before other columns are left out; 0 for minText
	Priority int  // the lowest is left out first if lines are too narrow; 0: never
}

// minText is the default of Column.Least.
const minText = 12

// minWrap is the least width of a wrapped column.
const minWrap = 20

// gap is the space between columns.
const gap = 2

// Table is a table for people. A table whose columns have no heads is a list of names and values.
type Table struct {
	Columns []Column
	Rows    [][]string
	Foot    []string                 // a last row, of sums; nil for none
	Style   func(line string) string // of the heading and the foot; nil for none
}

// NewTable returns a table whose columns are never cut and never left out.
func NewTable(heads ...string) *Table {
	t := &Table{}
	for _, head := range heads {
		t.Columns = append(t.Columns, Column{Head: head})
	}
	return t
}

// Add adds a row, which has a value for each column.
func (t *Table) Add(values ...string) { t.Rows = append(t.Rows, values) }

// Write prints the table with lines of at most width columns: it wraps columns, then cuts columns of text, then
// leaves out the columns of lowest priority. It prints nothing for a table without rows.
func (t *Table) Write(w io.Writer, width int) error {
	if len(t.Rows) == 0 {
		return nil
	}
	columns, rows, widths := t.fitting(width)
	for i, values := range rows {
		if i == 0 && !headed(columns) {
			continue
		}
		for _, values := range wrapRow(columns, values, widths) {
			line := layOut(columns, values, widths)
			if t.Style != nil && (i == 0 || i > len(t.Rows)) {
				line = t.Style(line)
			}
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrapRow returns the lines of a row after wrapping its columns.
func wrapRow(columns []Column, values []string, widths []int) [][]string {
	lines := [][]string{values}
	for i, c := range columns {
		if !c.Wrap || WidthOf(values[i]) <= widths[i] {
			continue
		}
		parts := Wrap(values[i], widths[i], 0)
		for len(lines) < len(parts) {
			lines = append(lines, make([]string, len(columns)))
		}
		lines[0] = slices.Clone(lines[0])
		for n, part := range parts {
			lines[n][i] = part
		}
	}
	return lines
}

// fitting returns the columns that fit a width, their values in the heading, each row and the foot, and their widths.
func (t *Table) fitting(width int) (columns []Column, rows [][]string, widths []int) {
	columns = slices.Clone(t.Columns)
	rows = append(rows, heads(columns))
	for _, row := range t.Rows {
		rows = append(rows, slices.Clone(row))
	}
	if t.Foot != nil {
		rows = append(rows, slices.Clone(t.Foot))
	}
	for {
		widths = widest(columns, rows)
		if fit(columns, widths, width) {
			return columns, rows, widths
		}
		least := leastImportant(columns)
		if least < 0 {
			return columns, rows, widths
		}
		columns = slices.Delete(columns, least, least+1)
		for i, row := range rows {
			rows[i] = slices.Delete(row, least, least+1)
		}
	}
}

// Lines prints the rows of a table one by one, for tables that are too long to wait for. Its columns have fixed
// widths: a wider value moves those after it, and a line is cut at its end.
type Lines struct {
	w       io.Writer
	columns []Column
	width   int
	style   func(line string) string
	begun   bool // the heading was printed
}

// NewLines returns a table on w with lines of at most width columns. style is for the heading; nil for none.
func NewLines(w io.Writer, width int, style func(line string) string, columns ...Column) *Lines {
	return &Lines{w: w, columns: columns, width: width, style: style}
}

// Add prints a row, which has a value for each column. The heading comes first, if any column has a head.
func (l *Lines) Add(values ...string) error {
	if !l.begun {
		l.begun = true
		if headed(l.columns) {
			if err := l.print(heads(l.columns), l.style); err != nil {
				return err
			}
		}
	}
	return l.print(values, nil)
}

// print prints a line.
func (l *Lines) print(values []string, style func(string) string) error {
	line := layOut(l.columns, values, widest(l.columns, [][]string{values}))
	if style != nil {
		line = style(line)
	}
	_, err := fmt.Fprintln(l.w, Cut(line, l.width))
	return err
}

// heads returns the heads of columns.
func heads(columns []Column) []string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.Head
	}
	return list
}

// headed reports whether any column has a head.
func headed(columns []Column) bool {
	return slices.ContainsFunc(columns, func(c Column) bool { return c.Head != "" })
}

// widest returns the width of each column.
func widest(columns []Column, rows [][]string) []int {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = c.Width
		for _, row := range rows {
			widths[i] = max(widths[i], WidthOf(row[i]))
		}
	}
	return widths
}

// fit narrows wrapped columns, then columns of text, the widest first. It reports whether a line fits then.
func fit(columns []Column, widths []int, width int) bool {
	total := -gap
	for _, w := range widths {
		total += w + gap
	}
	for ; total > width; total-- {
		widest := -1
		for i, c := range columns {
			narrower := c.Wrap && widths[i] > minWrap || c.Text && widths[i] > cmp.Or(c.Least, minText)
			if narrower && (widest < 0 || c.Wrap && !columns[widest].Wrap || c.Wrap == columns[widest].Wrap && widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

// leastImportant returns the column to leave out next, -1 for none.
func leastImportant(columns []Column) int {
	least := -1
	for i, c := range columns {
		if c.Priority > 0 && (least < 0 || c.Priority < columns[least].Priority) {
			least = i
		}
	}
	return least
}

// layOut writes the line of a row.
func layOut(columns []Column, values []string, widths []int) string {
	var b strings.Builder
	for i, c := range columns {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		value := Truncate(values[i], widths[i], "…")
		if c.Path {
			value = CutPath(values[i], widths[i])
		}
		if c.Right {
			b.WriteString(Pad(value, -widths[i]))
		} else {
			b.WriteString(Pad(value, widths[i]))
		}
	}
	return strings.TrimRight(b.String(), " ")
}
