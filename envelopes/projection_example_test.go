package envelopes_test

import (
	"fmt"

	"tributary/envelopes"
)

// A tool call and its result are one entry, emitted twice: the last entry of each index counts.
func ExampleEntryProjection() {
	event := func(sequence uint64, kind envelopes.EventType, text string) envelopes.AgentEventV1 {
		return envelopes.AgentEventV1{
			Source: envelopes.ClaudeCode, SessionID: "4f6c", Sequence: sequence, EventType: kind,
			Text: &text, TS: "2026-03-09T09:00:00Z",
			ToolName: new("Bash"), ToolCallID: new("toolu_1"), Channel: new(envelopes.ChannelTerminal),
		}
	}
	events := []envelopes.AgentEventV1{
		event(1, envelopes.UserMessage, "Do the tests pass?"),
		event(2, envelopes.ToolCall, `{"command":"go test ./..."}`),
		event(3, envelopes.ToolResult, "ok"),
		event(4, envelopes.AssistantMessage, "They do."),
	}
	var projection envelopes.EntryProjection // one for each session
	var entries []envelopes.NormalizedEntry
	for i := range events {
		entry, ok := projection.Project(&events[i])
		switch {
		case !ok:
		case entry.Index == len(entries):
			entries = append(entries, entry)
		default:
			entries[entry.Index] = entry
		}
	}
	for _, entry := range entries {
		fmt.Printf("%d %s %q\n", entry.Index, entry.Type.Kind, entry.Content)
	}
	// Output:
	// 0 user_message "Do the tests pass?"
	// 1 tool_use "```bash\ngo test ./...\n```\n\n**Exit Code:** 0\n\n**Output:**\n```\nok\n```"
	// 2 assistant_message "They do."
}

// The messages of an agent are complete with the next prompt, or at the end of the session.
func ExampleACPProjection() {
	event := func(sequence uint64, kind envelopes.EventType, text string) envelopes.AgentEventV1 {
		return envelopes.AgentEventV1{
			Source: envelopes.ClaudeCode, SessionID: "4f6c", Sequence: sequence, EventType: kind,
			EventID: fmt.Sprintf("@%d", sequence), Text: &text, TS: "2026-03-09T09:00:00Z",
		}
	}
	events := []envelopes.AgentEventV1{
		event(1, envelopes.UserMessage, "Do the tests pass?"),
		event(2, envelopes.Reasoning, "Run them."),
		event(3, envelopes.AssistantMessage, "They do."),
	}
	var projection envelopes.ACPProjection // one for each session
	var messages []envelopes.ACPMessage
	for i := range events {
		messages = append(messages, projection.Project(&events[i])...)
	}
	for _, message := range append(messages, projection.End()...) {
		fmt.Println(message.Role, len(message.Parts))
	}
	// Output:
	// user 1
	// agent/claude_code 2
}

// Adjacent text parts become one, without any loss.
func ExampleACPMessage_Compress() {
	part := func(text string) envelopes.ACPPart {
		return envelopes.ACPPart{ContentType: "text/plain", ContentEncoding: envelopes.ACPPlain, Content: &text}
	}
	message := envelopes.ACPMessage{Role: "agent", Parts: []envelopes.ACPPart{part("They "), part("do.")}}
	compressed := message.Compress()
	fmt.Println(len(compressed.Parts), *compressed.Parts[0].Content)
	// Output: 1 They do.
}
