// Package terminal prints for people and for pipes: safe text, tables, JSON and the last line of a terminal. Its
// functions adapt to whether standard output is a terminal and how wide it is. What is printed is the callers'
// business.
//
// Start with [Table], [WriteJSON], [OneLine] and [StatusLine].
package terminal

import (
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A log can contain any text of a model, a web page or a file, so every string is made safe before it reaches a
// terminal. Escape sequences would overwrite the screen, fill the clipboard or hide text, and bidirectional controls
// would show it in another order.

// ansiStyle matches the escape sequences that only style text, which are removed. Of other sequences only the escape
// character is replaced, so that the rest shows.
var ansiStyle = regexp.MustCompile("(?:\x1b\\[|\u009b)[0-9;:]*m")

// unsafeRunes are runes that do not show as themselves: controls, bidirectional overrides, zero-width characters,
// invisible tags, line and paragraph separators.
var unsafeRunes = []*unicode.RangeTable{
	unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point,
}

// invisible are the unsafe runes that only join or separate letters and are common in harmless text: they are
// removed.
const invisible = "\u00ad\u200b\u200c\u200d\u2060\ufeff"

func isUnsafe(r rune) bool {
	return r != '\n' && r != '\t' && (r < 0x20 || r >= 0x7f && unicode.In(r, unsafeRunes...))
}

// Printable returns s in a form that is safe for a terminal: without colours, with \n as line ends, and with U+FFFD
// in place of every other unsafe rune.
func Printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, isUnsafe) < 0 {
		return s
	}
	s = ansiStyle.ReplaceAllString(s, "")
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

// OneLine is [Printable] on one line, with white space collapsed.
func OneLine(s string) string { return strings.Join(strings.Fields(Printable(s)), " ") }

// printableJSON returns JSON of the same value that is safe for a terminal. Unsafe runes occur only in JSON strings,
// where they can be escaped.
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

// safeWriter makes what it writes safe. Each write is one or more whole lines.
type safeWriter struct {
	w        io.Writer
	sanitize func(string) string
}

// Write implements [io.Writer].
func (s safeWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, s.sanitize(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Safe returns a writer that applies [Printable] to what it writes to w.
func Safe(w io.Writer) io.Writer { return safeWriter{w, Printable} }

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// PlainWidth is the length of lines if there is no terminal.
const PlainWidth = 160

// Columns returns the width of a terminal.
func Columns(f *os.File) int {
	if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 40 {
		return columns
	}
	return PlainWidth
}

// Uncut is the width of lines that are never cut.
const Uncut = math.MaxInt

// TableWidth returns the width of tables on w: the terminal's, or [Uncut] for other outputs.
func TableWidth(w io.Writer) int {
	if !IsTerminal(w) {
		return Uncut
	}
	return Columns(w.(*os.File))
}
