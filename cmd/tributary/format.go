package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tributary/pipeline/streams"
)

// thousands writes a number with a comma between thousands.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := len(s) - len(strings.TrimPrefix(s, "-")) // of the digits
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural is "1 event" or "2 events".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(int64(n)) + " " + noun
}

// size writes a number of bytes in the unit that suits it.
func size(n int64) string {
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

// rough writes a duration to the second, a long one to the minute.
func rough(d time.Duration) string {
	if d < 10*time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// shortID is how many bytes of an id are shown where there is little room.
const shortID = 8

// longestWord is the width of a word that cut does not keep whole.
const longestWord = 24

// cut shortens a line to a width, between two words if the last one is not very long. The line
// can be styled.
func cut(line string, width int) string {
	plain := colors.ReplaceAllString(line, "")
	if terminalWidth.String(plain) <= width {
		return line
	}
	return terminalWidth.TruncateString(line, terminalWidth.String(cutWords(plain, width-1))+1, "…")
}

// cutWords returns the beginning of a plain text that fits a width, between two words if the
// last one is not very long.
func cutWords(text string, width int) string {
	head := terminalWidth.TruncateString(text, max(0, width), "")
	if len(head) < len(text) && text[len(head)] != ' ' {
		if i := strings.LastIndexByte(head, ' '); i > 0 && terminalWidth.String(head[i+1:]) <= longestWord {
			head = head[:i]
		}
	}
	return strings.TrimRight(head, " ")
}

// cutPath shortens a path to a width: its last elements stay.
func cutPath(path string, width int) string {
	if terminalWidth.String(path) <= width {
		return path
	}
	for rest := path; ; {
		_, after, ok := strings.Cut(rest, "/")
		if !ok {
			return cut(rest, width)
		}
		if rest = after; terminalWidth.String(rest)+2 <= width {
			return "…/" + rest
		}
	}
}

// pad fills a text with spaces to a width; a negative width aligns it to the right.
func pad(text string, width int) string {
	fill := strings.Repeat(" ", max(0, max(width, -width)-terminalWidth.String(text)))
	if width < 0 {
		return fill + text
	}
	return text + fill
}

// dateTime writes a time in the local time zone.
func dateTime(t time.Time) string { return t.Local().Format(time.DateTime) }

// numbers writes sorted numbers as ranges: 0-3 7.
func numbers(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	return streams.Ranges(list)
}
