package claude_test

import (
	"fmt"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/claude/claudetest"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// The record of a prompt that the queue emitted is a duplicate within 64 records, without
// the unknown ones.
func TestUnknownRecordsDoNotPushAPromptAwayFromItsDuplicate(t *testing.T) {
	t.Parallel()
	const (
		operation = `{"type":"queue-operation","operation":"%s","timestamp":"2026-03-01T10:00:00.000Z","sessionId":"s","content":"fix the test"}` + "\n"
		prompt    = `{"type":"user","uuid":"u1","timestamp":"2026-03-01T10:00:01.000Z","sessionId":"s","message":{"role":"user","content":"fix the test"}}` + "\n"
		progress  = `{"type":"progress","timestamp":"2026-03-01T10:00:00.500Z","sessionId":"s"}` + "\n"
	)
	for between, duplicate := range map[int]bool{63: true, 64: false} {
		data := fmt.Sprintf(operation, "enqueue") + fmt.Sprintf(operation, "remove") + strings.Repeat(progress, between) + prompt
		log, ok := normalizerstest.NewLog(claudetest.Suite, normalizerstest.FileNamed(envelopes.ClaudeCode, "s.jsonl"), []byte(data))
		if !ok {
			t.Fatal("no log of lines")
		}
		if got := log.Steps[between+2].Result.Skip == core.SkipMirror; got != duplicate {
			t.Errorf("a prompt %d records behind is a duplicate: %t, want %t", between+1, got, duplicate)
		}
		for position := range log.Positions() {
			if err := log.Perturb(position); err != nil {
				t.Errorf("%d records between: %v", between, err)
			}
		}
	}
}

// A record without a time has the time of the last known record, or else its own fallback.
func TestUnknownRecordsDoNotMoveTheClock(t *testing.T) {
	t.Parallel()
	const (
		title  = `{"type":"ai-title","sessionId":"s","aiTitle":"one"}`
		prompt = `{"type":"user","uuid":"u1","timestamp":"2026-03-01T10:00:00.000Z","sessionId":"s","message":{"role":"user","content":"x"}}`
		queued = `{"type":"queue-operation","operation":"dequeue","timestamp":"2026-03-01T10:00:0%d.000Z","sessionId":"s"}`
	)
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"with a time of its own", []string{prompt, `{"type":"of-tomorrow","sessionId":"s","timestamp":"2026-03-01T10:00:07.000Z"}`, title}, "2026-03-01T10:00:00.000Z"},
		{"without a time", []string{`{"type":"of-tomorrow"}`, fmt.Sprintf(queued, 3), fmt.Sprintf(queued, 4), title}, "2026-03-01T10:00:04Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			events := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(c.lines...))
			if last := events[len(events)-1]; last.EventType != envelopes.SessionSummary || last.TS != c.want {
				t.Errorf("%s at %s, want the title at %s", last.EventType, last.TS, c.want)
			}
		})
	}
}
