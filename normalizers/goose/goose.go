// Package goose normalizes the rows of Goose's database, and the logs of its older versions.
//
// Start with [Vendor]. A record is read by read; each form ends in readMessage. README.md has the rules.
//
// The invariant: a message is a list of blocks, and each block is an event under the id of its message.
package goose

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes what a record states.
func read(w *chat.Writer, r *record) {
	row := &r.Row.Value
	switch {
	case r.Row.OK && r.Table == "sessions":
		learn(w, &session{
			ID: row.ID, Name: row.Name, Type: row.Type, Dir: row.Dir, CreatedAt: row.Created, Provider: row.Provider, Model: row.Model,
			sums: row.sums,
		})
	case r.Row.OK && r.Table == "messages":
		readMessage(w, row.MessageID, &message{Role: row.Role, Created: row.At, Content: row.Content, Metadata: row.Metadata})
	case r.Row.OK:
		w.UnknownRecord(r.Table)
	case r.Dir != "":
		learn(w, &r.session)
	case r.Role != "":
		readMessage(w, r.ID, &r.message)
	default:
		w.UnknownRecord("")
	}
}

// learn notes what is stated about the session, and writes its title.
func learn(w *chat.Writer, s *session) {
	ts, ok := core.ParseTime(stampOf(string(s.CreatedAt)))
	w.At(ts, ok)
	if created, err := time.Parse(time.RFC3339Nano, ts); ok && err == nil {
		w.Remember("created", strconv.FormatInt(created.Unix(), 10))
	}
	w.Session.SetResumeID(string(s.ID))
	w.Session.SetRoot(string(s.Dir))
	w.Session.SetModel(string(s.Model.Value.Name))
	w.Session.SetTextExtension("provider", s.Provider)
	if s.Type == "sub_agent" {
		w.Remember("child", "yes")
		w.Agent = lenient.Text(w.Session.ID())
	}
	title := cmp.Or(s.Name, s.Description)
	w.ID = "session"
	if title == "" {
		w.Meta()
	} else {
		w.Say(core.SpeechSummary, title)
	}
	useSums(w, &s.sums)
}

// summed is remembered of a session whose sums count.
const summed = "summed"

// useSums writes the tokens of a session. They count only where its messages state none, as the missing cache shows.
func useSums(w *chat.Writer, s *sums) {
	if !s.Input.OK && !s.Output.OK || s.CacheRead.OK {
		w.Remember(summed, "")
		return
	}
	w.Remember(summed, "yes")
	w.Use("session", chat.Tokens{Input: s.Input, Output: s.Output, Several: true})
}

// readMessage writes a message: its blocks in their order, and its tokens.
func readMessage(w *chat.Writer, id lenient.Text, m *message) {
	millis := millisOf(m.Created)
	w.At(core.TimeOfMillis(millis))
	w.ID = id
	if id != "" && !strings.HasPrefix(string(id), "msg_") { // of a provider, which may repeat it
		w.ID += lenient.Text("-" + strconv.FormatInt(m.Created.Count(), 10))
	}
	at, ok := core.MomentOfMillis(millis)
	if created, err := strconv.ParseInt(w.Remembered("created"), 10, 64); ok && err == nil {
		w.Copied = at.Unix() < created
	}
	if w.Remembered("child") != "" {
		w.Agent = lenient.Text(w.Session.ID())
	}
	inference := &m.Metadata.Value.Inference.Value
	w.Model = cmp.Or(inference.Resolved, inference.Requested, lenient.Text(w.Session.Model))
	switch m.Role {
	case "user":
		readPrompt(w, m)
	case "assistant":
		readAnswer(w, m)
	default:
		w.UnknownRecord("message", m.Role)
	}
	if !m.Metadata.Value.Usage.OK || w.Remembered(summed) != "" {
		return
	}
	u := &m.Metadata.Value.Usage.Value
	in := u.Input.Count() + u.Output.Count()
	w.Use(w.ID, chat.Tokens{
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Cost: u.Cost,
		CacheInInput: u.Total.Count() == in && u.CacheRead.Count()+u.CacheWrite.Count() <= u.Input.Count(),
	})
}

// isHidden reports whether only the model sees a message.
func (m *message) isHidden() bool { return m.Metadata.Value.UserVisible.Kind() == 'f' }

// isForModel reports whether a text is for the model alone.
func (b *block) isForModel() bool {
	audience := b.Annotations.Value.Audience
	return len(audience) > 0 && !slices.Contains(audience, "user")
}

// readPrompt writes a message of the role user: what a human typed, or the results of tools.
func readPrompt(w *chat.Writer, m *message) {
	attached := false
	for _, b := range chat.Blocks[block](m.Content) {
		switch b.Type {
		case "text":
			switch {
			case m.isHidden() || b.isForModel():
				w.Say(core.SpeechInjected, b.Text)
			case w.Agent != "":
				w.Prompt(b.Text)
			default:
				w.Say(core.SpeechHuman, b.Text)
			}
		case "image", "document":
			attached = true
		default:
			readBlock(w, m, &b)
		}
	}
	if attached && w.First < 0 && !w.Duplicate {
		w.Attach()
	}
}

// readAnswer writes a message of the assistant. A thought may be one block per token.
func readAnswer(w *chat.Writer, m *message) {
	list := chat.Blocks[block](m.Content)
	for i := 0; i < len(list); i++ {
		switch b := &list[i]; b.Type {
		case "text":
			if m.isHidden() {
				w.Say(core.SpeechSummary, b.Text)
			} else {
				w.Answer(b.Text)
			}
		case "thinking", "reasoning":
			var thought strings.Builder
			for ; i < len(list) && list[i].Type == b.Type; i++ {
				thought.WriteString(string(list[i].Thinking + list[i].Text))
			}
			i--
			think(w, m, thought.String())
		default:
			readBlock(w, m, b)
		}
	}
}

// think writes a thought, unless the message repeats that of the previous one: the calls of one answer are messages of
// their own, and only the first states what was used.
func think(w *chat.Writer, m *message, thought string) {
	is := core.HexHash(thought)
	if !m.Metadata.Value.Usage.OK && w.Remembered("thought") == is {
		w.Skip = core.SkipMirror
		return
	}
	w.Remember("thought", is)
	w.Think(lenient.Text(thought))
}

// readBlock writes a block that messages of both roles may have.
func readBlock(w *chat.Writer, m *message, b *block) {
	switch b.Type {
	case "toolRequest":
		var c call
		lenient.ReadObject(b.Call.Value.Value, &c)
		w.Call(chat.Call{ID: b.ID, Name: c.Name, Arguments: c.Arguments})
	case "toolResponse":
		readResult(w, b.ID, &b.Result.Value)
	case "error":
		w.Error(b.Kind, b.Message)
	case "contextLengthExceeded":
		w.Error(b.Type, b.Msg)
	case "systemNotification":
		w.System(envelopes.Log, b.Msg)
	case "conversationCompacted", "summarizationRequested":
		w.Say(core.SpeechSummary, b.Msg)
	case "redactedThinking", "toolConfirmationRequest", "actionRequired", "frontendToolRequest":
		w.Meta()
	default:
		w.Unknown(core.UnknownBlock, "message", m.Role, b.Type)
		if w.First < 0 {
			w.Put(core.UnknownDraft())
		}
	}
}

// readResult writes the result of a call.
func readResult(w *chat.Writer, id lenient.Text, o *outcome) {
	r := chat.Result{ID: id, Failed: o.Status == "error"}
	if o.Error != "" {
		r.Text = new(string(o.Error))
	}
	var value result
	content := o.Value
	if o.Value.Kind() == '{' {
		lenient.ReadObject(o.Value, &value)
		content = value.Content
	}
	r.Failed = r.Failed || bool(value.IsError)
	if text, ok := chat.Text(content); ok {
		r.Text = &text
	}
	if w.IsShell(id, "") {
		r.Exit = value.Structured.Value.ExitCode.Integer()
	}
	w.Result(r)
}
