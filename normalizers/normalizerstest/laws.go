package normalizerstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Law is a property that holds for every vendor and every file. TestLawsCatch shows that each law can fail.
type Law struct {
	Name string
	// of is a law of the steps: it returns the first violation.
	of func(f Folding) error
	// along is a law of the states of sessions: it returns the check of each record, see [Folding.along].
	along func(f Folding) func(p Point) error
	// whole laws need records as the vendor wrote them: they do not hold for damaged ones.
	whole bool
}

// Check returns the first violation.
func (l Law) Check(f Folding) error {
	if l.along != nil {
		return f.along(l)[0]
	}
	return l.of(f)
}

// Folding is what a law checks: the records of a file, and the steps that a normalizer makes from them. Laws share
// the steps and do not change them.
type Folding struct {
	Suite     Suite
	Normalize NormalizeFunc
	Records   []normalizers.Framed
	Steps     []Step
}

// Folded normalizes the records of a file, each session with its own state.
func Folded(s Suite, normalize NormalizeFunc, records []normalizers.Framed) Folding {
	return Folding{Suite: s, Normalize: normalize, Records: records, Steps: Fold(normalize, records)}
}

// Point is a record of a file that can be read, normalized once more: what it yields, and the encoded state of its
// session before and after it.
type Point struct {
	Index         int // in the records of the folding
	Record        normalizers.Framed
	Step          Step
	Before, After []byte
}

// along normalizes the records once more, and checks laws of states at each of them. It returns the first violation of
// each law, nil where there is none, and ends when all are broken.
func (f Folding) along(laws ...Law) []error {
	broken := make([]error, len(laws))
	checks := make([]func(Point) error, len(laws))
	for i, l := range laws {
		checks[i] = l.along(f)
	}
	sessions, states := make(map[string]*core.Session), make(map[string][]byte)
	for i, r := range f.Records {
		if !slices.Contains(broken, nil) {
			break
		}
		if r.Err != nil {
			continue
		}
		key := r.Record.Session
		if sessions[key] == nil {
			sessions[key] = normalizers.NewSession(r.Record.Source, key)
			states[key] = sessions[key].Encode()
		}
		p := Point{Index: i, Record: r, Before: states[key]}
		p.Step = FoldOne(f.Normalize, sessions, r)
		p.After = sessions[key].Encode()
		states[key] = p.After
		for l, check := range checks {
			if broken[l] == nil {
				broken[l] = check(p)
			}
		}
	}
	return broken
}

// Laws are the laws of README.md of package normalizers.
var Laws = []Law{
	{Name: "valid", of: lawValid},
	{Name: "deterministic", along: lawDeterministic},
	{Name: "nothing_lost", of: LawNothingLost},
	{Name: "sums", of: LawSums, whole: true},
	{Name: "parts_of_usage", of: lawParts},
	{Name: "ids", of: lawIDs},
	{Name: "parents", of: lawParents},
	{Name: "roles", of: lawRoles},
	{Name: "cut_anywhere", along: lawCut},
	{Name: "independent", of: lawIndependent},
	{Name: "bad_record_changes_nothing", along: lawBadRecord},
	{Name: "unknown_record_changes_nothing", along: lawUnknownRecord, whole: true},
}

// CheckLaws checks the events of a file against every law; a damaged file only against those that hold for any bytes.
func CheckLaws(tb testing.TB, s Suite, records []normalizers.Framed, whole bool) {
	tb.Helper()
	for _, err := range violations(s, records, whole) {
		tb.Error(err)
	}
}

// violations returns the first violation of each law that the events of a file break.
func violations(s Suite, records []normalizers.Framed, whole bool) []error {
	var out []error
	records = slices.Clone(records)
	for i := range records {
		records[i].Record.Sequence = uint64(i + 1) // several records of one line have one number
	}
	folded := Folded(s, normalizers.Normalize, records)
	var along []Law
	found := func(l Law, err error) {
		if err != nil {
			out = append(out, fmt.Errorf("law %s: %w", l.Name, err))
		}
	}
	for _, l := range Laws {
		switch {
		case l.whole && !whole:
		case l.along != nil:
			along = append(along, l)
		default:
			found(l, l.of(folded))
		}
	}
	for i, err := range folded.along(along...) {
		found(along[i], err)
	}
	return out
}

// at names the record of a step for a violation.
func at(i int, s Step) string { return fmt.Sprintf("record %d (line %d)", i+1, s.Line) }

// lawValid: Validate and the JSON Schema accept every event; it fits; its sequence has no gap; it belongs to the
// session of its record; raw is the record on the first event of a record, and on no other.
func lawValid(f Folding) error {
	next := make(map[string]uint64)
	for i, s := range f.Steps {
		var mayCarry func(raw []byte) (ok, known bool) // an event of this record
		if f.Suite.Raw != nil {
			mayCarry = f.Suite.Raw(s.Record.Data)
		}
		for j, e := range s.Result.Events {
			id := fmt.Sprintf("%s: event %d %q", at(i, s), j, Clip(e.Event.EventID))
			if err := e.Event.Validate(); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			b, err := Encode(e.Event)
			if err != nil {
				return fmt.Errorf("%s: %w", at(i, s), err)
			}
			if err := schemaError(b); err != nil {
				return fmt.Errorf("%s: JSON Schema: %w\n%s", id, err, Clip(string(b)))
			}
			if len(b) > core.MaxEventBytes {
				return fmt.Errorf("%s: %d bytes, more than %d", id, len(b), core.MaxEventBytes)
			}
			if !utf8.Valid(b) {
				return fmt.Errorf("%s: not UTF-8", id)
			}
			if e.Event.SessionID != s.Record.Session || e.Event.Source != s.Record.Source {
				return fmt.Errorf("%s: is of %s %q, its record of %s %q", id, e.Event.Source, e.Event.SessionID, s.Record.Source, s.Record.Session)
			}
			next[s.Record.Session]++
			if e.Event.Sequence != next[s.Record.Session] {
				return fmt.Errorf("%s: sequence %d, want %d", id, e.Event.Sequence, next[s.Record.Session])
			}
			if e.Sequence > s.Record.Sequence && !s.Record.Origin.End {
				return fmt.Errorf("%s: comes from record %d, given %d", id, e.Sequence, s.Record.Sequence)
			}
			if err := rawError(mayCarry, s, j); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
		}
	}
	return nil
}

// rawError checks raw against README.md, Size: the record on its first event, null on the
// others. The suite of the vendor checks documents of several records.
func rawError(mayCarry func(raw []byte) (ok, known bool), s Step, j int) error {
	e := s.Result.Events[j]
	if e.Sequence != s.Record.Sequence {
		return nil // an event of an earlier record, pending until now
	}
	if string(s.Record.Data) == "null" {
		return nil // the record itself is null
	}
	if mayCarry != nil {
		if ok, known := mayCarry(e.Event.Raw); known {
			if !ok {
				return fmt.Errorf("raw is neither the record nor a part of it that the vendor's events may carry:\n%s", Clip(string(e.Event.Raw)))
			}
			return nil
		}
	}
	first := !slices.ContainsFunc(s.Result.Events[:j], func(o core.Emitted) bool { return o.Sequence == e.Sequence })
	raw := e.Event.Raw
	switch {
	case !first && raw != nil && string(raw) != "null":
		return errors.New("raw on an event that is not the first of its record")
	case first && (raw == nil || string(raw) == "null"):
		// Only a record that would not fit has none.
		if len(s.Record.Data) < core.MaxEventBytes/4 {
			return errors.New("no raw on the first event of its record")
		}
	case first && !bytes.Equal(raw, s.Record.Data) && !bytes.Contains(raw, []byte(`"$elided"`)):
		want, got := Plain(s.Record.Data), Plain(raw)
		if !json.Valid(s.Record.Data) {
			want = strings.ToValidUTF8(string(s.Record.Data), "\ufffd") // a line of text
		}
		if !reflect.DeepEqual(want, got) {
			return fmt.Errorf("raw is not its record:\n%s\nagainst\n%s", Clip(string(raw)), Clip(string(s.Record.Data)))
		}
	}
	return nil
}

// Plain is a JSON value as most readers see it: the last member of a name counts, text that is not UTF-8 is replaced,
// numbers are unchanged.
func Plain(data []byte) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return err
	}
	return v
}

// lawDeterministic: the same records yield the same events.
func lawDeterministic(f Folding) func(Point) error {
	return func(p Point) error {
		if err := Differ(f.Steps[p.Index:p.Index+1], []Step{p.Step}, true); err != nil {
			return fmt.Errorf("%s: %w", at(p.Index, p.Step), err)
		}
		return nil
	}
}

// LawNothingLost checks that every record has either events, or a named skip, or a permanent error.
func LawNothingLost(f Folding) error {
	var with, skipped, dead, ends int
	for i, s := range f.Steps {
		if len(s.Result.Events) > core.MaxEvents {
			return fmt.Errorf("%s: %d events", at(i, s), len(s.Result.Events))
		}
		switch {
		case s.Failed():
			dead++
			if !IsPermanent(s.Err) {
				return fmt.Errorf("%s: error without a reason: %w", at(i, s), s.Err)
			}
			if len(s.Result.Events) > 0 || s.Result.Skip != "" {
				return fmt.Errorf("%s: failed and emitted something", at(i, s))
			}
		case s.Record.Origin.End:
			ends++
			if s.Result.Skip != "" {
				return fmt.Errorf("%s: the end is no record that could be skipped, but has %q", at(i, s), s.Result.Skip)
			}
		case s.emits():
			with++
			if s.Result.Skip != "" {
				return fmt.Errorf("%s: has events and is skipped as %q", at(i, s), s.Result.Skip)
			}
		case slices.Contains(core.SkipReasons, s.Result.Skip):
			skipped++
		default:
			return fmt.Errorf("%s: no event, and skipped as %q: %s", at(i, s), s.Result.Skip, Clip(string(s.Record.Data)))
		}
	}
	if with+skipped+dead+ends != len(f.Records) {
		return fmt.Errorf("%d records, but %d with events, %d skipped, %d dead letters, %d ends", len(f.Records), with, skipped, dead, ends)
	}
	return nil
}

// Figures are token counts: of an event, or summed.
type Figures struct {
	Input, Output, Cached, Thinking, Tool, Total                   int64 // tokens_*
	UsageInput, CacheRead, CacheWrite, UsageOutput, UsageReasoning int64 // usage
	CacheWrite1h, WebSearches                                      int64
	Cost                                                           int64 // in millionths of a millionth of a dollar
}

// Add adds o to f.
func (f *Figures) Add(o Figures) {
	f.Input += o.Input
	f.Output += o.Output
	f.Cached += o.Cached
	f.Thinking += o.Thinking
	f.Tool += o.Tool
	f.Total += o.Total
	f.UsageInput += o.UsageInput
	f.CacheRead += o.CacheRead
	f.CacheWrite += o.CacheWrite
	f.UsageOutput += o.UsageOutput
	f.UsageReasoning += o.UsageReasoning
	f.CacheWrite1h += o.CacheWrite1h
	f.WebSearches += o.WebSearches
	f.Cost += o.Cost
}

// FiguresOf returns the token counts of an event.
func FiguresOf(e envelopes.AgentEventV1) Figures {
	f := Figures{
		Input: Value(e.TokensInput), Output: Value(e.TokensOutput), Cached: Value(e.TokensCached),
		Thinking: Value(e.TokensThinking), Tool: Value(e.TokensTool), Total: Value(e.TokensTotal),
	}
	if u := e.Usage; u != nil {
		f.UsageInput, f.CacheRead, f.CacheWrite, f.UsageOutput, f.UsageReasoning = u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning
		f.CacheWrite1h, f.WebSearches, f.Cost = u.CacheWrite1h, u.WebSearchRequests, CostOf(u.CostUSD)
	}
	return f
}

// CostOf converts dollars to the unit of [Figures].
func CostOf(usd float64) int64 { return int64(math.Round(usd * 1e12)) }

// Billed returns the tokens of the events of these records. It fails the test if the suite's ledger finds others.
func (s Suite) Billed(t *testing.T, name string, records ...[]byte) Figures {
	t.Helper()
	var sum Figures
	ledger, session := s.Ledger(), ""
	for _, st := range Fold(normalizers.Normalize, Frame(FileNamed(s.Source, name), bytes.Join(records, []byte("\n")))) {
		session = st.Record.Session
		if !st.Failed() && !st.Record.Origin.End {
			ledger.Add(session, st.Record.Data)
		}
		for _, e := range st.Result.Events {
			sum.Add(FiguresOf(e.Event))
		}
	}
	if want := ledger.Sums(session); sum != want {
		t.Errorf("the events bill %+v, the ledger %+v", sum, want)
	}
	return sum
}

// Ledger counts the tokens of records by the vendor's rule.
type Ledger interface {
	// Add counts a record of a session.
	Add(session string, record []byte)
	// Sums returns what the session has used.
	Sums(session string) Figures
}

// LawSums checks after every record that the events of a session sum up correctly (README.md, Tokens).
func LawSums(f Folding) error {
	want, got := f.Suite.Ledger(), make(map[string]*Figures)
	for i, st := range f.Steps {
		session := st.Record.Session
		if got[session] == nil {
			got[session] = new(Figures)
		}
		if !st.Failed() && !st.Record.Origin.End {
			want.Add(session, st.Record.Data)
		}
		for _, e := range st.Result.Events {
			got[session].Add(FiguresOf(e.Event))
		}
		if w := want.Sums(session); *got[session] != w {
			return fmt.Errorf("%s: session %q: sums\n%+v, want\n%+v", at(i, st), session, *got[session], w)
		}
	}
	return nil
}

// lawParts: on every event with tokens, tokens_total is the sum of the parts of usage; no figure is below zero; usage
// is there exactly if a count is; the prompt of a call has at least the tokens that an event adds to it.
func lawParts(f Folding) error {
	for i, s := range f.Steps {
		for _, e := range s.Result.Events {
			ev := e.Event
			counts := []*int64{ev.TokensInput, ev.TokensOutput, ev.TokensTotal, ev.TokensCached, ev.TokensThinking, ev.TokensTool}
			some := false
			for _, c := range counts {
				some = some || c != nil
				if Value(c) < 0 {
					return fmt.Errorf("%s: event %q: a count below zero", at(i, s), ev.EventID)
				}
			}
			if some != (ev.Usage != nil) || some && ev.TokensTotal == nil {
				return fmt.Errorf("%s: event %q: counts %t, usage %t, total %t", at(i, s), ev.EventID, some, ev.Usage != nil, ev.TokensTotal != nil)
			}
			if u := ev.Usage; u != nil {
				if min(u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning) < 0 {
					return fmt.Errorf("%s: event %q: a part of usage below zero: %+v", at(i, s), ev.EventID, *u)
				}
				if u.Prompt != 0 && (u.Key == "" || u.Prompt < u.Input+u.CacheRead+u.CacheWrite) {
					return fmt.Errorf("%s: event %q: a prompt of no call, or of other tokens: %+v", at(i, s), ev.EventID, *u)
				}
				if sum := u.Input + u.CacheRead + u.CacheWrite + u.Output + u.Reasoning; sum != *ev.TokensTotal {
					return fmt.Errorf("%s: event %q: total %d, parts %d", at(i, s), ev.EventID, *ev.TokensTotal, sum)
				}
			}
		}
	}
	return nil
}

// lawIDs: ids are unique in their session, as far as they are remembered; a result has the id and the tool name of
// its call; a superseding event names an earlier one (README.md, Identity).
func lawIDs(f Folding) error {
	sessions := make(map[string]knownIDs)
	for i, s := range f.Steps {
		for _, e := range s.Result.Events {
			known, ok := sessions[e.Event.SessionID]
			if !ok {
				known = knownIDs{make(map[string]uint64), make(map[string]string)}
				sessions[e.Event.SessionID] = known
			}
			if err := known.event(e.Event); err != nil {
				return fmt.Errorf("%s: %w", at(i, s), err)
			}
			if err := known.tool(e.Event); err != nil {
				return fmt.Errorf("%s: %w", at(i, s), err)
			}
		}
	}
	return nil
}

// knownIDs are the ids of the events of a session.
type knownIDs struct {
	events map[string]uint64 // event_id -> sequence
	calls  map[string]string // tool_call_id -> tool_name
}

// event checks and adds the id of an event.
func (k knownIDs) event(e envelopes.AgentEventV1) error {
	const remembered = 4096
	if e.EventID == "" {
		return errors.New("an event without id")
	}
	if before, ok := k.events[e.EventID]; ok && e.Sequence-before < remembered {
		return fmt.Errorf("id %q again, first at sequence %d", e.EventID, before)
	}
	k.events[e.EventID] = e.Sequence
	if e.Supersedes == "" {
		return nil
	}
	if _, ok := k.events[e.Supersedes]; !ok || e.Supersedes == e.EventID {
		return fmt.Errorf("%q supersedes %q, which was never there", e.EventID, e.Supersedes)
	}
	return nil
}

// tool adds the call of an event, or checks the result against its call.
func (k knownIDs) tool(e envelopes.AgentEventV1) error {
	if e.ToolCallID == nil {
		return nil // no tool, or a tool without an id
	}
	id := *e.ToolCallID
	switch e.EventType {
	case envelopes.ToolCall:
		if e.ToolName != nil {
			k.calls[id] = *e.ToolName
		}
	case envelopes.ToolResult:
		// A result long after its call may have lost the name, but never has another.
		if name, ok := k.calls[id]; ok && e.ToolName != nil && *e.ToolName != name {
			return fmt.Errorf("result %q of %q has the name %q", id, name, *e.ToolName)
		}
		if !strings.HasPrefix(e.EventID, id) && !strings.HasPrefix(e.EventID, "@") && !strings.HasPrefix(e.EventID, "~~") {
			return fmt.Errorf("result %q has tool_call_id %q", e.EventID, id)
		}
	case envelopes.Log, envelopes.Meta:
	case envelopes.UserMessage, envelopes.AssistantMessage, envelopes.SystemMessage, envelopes.Reasoning,
		envelopes.FileSnapshot, envelopes.SessionSummary:
		return fmt.Errorf("%s with a tool_call_id", e.EventType)
	}
	return nil
}

// threadOf names the thread of an event: the main conversation or one subagent.
func (s Suite) threadOf(e envelopes.AgentEventV1) string {
	switch {
	case s.OneThread:
		return "main" // a run is one thread, whoever speaks
	case e.AgentID != nil:
		return "agent " + *e.AgentID
	case e.IsInternal:
		return "sidechain"
	default:
		return "main"
	}
}

// lawParents: the parent of an event is the last prompt of its thread.
func lawParents(f Folding) error {
	latest := make(map[[2]string]string)
	for i, s := range f.Steps {
		for _, e := range s.Result.Events {
			thread := [2]string{e.Event.SessionID, f.Suite.threadOf(e.Event)}
			if e.Event.EventType == envelopes.UserMessage {
				if e.Event.ParentEventID != nil {
					return fmt.Errorf("%s: user_message %q has parent %q", at(i, s), e.Event.EventID, *e.Event.ParentEventID)
				}
				latest[thread] = e.Event.EventID
				continue
			}
			if want, got := latest[thread], Value(e.Event.ParentEventID); got != want {
				return fmt.Errorf("%s: %s %q in %s has parent %q, want %q", at(i, s), e.Event.EventType, e.Event.EventID, thread[1], got, want)
			}
		}
	}
	return nil
}

// rolesOfSpec is the role table of the spec, written down a second time.
var rolesOfSpec = map[envelopes.EventType]string{
	"user_message": "user", "assistant_message": "assistant", "system_message": "system", "reasoning": "assistant",
	"tool_call": "assistant", "tool_result": "tool", "file_snapshot": "system", "session_summary": "assistant system",
	"meta": "system", "log": "system cli",
}

// lawRoles: the type of an event allows its role.
func lawRoles(f Folding) error {
	for i, s := range f.Steps {
		for _, e := range s.Result.Events {
			allowed := strings.Fields(rolesOfSpec[e.Event.EventType])
			if !slices.Contains(allowed, string(Value(e.Event.Role))) {
				return fmt.Errorf("%s: %s has role %q", at(i, s), e.Event.EventType, Value(e.Event.Role))
			}
		}
	}
	return nil
}

// LawCut checks that a fold can be cut anywhere: if the state is encoded and decoded after every record, events and
// states equal those of an uncut fold. It also checks that the state fits.
func LawCut(f Folding) error { return Law{along: lawCut}.Check(f) }

func lawCut(f Folding) func(Point) error {
	const most = 128 << 10
	cut := make(map[string]*core.Session)
	return func(p Point) error {
		r, a := p.Record, f.Steps[p.Index]
		if err := Differ([]Step{a}, []Step{FoldOne(f.Normalize, cut, r)}, true); err != nil {
			return fmt.Errorf("cut after every record: %w", err)
		}
		key := r.Record.Session
		y := cut[key].Encode()
		if !bytes.Equal(p.After, y) {
			return fmt.Errorf("%s: the state after a cut is another one:\n%q\nagainst\n%q", at(p.Index, a), Clip(string(y)), Clip(string(p.After)))
		}
		if len(y) > most {
			return fmt.Errorf("%s: a state of %d bytes", at(p.Index, a), len(y))
		}
		s, err := normalizers.DecodeSession(y)
		if err != nil {
			return fmt.Errorf("%s: %w", at(p.Index, a), err)
		}
		if s.ID() != key || s.Source() != r.Record.Source {
			return fmt.Errorf("%s: session %q of %s is decoded as %q of %s", at(p.Index, a), key, r.Record.Source, s.ID(), s.Source())
		}
		cut[key] = s
		return nil
	}
}

// lawIndependent: each session alone, with other record numbers, yields what it yields among others.
func lawIndependent(f Folding) error {
	alone := make(map[string][]normalizers.Framed)
	among := make(map[string][]Step)
	var order []string
	for i, r := range f.Records {
		key := r.Record.Session
		if alone[key] == nil {
			order = append(order, key)
		}
		r.Record.Sequence += 1_000_000
		alone[key] = append(alone[key], r)
		among[key] = append(among[key], f.Steps[i])
	}
	slices.Reverse(order)
	for _, key := range order {
		if err := Differ(among[key], Fold(f.Normalize, alone[key]), false); err != nil {
			return fmt.Errorf("session %q: %w", key, err)
		}
	}
	return nil
}

// LawBadRecord checks that an unreadable record before any record changes neither the state nor a later event.
func LawBadRecord(f Folding) error { return Law{along: lawBadRecord}.Check(f) }

func lawBadRecord(f Folding) func(Point) error {
	sessions := make(map[string]*core.Session)
	return func(p Point) error {
		r, key := p.Record, p.Record.Record.Session
		bad := r
		bad.Record.Origin.End = false
		bad.Record.Data = bytes.Clone(f.Suite.Bad[p.Index%len(f.Suite.Bad)])
		st := FoldOne(f.Normalize, sessions, bad)
		if st.Err == nil {
			return fmt.Errorf("%s: %q can be read", at(p.Index, st), Clip(string(bad.Record.Data)))
		}
		if !IsPermanent(st.Err) {
			return fmt.Errorf("%s: error without a reason: %w", at(p.Index, st), st.Err)
		}
		if after := sessions[key].Encode(); !bytes.Equal(p.Before, after) {
			return fmt.Errorf("%s: a bad record changed the state:\n%q\nfrom\n%q", at(p.Index, st), Clip(string(after)), Clip(string(p.Before)))
		}
		if err := Differ([]Step{f.Steps[p.Index]}, []Step{FoldOne(f.Normalize, sessions, r)}, true); err != nil {
			return fmt.Errorf("after a bad record: %w", err)
		}
		return nil
	}
}
