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
var Suite = pitest.SuiteOf(envelopes.OpenClaw, "openclaw", pitest.Dialect{Entry: entry, Typed: typed, Code: code, Lines: lines})

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
	"To send an image back": "\n", "System: [": "\n",
}

// machine has the beginnings of texts that no human wrote.
var machine = []string{"[cron:", "Read HEARTBEAT.md", "A new session was started", "[Inter-session message]"}

// typed returns the author and the text of a prompt, without what OpenClaw put around it.
func typed(m any, body string) (who, prompt string) {
	for _, begin := range machine {
		if strings.HasPrefix(body, begin) {
			return "", ""
		}
	}
	if strings.HasPrefix(text(m, "provenance", "kind"), "int") {
		return "", ""
	}
	prompt, _, _ = strings.Cut(body, "\n[message_id: ")
	for found := true; found; {
		found = false
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
	if prompt == "" && strings.HasPrefix(body, "[media") {
		prompt = body
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
