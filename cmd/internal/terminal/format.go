package terminal

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// Thousands writes a number with commas between thousands.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := len(s) - len(strings.TrimPrefix(s, "-")) // where the digits begin
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural returns the number and the noun: 1 event, 2 events.
func Plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Thousands(int64(n)) + " " + noun
}

// Size writes a number of bytes in a suitable unit.
func Size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
}

// Rough writes a duration to the second, a long one to the minute.
func Rough(d time.Duration) string {
	if d < 10*time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// displayWidth ignores escape sequences, so that styled text has its visible width.
var displayWidth = displaywidth.Options{ControlSequences: true}

// WidthOf returns how many columns a text takes on a terminal: wide characters take two, escape sequences of styles
// none.
func WidthOf(text string) int { return displayWidth.String(text) }

// Truncate returns a text if it fits a width, else a beginning that fits together with end.
func Truncate(text string, width int, end string) string {
	return displayWidth.TruncateString(text, width, end)
}

// ShortID is how many bytes of an id are shown if there is little room.
const ShortID = 8

// longestWord is the width above which cut may break a word.
const longestWord = 24

// Cut shortens a line, which may be styled, to a width: between two words, unless the last one is very long.
func Cut(line string, width int) string {
	plain := ansiStyle.ReplaceAllString(line, "")
	if WidthOf(plain) <= width {
		return line
	}
	return Truncate(line, WidthOf(cutWords(plain, width-1))+1, "…")
}

// cutWords returns the beginning of a plain text that fits a width, cut like [Cut].
func cutWords(text string, width int) string {
	head := Truncate(text, max(0, width), "")
	if len(head) < len(text) && text[len(head)] != ' ' {
		if i := strings.LastIndexByte(head, ' '); i > 0 && WidthOf(head[i+1:]) <= longestWord {
			head = head[:i]
		}
	}
	return strings.TrimRight(head, " ")
}

// Wrap breaks a line into lines of a width, between words if a word fits a line. Lines after the first begin with
// hang spaces, up to two thirds of the width.
func Wrap(line string, width, hang int) []string {
	width = max(width, 16)
	hang = min(hang, width*2/3)
	var lines []string
	for WidthOf(line) > width {
		head := Truncate(line, width, "")
		if len(head) == 0 || len(head) >= len(line) { // a character is wider than the line
			break
		}
		if space := strings.LastIndexByte(head, ' '); line[len(head)] != ' ' && strings.TrimSpace(head[:max(space, 0)]) != "" {
			word, _, _ := strings.Cut(line[space+1:], " ")
			if WidthOf(word) <= width-hang {
				head = head[:space]
			}
		}
		lines = append(lines, strings.TrimRight(head, " "))
		line = strings.Repeat(" ", hang) + strings.TrimLeft(line[len(head):], " ")
	}
	return append(lines, line)
}

// CutAround is [Cut] for a plain line, but keeps the first match of match, which may be nil.
func CutAround(line string, match *regexp.Regexp, width int) string {
	cut := Cut(line, width)
	if match == nil || cut == line {
		return cut
	}
	m := match.FindStringIndex(line)
	shows := func(cut string, begin int) bool { return begin+len(strings.TrimSuffix(cut, "…")) >= m[1] }
	if m == nil || m[0] == 0 || shows(cut, 0) {
		return cut
	}
	begin := m[0]
	for begin > 0 { // keep some words before the match
		word := strings.LastIndexByte(line[:begin-1], ' ') + 1
		if WidthOf(line[word:m[0]]) > width/3 {
			break
		}
		begin = word
	}
	if cut = Cut(line[begin:], width-1); !shows(cut, begin) {
		cut = Cut(line[m[0]:], width-1)
	}
	return "…" + cut
}

// CutPath shortens a path to a width and keeps its last elements.
func CutPath(path string, width int) string {
	if WidthOf(path) <= width {
		return path
	}
	for rest := path; ; {
		_, after, ok := strings.Cut(rest, "/")
		if !ok {
			return Cut(rest, width)
		}
		if rest = after; WidthOf(rest)+2 <= width {
			return "…/" + rest
		}
	}
}

// Pad fills a text with spaces to a width; a negative width aligns it to the right.
func Pad(text string, width int) string {
	fill := strings.Repeat(" ", max(0, max(width, -width)-WidthOf(text)))
	if width < 0 {
		return fill + text
	}
	return text + fill
}

// DateTime writes a time in the local time zone.
func DateTime(t time.Time) string { return t.Local().Format(time.DateTime) }

// Unknown stands in tables for an unknown model or project, and for no tool.
const Unknown = "-"

// OrDash returns a value on one line, or a dash if it is empty.
func OrDash(value string) string {
	if value = OneLine(value); value == "" {
		return Unknown
	}
	return value
}

// Percent writes part as a percentage of whole; it is empty if whole is 0.
func Percent(part, whole int64) string {
	if whole == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// Millis writes a latency for a table; it is empty for nil.
func Millis(ms *int64) string {
	if ms == nil {
		return ""
	}
	d := time.Duration(*ms) * time.Millisecond
	if d >= time.Second {
		d = d.Round(10 * time.Millisecond)
	}
	return d.String()
}
