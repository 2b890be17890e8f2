package normalizerstest

import (
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
)

// SeedEvents returns every event of a file in order. An unreadable record fails the test.
func SeedEvents(tb testing.TB, source envelopes.Source, name string, data []byte) []envelopes.AgentEventV1 {
	tb.Helper()
	steps := Fold(normalizers.Normalize, Frame(FileNamed(source, name), data))
	for _, s := range steps {
		if s.Err != nil {
			tb.Fatalf("line %d: %v", s.Line, s.Err)
		}
	}
	return Events(steps)
}

// SeedLines returns a file of lines.
func SeedLines(lines ...string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }
