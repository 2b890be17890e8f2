package openclawtest

import (
	"bytes"
	"fmt"

	"tributary/normalizers/normalizerstest"
)

// rows returns the lines of a log as the rows of a database: a line that stands twice is a row that is read again.
func rows(session string, lines [][]byte) [][]byte {
	numbers := map[string]int{}
	out := make([][]byte, len(lines))
	for i, line := range lines {
		n, ok := numbers[string(line)]
		if !ok {
			n = len(numbers)
			numbers[string(line)] = n
		}
		out[i] = fmt.Appendf(nil, `{"table":"transcript_events","row":{"seq":%d,"session_id":%q,"event_json":%s}}`, n, session, line)
	}
	return out
}

// unwrap returns the entry in a row, and its session.
func unwrap(record any) (entry any, session string) {
	if text(record, "table") != "transcript_events" {
		return record, ""
	}
	return normalizerstest.Member[any](record, "row", "event_json"), text(record, "row", "session_id")
}

// raw is the Raw of the suite: the events of a row carry its entry.
func raw(record []byte) func(raw []byte) (ok, known bool) {
	if !bytes.Contains(record, []byte(`"transcript_events"`)) {
		return normalizerstest.NoRaw
	}
	whole := normalizerstest.Plain(record)
	entry, _ := unwrap(whole)
	return normalizerstest.PartOf([]any{entry, whole})
}
