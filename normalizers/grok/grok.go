// Package grok normalizes the sessions of Grok Build: chat histories, the tokens of updates, and summaries.
//
// Start with [Vendor]. A record is read by read; a line of a chat history by readLine, which has one case per type.
// README.md has the rules.
//
// The invariant: a chat history may be rewritten from its start, so a line is identified by its content and the line
// before it, and is emitted once.
package grok

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes the events of a record.
func read(w *chat.Writer, r *record) {
	switch {
	case r.Info.Value.ID != "":
		readSummary(w, r)
	case r.Params.OK:
		readUpdate(w, r, &r.Params.Value)
	case r.Update.OK:
		readUpdate(w, r, &r.params)
	default:
		readLine(w, r)
	}
}

// readSummary writes the facts and the title of a session.
func readSummary(w *chat.Writer, r *record) {
	w.At(core.ParseTime(string(r.UpdatedAt)))
	w.Session.SetResumeID(string(r.Info.Value.ID))
	w.Session.SetRoot(string(r.Info.Value.Cwd))
	w.Session.SetModel(string(r.Model))
	w.Session.SetTextExtension("sessionKind", r.Kind)
	w.Session.SetTextExtension("parentSessionId", r.ParentID)
	at := core.Checkout{Branch: r.HeadBranch, Commit: r.HeadCommit}
	if len(r.Remotes) > 0 {
		at.Repository = r.Remotes[0]
	}
	w.Session.SetCheckout(at)
	facts := core.SystemDraft(envelopes.Meta, "")
	facts.Identity = strings.Join([]string{string(r.Info.Value.Cwd), string(r.Model), string(at.Repository), string(at.Branch), string(at.Commit)}, "\n")
	w.ID = r.Info.Value.ID
	w.Put(facts)
	if title := cmp.Or(r.Title, r.OldTitle); title != "" {
		w.ID += "#title"
		w.Put(core.SystemDraft(envelopes.SessionSummary, title))
	}
}

// readUpdate writes what the chat history lacks: the tokens of a prompt, errors, and recaps. Other updates repeat it.
func readUpdate(w *chat.Writer, r *record, p *params) {
	w.At(core.TimeOfMillis(r.Timestamp.Times(1000)))
	w.At(core.TimeOfMillis(p.Meta.Value.Millis))
	if at := strings.LastIndex(string(p.Meta.Value.EventID), "-"); at > 0 {
		w.Copied = p.Meta.Value.EventID[:at] != p.SessionID // of the session that this one was forked from
	}
	u := &p.Update.Value
	switch {
	case u.Usage.OK && u.Kind == "turn_completed":
		t := &u.Usage.Value
		t.Ticks.Value /= 1e10
		w.ID = u.PromptID
		w.Use(u.PromptID, chat.Tokens{
			Input: t.Input, CacheRead: t.Cached, CacheWrite: t.Written, Output: t.Output, Reasoning: t.Reasoning,
			CacheInInput: true, ReasoningInOutput: true, Several: true, Cost: t.Ticks,
		})
	case u.Kind == "auto_compact_failed", u.Kind == "auto_recovery_exhausted":
		w.Error(u.Kind, u.Error)
	case u.Kind == "session_recap":
		w.Say(core.SpeechSummary, u.Summary)
	case slices.Contains(repeated, string(u.Kind)):
		w.Skip = core.SkipMirror
	default:
		w.UnknownRecord("update", u.Kind)
	}
}

// readLine writes a line of a chat history by its type.
func readLine(w *chat.Writer, r *record) {
	text, ok, attached := textsOf(r.Content)
	kind := cmp.Or(r.Type, r.Role)
	switch kind {
	case "system":
		w.ID = idOf(w, "", "system", text)
		w.Say(core.SpeechInjected, lenient.Text(text))
	case "user":
		after := w.Remembered(lastLine)
		if r.Reason == "" && lenient.IsValue(r.Index) {
			after = "" // a prompt is identified by its content alone
		}
		w.ID = idOf(w, after, "user", string(r.Reason), string(r.Index), text)
		if strings.TrimSpace(text) == "" && attached {
			w.Attach()
			return
		}
		speech, typed := speechOf(r.Reason, text)
		w.Say(speech, lenient.Text(typed))
	case "reasoning":
		if !ok {
			text, _, _ = textsOf(r.Summary)
		}
		w.ID = idOf(w, w.Remembered(lastLine), "reasoning", text)
		w.Think(lenient.Text(text))
	case "assistant":
		readAnswer(w, r, text)
	case "tool_result", "tool":
		readResult(w, r, text, ok)
	case "backend_tool_call":
		readBackend(w, &r.Backend.Value)
	default:
		w.UnknownRecord(kind)
	}
}

// lastLine is remembered of a session: the id of the last line of its chat history.
const lastLine = "place"

// idOf returns the id of a line of a chat history, made of its content and of the id of the line before it.
func idOf(w *chat.Writer, after string, content ...string) lenient.Text {
	id := core.HexHash(after + "\n" + strings.Join(content, "\n"))[:24]
	w.Remember(lastLine, id)
	return lenient.Text(id)
}

// speechOf returns who wrote a text under the user's name, and the text without what Grok put around a prompt.
func speechOf(reason lenient.Text, text string) (core.Speech, string) {
	switch {
	case reason == "agent_message":
		return core.SpeechAgent, text
	case reason == "compaction_meta" && strings.HasPrefix(text, "This session is being continued"):
		return core.SpeechSummary, text
	case reason != "" && reason != "interjection":
		return core.SpeechInjected, text
	}
	typed := core.AfterElements(text, wrappers...)
	if start, end := strings.Index(text, "<user_query>"), strings.LastIndex(text, "</user_query>"); start >= 0 && end > start {
		typed = strings.Trim(text[start+len("<user_query>"):end], "\r\n")
	}
	if strings.TrimSpace(typed) == "" && text != "" {
		return core.SpeechInjected, text
	}
	return core.SpeechHuman, typed
}

// wrappers are the elements that Grok puts before a prompt.
var wrappers = []string{"user_info", "git_status", "system-reminder", "agent_skills", "mcp_servers", "project_layout"}

// readAnswer writes a message of the assistant, and its calls.
func readAnswer(w *chat.Writer, r *record, text string) {
	content := []string{"assistant", text}
	for _, c := range r.Calls {
		content = append(content, string(c.ID))
	}
	w.ID = idOf(w, w.Remembered(lastLine), content...)
	w.Model = r.ModelID
	w.Session.SetModel(string(r.ModelID))
	w.Think(cmp.Or(r.Thought.Value.Text, r.Reasoning))
	w.Answer(lenient.Text(text))
	for _, c := range r.Calls {
		arguments := c.Arguments
		if c.Function.OK {
			arguments = c.Function.Value.Arguments
		}
		w.Call(chat.Call{ID: c.ID, Name: cmp.Or(c.Name, c.Function.Value.Name), Arguments: arguments})
	}
}

// exitLine is the first line of the result of a shell.
var exitLine = regexp.MustCompile(`^(?:exit: (-?\d{1,10})(?: \[|\r?\n|$)|Exit code: (-?\d{1,10})\b)`)

// failure begins a result that no flag marks as failed.
var failure = regexp.MustCompile("^(?:Tool `[^`\n]*` failed: |Tool execution cancelled|User cancelled the execution|Failed to parse arguments for tool)")

// readResult writes the result of a call.
func readResult(w *chat.Writer, r *record, text string, ok bool) {
	result := chat.Result{ID: r.CallID, Failed: failure.MatchString(text)}
	if ok {
		result.Text = &text
	}
	if w.IsShell(r.CallID, "") {
		if result.Exit = core.ExitCode(exitLine, text); result.Exit == nil {
			result.Failed = result.Failed || strings.HasPrefix(text, "exit: killed")
			result.Running = strings.HasPrefix(text, "[Command moved to background")
		}
	}
	w.Result(result)
}

// readBackend writes a call that the API ran, and its result.
func readBackend(w *chat.Writer, b *backend) {
	arguments, text := b.Action, b.Outputs
	for _, v := range []jsontext.Value{b.Input, b.Code} {
		if !lenient.IsValue(arguments) {
			arguments = v
		}
	}
	var a action
	if lenient.ReadObject(b.Action, &a); lenient.IsValue(a.Sources) {
		text = a.Sources
	}
	id := w.Call(chat.Call{ID: b.ID, Name: cmp.Or(b.Name, b.Tool), Arguments: arguments})
	result := chat.Result{ID: lenient.Text(id), Failed: b.Status == "failed", Text: new("")}
	if lenient.IsValue(text) {
		result.Text = new(lenient.CompactText(text))
	}
	w.Result(result)
}
