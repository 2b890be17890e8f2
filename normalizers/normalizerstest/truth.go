package normalizerstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Report has the counts of a run, for the log of the test.
type Report struct {
	records, with, skipped, dead, events int
	skips                                map[string]int
	codes                                map[string]int
	types                                map[string]int
	naive, sums                          Figures
}

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{skips: make(map[string]int), codes: make(map[string]int), types: make(map[string]int)}
}

// Add adds the counts of o.
func (r *Report) Add(o *Report) {
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
	r.naive.Add(o.naive)
	r.sums.Add(o.sums)
}

func (r *Report) String() string {
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

// Problems are the differences between a file and its events.
type Problems []string

// Errorf notes a problem.
func (p *Problems) Errorf(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// CheckTruth returns the differences between the events of a file and its raw bytes.
func CheckTruth(s Suite, normalize NormalizeFunc, file normalizers.File, data []byte, r *Report) Problems {
	var p Problems
	lines := s.Read(data)
	want := s.Interpret(file.Name, lines)
	framed := Frame(file, data)
	if checkFraming(&p, lines, want, framed); len(p) > 0 {
		return p
	}
	steps := Fold(normalize, framed)
	got := Events(steps)
	checkAccounting(&p, lines, steps, r)
	checkSums(&p, s, want, steps, r)
	checkThreads(&p, lines, want, steps)
	checkFacts(&p, s, lines, steps)
	checkResumeIDs(&p, s, lines, steps)
	checkVCS(&p, s, lines, steps)
	if !want.Trimmed {
		checkTalk(&p, want, got)
		checkTools(&p, want, got, r)
	}
	for _, e := range got {
		r.types[string(e.EventType)]++
	}
	return p
}

// checkFraming: every record of the file comes out in order, with its bytes, line and session; one End record for
// each session follows.
func checkFraming(p *Problems, lines []Line, want Account, framed []normalizers.Framed) {
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
		if string(r.Record.Data) != string(lines[i].Data) {
			p.Errorf("record %d: bytes\n%s\nwant\n%s", i+1, Clip(string(r.Record.Data)), Clip(string(lines[i].Data)))
			return
		}
		if r.Line != lines[i].Number || r.Record.Sequence != uint64(r.Line) {
			p.Errorf("record %d: line %d, sequence %d, want %d", i+1, r.Line, r.Record.Sequence, lines[i].Number)
			return
		}
		if r.Record.Session != want.Sessions[i] {
			p.Errorf("line %d: session %q, want %q", r.Line, r.Record.Session, want.Sessions[i])
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

// checkAccounting: records = with events + skips + dead letters. Only what is not JSON is a dead letter, and an
// unbroken file has no gap.
func checkAccounting(p *Problems, lines []Line, steps []Step, r *Report) {
	for i, s := range steps {
		r.events += len(s.Result.Events)
		if s.Record.Origin.End {
			continue
		}
		r.records++
		switch {
		case s.Failed():
			r.dead++
			if !lines[i].Bad {
				p.Errorf("line %d: a dead letter, though it can be read: %v", s.Line, s.Err)
			}
		case s.emits():
			r.with++
		default:
			r.skipped++
			r.skips[string(s.Result.Skip)]++
		}
		if lines[i].Bad && !s.Failed() {
			p.Errorf("line %d: no dead letter, though it cannot be read", s.Line)
		}
		if s.Result.Gap {
			p.Errorf("line %d: a gap in an unbroken file", s.Line)
		}
	}
}

// checkSums: per session and field, the events sum up to the highest figure of each message. The log shows the error
// of a naive sum.
func checkSums(p *Problems, s Suite, want Account, steps []Step, r *Report) {
	l := s.Ledger()
	got := make(map[string]Figures)
	for _, st := range steps {
		if !st.Failed() && !st.Record.Origin.End {
			l.Add(st.Record.Session, st.Record.Data)
		}
		sum := got[st.Record.Session]
		for _, e := range st.Result.Events {
			sum.Add(FiguresOf(e.Event))
		}
		got[st.Record.Session] = sum
	}
	for session, sum := range got {
		if w := l.Sums(session); sum != w {
			p.Errorf("session %q: tokens\n%+v, want\n%+v", session, sum, w)
		}
		r.sums.Add(sum)
		r.naive.Add(want.Naive[session])
	}
}

// checkThreads: every event belongs to the thread that its record names.
func checkThreads(p *Problems, lines []Line, want Account, steps []Step) {
	for i, s := range steps {
		for _, e := range s.Result.Events {
			if i >= len(lines) || e.Sequence != s.Record.Sequence {
				continue
			}
			w := want.Threads[i]
			if i < len(want.Speakers) && len(want.Speakers[i]) > 0 {
				w.Agent, want.Speakers[i] = want.Speakers[i][0], want.Speakers[i][1:]
			}
			if agent, ok := want.Inner[[2]string{e.Event.SessionID, Value(e.Event.ToolCallID)}]; ok {
				w = RawThread{Agent: agent, Internal: true}
			}
			if Value(e.Event.AgentID) != w.Agent || e.Event.IsInternal != w.Internal {
				p.Errorf("line %d: %s of agent %q internal %t, want %q %t", s.Line, e.Event.EventType,
					Value(e.Event.AgentID), e.Event.IsInternal, w.Agent, w.Internal)
			}
		}
	}
}

// checkTalk: every message of humans, agents and the assistant is emitted exactly once, in
// order.
func checkTalk(p *Problems, want Account, got []envelopes.AgentEventV1) {
	emitted := make(map[string][]Utterance)
	replaced := replacedIDs(got)
	for _, e := range got {
		if replaced[[2]string{e.SessionID, e.EventID}] {
			continue
		}
		u := Utterance{Session: e.SessionID, Text: strings.TrimSpace(Value(e.Text))}
		switch {
		case e.EventType == envelopes.AssistantMessage:
			u.Who = "assistant"
		case e.EventType == envelopes.UserMessage && e.Origin == envelopes.OriginAgent:
			u.Who = "agent"
		case e.EventType == envelopes.UserMessage && e.Origin == "":
			u.Who = "human"
		case e.EventType == envelopes.UserMessage:
			u.Who = "user_message of origin " + string(e.Origin)
		default:
			continue
		}
		emitted[e.SessionID] = append(emitted[e.SessionID], u)
	}
	texts := make(map[string][]Utterance)
	for _, u := range want.Talk {
		texts[u.Session] = append(texts[u.Session], u)
	}
	for session := range want.talkSessions(emitted) {
		a, b := texts[session], emitted[session]
		for i := range max(len(a), len(b)) {
			if i >= len(a) || i >= len(b) || a[i].Who != b[i].Who || a[i].Text != b[i].Text {
				p.Errorf("session %q: utterance %d of %d (%d emitted):\n%s\nis emitted as\n%s", session, i+1, len(a), len(b), pick(a, i), pick(b, i))
				break
			}
		}
	}
}

// replacedIDs returns session and id of the events that the event of another channel replaces. A message that an agent
// has written again is a text of its own.
func replacedIDs(events []envelopes.AgentEventV1) map[[2]string]bool {
	out := make(map[[2]string]bool)
	for _, e := range events {
		base, _, _ := strings.Cut(e.Supersedes, "#r")
		if e.Supersedes != "" && !strings.HasPrefix(e.EventID, base+"#r") {
			out[[2]string{e.SessionID, e.Supersedes}] = true
		}
	}
	return out
}

// talkSessions returns the sessions of both accounts.
func (a Account) talkSessions(emitted map[string][]Utterance) map[string]bool {
	out := make(map[string]bool)
	for _, u := range a.Talk {
		out[u.Session] = true
	}
	for s := range emitted {
		out[s] = true
	}
	return out
}

func pick(list []Utterance, i int) string {
	if i >= len(list) {
		return "nothing"
	}
	return list[i].String()
}

// checkTools: each tool_use becomes a tool_call, and each tool_result a tool_result with its id, in order; the exit
// codes are exactly the stated ones.
func checkTools(p *Problems, want Account, got []envelopes.AgentEventV1, r *Report) {
	calls := make(map[string][]string)
	results := make(map[string][]envelopes.AgentEventV1)
	for _, e := range got {
		switch e.EventType {
		case envelopes.ToolCall:
			if e.Supersedes == "" {
				calls[e.SessionID] = append(calls[e.SessionID], Value(e.ToolCallID)+" "+Value(e.ToolName))
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
	for _, c := range want.Calls {
		wantCalls[c.Session] = append(wantCalls[c.Session], c.ID+" "+c.Name)
	}
	for session := range mergeKeys(calls, wantCalls) {
		if !slices.Equal(calls[session], wantCalls[session]) {
			p.Errorf("session %q: tool calls\n%q\nwant\n%q", session, calls[session], wantCalls[session])
		}
	}
	next := make(map[string]int)
	for _, w := range want.Results {
		i := next[w.Session]
		next[w.Session]++
		if i >= len(results[w.Session]) {
			p.Errorf("session %q: line %d: no tool_result of %q", w.Session, w.Line, w.ID)
			break
		}
		e := results[w.Session][i]
		if Value(e.ToolCallID) != w.ID {
			p.Errorf("session %q: line %d: tool_result of %q, want %q", w.Session, w.Line, Value(e.ToolCallID), w.ID)
			break
		}
		if w.Failed != nil && *w.Failed != (Value(e.ToolStatus) == envelopes.StatusError) {
			p.Errorf("session %q: line %d: status %q, failed: %t", w.Session, w.Line, Value(e.ToolStatus), *w.Failed)
		}
		switch {
		case w.Code == nil && e.ToolExitCode != nil:
			p.Errorf("session %q: line %d: exit code %d, but none is stated", w.Session, w.Line, *e.ToolExitCode)
		case w.Code != nil && (e.ToolExitCode == nil || *e.ToolExitCode != *w.Code):
			p.Errorf("session %q: line %d: exit code %v, want %d", w.Session, w.Line, e.ToolExitCode, *w.Code)
		case w.Code != nil:
			r.codes[w.Form]++
			if *w.Code != 0 && Value(e.ToolStatus) != envelopes.StatusError {
				p.Errorf("session %q: line %d: status %q with exit code %d", w.Session, w.Line, Value(e.ToolStatus), *w.Code)
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
