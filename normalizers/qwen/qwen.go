// Package qwen normalizes the chats of Qwen Code.
//
// Start with [Vendor]. A record is read by read, which has one case per type and subtype. README.md has the rules.
//
// The invariant: an API call may be stated twice, by the telemetry and by its message, and is billed once.
package qwen

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/normalizers/otlp"
)

// read writes what a record states.
func read(w *chat.Writer, r *record) {
	if r.IsExport() {
		if is, ok := otlp.Read(w.Record.Data); ok {
			readExported(w, &is)
			return
		}
	}
	w.Channel = chat.Log
	w.ID, w.Model, w.Agent, w.Copied = r.UUID, r.Model, r.AgentID, bool(r.ForkedFrom)
	w.At(core.ParseTime(string(r.Timestamp)))
	w.Session.SetResumeID(string(r.SessionID))
	w.Session.SetRoot(string(r.Cwd))
	w.Session.SetBranch(r.Branch)
	w.Session.SetTextExtension("version", r.Version)
	switch r.Type {
	case "user":
		readPrompt(w, r)
	case "assistant":
		readAnswer(w, r)
	case "tool_result":
		readResults(w, r)
	case "system":
		readSystem(w, r)
	default:
		w.UnknownRecord(r.Type)
	}
}

// readPrompt writes a text under the user's name.
func readPrompt(w *chat.Writer, r *record) {
	whole := cmp.Or(lenient.Text(strings.Join(r.Message.Value.texts(), "\n")), r.Payload.Value.DisplayText)
	switch r.Subtype {
	case "", "mid_turn_user_message", "realtime_message":
	case "notification", "cron", "goal_runtime":
		w.StatedAs(envelopes.UserMessage, string(whole))
		w.Say(core.SpeechInjected, whole)
		return
	default:
		w.UnknownRecord(r.Type, r.Subtype)
		return
	}
	prompt := r.Payload.Value.DisplayText
	if strings.TrimSpace(string(prompt)) == "" {
		prompt = typed(&r.Message.Value)
	}
	blank := strings.TrimSpace(string(prompt)) == ""
	switch {
	case r.Provenance == "system" || r.Provenance == "goal_runtime" || r.Provenance == "goal_control" || r.External == "notification":
		w.Say(core.SpeechInjected, whole)
	case r.External != "":
		w.Say(core.SpeechAgent, whole)
	case w.Agent != "":
		w.Prompt(whole)
	case !blank && string(prompt) == w.Remembered("command"):
		w.Skip = core.SkipMirror
	case !blank:
		w.StatedAs(envelopes.UserMessage, sent(&r.Message.Value, prompt))
		w.Say(core.SpeechHuman, prompt)
		w.Remember("command", "")
	case strings.TrimSpace(string(whole)) != "":
		w.Say(core.SpeechInjected, whole)
	case slices.ContainsFunc(r.Message.Value.Parts, part.isFile):
		w.Attach()
	}
}

// machine are the elements that hooks and Qwen Code add to a prompt, each in a part of its own.
var machine = []string{"qwen:user-prompt-submit-context", "qwen:session-start-context", "system-reminder"}

func isMachine(text string) bool {
	text = strings.TrimSpace(text)
	return slices.ContainsFunc(machine, func(tag string) bool {
		return strings.HasPrefix(text, "<"+tag+">") && strings.HasSuffix(text, "</"+tag+">")
	})
}

// files begins the contents of the files that a prompt names.
const files = "\n--- Content from referenced files ---"

// typed returns the text of the human, without what hooks and Qwen Code added.
func typed(m *message) lenient.Text {
	human := slices.DeleteFunc(m.texts(), isMachine)
	text, _, cut := strings.Cut("\n"+strings.Join(human, "\n"), files)
	if cut {
		text = strings.TrimRight(text, "\n")
	}
	return lenient.Text(strings.TrimPrefix(text, "\n"))
}

// readAnswer writes a message of the model: its thoughts, texts and calls in their order, and its tokens. Qwen Code
// itself writes a message as one record; a log of another program has pieces, and no telemetry beside it.
func readAnswer(w *chat.Writer, r *record) {
	if w.Agent == "" {
		w.Session.SetModel(string(r.Model))
	}
	id, texts, thoughts, first := pieceID(w), 0, 0, true
	for _, p := range r.Message.Value.Parts {
		switch {
		case p.Text.OK && bool(p.Thought):
			w.ID = core.NumberedID(core.PartID(id, "thought"), thoughts)
			thoughts++
			w.Think(lenient.Text(p.Text.Value))
		case p.Text.OK:
			w.ID = core.NumberedID(id, texts)
			texts++
			if strings.TrimSpace(p.Text.Value) == "" {
				continue
			}
			if first {
				w.StatedWith(answerOf(w, r))
			} else {
				w.Channel = chat.OnlyLog // the first text stands for all
			}
			w.Answer(lenient.Text(p.Text.Value))
			w.Channel, first = chat.Log, false
		case p.Call.OK:
			c := &p.Call.Value
			w.Call(chat.Call{ID: c.ID, Name: c.Name, Arguments: c.Args})
		case !p.isFile():
			for _, m := range lenient.ObjectMembers(p.Others) {
				w.Unknown(core.UnknownBlock, r.Type, lenient.Text(m.Name))
			}
		}
	}
	if w.ID = r.UUID; r.Usage.OK {
		u := &r.Usage.Value
		bill(w, r, otlp.Counts{Input: u.Prompt, Cached: u.Cached, Output: u.Candidates, Thoughts: u.Thoughts, Total: u.Total}, "")
	}
}

// pieceID returns the id of a record whose message may have several pieces, in consecutive records with one id: each
// piece after the first has a suffix.
func pieceID(w *chat.Writer) lenient.Text {
	if w.ID == "" {
		return ""
	}
	content := core.FingerprintOf(string(w.Raw)).String()
	pieces := strings.Fields(w.Remembered("pieces"))
	if len(pieces) == 0 || pieces[0] != string(w.ID) {
		pieces = []string{string(w.ID)}
	}
	n := slices.Index(pieces, content)
	if n < 0 {
		n = len(pieces)
		w.Remember("pieces", strings.Join(append(pieces, content), " "))
	}
	if n == 1 {
		return w.ID
	}
	return core.NumberedID(core.PartID(w.ID, "piece"), n-1)
}

// readResults writes the results of calls, nearly always of one.
func readResults(w *chat.Writer, r *record) {
	shown, found := &r.Result.Value, false
	for _, p := range r.Message.Value.Parts {
		if f := &p.Response.Value; p.Response.OK {
			found = true
			o := &f.Response.Value
			writeResult(w, chat.Result{ID: cmp.Or(f.ID, shown.CallID), Name: f.Name, Text: o.text(), Failed: lenient.IsValue(o.Error)}, shown)
		}
	}
	if !found {
		writeResult(w, chat.Result{ID: shown.CallID}, shown)
	}
}

// writeResult adds what the interface shows to a result of the same call, and what its text states.
func writeResult(w *chat.Writer, out chat.Result, shown *result) {
	if out.Text != nil && w.IsShell(out.ID, out.Name) {
		out.Exit = core.ExitCode(exitLine, *out.Text)
		out.Running = strings.HasPrefix(*out.Text, "Background shell started.")
	}
	if out.ID == shown.CallID {
		if out.Text == nil || *out.Text == "" && shown.Display != "" {
			out.Text = shown.Display.Ptr()
		}
		out.Failed = out.Failed || shown.Status == "error" || shown.Status == "cancelled"
		out.Code, out.Latency = shown.ErrorType, shown.Duration
	}
	call, _ := w.Session.RecallCall(string(out.ID))
	if ms := call.Outcome.Latency; ms != nil && !out.Latency.OK {
		out.Latency = lenient.Number{Value: float64(*ms), OK: true}
	}
	w.Result(out)
}

// exitLine is the line with the exit code in the output of the shell; the last one counts.
var exitLine = regexp.MustCompile(`(?m)^Exit Code: (-?\d{1,10}|\(none\))`)

// readSystem writes a record of the program by its subtype.
func readSystem(w *chat.Writer, r *record) {
	p := &r.Payload.Value
	switch r.Subtype {
	case "ui_telemetry":
		readTelemetry(w, r, &p.Event.Value)
	case "custom_title": // Qwen Code repeats it to keep it near the end of the file
		if p.Title != "" && string(p.Title) == w.Remembered("title") {
			w.Skip = core.SkipDuplicate
			return
		}
		w.Remember("title", string(p.Title))
		w.Put(core.SystemDraft(envelopes.SessionSummary, p.Title))
	case "chat_compression":
		for i := range p.Compressed {
			if text := strings.Join(p.Compressed[i].texts(), "\n"); strings.TrimSpace(text) != "" {
				w.Say(core.SpeechSummary, lenient.Text(text)) // the texts after it are history
				return
			}
		}
		w.Meta()
	case "slash_command":
		readCommand(w, p)
	case "session_model":
		w.Session.SetModel(string(p.ModelID))
		w.Meta()
	case "turn_result":
		if p.Error.OK {
			w.Error(p.Error.Value.Code, p.Error.Value.Message)
			return
		}
		w.Meta()
	default:
		if !values[r.Subtype] {
			w.UnknownRecord(r.Type, r.Subtype)
			return
		}
		w.Meta()
	}
}

// values are the subtypes that state a value, or repeat what other records state.
var values = map[lenient.Text]bool{
	"agent_bootstrap": true, "agent_launch_prompt": true, "agent_retry": true, "agent_session_ready": true,
	"at_command": true, "attribution_snapshot": true, "background_task_completed": true, "branch_checkpoint": true,
	"file_history_snapshot": true, "goal_runtime": true, "goal_state": true, "goal_turn_end": true,
	"omni_recall": true, "parent_session": true, "rewind": true, "session_approval_mode": true,
	"session_artifact_event": true, "session_artifact_snapshot": true, "session_execution_engine": true,
	"session_notes": true, "session_source": true, "session_sources_snapshot": true, "user_text_elements": true,
}

// readCommand writes a slash command, or what it printed.
func readCommand(w *chat.Writer, p *payload) {
	var printed []string
	for _, item := range p.Printed {
		if item.Text != "" {
			printed = append(printed, string(item.Text))
		}
	}
	switch {
	case p.Phase == "invocation" && p.Command != "" && !bool(p.Hidden):
		w.Say(core.SpeechCommand, p.Command)
		if p.Sent { // a prompt with the same text follows
			w.Remember("command", string(p.Command))
		}
	case p.Phase == "result" && printed != nil:
		w.Say(core.SpeechTerminal, lenient.Text(strings.Join(printed, "\n")))
	default:
		w.Meta()
	}
}
