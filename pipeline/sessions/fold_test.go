package sessions_test

import (
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// event is an event of session s1 at a second of a day.
func event(sequence uint64, second int, kind envelopes.EventType, change func(*envelopes.AgentEventV1)) envelopes.AgentEventV1 {
	e := envelopes.AgentEventV1{
		Source: envelopes.ClaudeCode, SessionID: "s1", Sequence: sequence, EventType: kind, ProjectHash: "h",
		TS: time.Date(2026, 3, 9, 9, 0, second, 0, time.UTC).Format(time.RFC3339), Role: &envelopes.RolesOf(kind)[0],
	}
	if change != nil {
		change(&e)
	}
	return e
}

func text(s string) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) { e.Text = &s }
}

// tool is the event of a call.
func tool(id, name string, status envelopes.ToolStatus, latency *int64) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) {
		if id != "" {
			e.ToolCallID = &id
		}
		e.ToolName, e.ToolStatus, e.ToolLatencyMS = &name, &status, latency
	}
}

// tokens is the event of an API call of a model.
func tokens(model, key string, n int64) func(*envelopes.AgentEventV1) {
	return func(e *envelopes.AgentEventV1) {
		if model != "" {
			e.Model = &model
		}
		e.Usage = &envelopes.Usage{Input: n, CacheRead: 2 * n, CacheWrite: 3 * n, Output: 4 * n, Reasoning: 5 * n, Key: key}
		e.TokensTotal = new(e.Usage.Total())
	}
}

// summarize folds events, and looks at the record soon after the last one.
func summarize(events ...envelopes.AgentEventV1) sessions.Summary {
	f := sessions.NewFold(sessions.Division{Model: true, Tool: true})
	for i := range events {
		f.Add(new(sessions.NewStep(&events[i], 0)))
	}
	return f.Summary(time.Date(2026, 3, 9, 9, 5, 0, 0, time.UTC))
}

// TestSummaryHasWhatTheEventsState covers every field once.
func TestSummaryHasWhatTheEventsState(t *testing.T) {
	t.Parallel()
	root := "/home/ada/ledger"
	got := summarize(
		event(1, 0, envelopes.SystemMessage, text("you are an agent")),
		event(2, 1, envelopes.UserMessage, text("Fix the  tests.\nAll of them!")),
		event(3, 3, envelopes.AssistantMessage, tokens("opus", "msg_1", 1)),
		event(4, 3, envelopes.ToolCall, tool("c1", "Bash", envelopes.StatusInProgress, nil)),
		event(5, 9, envelopes.ToolResult, tool("c1", "Bash", envelopes.StatusError, new(int64(6000)))),
		event(6, 10, envelopes.Log, func(e *envelopes.AgentEventV1) {
			e.Text = new("Overloaded")
			e.Metadata = &envelopes.Metadata{SessionID: new("resume-1"), Extensions: map[string]jsontext.Value{"error": jsontext.Value(`{"code":null}`)}}
		}),
		event(7, 11, envelopes.UserMessage, func(e *envelopes.AgentEventV1) {
			e.Text = new("again")
			e.VCS = &envelopes.VCS{Repository: "github.com/acme/shop", Branch: "main"}
			e.Edge = &envelopes.Edge{Host: "mars", User: "ada", Labels: map[string]string{"team": "payments"}}
		}),
		event(8, 12, envelopes.AssistantMessage, func(e *envelopes.AgentEventV1) {
			tokens("haiku", "msg_2", 10)(e)
			e.ProjectRoot = &root
			e.VCS = &envelopes.VCS{Branch: "fix", PullRequest: "https://github.com/acme/shop/pull/7"}
			e.Edge = &envelopes.Edge{Host: "venus"}
		}),
	)
	at := func(second int) time.Time { return time.Date(2026, 3, 9, 9, 0, second, 0, time.UTC) }
	one, ten := sessions.Tokens{Input: 1, CacheRead: 2, CacheWrite: 3, Output: 4, Reasoning: 5, Total: 15, OldInput: 1, OldOutput: 4}, sessions.Tokens{Input: 10, CacheRead: 20, CacheWrite: 30, Output: 40, Reasoning: 50, Total: 150, OldInput: 10, OldOutput: 40}
	p50 := got.Tools[0].P50
	if p50 == nil || *p50 < 5940 || *p50 > 6060 {
		t.Errorf("latency of %v, want 6000 within 1%%", p50)
	}
	want := sessions.Summary{
		Source: envelopes.ClaudeCode, Session: "s1", Title: "Fix the tests", Project: &root, ProjectHash: "h", TitleSource: sessions.TitleOfPrompt,
		Activity:   sessions.Activity{State: sessions.Waiting, Phase: sessions.PhasePrompt, Since: at(12)},
		Repository: "github.com/acme/shop", Branch: "fix", PullRequest: "https://github.com/acme/shop/pull/7",
		Host: "venus", User: "ada", Labels: map[string]string{"team": "payments"},
		FirstSeen: at(0), LastSeen: at(12), ActiveMS: 12_000, Events: 8, Sequence: 8,
		Types: map[envelopes.EventType]int64{
			envelopes.SystemMessage: 1, envelopes.UserMessage: 2, envelopes.AssistantMessage: 2,
			envelopes.ToolCall: 1, envelopes.ToolResult: 1, envelopes.Log: 1,
		},
		Prompts: 2, Models: []sessions.ModelUse{{Model: "opus", Tokens: one}, {Model: "haiku", Tokens: ten}},
		Usage: sessions.Tokens{Input: 11, CacheRead: 22, CacheWrite: 33, Output: 44, Reasoning: 55, Total: 165, OldInput: 11, OldOutput: 44},
		Tools: []sessions.ToolUse{{Tool: "Bash", Calls: 1, Failures: 1, P50: p50, P95: p50}}, Calls: 1, Failures: 1,
		Errors: 1, LastError: "Overloaded", LastPrompt: "again", ResumeID: "resume-1",
	}
	if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && f.Name() != "" && f.Name()[0] >= 'a'
	}, cmp.Ignore())); diff != "" {
		t.Error(diff)
	}
}

// TestCallsCountOnce covers the orders in which the events of a call come.
func TestCallsCountOnce(t *testing.T) {
	t.Parallel()
	const running, done, failed, unknown = envelopes.StatusInProgress, envelopes.StatusSuccess, envelopes.StatusError, envelopes.StatusUnknown
	call := func(id string, s envelopes.ToolStatus) envelopes.AgentEventV1 {
		return event(1, 0, envelopes.ToolCall, tool(id, "Bash", s, nil))
	}
	result := func(id string, s envelopes.ToolStatus) envelopes.AgentEventV1 {
		return event(1, 0, envelopes.ToolResult, tool(id, "Bash", s, new(int64(7))))
	}
	for name, c := range map[string]struct {
		events          []envelopes.AgentEventV1
		calls, failures int64
	}{
		"a call alone":                              {[]envelopes.AgentEventV1{call("a", running)}, 1, 0},
		"a call and its result":                     {[]envelopes.AgentEventV1{call("a", running), result("a", done)}, 1, 0},
		"a result alone":                            {[]envelopes.AgentEventV1{result("a", failed)}, 1, 1},
		"a result before its call":                  {[]envelopes.AgentEventV1{result("a", failed), call("a", running)}, 1, 1},
		"results in progress before the last one":   {[]envelopes.AgentEventV1{call("a", running), result("a", running), result("a", running), result("a", failed)}, 1, 1},
		"a result in progress after the last one":   {[]envelopes.AgentEventV1{call("a", running), result("a", failed), result("a", running)}, 1, 1},
		"a superseded failure":                      {[]envelopes.AgentEventV1{call("a", running), result("a", failed), result("a", done)}, 1, 0},
		"a superseded success":                      {[]envelopes.AgentEventV1{call("a", running), result("a", done), result("a", failed)}, 1, 1},
		"a result without data":                     {[]envelopes.AgentEventV1{call("a", running), result("a", unknown)}, 1, 0},
		"two calls":                                 {[]envelopes.AgentEventV1{call("a", running), call("b", running), result("b", failed), result("a", done)}, 2, 1},
		"calls without ids":                         {[]envelopes.AgentEventV1{call("", running), call("", running), result("", failed), result("", done)}, 2, 1},
		"a result without an id and without a call": {[]envelopes.AgentEventV1{result("", failed)}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := summarize(c.events...)
			if got.Calls != c.calls || got.Failures != c.failures {
				t.Errorf("%d calls, %d failures, want %d and %d", got.Calls, got.Failures, c.calls, c.failures)
			}
			if len(got.Tools) != 1 || got.Tools[0].Tool != "Bash" || got.Tools[0].Calls != c.calls {
				t.Errorf("tools %+v", got.Tools)
			}
		})
	}
}

// TestLogStatesTheLatencyOfACall has logs of telemetry beside calls whose other events state no latency, or do.
func TestLogStatesTheLatencyOfACall(t *testing.T) {
	t.Parallel()
	call := event(1, 0, envelopes.ToolCall, tool("a", "Bash", envelopes.StatusInProgress, nil))
	result := func(latency *int64) envelopes.AgentEventV1 {
		return event(2, 4, envelopes.ToolResult, tool("a", "Bash", envelopes.StatusSuccess, latency))
	}
	log := func(id string) envelopes.AgentEventV1 {
		return event(3, 5, envelopes.Log, tool(id, "Bash", "", new(int64(7000))))
	}
	for name, c := range map[string]struct {
		events            []envelopes.AgentEventV1
		latency, measured int64
	}{
		"no log":                       {[]envelopes.AgentEventV1{call, result(nil)}, 0, 4000},
		"a log":                        {[]envelopes.AgentEventV1{call, result(nil), log("a")}, 7000, 0},
		"a log before the result":      {[]envelopes.AgentEventV1{call, log("a"), result(nil)}, 7000, 0},
		"a log of another call":        {[]envelopes.AgentEventV1{call, result(nil), log("b")}, 0, 4000},
		"a log of no call":             {[]envelopes.AgentEventV1{call, result(nil), log("")}, 0, 4000},
		"a result that states its own": {[]envelopes.AgentEventV1{call, result(new(int64(500))), log("a")}, 500, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := summarize(c.events...)
			if got.Calls != 1 || len(got.Tools) != 1 {
				t.Fatalf("%d calls, tools %+v", got.Calls, got.Tools)
			}
			is := got.Tools[0]
			for what, of := range map[string]struct {
				got  *int64
				want int64
			}{"latency": {is.P50, c.latency}, "measured": {is.MeasuredP50, c.measured}} {
				if of.want == 0 && of.got != nil || of.want > 0 && (of.got == nil || max(*of.got-of.want, of.want-*of.got) > of.want/100) {
					t.Errorf("%s of %v ms, want %d within 1%%", what, of.got, of.want)
				}
			}
		})
	}
}

// TestActiveTimeLeavesOutPauses covers gaps, a clock that goes back, and events without a time.
func TestActiveTimeLeavesOutPauses(t *testing.T) {
	t.Parallel()
	at := func(sequence uint64, after time.Duration) envelopes.AgentEventV1 {
		return event(sequence, 0, envelopes.Meta, func(e *envelopes.AgentEventV1) {
			e.TS = time.Date(2026, 3, 9, 9, 0, 0, 0, time.UTC).Add(after).Format(time.RFC3339Nano)
		})
	}
	broken := event(4, 0, envelopes.Meta, func(e *envelopes.AgentEventV1) { e.TS = "" })
	got := summarize(at(1, 0), at(2, time.Minute), at(3, 30*time.Second), broken, at(5, 2*time.Minute),
		at(6, 2*time.Minute+sessions.ActiveGap), at(7, time.Hour), at(8, time.Hour+time.Second))
	if want := (2*time.Minute + sessions.ActiveGap + time.Second).Milliseconds(); got.ActiveMS != want {
		t.Errorf("active for %d ms, want %d", got.ActiveMS, want)
	}
}

// TestTitles covers the titles of vendors and those that are made of the first prompt.
func TestTitles(t *testing.T) {
	t.Parallel()
	prompt := event(1, 0, envelopes.UserMessage, text("Plan a trip to Tokyo, then book it. Now"))
	system := func(e *envelopes.AgentEventV1) { e.Role, e.Text = new(envelopes.RoleSystem), new("Trip\nplan") }
	for name, c := range map[string]struct {
		events []envelopes.AgentEventV1
		want   string
	}{
		"the vendor's":                {[]envelopes.AgentEventV1{prompt, event(2, 0, envelopes.SessionSummary, system)}, "Trip"},
		"one that the agent wrote":    {[]envelopes.AgentEventV1{prompt, event(2, 0, envelopes.SessionSummary, text("A trip"))}, "A trip"},
		"not a long summary":          {[]envelopes.AgentEventV1{prompt, event(2, 0, envelopes.SessionSummary, text("The user\nasked"))}, "Plan a trip to Tokyo, then book it"},
		"not the prompt of an agent":  {[]envelopes.AgentEventV1{event(1, 0, envelopes.UserMessage, func(e *envelopes.AgentEventV1) { e.Text, e.Origin = new("x"), envelopes.OriginAgent }), prompt}, "Plan a trip to Tokyo, then book it"},
		"none":                        {[]envelopes.AgentEventV1{event(1, 0, envelopes.AssistantMessage, text("hello"))}, ""},
		"not a prompt of code alone":  {[]envelopes.AgentEventV1{event(1, 0, envelopes.UserMessage, text("```\ncode\n```")), prompt}, "Plan a trip to Tokyo, then book it"},
		"60 characters of any length": {[]envelopes.AgentEventV1{event(1, 0, envelopes.UserMessage, text(strings.Repeat("日", 100)))}, strings.Repeat("日", 60)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := summarize(c.events...).Title; got != c.want {
				t.Errorf("title %q, want %q", got, c.want)
			}
		})
	}
}

// A fold keeps copies of names and texts: a part of the text of a step would keep the whole of it in memory.
func TestFoldKeepsNoMemoryOfSteps(t *testing.T) {
	f := sessions.NewFold(sessions.WholeSession)
	kinds := []struct {
		kind   envelopes.EventType
		change func(*envelopes.AgentEventV1)
	}{
		{envelopes.UserMessage, text("Count the boats")},
		{envelopes.Reasoning, tokens("m1", "", 1)},
		{envelopes.ToolCall, tool("c1", "Bash", envelopes.StatusInProgress, nil)},
		{envelopes.ToolCall, tool("", "Read", envelopes.StatusInProgress, nil)},
		{envelopes.ToolResult, tool("c1", "Bash", envelopes.StatusSuccess, nil)},
		{envelopes.AssistantMessage, text("There are two")},
		{envelopes.SessionSummary, text("Boats")},
		{envelopes.SystemMessage, func(e *envelopes.AgentEventV1) {
			text("overloaded")(e)
			e.ProjectRoot = new("/w/boats")
			e.VCS = &envelopes.VCS{Repository: "github.com/acme/boats", Branch: "main"}
			e.Edge = &envelopes.Edge{Host: "mars", Labels: map[string]string{"team": "harbour"}}
			e.Metadata = &envelopes.Metadata{Extensions: map[string]jsontext.Value{"error": jsontext.Value(`true`)}}
		}},
	}
	var steps []weak.Pointer[byte]
	for i, k := range kinds {
		e := event(uint64(i+1), i, k.kind, k.change)
		step := sessions.NewStep(&e, 0).Detached()
		steps = append(steps, weak.Make(unsafe.StringData(string(step.Source))))
		f.Add(step)
	}
	runtime.GC()
	for i, s := range steps {
		if s.Value() != nil {
			t.Errorf("the fold keeps the step of %s in memory", kinds[i].kind)
		}
	}
	if got := f.Summary(time.Now()).LastPrompt; got != "Count the boats" {
		t.Errorf("last prompt %q", got)
	}
}
