package openclaw_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/openclaw/openclawtest"
)

// A session may have more events than it remembers ids. Each entry counts once, whether its log was read before the rows
// to which it was moved, or behind them.
func TestEntriesOfALongSessionCountOnce(t *testing.T) {
	t.Parallel()
	const moved, all = 9000, 9100
	start := time.Date(2026, 8, 30, 9, 0, 0, 0, time.UTC)
	log := []string{`{"type":"session","version":3,"id":"s1","timestamp":"2026-08-30T09:00:00.000Z","cwd":"/w"}`}
	for n := range all {
		log = append(log, fmt.Sprintf(`{"type":"message","id":"e%d","parentId":null,"timestamp":%q,"message":{"role":"user","content":"prompt %d"}}`,
			n, start.Add(time.Duration(n)*time.Second).Format("2006-01-02T15:04:05.000Z"), n))
	}
	var rows []string
	for n, entry := range log {
		rows = append(rows, fmt.Sprintf(`{"table":"transcript_events","row":{"seq":%d,"session_id":"s1","event_json":%s}}`, n, entry))
	}
	log = log[:1+moved]
	for name, records := range map[string][][]string{
		"the log first":  {log, rows},
		"the rows first": {rows, log},
		"both twice":     {log, rows[:len(rows)-50], log, rows},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			for _, part := range records {
				lines = append(lines, part...)
			}
			file := normalizerstest.FileNamed(openclawtest.Suite.Source, "s1.jsonl")
			seen := map[string]int{}
			for _, e := range normalizerstest.Events(normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(file, []byte(strings.Join(lines, "\n"))))) {
				seen[e.EventID]++
			}
			for id, n := range seen {
				if n > 1 {
					t.Fatalf("%d events %s", n, id)
				}
			}
			if len(seen) != len(rows) {
				t.Errorf("%d events of %d entries", len(seen), len(rows))
			}
		})
	}
}
