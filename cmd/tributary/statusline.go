package main

import (
	"io"
	"sync"
)

// statusLine is a terminal whose last line can be replaced. Everything else that is written,
// in whole lines, appears above it.
type statusLine struct {
	w io.Writer

	mu   sync.Mutex
	line string // the line that is shown; empty for none
}

// clearLine erases the current line.
const clearLine = "\r\x1b[K"

// Write implements [io.Writer].
func (s *statusLine) Write(p []byte) (int, error) { return s.write(s.w, p) }

// write writes to a file of the terminal, above the line.
func (s *statusLine) write(w io.Writer, p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return w.Write(p)
	}
	if _, err := io.WriteString(w, clearLine+string(p)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(s.w, s.line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// above returns a writer to w, another file of the same terminal: what it writes appears above
// the line, too.
func (s *statusLine) above(w io.Writer) io.Writer { return aboveLine{s, w} }

// aboveLine is the writer of [statusLine.above].
type aboveLine struct {
	*statusLine
	file io.Writer
}

// Write implements [io.Writer].
func (a aboveLine) Write(p []byte) (int, error) { return a.write(a.file, p) }

// show replaces the last line; an empty line clears it.
func (s *statusLine) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != line {
		s.line = line
		_, _ = io.WriteString(s.w, clearLine+line) // a closed terminal shows nothing
	}
}
