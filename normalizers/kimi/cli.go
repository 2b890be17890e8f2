package kimi

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// payload has the members of a message of kimi-cli.
type payload struct {
	part

	Input    jsontext.Value           `json:"user_input"`
	ID       lenient.Text             `json:"id"`
	Function lenient.Object[function] `json:"function"`
	CallID   lenient.Text             `json:"tool_call_id"`
	Returned lenient.Object[returned] `json:"return_value"`
	Usage    lenient.Object[cliUsage] `json:"token_usage"`
	Message  lenient.Text             `json:"message_id"`
	Problem  lenient.Text             `json:"error_type"`
	Question lenient.Text             `json:"question"`
	Response lenient.Text             `json:"response"`
	Error    lenient.Text             `json:"error"`

	// Of a subagent.
	Agent  lenient.Text            `json:"agent_id"`
	Parent lenient.Text            `json:"parent_tool_call_id"`
	Task   lenient.Text            `json:"task_tool_call_id"` // Parent in old versions
	Event  lenient.Object[message] `json:"event"`
}

// returned is what a tool of kimi-cli returned.
type returned struct {
	Output  jsontext.Value `json:"output"` // a text or parts
	Message lenient.Text   `json:"message"`
	IsError lenient.Flag   `json:"is_error"`
}

// cliUsage is [usage] under the names of kimi-cli.
type cliUsage struct {
	Input      lenient.Number `json:"input_other"`
	Output     lenient.Number `json:"output"`
	CacheRead  lenient.Number `json:"input_cache_read"`
	CacheWrite lenient.Number `json:"input_cache_creation"`
}

// readWire writes a message of kimi-cli.
func readWire(w *chat.Writer, kind lenient.Text, value jsontext.Value) {
	var p payload
	lenient.ReadObject(value, &p)
	switch kind {
	case "TurnBegin", "SteerInput":
		readInput(w, chat.Blocks[part](p.Input))
	case "ContentPart":
		readPart(w, p.part)
	case "ToolCall":
		w.Call(chat.Call{ID: newCall(w, ofAgent(w, p.ID)), Name: p.Function.Value.Name, Arguments: p.Function.Value.Arguments})
	case "ToolResult":
		readReturned(w, p.CallID, &p.Returned.Value)
	case "StatusUpdate":
		w.Skip = core.SkipHeartbeat
		if u := p.Usage.Value; p.Usage.OK {
			w.Use(p.Message, chat.Tokens{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, ReasoningInOutput: true})
		}
	case "SubagentEvent":
		readSubagent(w, &p)
	case "BtwBegin":
		w.Say(core.SpeechHuman, p.Question)
	case "BtwEnd":
		if w.Answer(p.Response); p.Error != "" {
			w.Error("", p.Error)
		}
	case "StepRetry":
		w.Error(p.Problem, "")
	case "StepBegin", "ToolCallPart", "MCPLoadingBegin", "MCPLoadingEnd":
		w.Skip = core.SkipProgress
	case "TurnEnd", "StepInterrupted", "CompactionBegin", "CompactionEnd", "HookTriggered", "HookResolved", "Notification",
		"PlanDisplay", "ApprovalRequest", "ApprovalResponse", "QuestionRequest", "ToolCallRequest", "HookRequest":
		w.Meta()
	default:
		w.UnknownRecord("wire", kind)
	}
}

// readInput writes the input of a turn: of a subagent, the prompt of its parent. One that is a reminder alone is of
// kimi-cli, which so goes on when a task in the background has ended.
func readInput(w *chat.Writer, list []part) {
	text := joined(list)
	switch {
	case strings.TrimSpace(text) != "" && core.AfterElements(text, "system-reminder") == "":
		w.Say(core.SpeechInjected, lenient.Text(text))
	case w.Agent != "":
		w.Prompt(lenient.Text(gitContext.ReplaceAllString(text, "")))
	default:
		sayPrompt(w, list)
	}
}

// readSubagent writes an event of a subagent. A subagent with an id has a journal of its own, which states the event.
func readSubagent(w *chat.Writer, p *payload) {
	e := p.Event.Value
	switch {
	case p.Agent != "":
		w.Skip = core.SkipMirror
	case e.Type == "SubagentEvent": // a subagent starts none
		w.Meta()
	default:
		if w.Agent = p.Parent; w.Agent == "" {
			w.Agent = p.Task
		}
		readWire(w, e.Type, e.Payload)
	}
}

// ofAgent returns the id of a call, which is unique among those of its agent.
func ofAgent(w *chat.Writer, id lenient.Text) lenient.Text {
	if _, own := placeOf(w.Session.ID()); w.Agent == own || id == "" {
		return id
	}
	return w.Agent + "/" + id
}

// readReturned writes the result of a call. The message, which is for the model, replaces a missing output.
func readReturned(w *chat.Writer, id lenient.Text, r *returned) {
	text := joined(chat.Blocks[part](r.Output))
	if text == "" {
		text = string(r.Message)
	}
	is := chat.Result{ID: lastCall(w, ofAgent(w, id)), Text: &text, Failed: bool(r.IsError)}
	if is.Failed && w.IsShell(is.ID, "") {
		is.Exit = core.ExitCode(exitLine, string(r.Message))
	}
	w.Result(is)
}
