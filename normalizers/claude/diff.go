package claude

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Limits of a comparison. Larger texts are not compared.
const (
	maxDiffBytes = 8 << 20 // of each text
	maxDiffLines = 100_000 // of each text
	maxDiffSteps = 1 << 26 // a few tenths of a second
	diffContext  = 3       // lines around a change
)

// unifiedDiff returns the unified diff of a file before and after an edit, with the same bytes as Python's
// difflib.unified_diff with its defaults: the lines a/name and b/name, then hunks with three lines of context. A last
// line without an end gets one. The diff of equal texts is empty. It returns false for texts that are too large to
// compare in bounded time and memory; this depends only on the texts.
func unifiedDiff(name string, e fileEdit) (diff string, ok bool) {
	a, b, ok := e.lines()
	if !ok {
		return "", false
	}
	m := matchers.Get().(*lineMatcher)
	defer m.free()
	m.number(a, b)
	blocks, ok := m.blocks()
	if !ok {
		return "", false
	}
	changes := changesBetween(blocks, len(a), len(b))
	if len(changes) == 0 {
		return "", true
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- a/%s\n+++ b/%s\n", name, name)
	for end := 0; len(changes) > 0; { // end of the last change in a
		n := 1
		for n < len(changes) && changes[n].a1-changes[n-1].a2 <= 2*diffContext {
			n++
		}
		next := len(a)
		if n < len(changes) {
			next = changes[n].a1
		}
		lead := min(diffContext, changes[0].a1-end)
		end = changes[n-1].a2
		writeHunk(&out, a, b, changes[:n], lead, min(diffContext, next-end))
		changes = changes[n:]
	}
	return out.String(), true
}

// lineChange is a change of the lines a[a1:a2] to b[b1:b2].
type lineChange struct{ a1, a2, b1, b2 int }

// changesBetween returns the gaps between blocks of equal lines.
func changesBetween(blocks []lineBlock, lenA, lenB int) []lineChange {
	var changes []lineChange
	i, j := 0, 0
	for _, m := range append(blocks, lineBlock{lenA, lenB, 0}) {
		if i < m.a || j < m.b {
			changes = append(changes, lineChange{i, m.a, j, m.b})
		}
		i, j = m.a+m.n, m.b+m.n
	}
	return changes
}

// writeHunk writes neighboring changes, with lead equal lines before them and tail equal lines after them.
func writeHunk(out *strings.Builder, a, b []string, changes []lineChange, lead, tail int) {
	lines := func(prefix byte, lines []string) {
		for _, l := range lines {
			out.WriteByte(prefix)
			out.WriteString(l)
		}
	}
	first, last := changes[0], changes[len(changes)-1]
	fmt.Fprintf(out, "@@ -%s +%s @@\n",
		hunkRange(first.a1-lead, last.a2+tail), hunkRange(first.b1-lead, last.b2+tail))
	from := first.a1 - lead
	for _, c := range changes {
		lines(' ', a[from:c.a1])
		lines('-', a[c.a1:c.a2])
		lines('+', b[c.b1:c.b2])
		from = c.a2
	}
	lines(' ', a[from:from+tail])
}

// hunkRange formats a half-open range of lines for the header of a hunk.
func hunkRange(from, to int) string {
	switch n := to - from; n {
	case 0:
		return fmt.Sprintf("%d,0", from) // the line before an empty range
	case 1:
		return strconv.Itoa(from + 1)
	default:
		return fmt.Sprintf("%d,%d", from+1, n)
	}
}

// lines splits the file before and after the edit into lines. It returns false if they are too large.
func (e *fileEdit) lines() (a, b []string, ok bool) {
	if len(e.before) > maxDiffBytes || len(e.after) > maxDiffBytes {
		return nil, nil, false
	}
	room := strings.Count(e.before, "\n") + 1
	changed := e.after[e.head : len(e.after)-e.tail]
	if !onlyFeeds(e.before) || !onlyFeeds(changed) {
		a, b = appendLines(nil, e.before, lineLen), appendLines(nil, e.after, lineLen)
		return a, b, len(a) <= maxDiffLines && len(b) <= maxDiffLines
	}
	if a = appendLines(make([]string, 0, min(room, maxDiffLines)), e.before, feedLen); len(a) > maxDiffLines {
		return nil, nil, false
	}
	// The lines that end in the head, and those that begin after a line of the tail, are equal.
	from, to := strings.LastIndexByte(e.before[:e.head], '\n')+1, len(e.after)
	first := strings.Count(e.before[:from], "\n")
	last := len(a)
	if n := strings.IndexByte(e.after[len(e.after)-e.tail:], '\n'); n >= 0 {
		to = len(e.after) - e.tail + n + 1
		last -= lineCount(e.after[to:])
	}
	b = append(make([]string, 0, min(room+strings.Count(changed, "\n"), maxDiffLines)), a[:first]...)
	b = append(appendLines(b, e.after[from:to], feedLen), a[last:]...)
	return a, b, len(b) <= maxDiffLines
}

// lineCount returns the number of lines that end with a line feed, plus the one after them.
func lineCount(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

// appendLines appends the lines of a text, split like Python's str.splitlines. The lines keep their ends; the last
// one gets one if it has none. It stops when there are too many.
func appendLines(lines []string, s string, length func(string) int) []string {
	if s == "" {
		return lines
	}
	for len(s) > 0 && len(lines) <= maxDiffLines {
		n := length(s)
		lines = append(lines, s[:n])
		s = s[n:]
	}
	if n := len(lines); !strings.HasSuffix(lines[n-1], "\n") {
		lines[n-1] += "\n"
	}
	return lines
}

// onlyFeeds reports whether line feeds are the only line ends of a text.
func onlyFeeds(s string) bool {
	for _, end := range [...]string{"\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\u0085", "\u2028", "\u2029"} {
		// Few texts have the first byte of the longer ones, and one byte is found much faster.
		if i := strings.IndexByte(s, end[0]); i >= 0 && strings.Contains(s[i:], end) {
			return false
		}
	}
	return true
}

// feedLen is [lineLen] for a text whose only line ends are line feeds.
func feedLen(s string) int {
	if n := strings.IndexByte(s, '\n'); n >= 0 {
		return n + 1
	}
	return len(s)
}

// lineLen returns the length of the first line of a text, its end included.
func lineLen(s string) int {
	for i, r := range s {
		switch r {
		case '\n', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
			return i + utf8.RuneLen(r)
		case '\r':
			if strings.HasPrefix(s[i+1:], "\n") {
				i++
			}
			return i + 1
		}
	}
	return len(s)
}

// lineBlock is a block of n equal lines, at a in the first text and at b in the second.
type lineBlock struct{ a, b, n int }

// lineMatcher finds the equal lines of two texts like difflib.SequenceMatcher: the longest block of equal lines,
// then, recursively, those on both sides of it. In a text of 200 lines or more, a line that makes up over one percent
// of it starts no block.
type lineMatcher struct {
	a, b    []int32          // lines by number; -1 for a line of a that is not in b
	numbers map[string]int32 // numbers of the lines of b
	places  [][]int32        // by number, indices of the line in b, in order; none for a frequent line
	listed  []int32          // memory of places
	steps   int              // remaining steps; the search ends below zero

	// Lengths of the blocks that end at a line of a and at each line of b, shifted by one: for the current line of a,
	// and for the line before.
	ends, before []lineEnd
	row          int32 // number of the current line of a, counted across all searches
}

// lineEnd is the length of a block that ends in a row. In any other row it is invalid.
type lineEnd struct{ row, n int32 }

// matchers is a pool: a matcher takes some fifty bytes per line, and most files have hundreds of lines.
var matchers = sync.Pool{New: func() any { return &lineMatcher{numbers: make(map[string]int32)} }}

// maxPooledLines is the maximum number of lines of a text whose matcher is pooled.
const maxPooledLines = 10_000

// free returns the matcher to the pool, without the texts.
func (m *lineMatcher) free() {
	if max(cap(m.a), cap(m.b)) <= maxPooledLines {
		clear(m.numbers)
		matchers.Put(m)
	}
}

// number numbers the lines of two texts.
func (m *lineMatcher) number(a, b []string) {
	m.a, m.b = resize(m.a, len(a)), resize(m.b, len(b))
	m.ends, m.before = resize(m.ends, len(b)+1), resize(m.before, len(b)+1)
	clear(m.ends)
	clear(m.before)
	m.steps, m.row = maxDiffSteps, 0
	for j, line := range b {
		n, ok := m.numbers[line]
		if !ok {
			n = int32(len(m.numbers))
			m.numbers[line] = n
		}
		m.b[j] = n
	}
	m.place()
	for i, line := range a {
		if i < len(b) && line == b[i] { // true for most lines of a file
			m.a[i] = m.b[i]
			continue
		}
		if j := i + len(b) - len(a); j >= 0 && line == b[j] {
			m.a[i] = m.b[j]
			continue
		}
		n, ok := m.numbers[line]
		if !ok {
			n = -1
		}
		m.a[i] = n
	}
}

// resize returns a slice of n elements, in the memory of s where it is large enough.
func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// place finds the places of the lines of b.
func (m *lineMatcher) place() {
	m.places, m.listed = resize(m.places, len(m.numbers)), resize(m.listed, len(m.b))
	counts := m.before[:len(m.numbers)] // not in use yet
	for _, n := range m.b {
		counts[n].n++
	}
	rest := m.listed // of all numbers, each in its part
	for n := range m.places {
		count := counts[n].n
		m.places[n], rest = rest[:0:count], rest[count:]
	}
	clear(counts)
	for j, n := range m.b {
		m.places[n] = append(m.places[n], int32(j))
	}
	if frequent := len(m.b)/100 + 1; len(m.b) >= 200 {
		for n, places := range m.places {
			if len(places) > frequent {
				m.places[n] = nil
			}
		}
	}
}

// blocks returns the blocks of equal lines in order; false if the search takes too many steps.
func (m *lineMatcher) blocks() ([]lineBlock, bool) {
	type area struct{ a1, a2, b1, b2 int }
	var found []lineBlock
	for open := []area{{0, len(m.a), 0, len(m.b)}}; len(open) > 0; {
		in := open[len(open)-1]
		open = open[:len(open)-1]
		l := m.longest(in.a1, in.a2, in.b1, in.b2)
		if m.steps < 0 {
			return nil, false
		}
		if l.n == 0 {
			continue
		}
		found = append(found, l)
		if in.a1 < l.a && in.b1 < l.b {
			open = append(open, area{in.a1, l.a, in.b1, l.b})
		}
		if l.a+l.n < in.a2 && l.b+l.n < in.b2 {
			open = append(open, area{l.a + l.n, in.a2, l.b + l.n, in.b2})
		}
	}
	slices.SortFunc(found, func(x, y lineBlock) int { return x.a - y.a })
	return found, true
}

// longest returns the longest block within a[a1:a2] and b[b1:b2]; of several the first one in a, then in b. Without
// remaining steps it ends early, with any block.
func (m *lineMatcher) longest(a1, a2, b1, b2 int) lineBlock {
	best := lineBlock{a1, b1, 0}
	m.row++ // blocks of earlier searches do not continue
	for i := a1; i < a2 && m.steps >= 0; i++ {
		m.row++
		m.steps--
		longest := 0 // of those that end here
		for _, j := range m.placesFrom(m.a[i], b1) {
			if int(j) >= b2 {
				break
			}
			m.steps--
			n := int32(1)
			if e := m.before[j]; e.row == m.row-1 {
				n += e.n
			}
			m.ends[j+1] = lineEnd{m.row, n}
			longest = max(longest, int(n))
			if int(n) > best.n {
				best = lineBlock{i - int(n) + 1, int(j) - int(n) + 1, int(n)}
			}
		}
		if longest+a2-i-1 <= best.n {
			break // no longer block can follow
		}
		m.ends, m.before = m.before, m.ends
	}
	// Frequent lines start no block, but may extend one.
	for best.a > a1 && best.b > b1 && m.a[best.a-1] == m.b[best.b-1] {
		best.a, best.b, best.n = best.a-1, best.b-1, best.n+1
	}
	for best.a+best.n < a2 && best.b+best.n < b2 && m.a[best.a+best.n] == m.b[best.b+best.n] {
		best.n++
	}
	return best
}

// placesFrom returns the indices of a line in b, from b1 on.
func (m *lineMatcher) placesFrom(line int32, b1 int) []int32 {
	if line < 0 {
		return nil
	}
	places := m.places[line]
	from, _ := slices.BinarySearch(places, int32(b1))
	return places[from:]
}
