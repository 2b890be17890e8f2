package cline

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/chat"
	"tributary/normalizers/lenient"
)

// readSent notes the statements of a message sent to the model, or received from it.
func (d *document) readSent(e *element) {
	content := chat.Blocks[block](e.Content)
	if e.Content == nil && e.Text != "" {
		content = []block{{Type: "text", Text: e.Text}}
	}
	role := cmp.Or(e.Role, e.Type)
	meta := &e.Metadata.Value
	switch {
	case bool(e.IsSummary), meta.Kind == "compaction_summary":
		text := string(meta.Summary)
		if text == "" {
			text = textOf(content)
		}
		d.add(summary, text)
	case bool(e.IsMarker):
		d.add(injected, textOf(content))
	case role == "reasoning":
		d.readThought(&block{Text: e.Text, Summary: e.Summary})
	case role == "assistant":
		d.readAnswer(content)
	case role == "user" && (meta.DisplayRole != "" || meta.Kind != ""):
		d.add(injected, textOf(content))
	case role == "user":
		d.readPrompt(content)
	default:
		d.add(unknown, string(role))
	}
	d.readMetrics(&e.Metrics.Value)
}

// readMetrics notes the tokens of an API call.
func (d *document) readMetrics(m *metrics) {
	switch t := &m.Tokens.Value; {
	case m.Input.OK || m.Output.OK:
		d.add(usage, "").tokens = chat.Tokens{
			Input: m.Input, Output: m.Output, CacheRead: m.CacheRead, CacheWrite: m.CacheWrite, Cost: m.Cost, CacheInInput: true,
		}
	case t.Prompt.OK || t.Completion.OK:
		s := d.add(usage, "")
		s.key = strconv.FormatInt(t.Completion.Count(), 10)
		s.tokens = chat.Tokens{Input: t.Prompt, Output: t.Completion, Cost: m.Cost} // the member cached has reads and writes
	}
}

// readThought notes a thought.
func (d *document) readThought(b *block) {
	text := string(b.Thinking + b.Text)
	if text == "" {
		var texts []string
		for _, s := range b.Summary {
			if s.Text != "" || texts != nil {
				texts = append(texts, string(s.Text))
			}
		}
		text = strings.Join(texts, "\n")
	}
	d.add(thought, text)
}

// thinking matches the tags that Cline cuts from an answer.
var thinking = regexp.MustCompile(`<thinking>\s?|\s?</thinking>`)

// readAnswer notes the statements of an answer. In earlier versions a call is an element of its text.
func (d *document) readAnswer(content []block) {
	d.unanswered = nil
	for i := range content {
		switch b := &content[i]; b.Type {
		case "text":
			rest := string(b.Text)
			for {
				before, name, body, after := cutCall(rest)
				d.add(answer, strings.TrimSpace(thinking.ReplaceAllString(before, "")))
				if name == "" {
					break
				}
				d.readCall("", name, parameters(body))
				rest = after
			}
		case "thinking", "reasoning":
			d.readThought(b)
		case "tool_use":
			d.readCall(string(b.ID), string(b.Name), b.Input)
		case "redacted_thinking", "image", "document", "thoughtSignature":
		default:
			d.add(unknown, string(b.Type))
		}
	}
}

// readCall notes a call. Tools with which the model speaks to the human are answers.
func (d *document) readCall(id, name string, input jsontext.Value) {
	var a arguments
	lenient.ReadObject(input, &a)
	var s *statement
	switch k := kindOf(name); k {
	case answer:
		s = d.add(k, string(a.ResultText+a.Question+a.Response))
	case summary:
		s = d.add(k, string(a.Context))
	default:
		s = d.addCall(id, name, input)
	}
	s.call.Name = lenient.Text(name)
	if d.unanswered = append(d.unanswered, s); id != "" {
		d.calls[id] = s
	}
}

// kindOf returns the kind of what a tool states: those with which the model speaks to the human are no calls.
func kindOf(tool string) kind {
	switch tool {
	case "attempt_completion", "ask_followup_question", "plan_mode_respond", "act_mode_respond":
		return answer
	case "condense", "summarize_task":
		return summary
	default:
		return call
	}
}

// header matches a result that begins with its tool and argument.
var header = regexp.MustCompile(`(?s)^\[([a-z_]+)(:? .*?)?\] Result:\s*(.*)$`)

// cutHeader cuts the header from the text of a result; the tool is empty for a text without one.
func cutHeader(text string) (tool, argument, rest string) {
	found := header.FindStringSubmatch(text)
	if found == nil {
		return "", "", text
	}
	if tool = found[1]; tool == "subagents" || tool == "subagent" {
		tool = "use_subagents"
	}
	return tool, found[2], found[3]
}

// isOf reports whether the tool of a header is that of a call. Servers and subagents have tools of their own.
func (s *statement) isOf(tool string) bool {
	name := string(s.call.Name)
	return name == tool || tool == "use_mcp_tool" && strings.Contains(name, mcpInfix) ||
		tool == "use_subagents" && strings.HasPrefix(name, "use_subagent_")
}

// hasArgument reports whether a header states an argument of the call.
func (s *statement) hasArgument(argument string) bool {
	return slices.ContainsFunc(lenient.ObjectMembers(s.call.Arguments), func(m lenient.Member) bool {
		return m.Value.Kind() == '"' && strings.HasPrefix(argument, " for '"+lenient.Unquote(m.Value)+"'")
	})
}

// answered returns the call of a header, which is in the answer before; nil if no call is left. Of several calls of a
// tool the first with the argument counts, else the first, because calls run in their order.
func (d *document) answered(tool, argument string) *statement {
	at := slices.IndexFunc(d.unanswered, func(s *statement) bool { return s.isOf(tool) && s.hasArgument(argument) })
	if at < 0 {
		at = slices.IndexFunc(d.unanswered, func(s *statement) bool { return s.isOf(tool) })
	}
	if at >= 0 {
		s := d.unanswered[at]
		d.unanswered = slices.Delete(d.unanswered, at, at+1)
		return s
	}
	if k := kindOf(tool); k != call {
		return &statement{kind: k}
	}
	return nil
}

// readPrompt notes the statements of a message under the user's name: prompts, results, and texts of Cline.
func (d *document) readPrompt(content []block) {
	var of *statement
	tool := "" // of a header whose result is the next text
	stated := false
	images := false
	for i := range content {
		switch b := &content[i]; b.Type {
		case "text":
			text := string(b.Text)
			if name, argument, rest := cutHeader(text); name != "" {
				tool, of, stated = name, d.answered(name, argument), true
				if text = rest; text == "" {
					continue
				}
			}
			if tool != "" {
				d.addResult(of, chat.Result{Name: lenient.Text(tool)}, text)
				tool = ""
				continue
			}
			d.readTyped(text)
			stated = stated || strings.TrimSpace(text) != "" && !strings.HasPrefix(text, "<environment_details>")
		case "tool_result":
			stated = true
			d.readResult(b)
		case "image", "document":
			images = true
		case "file": // attached to a prompt
		default:
			d.add(unknown, string(b.Type))
		}
	}
	if images && !stated {
		d.add(attached, "")
	}
}

// readResult notes a tool_result.
func (d *document) readResult(b *block) {
	content, failed := chat.Blocks[block](b.Content), bool(b.IsError)
	if v := jsontext.Value(textOf(content)); (v.Kind() == '{' || v.Kind() == '[') && lenient.ReadValue(v) == nil {
		var item block
		if lenient.ReadObject(v, &item); item.Success != 0 {
			content = []block{item}
		}
	}
	var texts []string
	for i := range content {
		if c := &content[i]; c.Success != 0 {
			texts = append(texts, string(c.Result))
			failed = failed || c.Success == 'f'
		} else if c.Type == "text" {
			texts = append(texts, string(c.Text))
		}
	}
	of, text := d.calls[string(b.ToolUseID)], strings.Join(texts, "\n")
	d.unanswered = slices.DeleteFunc(d.unanswered, func(s *statement) bool { return s == of })
	if tool, _, rest := cutHeader(text); tool != "" && (of == nil || of.isOf(tool)) {
		text = rest
	}
	d.addResult(of, chat.Result{ID: b.ToolUseID, Failed: failed}, text)
}

// addResult notes the result of a call, and the prompts in its text. The result of an answer has prompts only.
func (d *document) addResult(of *statement, r chat.Result, text string) {
	status := statusOf(text)
	if of == nil || of.kind == call {
		s := d.add(result, text)
		if of != nil {
			r.Name = of.call.Name
		}
		r.Failed = r.Failed || status.failed
		s.of, s.result = of, r
	}
	typed := typedIn(text)
	if status.feedback != "" {
		typed = append(typed, status.feedback)
	}
	for _, t := range typed {
		d.add(prompt, t)
	}
}

// outcome is how a call ended, as its result states.
type outcome struct {
	failed   bool
	feedback string // that the human typed
}

// statusOf returns the outcome that the text of a result states.
func statusOf(text string) outcome {
	var s struct {
		Status   lenient.Text `json:"status"`
		Feedback lenient.Text `json:"feedback"`
	}
	if readText(text, &s) && s.Status != "" {
		return outcome{s.Status == "denied" || s.Status == "error", string(s.Feedback)}
	}
	return outcome{failed: hasPrefix(text, "The user denied this operation", "The tool execution failed")}
}

// hasPrefix reports whether a text has one of the prefixes.
func hasPrefix(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

// typedTags match the elements that have what a human typed.
var typedTags = regexp.MustCompile(`<(task|user_message|feedback|answer|user_input|user_command)(?: [^<>]*)?>`)

// sentMention matches a file or page that the human named with an @, as it is sent to the model.
var sentMention = regexp.MustCompile(`'(https?://[^'\n]+)' \(see below for [^)\n]*\)|'([^'\n]+)' \(see below for [^)\n]*\)`)

// typedIn returns what a human typed in a text; nil if the text has no element for it.
func typedIn(text string) (typed []string) {
	for {
		at := typedTags.FindStringSubmatchIndex(text)
		if at == nil {
			return typed
		}
		tag := text[at[2]:at[3]]
		inner, after, closed := strings.Cut(text[at[1]:], "</"+tag+">")
		if !closed {
			return typed
		}
		typed, text = append(typed, sentMention.ReplaceAllString(strings.TrimSpace(inner), "@$1$2")), after
	}
}

// injectedPrefixes are the beginnings of texts that Cline writes under the user's name.
var injectedPrefixes = []string{
	"<environment_details>", "<explicit_instructions", "<file_content", "<SYSTEM_NOTICE>", "<mode_notice>", "<hook_context",
	"[TASK RESUMPTION]", "[ERROR]", "[NOTE]", "[[NOTE]", "[Continue assisting", "[Response interrupted", "Tool [",
	"The user denied this operation", "The tool execution failed", "The user has accepted the condensed",
	"You seem to be having trouble", "(The user did not provide", "New instructions for task continuation", "New message to respond to",
	"# TODO LIST UPDATE REQUIRED", "# task_progress", "Files attached by the user:",
	"The user provided additional content:", "The user has provided feedback on the results.", "Skipping tool due to",
	"Tool was interrupted", "Command executed", "Command failed with exit code", "Command terminated by signal",
	"Command timed out after", "Command execution timed out after", "Command is still running", "Command cancelled.",
}

// readTyped notes a text under the user's name, which a human typed or Cline wrote.
func (d *document) readTyped(text string) {
	d.readEnvironment(text)
	typed := typedIn(text)
	for _, t := range typed {
		d.add(prompt, t)
	}
	switch {
	case typed != nil:
	case hasPrefix(strings.TrimSpace(text), injectedPrefixes...):
		d.add(injected, text)
	default:
		d.add(prompt, text)
	}
}

// textOf returns the texts of a content, line by line.
func textOf(content []block) string {
	var texts []string
	for i := range content {
		if content[i].Type == "text" {
			texts = append(texts, string(content[i].Text))
		}
	}
	return strings.Join(texts, "\n")
}

// callTag matches the start of a call in the text of an answer. It is made when needed: not every start of the program
// pays for so many names.
var callTag = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`<(execute_command|read_file|write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|` +
		`list_files|list_code_definition_names|search_files|codebase_search|browser_action|use_mcp_tool|access_mcp_resource|web_fetch|` +
		`ask_followup_question|attempt_completion|plan_mode_respond|new_task|switch_mode|update_todo_list|fetch_instructions|condense|use_subagents)>`)
})

// cutCall cuts a text at its first call.
func cutCall(text string) (before, name, body, after string) {
	at := callTag().FindStringSubmatchIndex(text)
	if at == nil {
		return text, "", "", ""
	}
	name = text[at[2]:at[3]]
	body, after, _ = strings.Cut(text[at[1]:], "</"+name+">")
	return text[:at[0]], name, body, after
}

// parameterTag matches the start of a parameter of a call.
var parameterTag = regexp.MustCompile(`<([a-z_]+)>`)

// parameters returns the parameters of a call as an object.
func parameters(body string) jsontext.Value {
	var members []string
	for {
		at := parameterTag.FindStringSubmatchIndex(body)
		if at == nil {
			return object(members...)
		}
		name, rest := body[at[2]:at[3]], body[at[1]:]
		value, after, _ := strings.Cut(rest, "</"+name+">")
		if last := strings.LastIndex(rest, "</"+name+">"); last >= 0 && (name == "content" || name == "diff") {
			value, after = rest[:last], rest[last+len("</"+name+">"):] // the text of a file may have any element
		}
		members, body = append(members, name, strings.TrimSpace(value)), after
	}
}
