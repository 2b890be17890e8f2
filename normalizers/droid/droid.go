// Package droid normalizes the sessions of Droid, by Factory, and what its runs print.
//
// Start with [Vendor]. A record is read by read, which has one case per type. README.md has the rules.
//
// The invariant: the tokens of a session count once, whether its settings, its runs or both state them.
package droid

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes the events of a record.
func read(w *chat.Writer, r *record) {
	w.ID = r.ID
	ts, ok := core.TimeOfMillis(lenient.NumberOf(r.Timestamp))
	if !ok {
		ts, ok = core.ParseTime(lenient.Unquote(r.Timestamp))
	}
	w.At(ts, ok)
	w.Session.SetModel(string(cmp.Or(r.Model, r.ModelID)))
	switch r.Type {
	case "session_start":
		readStart(w, r)
	case "message":
		readMessage(w, messageOf(r))
	case "compaction_state":
		readCompaction(w, r)
	case "agent_turn_outcome":
		if r.Reason == "error" {
			w.Error(cmp.Or(r.Kind, r.Reason), "")
		} else {
			w.Meta()
		}
	case "system":
		w.Session.SetRoot(string(r.Cwd))
		w.Meta()
	case "todo_state": // repeats a call
		w.Meta()
	case "tool_call":
		w.Call(chat.Call{ID: cmp.Or(r.CallID, r.ID), Name: cmp.Or(r.Tool, r.ToolID), Arguments: r.Parameters})
	case "tool_result":
		readValue(w, r)
	case "session_end", "completion", "result":
		readEnd(w, r)
	case "error":
		w.Error("", lenient.Text(lenient.Unquote(r.Body)))
	case "":
		readSettings(w, r)
	default:
		w.UnknownRecord(r.Type)
	}
}

// subagent is remembered of a session that another session called, which wrote its prompts.
const subagent = "subagent"

// readStart writes the first line of a session, which is rewritten when its title changes.
func readStart(w *chat.Writer, r *record) {
	if r.Calling != "" {
		w.Remember(subagent, "true")
	}
	w.Session.SetResumeID(string(cmp.Or(r.Session.Value.ID, r.ID)))
	w.Session.SetRoot(string(cmp.Or(r.Session.Value.Cwd, r.Cwd)))
	w.Session.SetTextExtension("version", r.Version) // a number is the version of the format
	w.Meta()
	if title := cmp.Or(r.Session.Value.Title, r.Title, r.Old); title != "New Session" {
		w.Say(core.SpeechSummary, title)
	}
}

// readCompaction writes the summary with which a compacted session goes on.
func readCompaction(w *chat.Writer, r *record) {
	text := r.Summary
	if of := r.Titled.Value; text == "" {
		text = lenient.Text(strings.TrimSpace(string(of.Title + "\n\n" + of.Body)))
	}
	if strings.TrimSpace(string(text)) == "" {
		w.Meta()
		return
	}
	w.Say(core.SpeechSummary, text)
}

// messageOf returns the message of a record: a member, or the record itself.
func messageOf(r *record) *message {
	if r.Body.Kind() == '{' {
		var m message
		lenient.ReadObject(r.Body, &m)
		return &m
	}
	if r.Content == nil {
		r.Content = lenient.AppendQuote(nil, string(r.Text))
	}
	return &r.message
}

// readMessage writes a message by its role.
func readMessage(w *chat.Writer, m *message) {
	list := chat.Blocks[part](m.Content)
	w.Session.SetModel(string(m.Model))
	switch text, ok := chat.Text(m.Content); {
	case m.Visibility == "llm_only":
		w.Say(core.SpeechInjected, lenient.Text(text))
	case m.Visibility == "user_only":
		w.System(envelopes.Log, lenient.Text(text))
	case m.Role == "user":
		readPrompt(w, list, text)
		if !ok && len(list) == 0 { // the result of a hook
			w.Meta()
		}
	case m.Role == "assistant":
		for _, p := range list {
			readPart(w, p)
		}
	default:
		w.UnknownRecord("message", m.Role)
	}
}

// taskPrompt begins the prompt of a subagent.
const taskPrompt = "# Task Tool Invocation"

// readPrompt writes a message under the user's name: results of calls, and the prompt of a human or another agent. all
// is its whole text.
func readPrompt(w *chat.Writer, list []part, all string) {
	var texts []string
	var images bool
	for _, p := range list {
		switch p.Type {
		case "text":
			if rest := core.AfterElements(string(p.Text), "system-reminder"); strings.TrimSpace(rest) != "" {
				texts = append(texts, rest)
			}
		case "tool_result":
			readResult(w, p)
		case "image", "document":
			images = true
		default:
			w.Unknown(core.UnknownBlock, "user", p.Type)
		}
	}
	text := lenient.Text(strings.Join(texts, "\n"))
	switch {
	case texts == nil && images:
		w.Attach()
	case texts == nil:
		w.Say(core.SpeechInjected, lenient.Text(all))
	case w.Remembered(subagent) != "", strings.HasPrefix(string(text), taskPrompt):
		w.Prompt(text)
	default:
		w.Say(core.SpeechHuman, text)
	}
}

// lastAnswer is remembered of a session: the key of the last text of the assistant, which the end may repeat.
const lastAnswer = "answer"

func answerKey(text lenient.Text) string {
	key, _ := core.PromptKey(string(text)).MarshalText() // never fails
	return string(key)
}

// readPart writes a part of an answer.
func readPart(w *chat.Writer, p part) {
	switch p.Type {
	case "text":
		w.Remember(lastAnswer, answerKey(p.Text))
		w.Answer(p.Text)
	case "thinking":
		w.Think(p.Thinking)
	case "redacted_thinking":
		w.Meta()
	case "tool_use":
		w.Call(chat.Call{ID: p.ID, Name: p.Name, Arguments: p.Input})
	default:
		w.Unknown(core.UnknownBlock, "assistant", p.Type)
	}
}

// exitLine begins the output of a command that failed.
var exitLine = regexp.MustCompile(`^Error: Command failed \(exit code: (-?\d{1,10})\)`)

// readResult writes the result of a call in a session.
func readResult(w *chat.Writer, p part) {
	writeResult(w, chat.Result{ID: p.CallID, Failed: bool(p.IsError), Text: chat.TextOf(p.Content)})
}

// readValue writes the result of a call in a run: a text, or an object.
func readValue(w *chat.Writer, r *record) {
	result := chat.Result{ID: cmp.Or(r.CallID, r.ID), Name: cmp.Or(r.Tool, r.ToolID), Failed: bool(r.IsError)}
	switch r.Value.Kind() {
	case '"':
		result.Text = new(lenient.Unquote(r.Value))
	case '{':
		var v value
		lenient.ReadObject(r.Value, &v)
		text := v.Stdout.Value
		switch {
		case !v.Stdout.OK && !v.Stderr.OK:
			text = lenient.CompactText(r.Value)
		case text != "" && v.Stderr.Value != "" && !strings.HasSuffix(text, "\n"):
			text += "\n"
		}
		text += v.Stderr.Value
		result.Text, result.Exit = &text, cmp.Or(v.Exit.Integer(), v.Code.Integer())
	default:
		if lenient.IsValue(r.Value) {
			result.Text = new(lenient.CompactText(r.Value))
		}
	}
	writeResult(w, result)
}

// writeResult writes a result, with the exit code that the first line of its text states.
func writeResult(w *chat.Writer, r chat.Result) {
	if r.Text != nil && r.Exit == nil && w.IsShell(r.ID, r.Name) {
		r.Exit = core.ExitCode(exitLine, *r.Text)
	}
	w.Result(r)
}

// readEnd writes the end of a session or a run. Its text repeats the last one of the assistant, or is the only one.
func readEnd(w *chat.Writer, r *record) {
	w.ID = "" // each run may end with the same one
	if text := cmp.Or(r.Final, r.Result); answerKey(text) == w.Remembered(lastAnswer) {
		w.Meta()
	} else {
		w.Answer(text)
	}
	w.Remember(lastAnswer, "")
	if w.First < 0 {
		w.Meta()
	}
	if u := r.Usage.Value; r.Type == "completion" && w.Remembered(settled) == "" {
		c := counts(w)
		for i, n := range []lenient.Number{u.Input, u.CacheRead, u.CacheWrite, u.Output} {
			c[i] += n.Count()
		}
		rememberCounts(w, c)
		w.Use("", chat.Tokens{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output})
	}
}

const (
	counted = "counted" // the counts of a session so far
	settled = "settled" // settings stated the counts, which then include those of runs
)

// counts returns the counts of a session so far: input, cache read, cache write, output, thoughts.
func counts(w *chat.Writer) (c [5]int64) {
	_, _ = fmt.Sscan(w.Remembered(counted), &c[0], &c[1], &c[2], &c[3], &c[4]) // a new session has none
	return c
}

func rememberCounts(w *chat.Writer, c [5]int64) {
	w.Remember(counted, fmt.Sprint(c[0], c[1], c[2], c[3], c[4]))
}

// readSettings writes by how much the counts of a session have grown. A count that fell begins again.
func readSettings(w *chat.Writer, r *record) {
	u := &r.Tokens.Value
	if !r.Tokens.OK && !r.Active.OK && !bool(r.Lock) {
		w.UnknownRecord("")
		return
	}
	w.Skip = core.SkipHeartbeat
	if !r.Tokens.OK {
		return
	}
	before := counts(w)
	var now [5]int64
	for i, n := range []*lenient.Number{&u.Input, &u.CacheRead, &u.CacheWrite, &u.Output, &u.Thinking} {
		now[i] = n.Count()
		n.Value = float64(max(0, now[i]-before[i]))
	}
	rememberCounts(w, now)
	w.Remember(settled, "true")
	w.Use("", chat.Tokens{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Thinking})
}
