package pipelinetest

import (
	"bytes"
	"sync"
)

// LogText is a log that can be read while it is written. The zero value is empty.
type LogText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (l *LogText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns everything that was written.
func (l *LogText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
