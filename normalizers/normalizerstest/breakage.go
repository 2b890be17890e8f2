package normalizerstest

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Breakage is a normalizer that breaks one law. Make returns a new one with no memory.
type Breakage struct {
	Law, Name string
	Make      func() NormalizeFunc
}

// Breakages are broken forms of Normalize, each with the law that it breaks.
var Breakages = []Breakage{
	{"valid", "another schema version", Each(func(e *core.Emitted) { e.Event.SchemaVersion = "agtrace.event.v2" })},
	{"valid", "a gap in the sequence", Each(func(e *core.Emitted) { e.Event.Sequence *= 2 })},
	{"valid", "the event of another session", Each(func(e *core.Emitted) { e.Event.SessionID = "another" })},
	{"valid", "no raw", Each(func(e *core.Emitted) { e.Event.Raw = nil })},
	{"valid", "raw of another record", Each(replaceRaw)},
	{"valid", "too large", Each(func(e *core.Emitted) { e.Event.Text = &tooLarge })},
	{"valid", "a time that is none", Each(func(e *core.Emitted) { e.Event.TS = "yesterday" })},

	{"deterministic", "a clock", Each(func(e *core.Emitted) { e.Event.TS = time.Now().Format(time.RFC3339Nano) })},
	{"deterministic", "a counter outside of the session", numberEvents},

	{"nothing_lost", "events dropped", after(dropEvents)},
	{"nothing_lost", "skipped without a name", after(renameSkip)},
	{"nothing_lost", "an error without a reason", after(failSkipped)},

	{"sums", "every line counts", Each(doubleOutput)},
	{"sums", "the first line alone counts", countFirst},

	{"parts_of_usage", "a total of its own", Each(raiseTotal)},
	{"parts_of_usage", "the prompt of no call", Each(nameNoCall)},
	{"parts_of_usage", "no usage", Each(func(e *core.Emitted) { e.Event.Usage = nil })},

	{"ids", "one id for all", Each(func(e *core.Emitted) { e.Event.EventID = "one" })},
	{"ids", "calls and results apart", eachOf(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.ToolCallID = new("another") })},
	{"ids", "the name of another tool", eachOf(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.ToolName = new("another") })},

	{"parents", "no parents", Each(func(e *core.Emitted) { e.Event.ParentEventID = nil })},
	{"parents", "a user message with a parent", eachOf(envelopes.UserMessage, func(e *envelopes.AgentEventV1) { e.ParentEventID = new("x") })},
	{"parents", "the parent of another thread", shareParent},

	{"roles", "results of the user", eachOf(envelopes.ToolResult, func(e *envelopes.AgentEventV1) { e.Role = new(envelopes.RoleUser) })},
	{"roles", "no role", Each(func(e *core.Emitted) { e.Event.Role = nil })},

	{"cut_anywhere", "memory beside the session", numberRecords},

	{"independent", "the last session is remembered", nameLastSession},
	{"independent", "the number of the record is emitted", after(emitRecordNumber)},

	{"bad_record_changes_nothing", "it counts as a record", countBadRecord},
	{"bad_record_changes_nothing", "it is remembered elsewhere", rememberBadRecord},
	{"bad_record_changes_nothing", "it is taken for a record", after(acceptBadRecord)},

	{"unknown_record_changes_nothing", "it names the model", setUnknownModel},
}

// tooLarge is a text that fits into no event.
var tooLarge = strings.Repeat("x", core.MaxEventBytes)

// Each changes every event that the sound normalizer yields.
func Each(change func(e *core.Emitted)) func() NormalizeFunc {
	return after(func(_ core.Record, result core.Result, err error) (core.Result, error) {
		for i := range result.Events {
			change(&result.Events[i])
		}
		return result, err
	})
}

// eachOf changes every event of one type.
func eachOf(kind envelopes.EventType, change func(e *envelopes.AgentEventV1)) func() NormalizeFunc {
	return Each(func(e *core.Emitted) {
		if e.Event.EventType == kind {
			change(&e.Event)
		}
	})
}

// after changes every result of the sound normalizer.
func after(change func(core.Record, core.Result, error) (core.Result, error)) func() NormalizeFunc {
	return func() NormalizeFunc {
		return func(s *core.Session, r core.Record) (core.Result, error) {
			result, err := normalizers.Normalize(s, r)
			return change(r, result, err)
		}
	}
}

func replaceRaw(e *core.Emitted) {
	if e.Event.Raw != nil {
		e.Event.Raw = []byte(`{"another":"record"}`)
	}
}

// numberEvents appends a number to each id that continues from session to session.
func numberEvents() NormalizeFunc {
	n := 0
	return Each(func(e *core.Emitted) { n++; e.Event.EventID += strconv.Itoa(n) })()
}

// dropEvents drops the events of a record that has several.
func dropEvents(_ core.Record, result core.Result, err error) (core.Result, error) {
	if len(result.Events) > 1 {
		result.Events = nil
	}
	return result, err
}

func renameSkip(_ core.Record, result core.Result, err error) (core.Result, error) {
	if result.Skip != "" {
		result.Skip = "because"
	}
	return result, err
}

func failSkipped(_ core.Record, result core.Result, err error) (core.Result, error) {
	if result.Skip != "" {
		return core.Result{}, errNoRecord
	}
	return result, err
}

func doubleOutput(e *core.Emitted) {
	if e.Event.TokensOutput != nil {
		e.Event.TokensOutput = new(2 * *e.Event.TokensOutput)
	}
}

// countFirst drops the usage of a message, except that of its first event.
func countFirst() NormalizeFunc {
	seen := make(map[string]bool)
	return Each(func(e *core.Emitted) {
		if u := e.Event.Usage; u != nil {
			if seen[u.Key] {
				e.Event.Usage, e.Event.TokensOutput, e.Event.TokensTotal = nil, nil, nil
			}
			seen[u.Key] = true
		}
	})()
}

func nameNoCall(e *core.Emitted) {
	if u := e.Event.Usage; u != nil {
		u.Prompt, u.Key = 1, ""
	}
}

func raiseTotal(e *core.Emitted) {
	if e.Event.TokensTotal != nil {
		e.Event.TokensTotal = new(*e.Event.TokensTotal + 1)
	}
}

// shareParent gives every event the last prompt of any thread as its parent.
func shareParent() NormalizeFunc {
	var last *string
	return Each(func(e *core.Emitted) {
		if e.Event.EventType == envelopes.UserMessage {
			last = new(e.Event.EventID)
		} else {
			e.Event.ParentEventID = last
		}
	})()
}

// numberRecords emits a record number that the session does not remember.
func numberRecords() NormalizeFunc {
	records := make(map[*core.Session]int)
	return func(s *core.Session, r core.Record) (core.Result, error) {
		result, err := normalizers.Normalize(s, r)
		records[s]++
		for i := range result.Events {
			result.Events[i].Event.Text = new(strconv.Itoa(records[s]))
		}
		return result, err
	}
}

// nameLastSession emits the session of the previous record.
func nameLastSession() NormalizeFunc {
	last := ""
	return after(func(r core.Record, result core.Result, err error) (core.Result, error) {
		for i := range result.Events {
			if last != "" && last != r.Session {
				result.Events[i].Event.Text = new(last)
			}
		}
		last = r.Session
		return result, err
	})()
}

func emitRecordNumber(r core.Record, result core.Result, err error) (core.Result, error) {
	for i := range result.Events {
		result.Events[i].Event.EventID = strconv.FormatUint(r.Sequence, 10)
	}
	return result, err
}

// countBadRecord normalizes another record instead of an unreadable one.
func countBadRecord() NormalizeFunc {
	return func(s *core.Session, r core.Record) (core.Result, error) {
		result, err := normalizers.Normalize(s, r)
		if err != nil {
			r.Origin, r.Data = core.Origin{}, []byte(`{"type":"ai-title","aiTitle":"x"}`)
			_, _ = normalizers.Normalize(s, r)
		}
		return result, err
	}
}

// rememberBadRecord changes the events of the record after an unreadable one.
func rememberBadRecord() NormalizeFunc {
	bad := false
	return after(func(_ core.Record, result core.Result, err error) (core.Result, error) {
		for i := range result.Events {
			if bad {
				result.Events[i].Event.Text = new("after a bad record")
			}
		}
		bad = err != nil
		return result, err
	})()
}

func acceptBadRecord(_ core.Record, result core.Result, err error) (core.Result, error) {
	if IsPermanent(err) {
		return core.Result{Skip: core.SkipEmpty}, nil
	}
	return result, err
}

// setUnknownModel takes a model from a record of an unknown type.
func setUnknownModel() NormalizeFunc {
	return func(s *core.Session, r core.Record) (core.Result, error) {
		result, err := normalizers.Normalize(s, r)
		if bytes.Contains(r.Data, []byte("tomorrow")) {
			s.SetModel("of tomorrow")
		}
		return result, err
	}
}
