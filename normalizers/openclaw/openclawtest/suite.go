// Package openclawtest describes OpenClaw to the tests: pitest reads and generates the log of Pi, and this package what
// OpenClaw adds to it.
package openclawtest

import (
	"encoding/json"
	"regexp"
	"strings"

	"pgregory.net/rapid"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
	"tributary/normalizers/pi/pitest"
)

// Suite describes OpenClaw to the tests of all vendors.
var Suite = suite()

func suite() normalizerstest.Suite {
	s := pitest.SuiteOf(envelopes.OpenClaw, "openclaw", pitest.Dialect{Unwrap: unwrap, Entry: entry, Typed: typed, Code: code, Lines: lines})
	logs := s.Lines
	s.Lines = func(t *rapid.T, session string) [][]byte {
		lines := logs(t, session)
		if rapid.Bool().Draw(t, "rows") {
			lines = rows(session, lines)
		}
		return lines
	}
	s.Raw = raw
	s.Others = []string{".sqlite"} // databases
	return s
}

// text reads a string of a record.
func text(v any, path ...string) string { return normalizerstest.Member[string](v, path...) }

// entry notes a text that the gateway sent, unless the assistant stated it before.
func entry(r *normalizerstest.Reader, v any) bool {
	m := normalizerstest.Member[any](v, "message")
	if text(v, "type") != "message" || text(m, "role") != "assistant" {
		return false
	}
	var texts []string
	for _, b := range normalizerstest.Member[[]any](m, "content") {
		switch {
		case text(b, "type") == "text":
			texts = append(texts, text(b, "text"))
		case text(b, "name") == "message":
			r.Note("texts", r.Noted("texts")+"\x00"+sent(text(b, "arguments", "message")))
		}
	}
	whole := strings.Join(texts, "\n")
	if text(m, "provider") == "openclaw" {
		if !strings.Contains(r.Noted("texts")+"\x00", "\x00"+sent(whole)+"\x00") {
			r.Say("assistant", text(v, "id"), whole)
		}
		return true
	}
	for _, t := range texts {
		r.Note("texts", r.Noted("texts")+"\x00"+sent(t))
	}
	return false
}

var tag = regexp.MustCompile(`^\[\[[a-z_]+\]\]`)

// sent returns a text of the assistant as the gateway sends it.
func sent(s string) string {
	return strings.TrimSpace(tag.ReplaceAllString(strings.TrimSpace(s), ""))
}

// ends has the end of each text before a prompt, by its beginning.
var ends = map[string]string{
	"Conversation info (": "\n```", "Sender (": "\n```", "[Wed ": "]", "[Telegram ": "]", "[media attached": "]",
	"To send an image back": "\n",
}

// unwritten matches the beginning of a text that no human wrote: one of a machine, or of another agent.
var unwritten = regexp.MustCompile(`^(?:\[cron:|Read HEARTBEAT\.md|A(?: new session was started|n async command)|` +
	`\[Inter-session message\]|\[OpenClaw (?:heartbeat|session|exec|cron) [a-z]+\]|Pre-compaction|` +
	`\[System Message\]|\[Queued announce|\[Subagent Context\] Your prior run)`)

// behindEvents returns a text without the lines of the system before it.
func behindEvents(prompt string) string {
	for n := 0; ; n++ {
		line, rest, _ := strings.Cut(prompt, "\n")
		label, event, ok := strings.Cut(line, ":")
		isFirst := label == "System" && strings.HasPrefix(event, " ") || label == "System (untrusted)" && strings.HasPrefix(event, " [")
		if !ok || !isFirst && (n == 0 || label != "System" && label != "System (untrusted)") {
			return strings.TrimSpace(prompt)
		}
		prompt = rest
	}
}

// assigned returns the task of a subagent, whose line has a label of its own or follows one.
func assigned(prompt string) string {
	lines := strings.Split(prompt, "\n")
	for i, line := range lines {
		if rest, ok := strings.CutPrefix(line, "[Subagent Task]"); ok {
			lines[i] = strings.TrimPrefix(rest, ":")
			if last := len(lines) - 1; strings.HasPrefix(lines[last], "Begin. Execute the assigned task") {
				lines = lines[:last]
			}
			return strings.TrimSpace(strings.Join(lines[i:], "\n"))
		}
	}
	return prompt
}

// typed returns the author and the text of a prompt, without what OpenClaw put around it.
func typed(m any, body string) (who, prompt string) {
	prompt, _, _ = strings.Cut(body, "\n[message_id: ")
	for found := true; found; {
		before := prompt
		prompt = behindEvents(prompt)
		found = prompt != before
		for begin, end := range ends {
			if strings.HasPrefix(prompt, begin) {
				_, after, _ := strings.Cut(prompt, "\n```json")
				if end != "\n```" {
					after = prompt
				}
				_, after, _ = strings.Cut(after, end)
				prompt, found = strings.TrimSpace(after), true
			}
		}
	}
	switch {
	case strings.HasPrefix(prompt, "[Subagent Context] You are"):
		return "agent", assigned(prompt)
	case strings.HasPrefix(text(m, "provenance", "kind"), "int"), unwritten.MatchString(prompt):
		return "", ""
	case prompt == "" && strings.HasPrefix(body, "[media"):
		return "human", body
	}
	return "human", prompt
}

// code returns the exit code of a command.
func code(m any, tool string) *int64 {
	n, err := normalizerstest.Member[json.Number](m, "details", "exitCode").Int64()
	if err != nil || tool != "bash" && tool != "exec" && tool != "process" {
		return nil
	}
	return &n
}

// prompts are texts under the user's name, as channels and the gateway write them.
var prompts = []string{
	"Conversation info (untrusted metadata):\n```json\n{\"message_id\": \"1\"}\n```\n\nSender (untrusted metadata):\n```json\n{}\n```\n\nthe ledger",
	"[Wed 2026-02-18 11:21 GMT+1] the ledger", "[Telegram Ada id:7 2026-02-18 11:21 UTC] the ledger\n[message_id: 4]", "the ledger",
	"Read HEARTBEAT.md if it exists.", "[cron:job nightly] Count.", "System: [2026-02-18 11:21:00] Exec completed",
	"System (untrusted): [2026-02-18 11:21:00] Exec completed\nSystem (untrusted): more\n\nRead HEARTBEAT.md if it exists.",
	"System: Telegram: linked\nSystem: [2026-02-18 11:21:00] Up\n\n[Wed 2026-02-18 11:21 GMT+1] the ledger",
	"System (untrusted): the ledger", "[OpenClaw heartbeat poll]", "[Wed 2026-02-18 11:21 GMT+1] [System Message] [sessionId: 1] A cron job \"x\" just failed.",
	"[Wed 2026-02-18 11:21 GMT+1] [Subagent Context] You are running as a subagent (depth 1/1).\n\n[Subagent Task]: the ledger",
	"[Subagent Context] You are running as a subagent (depth 1/1).\n\nBegin. Your assigned task is in the system prompt.",
}

// lines writes an entry that Pi does not write.
func lines(s *normalizerstest.Script, put func(kind string, members map[string]any)) {
	type object = map[string]any
	message := func(m object) { put("message", object{"message": m}) }
	call := s.OneOf("x1", "x2")
	switch s.OneOf("prompt", "call", "result", "sent", "custom", "reset") {
	case "prompt":
		m := object{"role": "user", "content": s.OneOf(prompts...)}
		if s.Chance(40) {
			m["provenance"] = object{"kind": s.OneOf("external_user", "inter_session", "internal_system")}
		}
		message(m)
	case "call":
		message(object{"role": "assistant", "model": "m1", "content": []any{
			object{"type": "toolUse", "id": s.Session + call, "name": map[string]string{"x1": "exec", "x2": "message"}[call], "input": object{"command": "go test"}, "arguments": object{"message": "Done."}},
		}})
	case "result":
		d := object{"status": s.OneOf("completed", "failed", "running"), "durationMs": 12, "exitCode": rapid.SampledFrom([]any{0, 1, 127, nil}).Draw(s.T, "code")}
		message(object{"role": "toolResult", "toolCallId": s.Session + call, "toolName": s.OneOf("process", "web_fetch"), "content": s.OneOf("ok", ""), "isError": s.Chance(20), "details": d})
	case "sent":
		message(object{"role": "assistant", "provider": "openclaw", "model": "delivery-mirror", "content": []any{object{"type": "text", "text": s.OneOf("Done.", "fix the test", "status: up", "")}}})
	case "custom":
		put("custom", object{"customType": s.OneOf("model-snapshot", "openclaw:prompt-error"), "data": object{"modelId": "m2", "error": "aborted"}})
	case "reset":
		put("reset", object{})
	}
}
