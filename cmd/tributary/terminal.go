package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A log holds whatever a model, a web page or a file put into it, so no string of it
// reaches a terminal as it is: escape sequences would move the cursor, fill the
// clipboard or hide text, and bidirectional controls would show it in another order.

// colours are the sequences that only change how text looks. They are dropped; every
// other sequence loses its escape character and shows.
var colours = regexp.MustCompile("(?:\x1b\\[|\u009b)[0-9;:]*m")

// unsafeRunes are the runes that do not show as themselves: controls, bidirectional
// overrides, zero-width characters, invisible tags, line and paragraph separators.
var unsafeRunes = []*unicode.RangeTable{
	unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point,
}

// invisible are the unsafe runes that only join or part letters and are common in honest
// text: they are dropped without a mark.
const invisible = "\u00ad\u200b\u200c\u200d\u2060\ufeff"

func isUnsafe(r rune) bool {
	return r != '\n' && r != '\t' && (r < 0x20 || r >= 0x7f && unicode.In(r, unsafeRunes...))
}

// printable returns s in a form that is safe on a terminal. Colours go, line ends of any
// kind become \n, and what is dangerous becomes U+FFFD, so that a reader sees that
// something was there.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, isUnsafe) < 0 {
		return s
	}
	s = colours.ReplaceAllString(s, "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case !isUnsafe(r): // an invalid byte is U+FFFD already
			return r
		case strings.ContainsRune(invisible, r):
			return -1
		default:
			return utf8.RuneError
		}
	}, s)
}

// oneLine is [printable] on a single line, white space collapsed.
func oneLine(s string) string { return strings.Join(strings.Fields(printable(s)), " ") }

// printableJSON returns JSON in a form that is safe on a terminal and equal by value:
// JSON has the dangerous runes only inside of strings, where they can be escaped.
func printableJSON(s string) string {
	if strings.IndexFunc(s, isUnsafe) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !isUnsafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// safeWriter puts what is written through a filter. Each write is a whole line or more.
type safeWriter struct {
	w      io.Writer
	filter func(string) string
}

func (s safeWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, s.filter(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// plainWidth is how long a line gets where there is no terminal.
const plainWidth = 160

// columns is how wide a terminal is.
func columns(f *os.File) int {
	if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 40 {
		return columns
	}
	return plainWidth
}

// jsonWriter is w for JSON lines: byte for byte, except on a terminal.
func jsonWriter(w io.Writer) io.Writer {
	if isTerminal(w) {
		return safeWriter{w, printableJSON}
	}
	return w
}
