package claude_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/claude/claudetest"
	"tributary/normalizers/normalizerstest"
)

// Lines that a next version of Claude Code, or a torn write, may put between two records.
var (
	unknownRecords = []string{
		`{"type":"of-tomorrow"}`,
		`{"type":"of-tomorrow","message":"x","uuid":null,"subtype":"init","operation":"popAll","delta":{}}`,
		`{"type":"of-tomorrow","sessionId":%[1]q,"timestamp":%[2]q,"isSidechain":true,"content":"x","event":{"type":"message_stop"}}`,
		`{"type":"of-tomorrow","session_id":%[1]q,"timestamp":%[2]q,"parent_tool_use_id":"toolu_task_1","usage":{"input_tokens":5,"output_tokens":7}}`,
	}
	garbage = []string{`[1,2,`, `{"type":"user","message":{"content":[`, "not json at all", "%PDF-1.7\xff\xfe", `"type":"user"}`}
)

func TestUnknownRecordsAndGarbageInGoldenCasesChangeNothingElse(t *testing.T) {
	t.Parallel()
	for _, g := range normalizerstest.Goldens(t, claudetest.Suite) {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			log := newLog(g.File(envelopes.ClaudeCode), g.Raw)
			for at := range log.starts {
				for _, line := range append(slices.Clone(unknownRecords), garbage...) {
					if err := log.perturb(at, line); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

func TestUnknownRecordsAndGarbageInGeneratedLogsChangeNothingElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := bytes.Join(claudetest.Lines(t, "s1"), []byte("\n"))
		log := newLog(normalizerstest.FileNamed(envelopes.ClaudeCode, "generated.jsonl"), data)
		line := rapid.SampledFrom(append(slices.Clone(unknownRecords), garbage...)).Draw(t, "line")
		for at := range log.starts {
			if err := log.perturb(at, line); err != nil {
				t.Fatalf("%v\nof the file\n%s", err, data)
			}
		}
	})
}

func TestUnknownRecordsAndGarbageInTheCorpusChangeNothingElse(t *testing.T) {
	t.Parallel()
	for i, f := range normalizerstest.Corpus(t, claudetest.Suite) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			log := newLog(normalizerstest.FileNamed(envelopes.ClaudeCode, f.Name), f.Data)
			const positions = 4 // each takes the whole file again
			lines := append(slices.Clone(unknownRecords), garbage...)
			for n := range min(positions, len(log.starts)) {
				at := (i + n*len(log.starts)/positions) % len(log.starts)
				if err := log.perturb(at, lines[(i+n)%len(lines)]); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

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
		log := newLog(normalizerstest.FileNamed(envelopes.ClaudeCode, "s.jsonl"), []byte(data))
		if got := log.steps[between+2].Result.Skip == normalizers.SkipMirror; got != duplicate {
			t.Errorf("a prompt %d records behind is a duplicate: %t, want %t", between+1, got, duplicate)
		}
		for at := range log.starts {
			for _, line := range append(slices.Clone(unknownRecords), garbage...) {
				if err := log.perturb(at, line); err != nil {
					t.Errorf("%d records between: %v", between, err)
				}
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

// log is a file of records, with what it yields.
type log struct {
	file   normalizers.File
	lines  [][]byte
	starts []int // lines before which a record begins or the file ends, from 0
	steps  []normalizerstest.Step
}

func newLog(file normalizers.File, data []byte) *log {
	l := &log{file: file, lines: bytes.SplitAfter(data, []byte("\n"))}
	if last := len(l.lines) - 1; len(l.lines[last]) == 0 {
		l.lines = l.lines[:last]
	} else {
		l.lines[last] = append(slices.Clone(l.lines[last]), '\n')
	}
	l.steps = l.fold(l.lines)
	for _, s := range l.steps {
		if !s.Record.Origin.End && (len(l.starts) == 0 || l.starts[len(l.starts)-1] != s.Line-1) {
			l.starts = append(l.starts, s.Line-1)
		}
	}
	if len(l.steps) > 0 { // an empty file has not even an end
		l.starts = append(l.starts, len(l.lines))
	}
	return l
}

func (l *log) fold(lines [][]byte) []normalizerstest.Step {
	return normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(l.file, bytes.Join(lines, nil)))
}

// perturb puts a line in front of the record at an index of starts, and compares. A line
// with verbs states the session and the time of the record before it.
func (l *log) perturb(at int, line string) error {
	start := l.starts[at]
	if strings.Contains(line, "%[") {
		session, ts := l.lastBefore(start)
		if ts == "" {
			return nil
		}
		line = fmt.Sprintf(line, session, ts)
	}
	id := fmt.Sprintf("line %d: %q", start+1, line)
	steps := l.fold(slices.Insert(slices.Clone(l.lines), start, []byte(line+"\n")))
	extra := slices.IndexFunc(steps, func(s normalizerstest.Step) bool { return s.Line == start+1 && string(s.Record.Data) == line })
	if extra < 0 {
		return fmt.Errorf("%s: is no record", id)
	}
	s := steps[extra]
	steps = slices.Delete(steps, extra, extra+1)
	if slices.Contains(garbage, line) != s.Failed() {
		return fmt.Errorf("%s: is a dead letter: %t", id, s.Failed())
	}
	if !s.Failed() {
		if len(s.Result.Events) != 1 || s.Result.Events[0].Event.EventType != envelopes.Meta {
			return fmt.Errorf("%s: yields not one meta event:\n%s", id, normalizerstest.Outcomes(s, false))
		}
		if err := renumber(steps, s.Result.Events[0].Event); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	if err := normalizerstest.Differ(l.steps, steps, false); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	return nil
}

// lastBefore returns the session and the time of the last event before a line, where the
// record of the event is the last before the line, and states both. It returns no time
// for none.
func (l *log) lastBefore(start int) (session, ts string) {
	for _, s := range l.steps {
		if s.Record.Origin.End || s.Line > start {
			break
		}
		session, ts = s.Record.Session, ""
		if n := len(s.Result.Events); n > 0 {
			ts = s.Result.Events[n-1].Event.TS
		}
		if !bytes.Contains(s.Record.Data, []byte(strconv.Quote(session))) || !bytes.Contains(s.Record.Data, []byte(ts)) {
			ts = ""
		}
	}
	return session, ts
}

// renumber takes back what one more event changes in the events of its session behind it:
// their positions, and ids that are numbers of records.
func renumber(steps []normalizerstest.Step, extra envelopes.AgentEventV1) error {
	n, err := strconv.Atoi(strings.TrimPrefix(extra.EventID, "@"))
	if err != nil {
		return fmt.Errorf("the id of the meta event is no number of a record: %w", err)
	}
	back := func(id string) string {
		number, rest, _ := strings.Cut(strings.TrimPrefix(id, "@"), ".")
		m, err := strconv.Atoi(number)
		if err != nil || !strings.HasPrefix(id, "@") || m <= n {
			return id
		}
		id = "@" + strconv.Itoa(m-1)
		if rest != "" {
			id += "." + rest
		}
		return id
	}
	for _, s := range steps {
		if s.Record.Session != extra.SessionID {
			continue
		}
		for i := range s.Result.Events {
			e := &s.Result.Events[i].Event
			e.EventID, e.Supersedes = back(e.EventID), back(e.Supersedes)
			if e.ParentEventID != nil {
				e.ParentEventID = new(back(*e.ParentEventID))
			}
			if e.Sequence > extra.Sequence {
				e.Sequence--
			}
		}
	}
	return nil
}
