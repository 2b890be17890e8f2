package terminal

import (
	"io"
	"sync"
)

// StatusLine is a terminal with a last line that can be replaced. All other output, in whole lines, appears above it.
// Several goroutines may call its methods.
type StatusLine struct {
	w io.Writer

	mu   sync.Mutex
	line string // the last line; empty for none
}

// NewStatusLine returns a status line on w, which is a terminal.
func NewStatusLine(w io.Writer) *StatusLine { return &StatusLine{w: w} }

// ClearLine is the escape sequence that erases the current line.
const ClearLine = "\r\x1b[K"

// Write implements [io.Writer].
func (s *StatusLine) Write(p []byte) (int, error) { return s.write(s.w, p) }

// write writes to a file of the terminal, above the last line.
func (s *StatusLine) write(w io.Writer, p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return w.Write(p)
	}
	if _, err := io.WriteString(w, ClearLine+string(p)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(s.w, s.line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Above returns a writer to w, another file of the same terminal, that writes above the last line, too.
func (s *StatusLine) Above(w io.Writer) io.Writer { return aboveLine{s, w} }

// aboveLine is the writer of [StatusLine.Above].
type aboveLine struct {
	*StatusLine
	file io.Writer
}

// Write implements [io.Writer].
func (a aboveLine) Write(p []byte) (int, error) { return a.write(a.file, p) }

// Show replaces the last line; an empty line clears it. A nil status line shows nothing.
func (s *StatusLine) Show(line string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != line {
		s.line = line
		_, _ = io.WriteString(s.w, ClearLine+line) // a closed terminal shows nothing
	}
}
