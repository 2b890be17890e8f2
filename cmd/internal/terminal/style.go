package terminal

import (
	"regexp"
	"strings"
)

// Style is the parameter of the escape sequence that styles text.
type Style string

// The styles of this program.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"

	Matched Style = "1;7" // matches of an expression
)

// Of returns a text in the style.
func (s Style) Of(text string) string {
	if s == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Mark returns a plain line in a style, with the matches of match, which may be nil, in [Matched].
func Mark(line string, match *regexp.Regexp, s Style) string {
	if match == nil {
		return s.Of(line)
	}
	var b strings.Builder
	end := 0
	for _, m := range match.FindAllStringIndex(line, -1) {
		b.WriteString(s.Of(line[end:m[0]]) + Matched.Of(line[m[0]:m[1]]))
		end = m[1]
	}
	return b.String() + s.Of(line[end:])
}
