// Package pi normalizes the sessions of Pi, and those of OpenClaw, which writes the same log.
//
// Start with [Vendor]. A record is read by [Dialect.Read], which has one case per type. README.md has the rules.
//
// The invariant: a log is a tree of entries, each in one record with an id, and every entry counts, also on a branch
// that was left.
package pi

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Dialect is what an agent that writes the log of Pi does in its own way.
type Dialect struct {
	// Entry writes a record that only this agent writes; false for a record as Pi writes it.
	Entry func(w *chat.Writer, r *Record) bool
	// Speech separates what a human typed from what the agent put around it.
	Speech func(m *Message, text string) (core.Speech, string)
	// Outcome adds what the agent states about the outcome of a call.
	Outcome func(w *chat.Writer, m *Message, r *chat.Result)
}

// dialect is that of Pi itself.
var dialect = Dialect{
	Entry:   func(*chat.Writer, *Record) bool { return false },
	Speech:  func(_ *Message, text string) (core.Speech, string) { return SpeechOf(text) },
	Outcome: func(*chat.Writer, *Message, *chat.Result) {},
}

// Normalizer returns the normalizer of an agent with a dialect. tools are those that other agents lack.
func Normalizer(tools map[string]core.Tool, d *Dialect) core.Normalizer {
	return chat.Normalizer(tools, d.Read)
}

// Read writes what a record states.
func (d *Dialect) Read(w *chat.Writer, r *Record) {
	w.ID = r.ID
	ts, ok := core.ParseTime(string(r.Timestamp))
	w.At(ts, ok)
	w.Copied = isBefore(ts, w.Remembered("forked"))
	if d.Entry(w, r) {
		return
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
		d.readMessage(w, &r.Message.Value)
	case "model_change":
		w.Session.SetModel(string(r.ModelID))
		w.Session.SetTextExtension("provider", r.Provider)
		w.Meta()
	case "thinking_level_change":
		w.Session.SetTextExtension("thinkingLevel", r.Thinking)
		w.Meta()
	case "compaction":
		if w.Copied || !isStated(w, &r.summary, byEntry) {
			saySummary(w, &r.summary)
		}
	case "branch_summary":
		saySummary(w, &r.summary)
	case "usage": // of an API call without an answer, such as one that keeps the cache
		w.Model = r.Model
		w.Put(core.SystemDraft(envelopes.Meta, "")) // the same if a run has printed the entry
		use(w, &r.Usage.Value)
	case "session_info": // a title
		w.Say(core.SpeechSummary, r.Name)
	case "custom_message":
		text, _ := chat.Text(r.Content)
		w.Say(core.SpeechInjected, lenient.Text(text))
	case "custom", "label", "context_edit":
		w.Meta()
	default:
		d.readPrinted(w, r)
	}
}

// saySummary writes a summary and the tokens that it took.
func saySummary(w *chat.Writer, s *summary) {
	w.Say(core.SpeechSummary, s.Summary)
	use(w, &s.Usage.Value)
}

// readMessage writes a message by its role.
func (d *Dialect) readMessage(w *chat.Writer, m *Message) {
	switch m.Role {
	case "user":
		d.readPrompt(w, m)
	case "assistant":
		readAnswer(w, m)
	case "toolResult":
		d.readResult(w, m)
	case "bashExecution": // a command that the human ran
		w.Say(core.SpeechTerminal, "$ "+m.Command+"\n"+m.Output)
	case "custom", "hookMessage":
		text, _ := chat.Text(m.Content)
		w.Say(core.SpeechInjected, lenient.Text(text))
	case "branchSummary", "compactionSummary":
		w.Say(core.SpeechSummary, m.Summary)
	case "system":
		readSystem(w, m)
	default:
		w.UnknownRecord("message", m.Role)
	}
}

// readSystem writes the system prompt, or what changes in it: its content, and behind it its sections. One that only
// changes the tools has no text.
func readSystem(w *chat.Writer, m *Message) {
	text, _ := chat.Text(m.Content)
	texts := []string{text}
	for _, section := range lenient.ObjectMembers(m.Sections) {
		texts = append(texts, string(lenient.Scalar(section.Value)))
	}
	texts = slices.DeleteFunc(texts, func(t string) bool { return t == "" })
	if w.Say(core.SpeechInjected, lenient.Text(strings.Join(texts, "\n\n"))); w.First < 0 && !w.Duplicate {
		w.Meta()
	}
}

// readPrompt writes the prompt of a human.
func (d *Dialect) readPrompt(w *chat.Writer, m *Message) {
	text, _ := chat.Text(m.Content)
	kind, typed := d.Speech(m, text)
	w.Say(kind, lenient.Text(typed))
	for _, b := range chat.Blocks[Block](m.Content) {
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
var inserted = regexp.MustCompile(`(?s)^(?:\s*(?:<skill name="[^"\n]*"[^>\n]*>.*?</skill>|<file name="[^"\n]*">.*?</file>)\s*)*`)

// skill matches what Pi makes of a typed "/skill:name arguments": the text of the skill, and the arguments.
var skill = regexp.MustCompile(`(?s)^<skill name="([^"\n]+)" location="[^"\n]*">\n.*?\n</skill>(?:\n\n(.+))?$`)

// SpeechOf separates what a human typed from what Pi put before it. A text of which nothing was typed is injected.
func SpeechOf(text string) (core.Speech, string) {
	if m := skill.FindStringSubmatch(text); m != nil {
		return core.SpeechCommand, strings.TrimSpace("/skill:" + m[1] + " " + m[2])
	}
	typed := text[len(inserted.FindString(text)):]
	if typed == "" && text != "" {
		return core.SpeechInjected, text
	}
	return core.SpeechHuman, typed
}

// readAnswer writes a message of the assistant: its thoughts, texts and calls in their order, its tokens, and why it
// ended early.
func readAnswer(w *chat.Writer, m *Message) {
	w.Model = m.Model
	w.Session.SetModel(string(m.Model))
	for _, b := range chat.Blocks[Block](m.Content) {
		switch b.Type {
		case "text":
			w.Answer(b.Text)
		case "thinking": // empty where only its signature is stored
			w.Think(b.Thinking)
		case "toolCall", "toolUse", "tool_use":
			if b.Arguments == nil {
				b.Arguments = b.Input
			}
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
	cost := u.Cost.Value.Total
	if !cost.OK {
		cost = u.CostUSD
	}
	w.Use(w.ID, chat.Tokens{
		Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, CacheWrite1h: u.Write1h, Output: u.Output,
		Reasoning: u.Reasoning, ReasoningInOutput: true, Cost: cost,
	})
}

// exitLine is the last line that the shell adds to the output of a command that failed.
var exitLine = regexp.MustCompile(`(?:^|\n)Command exited with code (-?\d{1,10})\s*$`)

// readResult writes the result of a call.
func (d *Dialect) readResult(w *chat.Writer, m *Message) {
	r := chat.Result{ID: m.ToolCallID, Name: m.ToolName, Failed: bool(m.IsError), Text: chat.TextOf(m.Content)}
	if r.Text != nil && r.Failed && w.IsShell(m.ToolCallID, m.ToolName) {
		r.Exit = core.ExitCode(exitLine, *r.Text)
	}
	d.Outcome(w, m, &r)
	w.Result(r)
	use(w, &m.Usage.Value)
}

// isBefore reports whether a time is before another one; false if one is empty. A fork begins with entries of its
// parent, which are older than the first line of the fork.
func isBefore(ts, other string) bool {
	a, err := time.Parse(time.RFC3339Nano, ts)
	b, otherErr := time.Parse(time.RFC3339Nano, other)
	return err == nil && otherErr == nil && a.Before(b)
}
