package kiro

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

// eventTypes are the types of the events of Kiro IDE and of the third engine.
var eventTypes = []string{
	"user", "assistant", "tool_call", "tool_result", "turn_start", "turn_end", "usage_summary", "session_start", "session_metadata",
	"session_event", "pending_interaction", "interaction_resolved", "sub_agent_start", "sub_agent_complete", "tombstone",
}

// isEvent recognizes an event of Kiro IDE or of the third engine.
func isEvent(s *core.Shape) bool {
	return s.Text("id") != "" && s.Text("timestamp") != "" && !s.Has("type") && slices.Contains(eventTypes, s.Text("payload", "type"))
}

// isSummary recognizes what lies beside the events of a session.
func isSummary(s *core.Shape) bool {
	return s.Text("schemaVersion") != "" && s.Text("id") != "" && s.Kind("workspacePaths") == '[' && s.Text("lastModifiedAt") != ""
}

// event is the payload of an event of any type.
type event struct {
	Type      lenient.Text   `json:"type"`
	Content   jsontext.Value `json:"content"` // a text, or blocks
	Images    jsontext.Value `json:"images"`
	Documents jsontext.Value `json:"documents"`

	Operation lenient.Text `json:"operationType"` // of assistant
	ModelID   lenient.Text `json:"reasoningModelId"`

	CallID   lenient.Text   `json:"toolCallId"`
	Tool     lenient.Text   `json:"toolName"`
	Args     jsontext.Value `json:"args"`
	FilePath lenient.Text   `json:"filePath"`
	Success  lenient.Kind   `json:"success"`
	Duration lenient.Number `json:"durationMs"`

	Outcome lenient.Text `json:"outcome"` // of interaction_resolved
	Option  lenient.Text `json:"selectedOption"`

	Key        lenient.Text   `json:"key"` // of session_metadata
	Value      jsontext.Value `json:"value"`
	StopReason lenient.Text   `json:"stopReason"`
	Elapsed    lenient.Number `json:"elapsedTime"` // of usage_summary, in milliseconds
	Summaries  lenient.List[struct {
		Unit  lenient.Text   `json:"unit"`
		Usage lenient.Number `json:"usage"`
	}] `json:"promptTurnSummaries"`
}

// readEvent writes an event by its type.
func readEvent(w *chat.Writer, r *record) {
	e := &r.Payload.Value
	w.ID = r.ID
	w.At(core.ParseTime(string(r.Timestamp)))
	switch e.Type {
	case "user":
		text, _ := chat.Text(e.Content)
		chat.Typed(w, lenient.Text(text), len(lenient.Elements(e.Images))+len(lenient.Elements(e.Documents)) > 0)
	case "assistant":
		readUtterance(w, e)
	case "tool_call":
		w.Call(eventCall(e))
	case "tool_result":
		w.Result(eventResult(w, e))
	case "session_start": // the prompt of the system
		text, _ := chat.Text(e.Content)
		w.Say(core.SpeechInjected, lenient.Text(text))
	case "usage_summary":
		readUsage(w, e)
	case "turn_end":
		w.Facts(map[string]any{"endReason": core.NameOf(e.StopReason)})
	case "interaction_resolved":
		w.Put(w.Session.PermissionDraft(e.CallID, "", cmp.Or(e.Option, e.Outcome)))
	case "session_metadata":
		switch e.Key {
		case "contextUsage": // how full the context is
			w.Skip = core.SkipHeartbeat
		case "displayError":
			w.Error("", lenient.Text(lenient.TextOrJSON(e.Value)))
		default:
			w.Meta()
		}
	case "turn_start", "session_event", "pending_interaction", "sub_agent_start", "sub_agent_complete", "tombstone":
		w.Meta()
	default:
		w.UnknownRecord("payload", e.Type)
	}
}

// readUtterance writes a text of the assistant. Of a thought that is encrypted three dots are left.
func readUtterance(w *chat.Writer, e *event) {
	text, _ := chat.Text(e.Content)
	if _, model, ok := strings.Cut(string(e.ModelID), "::"); ok {
		e.ModelID = lenient.Text(model)
	}
	setModel(w, e.ModelID)
	switch {
	case e.Operation == "Summary":
		w.Say(core.SpeechSummary, lenient.Text(text))
	case e.Operation != "Reasoning":
		w.Answer(lenient.Text(text))
	case text != "...":
		w.Think(lenient.Text(text))
	}
}

// eventCall returns the call that an event states.
func eventCall(e *event) chat.Call {
	c := callOf(chat.Call{ID: e.CallID, Name: e.Tool, Arguments: e.Args, File: e.FilePath})
	var in input
	lenient.ReadObject(e.Args, &in)
	if e.Tool == "fs_write" && in.Command == "" { // the CLI's has a command
		c.Tool = &core.ToolWrite
	}
	c.File = cmp.Or(c.File, in.Target)
	return c
}

// exitLine matches the last line of the result of a shell. Kiro writes -1 where it could not find out the code.
var exitLine = regexp.MustCompile(`(?:^|\n)Exit Code: (-?\d{1,10})\s*$`)

// eventResult returns the result that an event states. A command that failed has success and an exit code.
func eventResult(w *chat.Writer, e *event) chat.Result {
	r := chat.Result{
		ID: e.CallID, Text: chat.TextOf(e.Content), Latency: e.Duration, Failed: e.Success == 'f', Succeeded: e.Success == 't',
	}
	if r.Text != nil && w.IsShell(r.ID, "") {
		if code := core.ExitCode(exitLine, *r.Text); code != nil && *code != -1 {
			r.Exit = code
		}
	}
	return r
}

// readUsage writes the credits that a turn cost. Of tokens Kiro states at most one sum, which no event can have.
func readUsage(w *chat.Writer, e *event) {
	facts := make(map[string]any)
	if e.Elapsed.OK {
		facts["turn"] = map[string]any{"durationMs": e.Elapsed.Count()}
	}
	credits, metered := 0.0, false
	for _, s := range e.Summaries {
		if s.Unit == "credit" && s.Usage.OK {
			credits, metered = credits+s.Usage.Value, true
		}
	}
	if metered {
		facts["credits"] = credits
	}
	w.Facts(facts)
}

// summary is what lies beside the events of a session, and is rewritten.
type summary struct {
	Paths lenient.List[lenient.Text] `json:"workspacePaths"`
	Mode  lenient.Text               `json:"agentMode"`
	Model lenient.Text               `json:"modelId"`
	Saved lenient.Text               `json:"lastModifiedAt"`
}

// readSummary writes the title of a session, and facts about it.
func readSummary(w *chat.Writer, r *record) {
	w.Session.SetResumeID(string(r.ID))
	root := ""
	if len(r.Paths) > 0 {
		root = string(r.Paths[0])
	}
	w.Session.SetRoot(root)
	setModel(w, r.summary.Model)
	w.Session.SetTextExtension("agent", r.Mode)
	w.ID = r.ID
	w.At(core.ParseTime(string(r.Saved)))
	facts := core.SystemDraft(envelopes.Meta, "")
	facts.Identity = strings.Join([]string{root, string(r.Mode), string(r.summary.Model)}, "\n")
	w.Put(facts)
	w.Say(core.SpeechSummary, r.Title)
}
