package openclaw

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/pi"
)

// dialect is what OpenClaw adds to the log of Pi.
var dialect = pi.Dialect{Entry: readEntry, Speech: speechOf, Outcome: addOutcome}

// tools are the tools of OpenClaw that other agents lack.
var tools = map[string]core.Tool{
	"process": core.ToolShell, "find": core.ToolSearch, "memory_search": core.ToolSearch, "memory_get": core.ToolSearch,
}

// readEntry writes a record that Pi does not write.
func readEntry(w *chat.Writer, r *pi.Record) bool {
	m := &r.Message.Value
	switch {
	case r.Type == "custom" && r.CustomType == "model-snapshot":
		w.Session.SetModel(string(r.Data.Value.ModelID))
		w.Meta()
	case r.Type == "custom" && r.CustomType == "openclaw:prompt-error":
		w.Error("", r.Data.Value.Error)
	case r.Type == "reset":
		w.Meta()
	case r.Type == "message" && m.Role == "assistant" && isDelivery(m):
		readDelivery(w, m)
	case r.Type == "message" && m.Role == "assistant":
		rememberTexts(w, m)
		return false
	default:
		return false
	}
	return true
}

// isDelivery reports whether the gateway wrote a message of the assistant: the text that it has sent to a channel.
func isDelivery(m *pi.Message) bool {
	return m.Provider == "openclaw" || m.Model == "delivery-mirror" || m.Model == "gateway-injected"
}

// readDelivery writes a text that the gateway has sent, unless it repeats a text of the assistant.
func readDelivery(w *chat.Writer, m *pi.Message) {
	text, _ := chat.Text(m.Content)
	switch {
	case strings.TrimSpace(text) == "":
	case slices.Contains(strings.Fields(w.Remembered(texts)), keyOf(text)):
		w.Skip = core.SkipMirror
	default:
		d := core.ChatDraft(envelopes.AssistantMessage, &text, nil)
		d.Origin = envelopes.OriginInjected
		w.Put(d)
	}
}

// A session remembers the keys of the last texts of the assistant as one value.
const (
	texts    = "texts"
	maxTexts = 24
)

// rememberTexts remembers the texts of the assistant, and those that it sends with a tool.
func rememberTexts(w *chat.Writer, m *pi.Message) {
	keys := strings.Fields(w.Remembered(texts))
	for _, b := range chat.Blocks[pi.Block](m.Content) {
		text := string(b.Text)
		if b.Name == "message" {
			var sent struct {
				Message lenient.Text `json:"message"`
			}
			lenient.ReadObject(b.Arguments, &sent)
			text = string(sent.Message)
		}
		if text != "" {
			keys = append(keys, keyOf(text))
		}
	}
	w.Remember(texts, strings.Join(keys[max(0, len(keys)-maxTexts):], " "))
}

// directive matches a tag before an answer, which the gateway does not send.
var directive = regexp.MustCompile(`^\s*\[\[[^\]\n]*\]\]`)

// keyOf returns a short key of a text as it is sent.
func keyOf(text string) string {
	return core.FingerprintOf(strings.TrimSpace(directive.ReplaceAllString(text, ""))).String()
}

// addOutcome adds the exit code, the duration and the status that OpenClaw states about a command.
func addOutcome(w *chat.Writer, m *pi.Message, r *chat.Result) {
	d := &m.Details.Value
	if !m.Details.OK || !w.IsShell(m.ToolCallID, m.ToolName) {
		return
	}
	if code := d.ExitCode.Integer(); code != nil {
		r.Exit = code
	}
	r.Latency = d.Duration
	switch d.Status {
	case "failed", "approval-unavailable":
		r.Failed = true
	case "running", "approval-pending":
		r.Running = true
	}
}

// machine has the beginnings of texts that OpenClaw writes under the user's name.
var machine = []string{
	"Read HEARTBEAT.md", "A new session was started via /new or /reset", "[cron:", "An async command you ran earlier has completed",
	"Pre-compaction memory flush.", "[OpenClaw heartbeat poll]", "[OpenClaw session new]", "[OpenClaw session reset]",
	"[OpenClaw exec completion]", "[OpenClaw cron wake]", "[OpenClaw session event]",
}

// agents has the beginnings of texts in which OpenClaw hands on what other agents wrote.
var agents = []string{
	"[Inter-session message]", "[System Message] [sessionId: ", "[Queued announce messages while agent was busy]",
	"[Subagent Context] Your prior run ended while waiting for descendant subagent completions.",
}

// hasStart reports whether a text begins with one of a list.
func hasStart(text string, list []string) bool {
	return slices.ContainsFunc(list, func(start string) bool { return strings.HasPrefix(text, start) })
}

// around matches what OpenClaw puts before a prompt: metadata of the message, lines of the system, the time, the
// channel, and attached files. A first line "System (untrusted): x" without a time is not matched, because OpenClaw
// makes it of "System: x" that a human typed. It is compiled when it is first needed, because it is large.
var around = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(?s:[A-Z][^\n]{0,80}\(untrusted[^)\n]{0,60}\):\n` + "```json\n.*?\n```" +
		`|System(?:: | \(untrusted\): \[)[^\n]*(?:\nSystem(?: \(untrusted\))?:[^\n]*)*` +
		`|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d[^\]\n]*\]` +
		`|\[(?:WhatsApp|Telegram|Discord|Slack|Signal|iMessage|BlueBubbles|Microsoft Teams|Matrix|Mattermost|Google Chat|Zalo|LINE|IRC|WebChat|Feishu)\b[^\]\n]*\]` +
		`|\[media attached[^\]\n]*\]|To send an image back, prefer the message tool[^\n]*|\[message_id: [^\]\n]*\])\s*)*`)
})

// messageID matches the id of the message, which OpenClaw puts after a prompt.
var messageID = regexp.MustCompile(`\s*\[message_id: [^\]\n]*\]\s*$`)

// What introduces a subagent to its prompt, and what follows it.
const (
	subagent  = "[Subagent Context] You are running as a subagent"
	task      = "\n[Subagent Task]"
	afterTask = "Begin. Execute the assigned task to completion."
)

// taskOf returns the task in the prompt of a subagent, or the whole prompt if only the system prompt has the task.
func taskOf(prompt string) string {
	_, after, _ := strings.Cut(prompt, task)
	after = strings.TrimSuffix(strings.TrimPrefix(after, ":"), afterTask)
	if after = strings.TrimSpace(after); after != "" {
		return after
	}
	return prompt
}

// speechOf separates what a human typed from what OpenClaw put around it.
func speechOf(m *pi.Message, text string) (core.Speech, string) {
	whole := strings.TrimSpace(text)
	typed := messageID.ReplaceAllString(whole, "")
	typed = typed[len(around().FindString(typed)):]
	switch kind := m.Provenance.Value.Kind; {
	case strings.HasPrefix(typed, subagent):
		return core.SpeechTask, taskOf(typed)
	case kind == "inter_session", hasStart(typed, agents):
		return core.SpeechAgent, text
	case kind == "internal_system", hasStart(typed, machine):
		return core.SpeechInjected, text
	case typed == whole:
		return pi.SpeechOf(text)
	case typed != "":
		return pi.SpeechOf(typed)
	case strings.Contains(whole, "[media attached"):
		return core.SpeechHuman, text
	default:
		return core.SpeechInjected, text
	}
}
