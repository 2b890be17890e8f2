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
func (s *statusLine) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.w.Write(p)
	}
	if _, err := io.WriteString(s.w, clearLine+string(p)+s.line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// show replaces the last line; an empty line clears it.
func (s *statusLine) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != line {
		s.line = line
		_, _ = io.WriteString(s.w, clearLine+line) // a closed terminal shows nothing
	}
}
