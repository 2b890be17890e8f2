package envelopes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// acpProjectionRows are the acceptance rows about the projection of events to ACP messages.
var acpProjectionRows = map[string]func(*testing.T){
	"004-17 a run is a user message and an agent message":  seedACPRun,
	"004-18 the text of the assistant is in content only":  seedACPContentOnce,
	"004-19 citations count the characters of the message": seedACPCitationsOut,
	"004-22 metadata without any field is dropped":         seedACPFocus,
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// messagesOf projects events and returns all messages. It checks that each is valid, and the
// same after it was written and read.
func messagesOf(t fataler, events []AgentEventV1) []ACPMessage {
	var p ACPProjection
	var messages []ACPMessage
	for i := range events {
		messages = append(messages, p.Project(&events[i])...)
	}
	messages = append(messages, p.End()...)
	for _, m := range messages {
		line, err := m.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeACPMessage(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if again, err := back.MarshalJSON(); err != nil || string(again) != string(line) {
			t.Fatalf("%s is read as %s: %v", line, again, err)
		}
	}
	return messages
}

// wantMessages compares messages, one per line of JSON.
func wantMessages(t *testing.T, got []ACPMessage, want ...string) {
	t.Helper()
	var lines []string
	for _, m := range got {
		line, err := m.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Fatal(d)
	}
}

// seedACPRun is row 004-17 on a hand-made run.
func seedACPRun(t *testing.T) {
	t.Helper()
	t.Parallel()
	s := &story{t: t, source: ClaudeCode}
	bash := tool("c1", "Bash", ChannelTerminal, "", "")
	s.event(SystemMessage, "Session: s")
	s.event(UserMessage, "Fix it")
	s.event(Reasoning, "First look.")
	s.event(AssistantMessage, "I look.")
	s.event(ToolCall, `{"command":"ls"}`, bash)
	s.event(Meta, "a tick")
	s.event(ToolResult, "a.go", bash)
	s.event(AssistantMessage, "Done.")
	s.event(SessionSummary, "result")
	wantMessages(t, messagesOf(t, s.events),
		`{"role":"user","parts":[{"content_type":"text/plain","content":"Fix it","content_encoding":"plain"}],"created_at":"2026-03-09T09:00:02Z","completed_at":"2026-03-09T09:00:02Z"}`,
		`{"role":"agent/claude_code","parts":[`+
			`{"content_type":"text/plain","content_encoding":"plain","metadata":{"kind":"trajectory","message":"First look."}},`+
			`{"content_type":"text/plain","content":"I look.","content_encoding":"plain"},`+
			`{"content_type":"text/plain","content_encoding":"plain","metadata":{"kind":"trajectory","tool_name":"Bash","tool_input":{"command":"ls"},"tool_output":{"output":"a.go"}}},`+
			`{"content_type":"text/plain","content":"Done.","content_encoding":"plain"}`+
			`],"created_at":"2026-03-09T09:00:03Z","completed_at":"2026-03-09T09:00:08Z"}`,
	)
}

func seedACPContentOnce(t *testing.T) {
	t.Helper()
	t.Parallel()
	s := &story{t: t, source: ACP}
	s.event(UserMessage, "what is it?")
	s.event(AssistantMessage, "It is said-by-me.", func(e *AgentEventV1) {
		e.MessageMetadata = jsontext.Value(`[{"kind":"citation","url":"https://example.com/","start_index":6,"end_index":16},{"kind":"trajectory","message":"It is said-by-me."}]`)
		e.Raw = jsontext.Value(`{"text":"It is said-by-me."}`)
	})
	s.event(Reasoning, "a thought")
	messages := messagesOf(t, s.events)
	found := 0
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Content != nil {
				found += strings.Count(*p.Content, "said-by-me")
				p.Content = nil
			}
			if rest, err := json.Marshal(p); err != nil || strings.Contains(string(rest), "said-by-me") {
				t.Errorf("outside of content: %s, %v", rest, err)
			}
		}
	}
	if found != 1 {
		t.Errorf("the text is in content %d times", found)
	}
}

func seedACPCitationsOut(t *testing.T) {
	t.Helper()
	t.Parallel()
	s := &story{t: t, source: ACP}
	cites := func(metadata string) func(*AgentEventV1) {
		return func(e *AgentEventV1) { e.MessageMetadata = jsontext.Value(metadata) }
	}
	s.event(AssistantMessage, "Héllo 🌍 ", cites(`[{"kind":"citation","start_index":6,"end_index":7,"url":"u0"}]`))
	s.event(FileSnapshot, "naïve", func(e *AgentEventV1) { e.FilePath = new("notes.txt") })
	s.event(Reasoning, "not counted")
	s.event(AssistantMessage, "wörld, again", cites(`[
		{"kind":"citation","start_index":0,"end_index":5,"url":"u1"},
		{"kind":"citation","start_index":5,"end_index":5,"url":"u2"},
		{"kind":"citation","start_index":7,"url":"u3"},
		{"kind":"citation","url":"u4"},
		{"kind":"citation","start_index":0,"end_index":13,"url":"beyond the text"},
		{"kind":"citation","start_index":-1,"end_index":2,"url":"below the text"},
		{"kind":"citation","start_index":4,"end_index":2,"url":"in the wrong order"},
		{"kind":"citation","start_index":7,"end_index":12,"url":"u5"}]`))
	s.event(AssistantMessage, "more text behind")
	messages := messagesOf(t, s.events)
	if len(messages) != 1 {
		t.Fatalf("%d messages", len(messages))
	}
	var got []string
	for _, r := range messages[0].ResolveCitations() {
		got = append(got, fmt.Sprintf("%s %s %q %d", *r.Citation.URL, r.Mode, r.Text, r.At))
	}
	before := len([]rune("Héllo 🌍 naïve"))
	want := []string{
		`u0 range "🌍" 0`,
		`u1 range "wörld" 0`,
		fmt.Sprintf(`u2 icon "" %d`, before+5),
		fmt.Sprintf(`u3 icon "" %d`, before+7),
		`u4 icon_at_part "" 0`,
		`beyond the text icon_at_part "" 0`,
		`below the text icon_at_part "" 0`,
		`in the wrong order icon_at_part "" 0`,
		`u5 range "again" 0`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func seedACPFocus(t *testing.T) {
	t.Helper()
	t.Parallel()
	s := &story{t: t, source: ACP}
	s.event(Reasoning, "")
	s.event(Reasoning, "", func(e *AgentEventV1) { e.Text = new("") })
	s.event(ToolCall, "", func(e *AgentEventV1) { e.ToolCallID = new("c") })
	s.event(ToolResult, "", func(e *AgentEventV1) { e.ToolCallID = new("c") })
	if messages := messagesOf(t, s.events); len(messages) != 0 {
		t.Errorf("messages of empty events: %+v", messages)
	}
	s.event(AssistantMessage, "text", func(e *AgentEventV1) {
		e.MessageMetadata = jsontext.Value(`[{"kind":"citation"},{"kind":"citation","url":null,"start_index":null},{"kind":"trajectory"},null,{"url":"of no kind"}]`)
	})
	wantMessages(t, messagesOf(t, s.events),
		`{"role":"agent/acp","parts":[{"content_type":"text/plain","content":"text","content_encoding":"plain"}],"created_at":"2026-03-09T09:00:05Z","completed_at":"2026-03-09T09:00:05Z"}`)
}

func TestACPWrapsTextOfTools(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 126) + "1" + strings.Repeat("}", 126)
	quotedDeep, _ := jsontext.AppendQuote(nil, deep)
	for name, test := range map[string]struct {
		call, result  string
		set           func(*AgentEventV1)
		input, output string
	}{
		"objects":                  {`{"n": 1.50}`, `{"temperature": 72}`, nil, `{"n":1.50}`, `{"temperature":72}`},
		"texts":                    {"*** Begin Patch", "Done!", nil, `{"input":"*** Begin Patch"}`, `{"output":"Done!"}`},
		"lists":                    {`["ls", "-l"]`, `[1,2]`, nil, `{"input":["ls","-l"]}`, `{"output":[1,2]}`},
		"text that looks like one": {`"a"`, `72`, nil, `{"input":"\"a\""}`, `{"output":"72"}`},
		"names that stand twice":   {`{"n":1,"n":1}`, `[{"n":{"m":1,"m":2}}]`, nil, `{"input":"{\"n\":1,\"n\":1}"}`, `{"output":"[{\"n\":{\"m\":1,\"m\":2}}]"}`},
		"a failure":                {`{}`, "boom", failing(7), `{}`, `{"exit_code":7,"output":"boom","status":"error"}`},
		"a failure without text":   {`{}`, "", failing(-1), `{}`, `{"status":"error"}`},
		"nothing":                  {"", "", nil, "", ""},
		"too deep for a message":   {deep, "[" + deep + "]", nil, `{"input":` + string(quotedDeep) + `}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, source: Codex}
			as := tool("c", "t", ChannelOther, "", "")
			if test.set == nil {
				test.set = func(*AgentEventV1) {}
			}
			s.event(ToolCall, test.call, as)
			s.event(ToolResult, test.result, as, test.set)
			messages := messagesOf(t, s.events)
			if len(messages) != 1 || len(messages[0].Parts) != 1 {
				t.Fatalf("not one part: %+v", messages)
			}
			got := messages[0].Parts[0].Metadata.(*ACPTrajectory)
			if string(got.ToolInput) != test.input {
				t.Errorf("input %s", got.ToolInput)
			}
			if test.output != "" && string(got.ToolOutput) != test.output {
				t.Errorf("output %s", got.ToolOutput)
			}
		})
	}
}

// shapes returns messages in a short form: the role, then the parts.
func shapes(messages []ACPMessage) []string {
	var out []string
	for _, m := range messages {
		s := m.Role + ":"
		for _, p := range m.Parts {
			switch meta := p.Metadata.(type) {
			case *ACPTrajectory:
				if meta.Message != nil {
					s += " (" + *meta.Message + ")"
				} else {
					s += " " + string(meta.ToolInput) + ">" + string(meta.ToolOutput)
				}
			default:
				if p.Name != nil {
					s += " @" + *p.Name
				}
				if p.Content != nil {
					s += " " + *p.Content
				}
			}
		}
		out = append(out, s)
	}
	return out
}

func TestACPMessagesEndAtPrompts(t *testing.T) {
	t.Parallel()
	agent := func(id string) func(*AgentEventV1) {
		return func(e *AgentEventV1) { e.AgentID, e.IsInternal = &id, true }
	}
	acting := func(id string) func(*AgentEventV1) { return func(e *AgentEventV1) { e.AgentID = &id } }
	side := func(e *AgentEventV1) { e.IsInternal = true }
	task := tool("task", "Task", ChannelOther, "", "")
	for name, test := range map[string]struct {
		source Source
		events func(*story)
		want   []string
	}{
		"two turns": {Codex, func(s *story) {
			s.event(UserMessage, "a")
			s.event(AssistantMessage, "b")
			s.event(UserMessage, "c")
			s.event(AssistantMessage, "d")
		}, []string{"user: a", "agent/codex: b", "user: c", "agent/codex: d"}},
		"an empty prompt": {Codex, func(s *story) {
			s.event(AssistantMessage, "b")
			s.event(UserMessage, "")
			s.event(AssistantMessage, "d")
		}, []string{"agent/codex: b", "agent/codex: d"}},
		"a subagent at work": {ClaudeCode, func(s *story) {
			s.event(UserMessage, "a")
			s.event(ToolCall, `{"prompt":"x"}`, task)
			s.event(UserMessage, "x", agent("a1"))
			s.event(AssistantMessage, "sub", agent("a1"))
			s.event(AssistantMessage, "beside", side)
			s.event(ToolResult, "sub", task)
			s.event(AssistantMessage, "done")
			s.event(UserMessage, "next")
		}, []string{"user: a", "user: x", `agent/claude_code: {"prompt":"x"}>{"output":"sub"} done`, "agent/a1: sub", "agent/claude_code: beside", "user: next"}},
		"agents of ACP": {ACP, func(s *story) {
			s.event(AssistantMessage, "b", acting("researcher"))
			s.event(AssistantMessage, "c", acting("writer"))
			s.event(AssistantMessage, "d", acting("researcher"))
		}, []string{"agent/researcher: b", "agent/writer: c", "agent/researcher: d"}},
		"an agent_id that no role can hold": {ClaudeCode, func(s *story) { s.event(AssistantMessage, "b", agent("ä b/c\n")) }, []string{"agent/--b-c-: b"}},
		"a result too late": {ClaudeCode, func(s *story) {
			s.event(ToolCall, `{}`, task)
			s.event(UserMessage, "stop")
			s.event(ToolResult, "late", task)
		}, []string{"agent/claude_code: {}>", "user: stop", `agent/claude_code: >{"output":"late"}`}},
		"a result again": {Codex, func(s *story) {
			s.event(ToolCall, `{}`, task)
			s.event(ToolResult, "one", task)
			s.event(ToolResult, "two", task, func(e *AgentEventV1) { e.Supersedes = "@2" })
			s.event(ToolResult, "", task)
		}, []string{`agent/codex: {}>{"output":"two"}`}},
		"an event again": {Gemini, func(s *story) {
			s.event(AssistantMessage, "a")
			s.event(Reasoning, "b")
			s.event(AssistantMessage, "a, longer", func(e *AgentEventV1) { e.Supersedes = "@1" })
			s.event(ToolCall, `{}`, task)
			s.event(ToolResult, "out", task)
			s.event(ToolCall, `{"more":1}`, task, func(e *AgentEventV1) { e.Supersedes = "@4" })
		}, []string{`agent/gemini: a, longer (b) {"more":1}>{"output":"out"}`}},
		"events without a place in ACP": {ClaudeCode, func(s *story) {
			s.event(Meta, "m")
			s.event(Log, "l")
			s.event(SystemMessage, "s")
			s.event(SessionSummary, "s")
			s.event(FileSnapshot, "a snapshot of no file")
			s.event(UserMessage, "reminder", func(e *AgentEventV1) { e.Origin = OriginInjected })
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, source: test.source}
			test.events(s)
			if d := cmp.Diff(test.want, shapes(messagesOf(t, s.events))); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestACPMessageHasTheEarliestAndTheLatestTime(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: Gemini}
	for _, ts := range []string{"2026-03-09T10:00:00.5Z", "2026-03-09T10:00:00Z", "2026-03-09T10:00:00.25Z"} {
		s.event(AssistantMessage, "x", func(e *AgentEventV1) { e.TS = ts })
	}
	m := messagesOf(t, s.events)[0]
	if *m.CreatedAt != "2026-03-09T10:00:00Z" || *m.CompletedAt != "2026-03-09T10:00:00.5Z" {
		t.Fatalf("from %s to %s", *m.CreatedAt, *m.CompletedAt)
	}
}

func TestACPArtifactHasTheContentOfItsEvent(t *testing.T) {
	t.Parallel()
	s := &story{t: t, source: ACP}
	file := func(content *FileContent) func(*AgentEventV1) {
		return func(e *AgentEventV1) { e.FilePath, e.Content = new("r"), content }
	}
	s.event(FileSnapshot, `{"ok":true}`, file(&FileContent{Type: "application/json"}))
	s.event(FileSnapshot, "", file(&FileContent{Type: "image/png", URL: new("https://example.com/r.png")}))
	s.event(FileSnapshot, "", file(&FileContent{Type: "image/png", Data: new("iVBO")}))
	s.event(FileSnapshot, "", file(&FileContent{Type: "image/png"}))
	s.event(FileSnapshot, "text", file(nil))
	s.event(FileSnapshot, "", file(nil))
	part := `{"name":"r","content_type":`
	wantMessages(t, messagesOf(t, s.events), `{"role":"agent/acp","parts":[`+
		part+`"application/json","content":"{\"ok\":true}","content_encoding":"plain"},`+
		part+`"image/png","content_encoding":"plain","content_url":"https://example.com/r.png"},`+
		part+`"image/png","content":"iVBO","content_encoding":"base64"},`+
		part+`"image/png","content_encoding":"plain"},`+
		part+`"text/plain","content":"text","content_encoding":"plain"},`+
		part+`"application/octet-stream","content_encoding":"plain"}`+
		`],"created_at":"2026-03-09T09:00:01Z","completed_at":"2026-03-09T09:00:06Z"}`)
}

// An endless run becomes several messages without any loss.
func TestACPProjectionHasBoundedMemory(t *testing.T) {
	t.Parallel()
	var p ACPProjection
	s := &story{t: t, source: ClaudeCode}
	var messages []ACPMessage
	const count = maxOpenParts + 10
	for range count {
		messages = append(messages, p.Project(s.event(AssistantMessage, "x"))...)
	}
	for i := range 2 * maxOpenMessages {
		id := fmt.Sprint("a", i)
		messages = append(messages, p.Project(s.event(AssistantMessage, "y", func(e *AgentEventV1) { e.AgentID, e.IsInternal = &id, true }))...)
		if len(p.open) > maxOpenMessages {
			t.Fatalf("%d messages are open", len(p.open))
		}
	}
	big := strings.Repeat("z", 512<<10)
	for range 20 {
		messages = append(messages, p.Project(s.event(AssistantMessage, big))...)
		for _, d := range p.open {
			if d.size > maxOpenBytes+len(big) {
				t.Fatalf("a message of %d bytes is open", d.size)
			}
		}
	}
	messages = append(messages, p.End()...)
	texts := map[byte]int{}
	for _, m := range messages {
		for _, part := range m.Parts {
			texts[(*part.Content)[0]]++
		}
	}
	if d := cmp.Diff(map[byte]int{'x': count, 'y': 2 * maxOpenMessages, 'z': 20}, texts); d != "" {
		t.Fatal(d)
	}
}

// For any events: no panic, every message is valid, the content of exactly one part has each
// text of a user and of an assistant, and the same events give the same messages.
func TestACPMessagesOfAnyEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := anyStory().Draw(t, "story")
		want := map[string]int{}
		for i := range events {
			e := &events[i]
			e.Supersedes = "" // a replacement would remove a text
			if (e.EventType == UserMessage || e.EventType == AssistantMessage) && e.Origin != OriginInjected && !isEmpty(e.Text) {
				want[*e.Text]++
			}
		}
		got := map[string]int{}
		for _, m := range messagesOf(t, events) {
			for _, p := range m.Parts {
				if p.Name == nil && p.Content != nil {
					got[*p.Content]++
				}
				switch meta := p.Metadata.(type) {
				case *ACPTrajectory:
					if p.Content != nil || isEmpty(meta.Message) && isEmpty(meta.ToolName) && meta.ToolInput == nil && meta.ToolOutput == nil {
						t.Fatalf("a trajectory that is empty or has content: %+v", p)
					}
				case *ACPCitation:
					if p.Content != nil || *meta == (ACPCitation{}) {
						t.Fatalf("a citation that is empty or has content: %+v", p)
					}
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
		first, err := json.Marshal(messagesOf(t, events))
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			events[i].Raw = nil // no projection reads it
		}
		second, err := json.Marshal(messagesOf(t, events))
		if err != nil || string(first) != string(second) {
			t.Fatalf("%s, then %s: %v", first, second, err)
		}
	})
}
