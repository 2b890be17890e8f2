package cline

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/lenient"
)

// notes are the types of messages about the task, which have no part in the conversation.
var notes = map[lenient.Text]bool{
	"api_req_deleted": true, "api_req_finished": true, "api_req_rate_limit_wait": true, "api_req_retried": true,
	"api_req_retry_delayed": true, "auto_approval_max_req_reached": true, "checkpoint_created": true,
	"checkpoint_saved": true, "compaction": true, "conditional_rules_applied": true, "error_retry": true,
	"hook_output_stream": true, "hook_status": true, "image": true, "info": true, "load_mcp_documentation": true,
	"mcp_notification": true, "mcp_server_request_started": true, "report_bug": true, "resume_completed_task": true,
	"resume_task": true, "shell_integration_warning": true, "shell_integration_warning_with_suggestion": true,
	"sliding_window_truncation": true, "subagent": true, "task_progress": true, "too_many_tools_warning": true,
	"user_edit_todos": true,
}

// readShown notes the statements of a message shown to the human.
func (d *document) readShown(e *element, isFirst, isLast bool) {
	if bool(e.Partial) && isLast {
		return // it may still grow, and is read once another message follows
	}
	text := string(e.Text)
	d.isAsk = e.Ask != ""
	d.add(thought, string(e.Reasoning))
	switch kind := e.Say + e.Ask; kind {
	case "task", "user_feedback", "user_feedback_diff":
		d.addPrompt(e)
	case "text":
		if isFirst && e.Say != "" {
			d.addPrompt(e)
			return
		}
		d.addAnswer(text)
	case "completion_result", "plan_completion_result":
		d.addAnswer(strings.TrimSuffix(text, "HAS_CHANGES"))
	case "followup", "plan_mode_respond", "act_mode_respond":
		a, ok := argumentsOf(text)
		if ok {
			text = string(a.Question + a.Response)
		}
		d.addAnswer(text)
	case "reasoning":
		d.add(thought, text)
	case "condense", "summarize_task":
		d.add(summary, text)
	case "condense_context":
		d.add(summary, string(e.Condense.Value.Summary))
		s := d.add(usage, "")
		s.key, s.tokens.Cost = string(kind), e.Condense.Value.Cost
	case "error", "diff_error", "clineignore_error", "rooignore_error", "command_permission_denied", "api_req_failed", "mistake_limit_reached", "condense_context_error":
		d.add(failure, text).code = string(kind)
	case "api_req_started", "deleted_api_reqs", "subagent_usage":
		d.asked = nil
		d.readRequest(kind, text)
	case "command":
		command := strings.TrimSuffix(text, "REQ_APP")
		d.addShownCall("execute_command", object("command", command))
	case "tool", "use_mcp_server", "browser_action", "use_subagents":
		d.readTool(kind, text)
	case "browser_action_launch":
		d.addShownCall("browser_action", object("action", "launch", "url", text))
	case "new_task":
		d.addShownCall("new_task", object("context", text))
	case "command_output":
		d.addOutput("execute_command", text)
	case "mcp_server_response":
		d.addOutput("mcp", text)
	case "browser_action_result":
		d.addOutput("browser_action", text)
	case "subtask_result":
		d.addOutput("new_task", text)
	case "codebase_search_result":
		d.addOutput("codebase_search", text)
	default:
		if notes[kind] {
			d.add(note, text)
		} else {
			d.add(unknown, string(kind))
		}
	}
}

// addPrompt notes a prompt, which may only have images.
func (d *document) addPrompt(e *element) {
	if strings.TrimSpace(string(e.Text)) == "" && len(e.Images) > 0 {
		d.add(attached, "")
		return
	}
	d.add(prompt, string(e.Text))
}

// readRequest notes the tokens of an API call. The text has figures once the call has ended.
func (d *document) readRequest(kind lenient.Text, text string) {
	var r request
	if !readText(text, &r) {
		return
	}
	d.readEnvironment(string(r.Request))
	if r.Failed != "" {
		d.add(failure, string(r.Failed)).code = "streaming_failed"
	}
	if !r.In.OK && !r.Out.OK {
		return
	}
	s := d.add(usage, "")
	if s.code = string(kind); kind == "api_req_started" {
		s.key = strconv.FormatInt(r.Out.Count(), 10)
	} else {
		s.key = s.code
	}
	s.tokens = chat.Tokens{
		Input: r.In, Output: r.Out, CacheRead: r.CacheRead, CacheWrite: r.CacheWrite, Cost: r.Cost,
		// Versions before 3.30 state the protocol, too, but by that of Anthropic the input is without the cache.
		CacheInInput: r.Protocol != "" && r.CacheRead.Count()+r.CacheWrite.Count() <= r.In.Count(),
		Several:      kind != "api_req_started",
	}
}

// readTool notes the call of a tool whose text is an object.
func (d *document) readTool(kind lenient.Text, text string) {
	a, ok := argumentsOf(text)
	args := jsontext.Value(text)
	if !ok {
		args = object("text", text)
	}
	switch {
	case kind == "use_mcp_server" && a.Kind != "":
		d.addShownCall(string(a.Kind), args)
	case kind != "tool":
		d.addShownCall(string(kind), args)
	case a.Tool == "summarizeTask":
		d.add(summary, string(a.Content))
	default:
		d.addShownCall(toolOf(string(a.Tool)), args)
	}
}

// addAnswer notes an answer, unless it repeats the element before.
func (d *document) addAnswer(text string) {
	s := d.add(answer, text)
	d.repeats(s, func(before *statement) bool { return before.key == s.key })
}

// addShownCall notes a call, unless it repeats the element before.
func (d *document) addShownCall(name string, args jsontext.Value) {
	before := d.open[name]
	s := d.addCall("", name, args)
	if d.repeats(s, func(before *statement) bool { return string(before.call.Arguments) == string(args) }) {
		d.open[name] = before
	}
}

// repeats withdraws a statement of a say that repeats the ask just before, and reports whether it did.
func (d *document) repeats(s *statement, isSame func(before *statement) bool) bool {
	before := d.asked
	if d.asked = nil; before != nil && !d.isAsk && before.kind == s.kind && isSame(before) {
		s.kind = withdrawn
		return true
	}
	if d.isAsk {
		d.asked = s
	}
	return false
}

// addOutput notes output of the last call of a tool. The output of a command comes in chunks, which are one result.
func (d *document) addOutput(tool, text string) {
	of := d.open[tool]
	d.asked = nil
	s := &statement{kind: result, text: text, of: of}
	if was := d.outputs[of]; of != nil && was != nil {
		if s.text = was.text; text != "" {
			s.text = strings.TrimPrefix(was.text+"\n"+text, "\n")
		}
		was.kind = withdrawn
	}
	if of != nil {
		d.outputs[of] = s
		s.result.Name = of.call.Name
	}
	d.statements = append(d.statements, s)
}

// argumentsOf reads a text that is an object.
func argumentsOf(text string) (a arguments, ok bool) { return a, readText(text, &a) }

// readText reads a text that is an object; false for any other text.
func readText(text string, into any) bool {
	v := jsontext.Value(strings.TrimSpace(text))
	if v.Kind() != '{' || lenient.ReadValue(v) != nil {
		return false
	}
	lenient.ReadObject(v, into)
	return true
}

// object returns an object of texts: names and values in turn.
func object(members ...string) jsontext.Value {
	out := []byte{'{'}
	for i, text := range members {
		if i > 0 {
			out = append(out, ",:"[i%2])
		}
		out = lenient.AppendQuote(out, text)
	}
	return append(out, '}')
}
