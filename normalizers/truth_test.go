package normalizers_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
)

// TestTruth holds the events of every corpus file to what its raw bytes say, read with
// plain encoding/json and no code of the package.
func TestTruth(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			t.Parallel()
			files := corpus(t, s)
			reports := make([]*report, len(files))
			t.Run("files", func(t *testing.T) {
				for i, f := range files {
					reports[i] = newReport()
					t.Run(f.name, func(t *testing.T) {
						t.Parallel()
						for _, p := range checkTruth(s, normalizers.Normalize, fileNamed(s.source, f.name), f.data, reports[i]) {
							t.Error(p)
						}
					})
				}
			})
			all := newReport()
			for _, r := range reports {
				all.add(r)
			}
			t.Log("\n" + all.String())
		})
	}
}

// report is what a run of the truth counts, for the reader of its log.
type report struct {
	records, with, skipped, dead, events int
	skips                                map[string]int
	codes                                map[string]int
	types                                map[string]int
	naive, sums                          figures
}

func newReport() *report {
	return &report{skips: make(map[string]int), codes: make(map[string]int), types: make(map[string]int)}
}

func (r *report) add(o *report) {
	r.records += o.records
	r.with += o.with
	r.skipped += o.skipped
	r.dead += o.dead
	r.events += o.events
	for to, from := range map[*map[string]int]map[string]int{&r.skips: o.skips, &r.codes: o.codes, &r.types: o.types} {
		for k, n := range from {
			(*to)[k] += n
		}
	}
	r.naive.add(o.naive)
	r.sums.add(o.sums)
}

func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "records %d = with events %d + skipped %d + dead letters %d; events %d\n", r.records, r.with, r.skipped, r.dead, r.events)
	for name, counts := range map[string]map[string]int{"skipped": r.skips, "exit codes": r.codes, "events": r.types} {
		fmt.Fprintf(&b, "%s:", name)
		for _, k := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, " %s %d;", k, counts[k])
		}
		b.WriteByte('\n')
	}
	factor := func(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }
	fmt.Fprintf(&b, "tokens: input %d (naive %.2fx), output %d (%.2fx), cache read %d (%.2fx), cache write %d (%.2fx), total %d (%.2fx)",
		r.sums.Input, factor(r.naive.Input, r.sums.Input), r.sums.Output, factor(r.naive.Output, r.sums.Output),
		r.sums.Cached, factor(r.naive.Cached, r.sums.Cached), r.sums.CacheWrite, factor(r.naive.CacheWrite, r.sums.CacheWrite),
		r.sums.Total, factor(r.naive.Total, r.sums.Total))
	return b.String()
}

// problems are the differences between what a file says and what its events tell.
type problems []string

func (p *problems) Errorf(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// checkTruth returns how the events of a file differ from its raw bytes.
func checkTruth(s suite, normalize normalizeFunc, file normalizers.File, data []byte, r *report) problems {
	var p problems
	lines := s.read(data)
	want := s.interpret(file.Name, lines)
	framed := frame(file, data)
	if checkFraming(&p, lines, want, framed); len(p) > 0 {
		return p
	}
	steps := fold(normalize, framed)
	got := events(steps)
	checkAccounting(&p, lines, steps, r)
	checkSums(&p, s, want, steps, r)
	checkThreads(&p, lines, want, steps)
	if !want.trimmed {
		checkTalk(&p, want, got)
		checkTools(&p, want, got, r)
	}
	for _, e := range got {
		r.types[string(e.EventType)]++
	}
	return p
}

// checkFraming: every record of the file comes out, in order, with its bytes, line and
// session; the End records follow, one for each session.
func checkFraming(p *problems, lines []line, want account, framed []normalizers.Framed) {
	var records, ends []normalizers.Framed
	for _, r := range framed {
		if r.Record.Origin.End {
			ends = append(ends, r)
		} else {
			if len(ends) > 0 {
				p.Errorf("line %d: a record after the end", r.Line)
				return
			}
			records = append(records, r)
		}
	}
	if len(records) != len(lines) {
		p.Errorf("%d records, want %d", len(records), len(lines))
		return
	}
	sessions := make(map[string]bool)
	for i, r := range records {
		if string(r.Record.Data) != string(lines[i].data) {
			p.Errorf("record %d: bytes\n%s\nwant\n%s", i+1, clip(string(r.Record.Data)), clip(string(lines[i].data)))
			return
		}
		if r.Line != lines[i].number || r.Record.Sequence != uint64(r.Line) {
			p.Errorf("record %d: line %d, sequence %d, want %d", i+1, r.Line, r.Record.Sequence, lines[i].number)
			return
		}
		if r.Record.Session != want.sessions[i] {
			p.Errorf("line %d: session %q, want %q", r.Line, r.Record.Session, want.sessions[i])
		}
		sessions[r.Record.Session] = true
	}
	for _, r := range ends {
		if !sessions[r.Record.Session] {
			p.Errorf("end of session %q, which is not there", r.Record.Session)
		}
		delete(sessions, r.Record.Session)
		if len(r.Record.Data) != 0 {
			p.Errorf("end of session %q has data", r.Record.Session)
		}
	}
	if len(sessions) > 0 {
		p.Errorf("no end of %q", slices.Sorted(maps.Keys(sessions)))
	}
}

// checkAccounting: records = with events + skips + dead letters, and only what is not
// JSON is a dead letter; an unbroken file has no gap.
func checkAccounting(p *problems, lines []line, steps []step, r *report) {
	for i, s := range steps {
		r.events += len(s.result.Events)
		if s.record.Origin.End {
			continue
		}
		r.records++
		switch {
		case s.failed():
			r.dead++
			if !lines[i].bad {
				p.Errorf("line %d: a dead letter, though it can be read: %v", s.line, s.err)
			}
		case s.tells():
			r.with++
		default:
			r.skipped++
			r.skips[string(s.result.Skip)]++
		}
		if lines[i].bad && !s.failed() {
			p.Errorf("line %d: no dead letter, though it cannot be read", s.line)
		}
		if s.result.Gap {
			p.Errorf("line %d: a gap in an unbroken file", s.line)
		}
	}
}

// checkSums: per session and field, the sum over the events is the highest figure per
// message; the log shows how far a naive sum is off.
func checkSums(p *problems, s suite, want account, steps []step, r *report) {
	l := s.ledger()
	got := make(map[string]figures)
	for _, st := range steps {
		if !st.failed() && !st.record.Origin.End {
			l.add(st.record.Session, st.record.Data)
		}
		sum := got[st.record.Session]
		for _, e := range st.result.Events {
			sum.add(figuresOf(e.Event))
		}
		got[st.record.Session] = sum
	}
	for session, sum := range got {
		if w := l.sums(session); sum != w {
			p.Errorf("session %q: tokens\n%+v, want\n%+v", session, sum, w)
		}
		r.sums.add(sum)
		r.naive.add(want.naive[session])
	}
}

// checkThreads: every event is of the thread that its record names.
func checkThreads(p *problems, lines []line, want account, steps []step) {
	for i, s := range steps {
		for _, e := range s.result.Events {
			if i >= len(lines) || e.Sequence != s.record.Sequence {
				continue
			}
			w := want.threads[i]
			if i < len(want.speakers) && len(want.speakers[i]) > 0 {
				w.agent, want.speakers[i] = want.speakers[i][0], want.speakers[i][1:]
			}
			if value(e.Event.AgentID) != w.agent || e.Event.IsInternal != w.internal {
				p.Errorf("line %d: %s of agent %q internal %t, want %q %t", s.line, e.Event.EventType,
					value(e.Event.AgentID), e.Event.IsInternal, w.agent, w.internal)
			}
		}
	}
}

// checkTalk: what humans, agents and the assistant say is told exactly once, in order.
func checkTalk(p *problems, want account, got []envelopes.AgentEventV1) {
	told := make(map[string][]utterance)
	for _, e := range got {
		u := utterance{session: e.SessionID, text: strings.TrimSpace(value(e.Text))}
		switch {
		case e.EventType == envelopes.AssistantMessage:
			u.who = "assistant"
		case e.EventType == envelopes.UserMessage && e.Origin == envelopes.OriginAgent:
			u.who = "agent"
		case e.EventType == envelopes.UserMessage && e.Origin == "":
			u.who = "human"
		case e.EventType == envelopes.UserMessage:
			u.who = "user_message of origin " + string(e.Origin)
		default:
			continue
		}
		told[e.SessionID] = append(told[e.SessionID], u)
	}
	said := make(map[string][]utterance)
	for _, u := range want.talk {
		said[u.session] = append(said[u.session], u)
	}
	for session := range want.talkSessions(told) {
		a, b := said[session], told[session]
		for i := range max(len(a), len(b)) {
			if i >= len(a) || i >= len(b) || a[i].who != b[i].who || a[i].text != b[i].text {
				p.Errorf("session %q: utterance %d of %d (%d told):\n%s\nis told as\n%s", session, i+1, len(a), len(b), pick(a, i), pick(b, i))
				break
			}
		}
	}
}

// talkSessions are the sessions of both accounts.
func (a account) talkSessions(told map[string][]utterance) map[string]bool {
	out := make(map[string]bool)
	for _, u := range a.talk {
		out[u.session] = true
	}
	for s := range told {
		out[s] = true
	}
	return out
}

func pick(list []utterance, i int) string {
	if i >= len(list) {
		return "nothing"
	}
	return list[i].String()
}

// checkTools: each tool_use is a tool_call, each tool_result a tool_result with its id,
// in order; the exit codes are those that are stated, and no others.
func checkTools(p *problems, want account, got []envelopes.AgentEventV1, r *report) {
	calls := make(map[string][]string)
	results := make(map[string][]envelopes.AgentEventV1)
	for _, e := range got {
		switch e.EventType {
		case envelopes.ToolCall:
			if e.Supersedes == "" {
				calls[e.SessionID] = append(calls[e.SessionID], value(e.ToolCallID)+" "+value(e.ToolName))
			}
		case envelopes.ToolResult:
			if e.Supersedes == "" {
				results[e.SessionID] = append(results[e.SessionID], e)
			}
		case envelopes.UserMessage, envelopes.AssistantMessage, envelopes.SystemMessage, envelopes.Reasoning,
			envelopes.FileSnapshot, envelopes.SessionSummary, envelopes.Meta, envelopes.Log:
		}
	}
	wantCalls := make(map[string][]string)
	for _, c := range want.calls {
		wantCalls[c.session] = append(wantCalls[c.session], c.id+" "+c.name)
	}
	for session := range mergeKeys(calls, wantCalls) {
		if !slices.Equal(calls[session], wantCalls[session]) {
			p.Errorf("session %q: tool calls\n%q\nwant\n%q", session, calls[session], wantCalls[session])
		}
	}
	next := make(map[string]int)
	for _, w := range want.results {
		i := next[w.session]
		next[w.session]++
		if i >= len(results[w.session]) {
			p.Errorf("session %q: line %d: no tool_result of %q", w.session, w.line, w.id)
			break
		}
		e := results[w.session][i]
		if value(e.ToolCallID) != w.id {
			p.Errorf("session %q: line %d: tool_result of %q, want %q", w.session, w.line, value(e.ToolCallID), w.id)
			break
		}
		switch {
		case w.code == nil && e.ToolExitCode != nil:
			p.Errorf("session %q: line %d: exit code %d, but none is stated", w.session, w.line, *e.ToolExitCode)
		case w.code != nil && (e.ToolExitCode == nil || *e.ToolExitCode != *w.code):
			p.Errorf("session %q: line %d: exit code %v, want %d", w.session, w.line, e.ToolExitCode, *w.code)
		case w.code != nil:
			r.codes[w.form]++
			if *w.code != 0 && value(e.ToolStatus) != envelopes.StatusError {
				p.Errorf("session %q: line %d: status %q with exit code %d", w.session, w.line, value(e.ToolStatus), *w.code)
			}
		}
	}
	for session, list := range results {
		if len(list) != next[session] {
			p.Errorf("session %q: %d tool_results, want %d", session, len(list), next[session])
		}
	}
}

func mergeKeys[V any](a, b map[string]V) map[string]bool {
	out := make(map[string]bool)
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}

// TestTruthGolden holds the golden files to the same truth, so that it is held without a
// corpus too.
func TestTruthGolden(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			t.Parallel()
			for _, g := range goldens(t, s.source) {
				for _, p := range checkTruth(s, normalizers.Normalize, g.file(s.source), g.raw, newReport()) {
					t.Errorf("%s: %s", g.name, p)
				}
			}
		})
	}
}

// TestTruthCatches shows that each part of the truth can fail.
func TestTruthCatches(t *testing.T) {
	t.Parallel()
	of := func(kind envelopes.EventType, change func(e *envelopes.AgentEventV1)) func() normalizeFunc {
		return each(func(e *normalizers.Emitted) {
			if e.Event.EventType == kind {
				change(&e.Event)
			}
		})
	}
	for _, s := range suites {
		t.Run("source="+string(s.source), func(t *testing.T) {
			t.Parallel()
			for name, broken := range map[string]func() normalizeFunc{
				"a prompt that is not told":   of(envelopes.UserMessage, func(e *envelopes.AgentEventV1) { e.EventType = envelopes.Meta }),
				"a prompt of an agent":        of(envelopes.UserMessage, func(e *envelopes.AgentEventV1) { e.Origin = envelopes.OriginAgent }),
				"machine text as a prompt":    of(envelopes.Meta, func(e *envelopes.AgentEventV1) { e.EventType = envelopes.UserMessage }),
				"an answer changed":           of(envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) { e.Text = new("A" + value(e.Text)) }),
				"a call that is not told":     of(envelopes.ToolCall, func(e *envelopes.AgentEventV1) { e.EventType = envelopes.Meta }),
				"a call of another tool":      of(envelopes.ToolCall, func(e *envelopes.AgentEventV1) { e.ToolName = new("x") }),
				"a result that is not told":   of(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.EventType = envelopes.Log }),
				"a success with exit code 0":  of(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.ToolExitCode = new(value(e.ToolExitCode)) }),
				"a failure without exit code": of(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.ToolExitCode = nil }),
				"a failure that is a success": of(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.ToolStatus = new(envelopes.StatusSuccess) }),
				"one token too many":          of(envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) { e.TokensInput = new(value(e.TokensInput) + 1) }),
				"tokens without usage":        each(func(e *normalizers.Emitted) { e.Event.Usage = nil }),
				"an answer in another thread": of(envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) { e.IsInternal, e.AgentID = !e.IsInternal, nil }),
				"a dead letter": func() normalizeFunc {
					return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
						if len(r.Data) > 0 && r.Data[0] != '{' {
							return normalizers.Result{}, normalizers.ErrMalformed
						}
						return normalizers.Normalize(s, r)
					}
				},
				"a gap": func() normalizeFunc {
					return func(s *normalizers.Session, r normalizers.Record) (normalizers.Result, error) {
						result, err := normalizers.Normalize(s, r)
						result.Gap = true
						return result, err
					}
				},
			} {
				if s.tokenless && name == "tokens without usage" {
					continue
				}
				t.Run(name, func(t *testing.T) {
					for _, g := range goldens(t, s.source) {
						if len(checkTruth(s, broken(), g.file(s.source), g.raw, newReport())) > 0 {
							return
						}
					}
					t.Error("the broken normalizer passes")
				})
			}
		})
	}
}

// TestTruthOddRecords names the records of the corpus that a naive reader loses.
func TestTruthOddRecords(t *testing.T) {
	t.Parallel()
	s := suites[0]
	files := make(map[string]corpusFile)
	if testing.Short() {
		t.Skip("reads single files of the corpus")
	}
	for _, f := range corpus(t, s) {
		files[f.name] = f
	}
	get := func(t *testing.T, name string) corpusFile {
		t.Helper()
		t.Helper()
		f, ok := files[name]
		if !ok {
			t.Fatalf("%s is not in TRIBUTARY_CORPUS", name)
		}
		return f
	}
	for _, name := range []string{"8c__fa910f8ef9__0", "e5__77a6f39913__0", "37__995ebed6e4__2"} {
		t.Run("glued lines are two records/"+name, func(t *testing.T) {
			f := get(t, "claude_code/entireio__cli/"+name+"__full.jsonl")
			perLine := make(map[int]int)
			for _, st := range fold(normalizers.Normalize, frame(fileNamed(s.source, f.name), f.data)) {
				if st.record.Origin.End {
					continue
				}
				perLine[st.line]++
				if st.failed() {
					t.Errorf("line %d: %v", st.line, st.err)
				}
			}
			glued := 0
			for _, n := range perLine {
				if n == 2 {
					glued++
				}
			}
			if glued == 0 {
				t.Error("no line holds two records")
			}
		})
	}
	t.Run("values that are no object are meta events", func(t *testing.T) {
		f := get(t, "claude_code/daaain__claude-code-log/edge_cases.jsonl")
		found := make(map[string]bool)
		for _, st := range fold(normalizers.Normalize, frame(fileNamed(s.source, f.name), f.data)) {
			raw := string(st.record.Data)
			if raw != `"massive error"` && raw != `42` && raw != `[1]` {
				continue
			}
			found[raw] = true
			if len(st.result.Events) != 1 || st.result.Events[0].Event.EventType != envelopes.Meta || string(st.result.Events[0].Event.Raw) != raw {
				t.Errorf("%s: %s", raw, told(st, false))
			}
		}
		if len(found) != 3 {
			t.Errorf("found only %v", found)
		}
	})
}
