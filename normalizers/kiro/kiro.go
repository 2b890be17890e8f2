// Package kiro normalizes the sessions of Kiro CLI and Kiro IDE, and the conversations of Amazon Q, the forerunner.
//
// Start with [Vendor]. A record is read by read: a line of a session, the state of a session, a conversation, or an event
// of Kiro IDE. README.md has the rules.
//
// The invariant: the lines of a session have its conversation, and the state beside them only adds what ended turns
// cost. A conversation of Amazon Q has all of a session.
package kiro

import (
	"regexp"
	"strings"
	"time"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// read writes what a record states.
func read(w *chat.Writer, r *record) {
	switch {
	case r.ConversationID != "" && r.History.Kind() == '[':
		readConversation(w, r)
	case r.State.OK && r.SessionID != "":
		readState(w, r)
	case r.Payload.OK:
		readEvent(w, r)
	case r.ID != "" && r.Saved != "":
		readSummary(w, r)
	default:
		readLine(w, r)
	}
}

// readLine writes a line of a session by its kind.
func readLine(w *chat.Writer, r *record) {
	l := &r.Data.Value
	w.ID = l.MessageID
	if ts, ok := core.TimeOfMillis(l.Meta.Value.Timestamp.Times(1000)); ok {
		w.At(ts, true)
		w.Remember("copied", copiedAt(ts, w.Remembered("created")))
	}
	w.Copied = w.Remembered("copied") != ""
	switch r.Kind {
	case "Prompt":
		readPrompt(w, lenient.ReadElements[block](l.Content))
	case "AssistantMessage":
		readAnswer(w, lenient.ReadElements[block](l.Content))
	case "ToolResults":
		for _, b := range lenient.ReadElements[block](l.Content) {
			if b.Kind != "toolResult" {
				w.Unknown(core.UnknownBlock, r.Kind, b.Kind)
				continue
			}
			d := b.data()
			w.Result(resultOf(d.ToolUseID, lenient.ReadElements[block](d.Content), d.Status))
		}
	case "Compaction":
		w.Say(core.SpeechSummary, l.Summary)
	case "Clear", "ResetTo", "CancelledPrompt":
		w.Meta()
	default:
		w.UnknownRecord(r.Kind)
	}
}

// copiedAt returns a mark if a prompt is older than its session, which then begins with the history of another one.
// Prompts state whole seconds.
func copiedAt(prompt, created string) string {
	at, err := time.Parse(time.RFC3339Nano, prompt)
	session, createdErr := time.Parse(time.RFC3339Nano, created)
	if err != nil || createdErr != nil || !at.Before(session.Truncate(time.Second)) {
		return ""
	}
	return "1"
}

// data returns the data of a block that is no text.
func (b *block) data() (d blockData) {
	lenient.ReadObject(b.Data, &d)
	return d
}

// readPrompt writes the prompt of a human.
func readPrompt(w *chat.Writer, list []block) {
	var texts []string
	attached := false
	for _, b := range list {
		switch b.Kind {
		case "text":
			texts = append(texts, lenient.Unquote(b.Data))
		case "image":
			attached = true
		default:
			w.Unknown(core.UnknownBlock, "Prompt", b.Kind)
		}
	}
	chat.Typed(w, lenient.Text(strings.Join(texts, "\n")), attached)
}

// readAnswer writes the thoughts, texts and calls of a message in their order. An empty text stands before a call.
func readAnswer(w *chat.Writer, list []block) {
	for _, b := range list {
		if b.Kind == "thinking" {
			w.Model = b.data().ModelID
			setModel(w, w.Model)
		}
	}
	for _, b := range list {
		switch d := b.data(); b.Kind {
		case "text":
			w.Answer(lenient.Text(lenient.Unquote(b.Data)))
		case "thinking":
			w.Think(d.Text)
		case "toolUse":
			w.Call(callOf(chat.Call{ID: d.ToolUseID, Name: d.Name, Arguments: d.Input}))
		default:
			w.Unknown(core.UnknownBlock, "AssistantMessage", b.Kind)
		}
	}
}

// setModel sets the model of the session. With auto Kiro chooses one for each request, and does not state it.
func setModel(w *chat.Writer, id lenient.Text) {
	if id != "auto" {
		w.Session.SetModel(string(id))
	}
}

// callOf adds to a call the file that its operations name, and the tool of a write that creates a file.
func callOf(c chat.Call) chat.Call {
	var in input
	lenient.ReadObject(c.Arguments, &in)
	if len(in.Operations) > 0 {
		c.File = in.Operations[0].Path
	}
	if (c.Name == "write" || c.Name == "fs_write") && in.Command == "create" {
		c.Tool = &core.ToolWrite
	}
	return c
}

// exitStatus matches the exit code of a process, which Windows calls a code, and Amazon Q states without a word.
var exitStatus = regexp.MustCompile(`^(?:exit (?:status|code): )?(-?\d{1,10})$`)

// resultOf returns the result of a call. Its status is that of the tool: a command that failed has the status success
// and an exit code.
func resultOf(id lenient.Text, content []block, status lenient.Text) chat.Result {
	r := chat.Result{ID: id, Failed: strings.EqualFold(string(status), "error")}
	var texts []string
	for _, b := range content {
		if b.Kind != "json" {
			texts = append(texts, lenient.Unquote(b.Data))
			continue
		}
		var o output
		lenient.ReadObject(b.Data, &o)
		switch {
		case o.Stdout.OK || o.Stderr.OK:
			texts = append(texts, outputOf(o.Stdout.Value, o.Stderr.Value))
			if code := core.ExitCode(exitStatus, string(o.ExitStatus)); code != nil {
				r.Exit = code
			} else if o.ExitStatus != "" {
				r.Failed = true // a signal
			}
		case len(o.Content) > 0:
			for _, c := range o.Content {
				texts = append(texts, string(c.Text))
			}
		default:
			texts = append(texts, lenient.CompactText(b.Data))
		}
	}
	if texts != nil {
		text := strings.Join(texts, "\n")
		r.Text = &text
	}
	return r
}

// outputOf joins the two outputs of a command.
func outputOf(stdout, stderr string) string {
	if stdout != "" && stderr != "" && !strings.HasSuffix(stdout, "\n") {
		stdout += "\n"
	}
	return stdout + stderr
}
