// Package pi normalizes the sessions of Pi, and those of OpenClaw, which writes the same log.
//
// Start with [Vendor]. A record is read by read, which has one case per type. README.md has the rules.
//
// The invariant: a log is a tree of entries, each in one record with an id, and every entry counts, also on a branch
// that was left.
package pi

import (
	"regexp"
	"strconv"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes what a record states.
func read(w *chat.Writer, r *record) {
	w.ID = r.ID
	ts, ok := core.ParseTime(string(r.Timestamp))
	w.At(ts, ok)
	if forked := w.Remembered("forked"); ok && forked != "" {
		w.Copied = isBefore(ts, forked)
	}
	switch r.Type {
	case "session":
		if r.Parent != "" || r.Branched != "" {
			w.Remember("forked", ts)
		}
		w.Session.SetResumeID(string(r.ID))
		w.Session.SetRoot(string(r.Cwd))
		w.Meta()
	case "message":
		readMessage(w, &r.Message.Value)
	case "model_change":
		w.Session.SetModel(string(r.ModelID))
		w.Session.SetTextExtension("provider", r.Provider)
		w.Meta()
	case "thinking_level_change":
		w.Session.SetTextExtension("thinkingLevel", r.Thinking)
		w.Meta()
	case "compaction", "branch_summary":
		w.Say(core.SpeechSummary, r.Summary)
		use(w, &r.Usage.Value)
	case "session_info": // a title
		w.Say(core.SpeechSummary, r.Name)
	case "custom_message":
		text, _ := joined(r.Content)
		w.Say(core.SpeechInjected, lenient.Text(text))
	case "custom", "label":
		w.Meta()
	default:
		w.UnknownRecord(r.Type)
	}
}

// readMessage writes a message by its role.
func readMessage(w *chat.Writer, m *message) {
	switch m.Role {
	case "user":
		readPrompt(w, m)
	case "assistant":
		readAnswer(w, m)
	case "toolResult":
		readResult(w, m)
	case "bashExecution": // a command that the human ran
		w.Say(core.SpeechTerminal, "$ "+m.Command+"\n"+m.Output)
	case "custom", "hookMessage":
		text, _ := joined(m.Content)
		w.Say(core.SpeechInjected, lenient.Text(text))
	case "branchSummary", "compactionSummary":
		w.Say(core.SpeechSummary, m.Summary)
	default:
		w.UnknownRecord("message", m.Role)
	}
}

// readPrompt writes the prompt of a human.
func readPrompt(w *chat.Writer, m *message) {
	text, _ := joined(m.Content)
	kind, said := speechOf(text)
	w.Say(kind, lenient.Text(said))
	for _, b := range blocks(m.Content) {
		switch b.Type {
		case "text":
		case "image":
			if text == "" && w.First < 0 {
				w.Attach()
			}
		default:
			w.Unknown(core.UnknownBlock, "message", m.Role, b.Type)
		}
	}
}

// inserted matches what Pi puts before a prompt: the text of a skill, and the files that the command line names.
var inserted = regexp.MustCompile(`(?s)^\s*(?:<skill name="[^"\n]*"[^>\n]*>.*?</skill>|<file name="[^"\n]*">.*?</file>)\s*`)

// speechOf separates what a human typed from what Pi put before it. A text without a rest is injected.
func speechOf(text string) (core.Speech, string) {
	said := text
	for {
		at := inserted.FindStringIndex(said)
		if at == nil {
			break
		}
		said = said[at[1]:]
	}
	if said == "" && text != "" {
		return core.SpeechInjected, text
	}
	return core.SpeechHuman, said
}

// readAnswer writes a message of the assistant: its thoughts, texts and calls in their order, its tokens, and why it
// ended early.
func readAnswer(w *chat.Writer, m *message) {
	w.Model = m.Model
	w.Session.SetModel(string(m.Model))
	for _, b := range blocks(m.Content) {
		switch b.Type {
		case "text":
			w.Answer(b.Text)
		case "thinking":
			w.Think(b.Thinking)
		case "toolCall":
			w.Call(chat.Call{ID: b.ID, Name: b.Name, Arguments: b.Arguments})
		default:
			w.Unknown(core.UnknownBlock, "message", m.Role, b.Type)
		}
	}
	switch m.StopReason {
	case "error":
		w.Error(m.StopReason, m.ErrorMessage)
	case "aborted":
		w.Put(core.SystemDraft(envelopes.SystemMessage, m.ErrorMessage))
	}
	use(w, &m.Usage.Value)
}

// use writes the tokens of the API calls that an entry states.
func use(w *chat.Writer, u *usage) {
	w.Use(w.ID, chat.Tokens{
		Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, CacheWrite1h: u.Write1h, Output: u.Output,
		Reasoning: u.Reasoning, ReasoningInOutput: true, Cost: u.Cost.Value.Total,
	})
}

// exitLine is the last line that the shell adds to the output of a command that failed.
var exitLine = regexp.MustCompile(`(?:^|\n)Command exited with code (-?\d{1,10})\s*$`)

// readResult writes the result of a call.
func readResult(w *chat.Writer, m *message) {
	r := chat.Result{ID: m.ToolCallID, Name: m.ToolName, Failed: bool(m.IsError)}
	text, ok := joined(m.Content)
	if ok {
		r.Text = &text
	}
	if found := exitLine.FindStringSubmatch(text); found != nil && bool(m.IsError) && w.IsShell(m.ToolCallID, m.ToolName) {
		if code, err := strconv.ParseInt(found[1], 10, 64); err == nil {
			r.Exit = &code
		}
	}
	w.Result(r)
	use(w, &m.Usage.Value)
}

// isBefore reports whether a time is before another one. A fork begins with the entries of the session that it was
// forked from, which are older than its first line.
func isBefore(ts, other string) bool {
	a, err := time.Parse(time.RFC3339Nano, ts)
	b, otherErr := time.Parse(time.RFC3339Nano, other)
	return err == nil && otherErr == nil && a.Before(b)
}
