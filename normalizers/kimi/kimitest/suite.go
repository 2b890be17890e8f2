// Package kimitest reads and generates journals of Kimi for the tests.
//
// [Suite] is what the tests of all vendors use.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package kimitest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Kimi to the tests of all vendors.
var Suite = normalizerstest.Suite{
	Unknown: []string{
		`{"type":"of.tomorrow","x":1,"time":"$MILLIS"}`,
		`{"type":"context.append_loop_event","event":{"type":"of_tomorrow","uuid":"u"},"time":"$MILLIS"}`,
		`42`,
	},
	Source:  envelopes.Kimi,
	Room:    "kimi",
	Folders: []string{"kimi"},
	Apart:   true,
	// The two statements of a call are equal, and the first counts.
	StatedOnce: true,
	Lines:      lines,
	Read:       normalizerstest.ReadLines,
	Bad:        normalizerstest.Malformed,
	Ledger:     reading.Ledger,
	Interpret:  reading.Interpret,
}

var reading = normalizerstest.Reading{
	Session: func(any) string { return "" }, // only a path shows it
	Read:    read,
}

var (
	text   = normalizerstest.Member[string]
	flag   = normalizerstest.Member[bool]
	list   = normalizerstest.Member[[]any]
	member = normalizerstest.Member[any]
)

// read notes what a record states.
func read(r *normalizerstest.Reader, v any) {
	if agent := text(v, "agentId"); agent != "main" {
		r.Agent = agent
	}
	switch kind := text(v, "type"); kind {
	case "turn.prompt", "turn.steer":
		turnInput(r, v)
	case "context.append_message":
		message(r, v)
	case "context.append_loop_event":
		step(r, member(v, "event"))
	case "usage.record":
		use(r, fmt.Sprint(v), member(v, "usage"), "record", text(v, "usageScope") != "session")
	case "":
		wire(r, text(v, "message", "type"), member(v, "message", "payload"))
	}
}

// prompt is a prompt of which the log has two statements: who wrote it with its texts, and the id of its message.
type prompt struct{ texts, id string }

func promptOf(v any, content, id string) prompt {
	kind := cmp.Or(text(v, "origin", "kind"), "user")
	return prompt{kind + ": " + strings.TrimSpace(normalizerstest.Texts(member(v, content))), id}
}

// open returns the prompts of turns that the context has not repeated.
func open(r *normalizerstest.Reader) (list []prompt) {
	for stated := range strings.SplitSeq(r.Noted("open"), "\x01") {
		if texts, id, ok := strings.Cut(stated, "\x02"); ok {
			list = append(list, prompt{texts, id})
		}
	}
	return list
}

func setOpen(r *normalizerstest.Reader, list []prompt) {
	var stated strings.Builder
	for _, p := range list {
		stated.WriteString("\x01" + p.texts + "\x02" + p.id)
	}
	r.Note("open", stated.String())
}

// turnInput notes the prompt of a turn, unless the context had its message before.
func turnInput(r *normalizerstest.Reader, v any) {
	id := text(v, "promptId")
	if text(v, "type") == "turn.steer" {
		if id = text(v, "messageId"); id == "" && len(list(v, "promptIds")) == 1 {
			id, _ = list(v, "promptIds")[0].(string)
		}
	}
	if id != "" && r.Noted("appended "+id) != "" {
		return
	}
	setOpen(r, append(open(r), promptOf(v, "input", id)))
	say(r, list(v, "input"), member(v, "origin"))
}

// repeats takes the prompt that a message repeats from those that are open; false for none. Ids decide where both are
// stated.
func repeats(r *normalizerstest.Reader, is prompt) bool {
	list := open(r)
	at := slices.IndexFunc(list, func(p prompt) bool { return p.id != "" && p.id == is.id })
	if at < 0 {
		at = slices.IndexFunc(list, func(p prompt) bool { return p.texts == is.texts && (p.id == "" || is.id == "") })
	}
	if at >= 0 {
		setOpen(r, slices.Delete(list, at, at+1))
	}
	return at >= 0
}

// message notes a message of the context, unless it repeats a prompt.
func message(r *normalizerstest.Reader, v any) {
	m := member(v, "message")
	content := list(m, "content")
	switch text(m, "role") {
	case "user":
		if repeats(r, promptOf(m, "content", text(m, "id"))) {
			return
		}
		r.Note("appended "+text(m, "id"), "x")
		say(r, content, member(m, "origin"))
	case "assistant":
		answer(r, content)
		for _, c := range list(m, "toolCalls") {
			call(r, text(c, "id"), text(c, "name")+text(c, "function", "name"))
		}
	case "tool":
		result(r, text(m, "toolCallId"), normalizerstest.Texts(content), flag(m, "isError"))
	}
}

// say notes a prompt by its author.
func say(r *normalizerstest.Reader, content []any, origin any) {
	switch text(origin, "kind") {
	case "", "user":
		typed := content[min(len(content), len(list(origin, "skillActivations"))):]
		if prompt := strings.TrimSpace(normalizerstest.Texts(typed)); prompt != "" {
			r.Say("human", "", prompt)
		} else if strings.Contains(fmt.Sprint(typed), "type:image_url") {
			r.Attach("")
		}
	case "skill_activation":
		if text(origin, "trigger") == "user-slash" {
			r.Say("human", "", "/"+text(origin, "skillName")+" "+text(origin, "skillArgs"))
		}
	case "plugin_command":
		r.Say("human", "", "/"+text(origin, "pluginId")+":"+text(origin, "commandName")+" "+text(origin, "commandArgs"))
	case "system_trigger":
		if text(origin, "name") == "subagent" {
			prompt := normalizerstest.Texts(content)
			if _, after, ok := strings.Cut(prompt, "</git-context>"); ok {
				prompt = after
			}
			r.Say("agent", "", prompt)
		}
	}
}

// answer notes the texts of the assistant.
func answer(r *normalizerstest.Reader, content []any) {
	for _, p := range content {
		if text(p, "type") == "text" {
			r.Say("assistant", "", text(p, "text"))
		}
	}
}

func step(r *normalizerstest.Reader, e any) {
	switch text(e, "type") {
	case "step.begin":
		r.Note("counts", "")
	case "content.part":
		answer(r, []any{member(e, "part")})
	case "tool.call":
		call(r, text(e, "toolCallId"), text(e, "name"))
	case "tool.result":
		output := normalizerstest.Texts(member(e, "result", "output"))
		result(r, text(e, "toolCallId"), output, flag(e, "result", "isError"))
	case "step.end":
		use(r, text(e, "uuid"), member(e, "usage"), "step", true)
	}
}

// use notes the tokens of a call, unless the other kind of record has just stated the same.
func use(r *normalizerstest.Reader, id string, u any, by string, paired bool) {
	count := func(name string) int64 { return normalizerstest.Count(u, name) }
	t := normalizerstest.Tokens{
		Input: count("inputOther"), CacheRead: count("inputCacheRead"), CacheWrite: count("inputCacheCreation"),
		Output: count("output"), ReasoningInOutput: true,
	}
	if t.Input+t.CacheRead+t.CacheWrite+t.Output == 0 {
		return
	}
	counts := fmt.Sprint(t)
	if author, before, _ := strings.Cut(r.Noted("counts"), ":"); paired && before == counts && author != by {
		r.Note("counts", "")
		return
	}
	if paired {
		r.Note("counts", by+":"+counts)
	}
	r.Use(id, t)
}

// calling returns the id of the nth call that the log states under an id.
func calling(id string, n int) string {
	if n < 2 {
		return id
	}
	return fmt.Sprint(id, "~", n)
}

// call notes a call. An id that has a result belongs to a new call.
func call(r *normalizerstest.Reader, id, name string) {
	n, _ := strconv.Atoi(r.Noted("calls " + id))
	if n = max(n, 1); r.Noted("done "+calling(id, n)) != "" {
		n++
	}
	r.Note("calls "+id, strconv.Itoa(n))
	r.Call(calling(id, n), name)
}

var exitLine = regexp.MustCompile(`^Command failed with exit code: (-?[0-9]+)\.`)

func result(r *normalizerstest.Reader, id, stating string, failed bool) {
	n, _ := strconv.Atoi(r.Noted("calls " + id))
	id = calling(id, n)
	r.Note("done "+id, "x")
	var code *int64
	if tool := r.Tool(id); failed && (tool == "Bash" || tool == "Shell") {
		for line := range strings.SplitSeq(stating, "\n") {
			code = cmp.Or(normalizerstest.CodeIn(exitLine, line), code)
		}
	}
	r.Result(id, code, "Command failed with exit code")
}

// isSubagent reports whether a record is of a subagent, which in a journal of its own only the session shows.
func isSubagent(r *normalizerstest.Reader) bool {
	id, agent, _ := strings.Cut(r.Session, ".")
	return r.Agent != "" || agent != "" && len(id) == 36 && strings.Count(id, "-") == 4
}

// turn notes the input of a turn of kimi-cli, unless it is a reminder; a subagent has it from its parent.
func turn(r *normalizerstest.Reader, input string) {
	rest, found := strings.CutPrefix(strings.TrimSpace(input), "<system-reminder>")
	switch _, after, ended := strings.Cut(rest, "</system-reminder>"); {
	case found && ended && after == "":
	case isSubagent(r):
		if _, after, ok := strings.Cut(input, "</git-context>"); ok {
			input = after
		}
		r.Say("agent", "", input)
	default:
		r.Say("human", "", input)
	}
}

// wire notes a message of kimi-cli.
func wire(r *normalizerstest.Reader, kind string, p any) {
	within := func(id string) string {
		if r.Agent == "" {
			return id
		}
		return r.Agent + "/" + id
	}
	switch kind {
	case "TurnBegin", "SteerInput":
		turn(r, normalizerstest.Texts(member(p, "user_input")))
	case "BtwBegin":
		r.Say("human", "", text(p, "question"))
	case "BtwEnd":
		r.Say("assistant", "", text(p, "response"))
	case "ContentPart":
		answer(r, []any{p})
	case "ToolCall":
		call(r, within(text(p, "id")), text(p, "function", "name"))
	case "ToolResult":
		result(r, within(text(p, "tool_call_id")), text(p, "return_value", "message"), flag(p, "return_value", "is_error"))
	case "StatusUpdate":
		u := map[string]any{}
		for name, is := range map[string]string{"inputOther": "input_other", "output": "output", "inputCacheRead": "input_cache_read", "inputCacheCreation": "input_cache_creation"} {
			u[name] = member(p, "token_usage", is)
		}
		use(r, text(p, "message_id"), u, "status", false)
	case "SubagentEvent":
		if text(p, "agent_id") == "" {
			r.Agent = text(p, "parent_tool_call_id") + text(p, "task_tool_call_id")
			wire(r, text(p, "event", "type"), member(p, "event", "payload"))
		}
	}
}
