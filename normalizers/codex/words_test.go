package codex_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
)

// item returns a response_item.
func item(of string, more members) []byte {
	p := members{"type": of}
	maps.Copy(p, more)
	return envelope(ownTime, "response_item", p)
}

// said returns a message under a role, of some parts.
func said(role string, parts ...string) []byte {
	content := make([]any, len(parts))
	for i, p := range parts {
		content[i] = members{"type": "input_text", "text": p}
	}
	return item("message", members{"role": role, "content": content})
}

// textsOf returns the texts of the events of a type.
func textsOf(events []envelopes.AgentEventV1, of envelopes.EventType) []string {
	var out []string
	for _, e := range events {
		if e.EventType == of && e.Text != nil {
			out = append(out, *e.Text)
		}
	}
	return out
}

func TestPromptBehindABlockOfAMachineIsAPrompt(t *testing.T) {
	t.Parallel()
	block := "<recommended_plugins>\n- one\n</recommended_plugins>"
	for name, c := range map[string]struct {
		lines [][]byte
		want  []string
	}{
		"the item alone":                {[][]byte{said("user", block+"\n\nfix it")}, []string{"fix it"}},
		"the notice alone":              {[][]byte{notice(ownTime, "user_message", members{"message": block + "\n\nfix it"})}, []string{"fix it"}},
		"both":                          {[][]byte{said("user", block+"\n\nfix it"), notice(ownTime, "user_message", members{"message": block + "\n\nfix it"})}, []string{"fix it"}},
		"both, the notice without it":   {[][]byte{said("user", block+"\n\nfix it"), notice(ownTime, "user_message", members{"message": "fix it"})}, []string{"fix it"}},
		"the notice first, without it":  {[][]byte{notice(ownTime, "user_message", members{"message": "fix it"}), said("user", block+"\n\nfix it")}, []string{"fix it"}},
		"two blocks":                    {[][]byte{said("user", "<environment_context>\n</environment_context>\n"+block+" fix it")}, []string{"fix it"}},
		"a block of its own part":       {[][]byte{said("user", block, "fix it")}, []string{"fix it"}},
		"a block alone":                 {[][]byte{said("user", block)}, nil},
		"a block that does not end":     {[][]byte{said("user", "<recommended_plugins>\n- one")}, nil},
		"a block in the middle of text": {[][]byte{said("user", "what is "+block+"?")}, []string{"what is " + block + "?"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := append([][]byte{envelope(ownTime, "session_meta", members{"id": childID})}, c.lines...)
			if got := textsOf(eventsOf(t, lines...), envelopes.UserMessage); !slices.Equal(got, c.want) {
				t.Errorf("prompts %q, want %q", got, c.want)
			}
		})
	}
}

func TestStateOfAnIDEInFrontOfTheRequestIsCut(t *testing.T) {
	t.Parallel()
	for _, heading := range []string{"# Context from my IDE setup:", "# Files mentioned by the user:", "## Open tabs", ""} {
		text := heading + "\n\n- a.go\n\n## My request for Codex:\nfix it\n"
		want := "fix it"
		if heading == "" { // words of a human stand in front of it
			text, want = "See\n## My request for Codex:\nfix it", "See\n## My request for Codex:\nfix it"
		}
		for _, lines := range [][][]byte{
			{said("user", text)},
			{notice(ownTime, "user_message", members{"message": text})},
			{said("user", text), notice(ownTime, "user_message", members{"message": text})},
			{said("user", text), notice(ownTime, "user_message", members{"message": want})},
		} {
			lines = append([][]byte{envelope(ownTime, "session_meta", members{"id": childID})}, lines...)
			if got := textsOf(eventsOf(t, lines...), envelopes.UserMessage); !slices.Equal(got, []string{want}) {
				t.Errorf("under %q: prompts %q, want %q", heading, got, want)
			}
		}
	}
}

func TestMessageBetweenAgentsKeepsItsTextWhereItIsNotEncrypted(t *testing.T) {
	t.Parallel()
	for secret, want := range map[string]string{
		"Review the diff, please.":         "Message Type: MESSAGE\nReview the diff, please.",
		"gAAAAABoZW5jcnlwdGVkZW5jcnlwdGVk": "Message Type: MESSAGE",
	} {
		got := textsOf(eventsOf(t,
			envelope(ownTime, "session_meta", members{"id": childID}),
			item("agent_message", members{"author": "/root/review", "recipient": "/root", "content": []any{
				members{"type": "input_text", "text": "Message Type: MESSAGE"},
				members{"type": "encrypted_content", "encrypted_content": secret},
			}})), envelopes.SystemMessage)
		if !slices.Equal(got, []string{want}) {
			t.Errorf("messages %q, want %q", got, want)
		}
	}
}

func TestEndOfAToolKeepsTheTextOfTheOutput(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("all is well\n", 1_000)
	for name, c := range map[string]struct {
		output string
		end    members
		want   []string
	}{
		"an empty aggregate":      {"two files", members{"aggregated_output": ""}, []string{"two files", "two files"}},
		"no aggregate":            {"two files", nil, []string{"two files", "two files"}},
		"another aggregate":       {"two files", members{"aggregated_output": "one"}, []string{"two files", "two files\none"}},
		"the aggregate has more":  {"two files", members{"aggregated_output": "two files\nand one"}, []string{"two files", "two files\nand one"}},
		"an aggregate of the end": {"a\nb\n", members{"aggregated_output": "b\nc\n"}, []string{"a\nb\n", "a\nb\nc\n"}},
		"behind a header": {
			"Chunk ID: 1f\nWall time: 1.0 seconds\nProcess running with session ID 7\nOutput:\ntwo",
			members{"aggregated_output": "two files"},
			[]string{"Chunk ID: 1f\nWall time: 1.0 seconds\nProcess running with session ID 7\nOutput:\ntwo", "two files"},
		},
		"a long output, an empty aggregate": {long, members{"aggregated_output": ""}, []string{long}},
		"a long output, and all of it":      {long, members{"aggregated_output": long + "done"}, []string{long, long + "done"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := members{"call_id": "call_1", "exit_code": 1}
			maps.Copy(end, c.end)
			events := eventsOf(t,
				envelope(ownTime, "session_meta", members{"id": childID}),
				item("function_call", members{"name": "exec_command", "call_id": "call_1", "arguments": "{}"}),
				item("function_call_output", members{"call_id": "call_1", "output": c.output}),
				notice(ownTime, "exec_command_end", end))
			if got := textsOf(events, envelopes.ToolResult); !slices.Equal(got, c.want) {
				t.Errorf("results %q, want %q", got, c.want)
			}
			if last := events[len(events)-1]; len(c.want) == 2 && (last.ToolExitCode == nil || *last.ToolExitCode != 1 || last.Supersedes != "call_1#result") {
				t.Errorf("exit code %v, supersedes %q", last.ToolExitCode, last.Supersedes)
			}
		})
	}
}
