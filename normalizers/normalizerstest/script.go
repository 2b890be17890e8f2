package normalizerstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// Script writes the log of one session, record by record, for the generators of all vendors.
type Script struct {
	T       *rapid.T
	Session string
	Lines   [][]byte
	Now     time.Time // of the next record
	Calls   []string  // ids of the calls so far

	records int
	last    any // id of the last record; nil for none
}

// NewScript begins the log of a session.
func NewScript(t *rapid.T, session string) Script {
	return Script{T: t, Session: session, Now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
}

// Play makes some of the moves, which write records.
func (s *Script) Play(moves ...func()) {
	for range rapid.IntRange(1, 25).Draw(s.T, "records") {
		rapid.SampledFrom(moves).Draw(s.T, "move")()
	}
}

// Text draws a text: one for any log, or one of its own.
func (s *Script) Text(own ...string) string {
	return s.OneOf(append([]string{"fix the test", "yes", "  \n", "", "two\nlines \u2028 \U0001F642", "{", "<b>"}, own...)...)
}

// NextID returns the id of the next record, and that of the record before it; nil for none.
func (s *Script) NextID() (id string, last any) {
	s.records++
	id, last = fmt.Sprintf("%s-%d", s.Session, s.records), s.last
	s.last = id
	return id, last
}

// Maybe adds members to a record in percent of 100 cases.
func (s *Script) Maybe(percent int, record, members map[string]any) {
	if s.Chance(percent) {
		maps.Copy(record, members)
	}
}

// NewCall returns the id of a new call, with an ending.
func (s *Script) NewCall(ending ...string) string {
	id := fmt.Sprintf("%s-call%d%s", s.Session, len(s.Calls), strings.Join(ending, ""))
	s.Calls = append(s.Calls, id)
	return id
}

// AnyCall draws the id of a call; one that was lost if there is none.
func (s *Script) AnyCall() string {
	if len(s.Calls) == 0 {
		return s.Session + "-lost"
	}
	return rapid.SampledFrom(s.Calls).Draw(s.T, "call")
}

// Figure draws a number of tokens.
func (s *Script) Figure() int { return rapid.SampledFrom([]int{0, 1, 57, 11_480}).Draw(s.T, "tokens") }

// Chance is true in percent of 100 cases.
func (s *Script) Chance(percent int) bool {
	return rapid.IntRange(1, 100).Draw(s.T, "chance") <= percent
}

// OneOf draws one of a list.
func (s *Script) OneOf(list ...string) string {
	return rapid.SampledFrom(list).Draw(s.T, "choice")
}

// Emit writes a record as a line.
func (s *Script) Emit(record any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(record); err != nil {
		s.T.Fatalf("encode a generated record: %v", err)
	}
	s.Lines = append(s.Lines, []byte(strings.TrimSuffix(b.String(), "\n")))
}

// Stamp advances the time, sometimes backwards, like parallel writers.
func (s *Script) Stamp() string {
	s.Now = s.Now.Add(time.Duration(rapid.IntRange(-500, 5000).Draw(s.T, "ms")) * time.Millisecond)
	return s.Now.Format("2006-01-02T15:04:05.000Z")
}

// EmitValue writes a value that is no object, or an earlier line again, by its name: string,
// number, array, empty, null or again.
func (s *Script) EmitValue(name string) {
	switch name {
	case "string":
		s.Emit("massive error")
	case "number":
		s.Emit(42)
	case "array":
		s.Emit([]any{1})
	case "empty":
		s.Emit([]any{})
	case "null":
		s.Emit(nil)
	case "again":
		s.Repeat()
	default:
		s.T.Fatalf("no generated value is named %q", name)
	}
}

// Repeat writes an earlier line again.
func (s *Script) Repeat() {
	if len(s.Lines) > 0 {
		s.Lines = append(s.Lines, rapid.SampledFrom(s.Lines).Draw(s.T, "again"))
	}
}
