package claude_test

import (
	"testing"

	"github.com/go-json-experiment/json"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

func TestTextsOfRoleUserThatNoHumanTyped(t *testing.T) {
	t.Parallel()
	const (
		prompt, injected = envelopes.UserMessage, envelopes.Meta
		cli, chat        = envelopes.ChannelCLI, envelopes.ChannelChat
	)
	for _, c := range []struct {
		name, text string
		kind       envelopes.EventType
		channel    envelopes.Channel
		want       string
	}{
		{"an empty command name", "<command-name></command-name>", injected, envelopes.ChannelSystem, "<command-name></command-name>"},
		{"an empty command message", "<command-message></command-message>", injected, envelopes.ChannelSystem, "<command-message></command-message>"},
		{
			"a command name of white space, without arguments", "<command-message></command-message>\n<command-name> \n</command-name>\n<command-args></command-args>",
			injected, envelopes.ChannelSystem, "<command-message></command-message>\n<command-name> \n</command-name>\n<command-args></command-args>",
		},
		{"an empty command name and a command message", "<command-name></command-name>\n<command-message>review</command-message>", prompt, cli, "/review"},
		{"a text after an empty command", "<command-name></command-name>\nfix the test", prompt, chat, "fix the test"},
		{"arguments of an empty command", "<command-name></command-name><command-args>the diff</command-args>", prompt, chat, "the diff"},
		{"a text about an element", "<command-message> is what I saw", prompt, chat, "<command-message> is what I saw"},
		{"the feedback of a hook", "Stop hook feedback:\n- [make test]: 1 failed", injected, envelopes.ChannelSystem, "Stop hook feedback:\n- [make test]: 1 failed"},
		{"the result of a local command", "<local-command-result>done</local-command-result>", injected, envelopes.ChannelSystem, "<local-command-result>done</local-command-result>"},
		{
			"a command behind a reminder", "<system-reminder>\nBe kind.\n</system-reminder>\n<command-name>/compact</command-name>\n<command-args>now</command-args>",
			prompt, cli, "/compact now",
		},
		{"a command behind an opened file", "<ide_opened_file>a.go</ide_opened_file>\n<command-message>init</command-message>", prompt, cli, "/init"},
		{"an empty command behind a reminder", "<system-reminder>x</system-reminder><command-name></command-name>fix it", prompt, chat, "fix it"},
		{"a notice behind a reminder", "<system-reminder>x</system-reminder>\n<task-notification>y</task-notification>", injected, envelopes.ChannelSystem, "<task-notification>y</task-notification>"},
		{"a text about the feedback of a hook", "What is Stop hook feedback: for?", prompt, chat, "What is Stop hook feedback: for?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			content, err := json.Marshal(c.text)
			if err != nil {
				t.Fatal(err)
			}
			const envelope = `"sessionId":"s","uuid":"u1","timestamp":"2026-03-01T10:00:00.000Z",`
			for _, line := range []string{
				`{` + envelope + `"type":"user","message":{"role":"user","content":` + string(content) + `}}`,
				`{` + envelope + `"type":"user","message":{"role":"user","content":[{"type":"text","text":` + string(content) + `}]}}`,
				`{` + envelope + `"type":"attachment","attachment":{"type":"queued_command","prompt":` + string(content) + `}}`,
				`{` + envelope + `"type":"system","subtype":"local_command","content":` + string(content) + `}`,
			} {
				events := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", normalizerstest.SeedLines(line))
				if len(events) != 1 {
					t.Fatalf("%d events, want 1, of %s", len(events), line)
				}
				e := events[0]
				origin := envelopes.Origin("")
				if c.kind == injected {
					origin = envelopes.OriginInjected
				}
				if e.EventType != c.kind || e.Origin != origin || normalizerstest.Value(e.Channel) != c.channel || normalizerstest.Value(e.Text) != c.want {
					t.Errorf("%s of origin %q on channel %q with the text %q, want a %s of origin %q on channel %q with the text %q, of %s",
						e.EventType, e.Origin, normalizerstest.Value(e.Channel), normalizerstest.Value(e.Text), c.kind, origin, c.channel, c.want, line)
				}
			}
		})
	}
}

// The queue emits prompts of humans alone.
func TestTheQueueEmitsNoEmptyCommand(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`<command-name></command-name>`, `Stop hook feedback:\n- failed`, `<local-command-result>x</local-command-result>`} {
		lines := normalizerstest.SeedLines(
			`{"type":"queue-operation","operation":"enqueue","timestamp":"2026-03-01T10:00:00.000Z","sessionId":"s","content":"`+text+`"}`,
			`{"type":"queue-operation","operation":"remove","timestamp":"2026-03-01T10:00:01.000Z","sessionId":"s"}`,
		)
		if events := normalizerstest.SeedEvents(t, envelopes.ClaudeCode, "s.jsonl", lines); len(events) != 0 {
			t.Errorf("%q: %d events, want none", text, len(events))
		}
	}
}
