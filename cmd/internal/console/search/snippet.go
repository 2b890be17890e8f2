package search

import (
	"strings"
	"unicode/utf8"

	"tributary/cmd/internal/terminal"
)

// Lengths of snippets, in columns.
const (
	beforeWidth  = 60  // before the first match
	snippetWidth = 240 // of a snippet
	maxMatch     = 120 // of one match
)

// maxSnippets limits the snippets of a hit.
const maxSnippets = 3

// Snippet is a part of a text around matches, on one line and safe to show.
type Snippet struct {
	Place Place
	Parts []Part
}

// Part is a part of a snippet.
type Part struct {
	Text   string
	Marked bool // it matches
}

// snippet returns the part of a text around the first match of a term, with all matches in it marked, and the end of
// the last of these matches.
func (t *Terms) snippet(place Place, text string, first []int) (s Snippet, shown int) {
	s.Place = place
	left := snippetWidth
	add := func(text string, marked bool) {
		if text != "" {
			s.Parts = append(s.Parts, Part{text, marked})
			left -= terminal.WidthOf(text)
		}
	}
	add(lastWords(text[:first[0]], beforeWidth), false)
	for match := first; ; {
		matched := text[match[0]:match[1]]
		line := terminal.Cut(oneLine(clip(matched, maxMatch)), maxMatch)
		if len(matched) > 4*maxMatch && !strings.HasSuffix(line, "…") {
			line += "…"
		}
		add(line, true)
		shown = match[1]
		rest := clip(text[match[1]:], left)
		if left <= 0 {
			break
		}
		next := t.any.FindStringIndex(rest)
		if next == nil || terminal.WidthOf(oneLine(rest[:next[1]])) > left {
			end := terminal.Cut(oneLine(rest), left)
			if len(rest) < len(text)-match[1] && !strings.HasSuffix(end, "…") {
				end += "…"
			}
			add(end, false)
			break
		}
		add(oneLine(rest[:next[0]]), false)
		match = []int{match[1] + next[0], match[1] + next[1]}
	}
	return s, shown
}

// clip returns a beginning of a text that is at least width columns wide, or the whole text: a character takes up to
// four bytes.
func clip(text string, width int) string {
	n := 4 * max(width, 0)
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// lastWords returns the end of a text, at most width columns wide, from the beginning of a word if possible.
func lastWords(text string, width int) string {
	begin := max(0, len(text)-4*width)
	for begin < len(text) && !utf8.RuneStart(text[begin]) {
		begin++
	}
	cut := begin > 0
	line := oneLine(text[begin:])
	for terminal.WidthOf(line) > width {
		cut = true
		if space := strings.IndexByte(line[1:], ' '); space >= 0 && terminal.WidthOf(line[space+2:]) > width/3 {
			line = line[space+2:]
			continue
		}
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
	}
	if cut {
		line = "…" + line
	}
	return line
}

// oneLine returns a part of a text on one line. It keeps a space at both ends if other parts follow there.
func oneLine(text string) string {
	text = terminal.Printable(text)
	line := strings.Join(strings.Fields(text), " ")
	if line == "" {
		if text != "" {
			return " "
		}
		return ""
	}
	if !strings.HasPrefix(text, line[:1]) {
		line = " " + line
	}
	if !strings.HasSuffix(text, line[len(line)-1:]) {
		line += " "
	}
	return line
}
