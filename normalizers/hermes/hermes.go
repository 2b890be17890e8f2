// Package hermes normalizes the messages of Hermes: rows of its database, JSON lines, and saved sessions.
//
// Start with [Vendor]. A record is read by read, a row by readRow, a message by readMessage, which has one case per
// role. README.md has the rules.
//
// The invariant: a message is final, and no message has an id that lasts.
package hermes

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes what a record states.
func read(w *chat.Writer, r *record) {
	switch {
	case r.Row.OK:
		readRow(w, r.Table, &r.Row.Value)
		return
	case r.SessionStart == "" || r.Messages.Kind() != '[':
		if !roles[r.Role] || isOf(w, formLog) {
			readMessage(w, &r.message)
		}
		return
	case !isOf(w, formLog):
		return
	}
	w.Session.SetResumeID(string(r.SessionID))
	w.Session.SetModel(string(r.Model))
	w.Session.SetRoot(string(cmp.Or(r.Cwd, r.Config.Value.Cwd)))
	w.Session.SetTextExtension("platform", r.Platform)
	w.At(core.ParseTime(string(r.SessionStart)))
	messages := lenient.Elements(r.Messages)
	w.Elements("", messages, func(raw jsontext.Value) {
		var m message
		lenient.ReadObject(raw, &m)
		readMessage(w, &m)
	})
	if len(messages) == 0 {
		w.ID = r.SessionID
		w.Meta()
	}
}

// roles are those of readMessage.
var roles = map[lenient.Text]bool{"user": true, "assistant": true, "tool": true, "system": true, "session_meta": true}

// readMessage writes a message by its role.
func readMessage(w *chat.Writer, m *message) {
	if m.Timestamp.Kind() == '0' {
		w.At(core.TimeOfMillis(lenient.NumberOf(m.Timestamp).Times(1000)))
	} else if m.Timestamp.Kind() == '"' {
		w.At(core.ParseTime(lenient.Unquote(m.Timestamp)))
	}
	w.Session.SetModel(string(m.LineModel))
	w.Session.SetRoot(string(m.LineCwd))
	text, ok, attached := textsOf(m.Content)
	switch m.Role {
	case "user":
		if strings.TrimSpace(text) == "" && attached {
			w.Attach()
			return
		}
		kind, content := speechOf(m, text)
		if kind == core.SpeechHuman && w.Agent != "" {
			w.Prompt(lenient.Text(content))
			return
		}
		w.Say(kind, lenient.Text(content))
	case "assistant":
		w.Think(m.thought())
		w.Answer(lenient.Text(text))
		for _, c := range m.calls() {
			name := cmp.Or(c.Function.Value.Name, c.Name)
			stated := cmp.Or(c.ID, c.CallID)
			arguments := c.Function.Value.Arguments
			if !lenient.IsValue(arguments) {
				arguments = c.Arguments
			}
			if id := w.Call(chat.Call{ID: stated, Name: name, Arguments: arguments}); stated == "" {
				w.Await(string(name), id)
			}
		}
	case "tool":
		readResult(w, m, text, ok)
	case "system":
		w.System(envelopes.SystemMessage, lenient.Text(text))
	case "session_meta":
		w.Session.SetModel(string(m.Model))
		w.Meta()
	default:
		w.UnknownRecord("message", m.Role)
	}
}

// injected are the kinds of messages that Hermes writes under the user's name.
var injected = map[lenient.Text]bool{
	"hidden": true, "async_delegation_complete": true, "auto_continue": true, "internal_notification": true, "model_switch": true,
}

// Beginnings of texts that Hermes writes under the user's name, also where the message states no kind.
const (
	delegated  = "[ASYNC DELEGATION "
	goalGoesOn = "[Continuing toward your standing goal]"
	compacted  = "[CONTEXT COMPACTION"
	skill      = "[IMPORTANT: The user has invoked the \""
	alongside  = "The user has provided the following instruction alongside the skill invocation: "
)

// speechOf separates what a human typed from what Hermes writes. A skill that the human invoked stands before the
// instruction that came with it; without one the human only named it.
func speechOf(m *message, text string) (core.Speech, string) {
	switch {
	case strings.HasPrefix(text, compacted), m.Compressed.Kind() == 't', m.Compressed.Kind() == '0' && lenient.NumberOf(m.Compressed).Value != 0:
		return core.SpeechSummary, text
	case injected[m.DisplayKind], strings.HasPrefix(text, delegated), strings.HasPrefix(text, goalGoesOn):
		return core.SpeechInjected, text
	case strings.HasPrefix(text, skill):
		if at := strings.LastIndex(text, alongside); at >= 0 {
			return core.SpeechHuman, text[at+len(alongside):]
		}
		name, _, _ := strings.Cut(text[len(skill):], "\"")
		return core.SpeechCommand, "/" + name
	default:
		return core.SpeechHuman, text
	}
}

// readResult writes the result of a call.
func readResult(w *chat.Writer, m *message, text string, ok bool) {
	r := chat.Result{ID: m.CallID, Name: cmp.Or(m.ToolName, m.Name)}
	if r.ID == "" {
		r.ID = lenient.Text(w.Awaited(string(r.Name)))
	}
	if ok {
		r.Text = &text
	}
	r.Failed = strings.HasPrefix(text, "Tool execution failed: ")
	if v := jsontext.Value(text); v.Kind() == '{' && lenient.ReadValue(v) == nil {
		var o outcome
		lenient.ReadObject(v, &o)
		readOutcome(w, &r, &o)
	}
	w.Result(r)
}

// readOutcome sets what the JSON of a result states. Only a terminal states an exit code: not for a command that did
// not run, nor for one that goes on in the background.
func readOutcome(w *chat.Writer, r *chat.Result, o *outcome) {
	r.Failed = o.Success.Kind() == 'f' || o.Status == "error" || o.Status == "blocked" || o.Status == "disabled" || o.Status == "pending_approval"
	if o.Error.Kind() == '"' {
		r.Message = lenient.Text(lenient.Unquote(o.Error))
	}
	name := r.Name
	if call, ok := w.Session.RecallCall(string(r.ID)); ok {
		name = lenient.Text(call.Tool)
	}
	switch code := o.ExitCode.Integer(); {
	case o.Status == "dispatched" && o.DelegationID != "":
		r.Running = true
	case name != "terminal" || code == nil || *code < 0 && o.Status != "":
	case o.SessionID != "" && strings.HasPrefix(string(o.Output), "Background process started"):
		r.Running = true
	default:
		r.Exit = code
	}
}
