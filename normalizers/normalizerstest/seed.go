package normalizerstest

import (
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
)

// SeedEvents by a file: every event of its records, in order; a record that cannot be read
// fails the test.
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

// SeedLines is a file of lines.
func SeedLines(lines ...string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }
