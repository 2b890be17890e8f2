package normalizers_test

import (
	"encoding/json"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// script writes the log of one session, record by record: what the generators of all
// vendors share.
type script struct {
	t       *rapid.T
	session string
	lines   [][]byte
	now     time.Time // of the next record
}

func newScript(t *rapid.T, session string) script {
	return script{t: t, session: session, now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
}

// chance is true in so many of a hundred cases.
func (s *script) chance(percent int) bool {
	return rapid.IntRange(1, 100).Draw(s.t, "chance") <= percent
}

func (s *script) oneOf(list ...string) string {
	return rapid.SampledFrom(list).Draw(s.t, "choice")
}

// emit writes a record as a line.
func (s *script) emit(record any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(record); err != nil {
		s.t.Fatalf("encode a generated record: %v", err)
	}
	s.lines = append(s.lines, []byte(strings.TrimSuffix(b.String(), "\n")))
}

// stamp moves the time on, at times backwards, as parallel writers do.
func (s *script) stamp() string {
	s.now = s.now.Add(time.Duration(rapid.IntRange(-500, 5000).Draw(s.t, "ms")) * time.Millisecond)
	return s.now.Format("2006-01-02T15:04:05.000Z")
}
