package sessions_test

import (
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
)

// TestPhases covers what a session does after its last event, soon and long after.
func TestPhases(t *testing.T) {
	t.Parallel()
	const running, done = envelopes.StatusInProgress, envelopes.StatusSuccess
	failure := func(e *envelopes.AgentEventV1) {
		e.Metadata = &envelopes.Metadata{Extensions: map[string]jsontext.Value{"error": jsontext.Value(`{}`)}}
	}
	permission := func(stated string) func(*envelopes.AgentEventV1) {
		return func(e *envelopes.AgentEventV1) {
			e.Metadata = &envelopes.Metadata{Extensions: map[string]jsontext.Value{"permission": jsontext.Value(stated)}}
		}
	}
	inside := func(e *envelopes.AgentEventV1) { e.IsInternal = true }
	copied := func(e *envelopes.AgentEventV1) { e.Origin = envelopes.OriginCopied }
	add := func(second int, t envelopes.EventType, change func(*envelopes.AgentEventV1)) envelopes.AgentEventV1 {
		return event(uint64(second+1), second, t, change)
	}
	prompt := add(0, envelopes.UserMessage, text("go"))
	call := func(second int, id, name string) envelopes.AgentEventV1 {
		return add(second, envelopes.ToolCall, tool(id, name, running, nil))
	}
	result := func(second int, id, name string) envelopes.AgentEventV1 {
		return add(second, envelopes.ToolResult, tool(id, name, done, nil))
	}
	asks := add(3, envelopes.Meta, permission(`{"requestId":"p","toolCallId":"a","kind":"shell"}`))
	for name, c := range map[string]struct {
		events []envelopes.AgentEventV1
		state  sessions.State
		phase  sessions.Phase
		since  int // second; -1 for unknown
		tool   string
		later  sessions.Phase // when nothing has happened for an hour; empty for the same
	}{
		"no event":                               {nil, sessions.Idle, sessions.PhaseNone, -1, "", ""},
		"nothing but system messages":            {list(add(1, envelopes.SystemMessage, nil)), sessions.Idle, sessions.PhaseNone, -1, "", ""},
		"a prompt":                               {list(prompt), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
		"meta events after a question":           {list(prompt, add(2, envelopes.Meta, nil)), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
		"an answer":                              {list(prompt, add(2, envelopes.AssistantMessage, nil)), sessions.Waiting, sessions.PhasePrompt, 2, "", ""},
		"an answer of a subagent":                {list(prompt, add(2, envelopes.AssistantMessage, inside)), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
		"copied history":                         {list(prompt, add(2, envelopes.AssistantMessage, copied)), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
		"an error":                               {list(prompt, add(2, envelopes.Log, failure)), sessions.Failed, sessions.PhaseFailed, 2, "", ""},
		"a summary after an error":               {list(prompt, add(2, envelopes.Log, failure), add(3, envelopes.SessionSummary, nil)), sessions.Failed, sessions.PhaseFailed, 2, "", ""},
		"work after an error":                    {list(prompt, add(2, envelopes.Log, failure), add(3, envelopes.Reasoning, nil)), sessions.Working, sessions.PhaseWorking, 3, "", sessions.PhaseEnded},
		"a call":                                 {list(prompt, call(2, "a", "Bash")), sessions.Working, sessions.PhaseInTool, 2, "Bash", sessions.PhaseEndedInTool},
		"a call without an id":                   {list(prompt, call(2, "", "Bash")), sessions.Working, sessions.PhaseInTool, 2, "Bash", sessions.PhaseEndedInTool},
		"a result":                               {list(prompt, call(2, "a", "Bash"), result(3, "a", "Bash")), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
		"a result without an id":                 {list(prompt, call(1, "", "Read"), call(2, "", "Bash"), result(3, "", "Bash")), sessions.Working, sessions.PhaseInTool, 1, "Read", sessions.PhaseEndedInTool},
		"a call that is stated again":            {list(prompt, call(2, "a", "Bash"), call(3, "a", "Bash")), sessions.Working, sessions.PhaseInTool, 2, "Bash", sessions.PhaseEndedInTool},
		"the result of such a call":              {list(prompt, call(2, "a", "Bash"), call(3, "a", "Bash"), result(4, "a", "Bash")), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
		"a result before its call":               {list(prompt, result(2, "a", "Bash"), call(3, "a", "Bash")), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
		"a result in progress":                   {list(prompt, call(2, "a", "Bash"), add(3, envelopes.ToolResult, tool("a", "Bash", running, nil))), sessions.Working, sessions.PhaseInTool, 2, "Bash", sessions.PhaseEndedInTool},
		"one of two results":                     {list(prompt, call(2, "a", "Bash"), call(3, "b", "Read"), result(4, "b", "Read")), sessions.Working, sessions.PhaseInTool, 2, "Bash", sessions.PhaseEndedInTool},
		"an answer after a lost result":          {list(prompt, call(2, "a", "Bash"), add(3, envelopes.AssistantMessage, nil)), sessions.Waiting, sessions.PhasePrompt, 3, "", ""},
		"a prompt after a lost result":           {list(prompt, call(2, "a", "Bash"), add(3, envelopes.UserMessage, nil)), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
		"a subagent that works on":               {list(prompt, add(2, envelopes.AssistantMessage, nil), add(3, envelopes.Reasoning, inside)), sessions.Working, sessions.PhaseWorking, 3, "", sessions.PhaseEnded},
		"a subagent that is read late":           {list(prompt, add(5, envelopes.AssistantMessage, nil), add(3, envelopes.Reasoning, inside)), sessions.Waiting, sessions.PhasePrompt, 5, "", ""},
		"a prompt that is read late":             {list(prompt, add(5, envelopes.AssistantMessage, nil), add(3, envelopes.UserMessage, nil)), sessions.Waiting, sessions.PhasePrompt, 5, "", ""},
		"a thought that is read late":            {list(prompt, add(5, envelopes.AssistantMessage, nil), add(3, envelopes.Reasoning, nil)), sessions.Waiting, sessions.PhasePrompt, 5, "", ""},
		"a session of a subagent":                {list(add(1, envelopes.UserMessage, inside), add(2, envelopes.AssistantMessage, inside)), sessions.Waiting, sessions.PhasePrompt, 2, "", ""},
		"a summary of work":                      {list(prompt, add(2, envelopes.SessionSummary, nil)), sessions.Waiting, sessions.PhasePrompt, 2, "", ""},
		"closed while a call has no result":      {list(prompt, call(2, "a", "bash"), add(3, envelopes.SessionSummary, nil)), sessions.Working, sessions.PhaseInTool, 2, "bash", sessions.PhaseEndedInTool},
		"closed while a permission is asked for": {list(prompt, call(2, "a", "bash"), asks, add(4, envelopes.SessionSummary, nil)), sessions.Waiting, sessions.PhasePermission, 3, "bash", ""},
		"a subagent in a tool": {
			list(prompt, call(2, "a", "Task"), add(3, envelopes.UserMessage, inside), add(4, envelopes.ToolCall, func(e *envelopes.AgentEventV1) {
				tool("b", "Grep", running, nil)(e)
				e.IsInternal = true
			})),
			sessions.Working, sessions.PhaseInTool, 2, "Task", sessions.PhaseEndedInTool,
		},
		"a permission that is asked for":        {list(prompt, call(2, "a", "bash"), asks), sessions.Waiting, sessions.PhasePermission, 3, "bash", ""},
		"a permission for no call":              {list(prompt, add(3, envelopes.Meta, permission(`{"requestId":"p"}`))), sessions.Waiting, sessions.PhasePermission, 3, "", ""},
		"a permission that is given":            {list(prompt, call(2, "a", "bash"), asks, add(4, envelopes.Meta, permission(`{"decision":"approved"}`))), sessions.Working, sessions.PhaseInTool, 2, "bash", sessions.PhaseEndedInTool},
		"a result after a permission":           {list(prompt, call(2, "a", "bash"), asks, result(5, "a", "bash")), sessions.Working, sessions.PhaseWorking, 5, "", sessions.PhaseEnded},
		"a decision that nothing was asked for": {list(prompt, add(2, envelopes.AssistantMessage, nil), add(4, envelopes.Meta, permission(`{"decision":"approved"}`))), sessions.Waiting, sessions.PhasePrompt, 2, "", ""},
		"a permission of another form":          {list(prompt, add(3, envelopes.Meta, permission(`"x"`))), sessions.Working, sessions.PhaseWorking, 0, "", sessions.PhaseEnded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Date(2026, 3, 9, 9, 0, 0, 0, time.UTC)
			want := sessions.Activity{State: c.state, Phase: c.phase, Tool: c.tool}
			if c.since >= 0 {
				want.Since = begin.Add(time.Duration(c.since) * time.Second)
			}
			f := sessions.NewFold(sessions.WholeSession)
			for i := range c.events {
				f.Add(new(sessions.NewStep(&c.events[i], 0)))
			}
			if got := f.Summary(begin.Add(time.Minute)).Activity; got != want {
				t.Errorf("after a minute %+v, want %+v", got, want)
			}
			if c.later != "" {
				want.Phase = c.later
			}
			if want.State != sessions.Failed {
				want.State = sessions.Idle
			}
			encoded, err := f.Encode()
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := sessions.DecodeFold(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if got := decoded.Summary(begin.Add(time.Hour)).Activity; got != want {
				t.Errorf("after an hour %+v, want %+v", got, want)
			}
			if !slices.Contains(sessions.States, want.State) || !slices.Contains(sessions.Phases, want.Phase) || !slices.Contains(sessions.Phases, c.phase) {
				t.Errorf("%s and %s are not listed", want.State, want.Phase)
			}
		})
	}
}

// TestOpenCallsAreBounded has more calls without a result than are remembered.
func TestOpenCallsAreBounded(t *testing.T) {
	t.Parallel()
	f := sessions.NewFold(sessions.WholeSession)
	for n := range 1000 {
		e := event(uint64(n+1), 0, envelopes.ToolCall, tool("", "Bash", envelopes.StatusInProgress, nil))
		f.Add(new(sessions.NewStep(&e, 0)))
	}
	e := event(1001, 0, envelopes.ToolCall, tool("last", "Read", envelopes.StatusInProgress, nil))
	f.Add(new(sessions.NewStep(&e, 0)))
	if got := f.Summary(time.Time{}); got.Phase != sessions.PhaseInTool || got.Tool != "Read" {
		t.Errorf("%+v", got.Activity)
	}
	data, err := f.Encode()
	if err != nil || len(data) > 60_000 { // the calls alone, which are counted, take 43 kB
		t.Errorf("%d bytes: %v", len(data), err)
	}
}

// list lists events.
func list(events ...envelopes.AgentEventV1) []envelopes.AgentEventV1 { return events }

// TestEachPhaseHasOneWord is that lists name a session by its phase alone, and that every name of a state or phase selects it.
func TestEachPhaseHasOneWord(t *testing.T) {
	t.Parallel()
	last := time.Date(2026, 3, 9, 9, 0, 0, 0, time.UTC)
	waits := sessions.Activity{State: sessions.Waiting, Phase: sessions.PhasePrompt}
	later := waits.At(last.Add(time.Hour), last)
	if later.Text() != "waiting" || !later.Is("waiting") || !later.Is("idle") || !later.Is("waiting_for_prompt") || later.Is("permission") {
		t.Errorf("a session that waits for an hour is %q: %+v", later.Text(), later)
	}
	texts := map[string]bool{}
	for _, p := range sessions.Phases {
		a := sessions.Activity{Phase: p, Tool: "Bash"}
		if text := a.Text(); texts[text] || text == "" || p.Meaning() == "" || !slices.Contains(sessions.StateNames(), p.Word()) || !a.Is(p.Word()) {
			t.Errorf("phase %s: text %q, word %q, meaning %q", p, text, p.Word(), p.Meaning())
		} else {
			texts[text] = true
		}
	}
	if !texts["in Bash"] || !texts["ended in Bash"] {
		t.Errorf("no text has the tool: %v", texts)
	}
}
