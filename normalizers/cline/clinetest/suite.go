// Package clinetest reads and generates the files of Cline for the tests.
//
// [Suite] is what the tests of all vendors use. The reader is in this file, the generator in generate.go.
//
// The invariant: the reader and the generator share no code and no table with the normalizer, so that a mistake in
// one of them shows as a difference.
package clinetest

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/normalizerstest"
)

// Suite describes Cline to the tests of all vendors.
var Suite = func() normalizerstest.Suite {
	s := SuiteOf(envelopes.Cline, "cline")
	s.Folders = []string{"cline"}
	return s
}()

// SuiteOf describes an agent that writes the files of Cline; room is its folder.
func SuiteOf(source envelopes.Source, room string) normalizerstest.Suite {
	return normalizerstest.Suite{
		Unknown:   []string{`{"type":"of_tomorrow","ts":"$MILLIS","x":1}`, `{"of_tomorrow":1}`, `42`},
		Source:    source,
		Room:      room,
		Apart:     true,
		Lines:     lines,
		Read:      normalizerstest.Values{}.Read,
		Bad:       normalizerstest.Malformed,
		Ledger:    reading.Ledger,
		Interpret: reading.Interpret,
		Raw:       normalizerstest.RawOf(messages),
	}
}

var reading = normalizerstest.Reading{
	Session: func(record any) string { return text(record, "sessionId") },
	Read: func(r *normalizerstest.Reader, record any) {
		f := file{Reader: r, session: text(record, "sessionId"), counts: map[string]int{}, calls: map[string]*use{}, last: map[string]*use{}}
		if member(record, "messages") == nil {
			f.session = ""
		} else if agent := text(record, "agent"); agent != "lead" {
			r.Agent = agent
		}
		list, isFile := messages(record), true
		if _, isObject := record.(map[string]any); isObject && list == nil {
			list, isFile = []any{record}, false // of a damaged file
		}
		for i, e := range list {
			f.element(e, isFile && i == 0, isFile && i == len(list)-1)
		}
		if isFile && isShown(list) {
			r.Note("shown", "yes")
		}
	},
}

// messages returns the messages of a file: an array, or the member of an object.
func messages(record any) []any {
	list, ok := record.([]any)
	if !ok {
		return normalizerstest.Member[[]any](record, "messages")
	}
	if len(list) > 0 {
		if _, isObject := list[0].(map[string]any); !isObject {
			return nil
		}
	}
	return list
}

func isShown(list []any) bool {
	return len(list) > 0 && (text(list[0], "type") == "say" || text(list[0], "type") == "ask")
}

func member(v any, names ...string) any  { return normalizerstest.Member[any](v, names...) }
func text(v any, names ...string) string { return normalizerstest.Member[string](v, names...) }
func words(s string) string              { return strings.Join(strings.Fields(s), " ") }

// file reads a file once.
type file struct {
	*normalizerstest.Reader

	session string // of a document with messages that have ids
	id      string // of its message
	nth     int    // texts of the message so far
	shown   bool
	at      string // time of the message
	counts  map[string]int
	calls   map[string]*use // by id; nil for what is no tool
	last    map[string]*use // by name
	waiting []asked         // tools that the last answer asked for
	ask     *use            // call in the question just before
	asked   string          // answer in the question just before
}

// use is a call of a tool.
type use struct{ id, name, key, args string }

// asked is a tool without a result; use is nil for what is no tool.
type asked struct {
	id, tool string
	input    any
	use      *use
}

// number counts a content of the file.
func (f *file) number(kind, key string) string {
	f.counts[kind+key]++
	return strconv.Itoa(f.counts[kind+key])
}

// hash is the id of what both files state.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\xff")))
	return "@" + base64.RawURLEncoding.EncodeToString(sum[:6])
}

// say notes speech, unless the other file stated it before.
func (f *file) say(kind, who, body string) {
	if words(body) == "" && kind != "attached" {
		return
	}
	if f.session != "" {
		f.nth++
		f.Say(who, fmt.Sprint(f.id, " ", f.nth), body)
		return
	}
	key := words(body)
	if kind == "prompt" {
		key = mention.ReplaceAllString(key, "$1")
	}
	id := kind + key + f.number(kind, key)
	switch {
	case f.Noted(id) != "":
	case kind == "attached":
		f.Attach(id)
	default:
		f.Say(who, "", body)
	}
	f.Note(id, "stated")
}

var (
	mention   = regexp.MustCompile(`@/?(\S+)`)
	mentioned = regexp.MustCompile(`'([^']+)' \(see below for [^)]*\)`)
)

func (f *file) human(body string) {
	who := "human"
	if f.Agent != "" {
		who = "agent"
	}
	f.say("prompt", who, body)
}

func (f *file) answer(body string) { f.say("answer", "assistant", body) }

// call notes a call.
func (f *file) call(id, name string, input any, args string) *use {
	key := keyOf(name, input)
	own := hash("call", key, f.number("call", key))
	u := &use{id: cmp.Or(id, own), name: name, key: own, args: args}
	f.last[name] = u
	if strings.HasPrefix(key, "mcp ") {
		f.last["mcp"] = u
	}
	isNew := f.Noted("event "+own) == ""
	switch {
	case f.session != "":
		f.Call(id, name)
	case f.shown:
		if isNew = isNew && f.Noted("sent "+own) == ""; isNew {
			f.Note("event "+own, "shown")
			f.Call(own, name)
		}
	default:
		f.Note("sent "+own, "yes")
		if !isNew {
			u.id = own
			break
		}
		if id == "" {
			f.Note("event "+own, "sent")
		}
		f.Call(u.id, name)
	}
	return u
}

// keyOf returns the content that a call has in both files.
func keyOf(name string, input any) string {
	at := cmp.Or(text(input, "path"), text(input, "file_path"), text(input, "absolutePath"))
	for _, list := range []string{"batchFiles", "files"} {
		if files := normalizerstest.Member[[]any](input, list); len(files) > 0 {
			at = text(files[0], "path")
		}
	}
	if _, files, ok := strings.Cut(text(input, "patch"), "*** Update File: "); ok {
		at, _, _ = strings.Cut(files, "\n")
	}
	at = strings.Join(strings.Split(at, "\\"), "/")
	_, served, isServed := strings.Cut(name, "0mcp0")
	switch {
	case isServed:
		return "mcp " + served
	case strings.HasPrefix(name, "mcp--"):
		return "mcp " + name[strings.LastIndex(name, "-")+1:]
	case name == "execute_command":
		return "command " + words(text(input, "command"))
	case name == "use_mcp_tool":
		return "mcp " + text(input, "toolName") + text(input, "tool_name")
	case name == "write_to_file", name == "replace_in_file", name == "apply_diff", name == "apply_patch":
		return "edit " + path.Base(at)
	case name == "read_file":
		return "read " + path.Base(at)
	case name == "browser_action":
		return "browser " + text(input, "action")
	default:
		return name
	}
}

// result notes the result of a call of a tool.
func (f *file) result(u *use, tool, id, body string, shell bool) {
	if u != nil && f.session == "" {
		id = cmp.Or(id, u.id)
		if f.Noted("event "+u.key) != "" {
			id = u.key
		}
	}
	var code *int64
	form := "Exit code"
	if name := cmp.Or(f.Tool(id), tool); shell && (name == "execute_command" || name == "run_commands") {
		if found := exits.FindStringSubmatch(body); found != nil {
			n, _ := strconv.ParseInt(found[1]+found[2], 10, 64)
			code = &n
		} else if first, _, _ := strings.Cut(body, "\n"); ended.MatchString(first) {
			n, _ := strconv.ParseInt(number.FindString(first), 10, 64)
			code, form = &n, "exit code"
		}
	}
	f.Result(id, code, form)
}

var (
	exits  = regexp.MustCompile(`^(?:Command executed in [^\n]*(?:\. |\n)Exit code: (-?\d+)(?:\n|$)|\[Command exited with code (-?\d+)\])`)
	ended  = regexp.MustCompile(`^Command (?:executed successfully \(exit code 0\)|failed with exit code -?\d+)\.$`)
	number = regexp.MustCompile(`-?\d+`)
)

func count(v any, name string) int64 { return normalizerstest.Count(v, name) }

func dollars(v any, name string) int64 {
	d, _ := normalizerstest.Member[json.Number](v, name).Float64()
	return normalizerstest.CostOf(d)
}

// used notes the tokens of an API call, by whichever file states them first.
func (f *file) used(id, key string, t normalizerstest.Tokens) {
	if f.session == "" {
		own := key + " " + f.number("usage", key)
		by, mine := f.Noted("used "+own), "sent"
		if f.shown {
			mine = "shown"
		}
		switch {
		case by == "":
			f.Note("used "+own, mine)
		case by == "shown" && mine == "sent":
			return
		}
		if !f.shown || by == "sent" {
			id = own // the figures of both files are of one call
		}
	}
	f.Use(id, t)
}

// element notes the statements of a message.
func (f *file) element(e any, first, last bool) {
	f.id, f.nth, f.shown = text(e, "id"), 0, isShown([]any{e})
	ts := normalizerstest.Member[json.Number](e, "ts")
	f.at = string(ts)
	if start, _, ok := strings.Cut(f.session, "_"); ok && len(start) == 13 {
		f.Copied = string(ts) < start
	}
	if f.shown {
		if partial := normalizerstest.Member[bool](e, "partial"); !partial || !last {
			f.show(e, first)
		}
		return
	}
	f.send(e)
}

// show notes a message shown to the human.
func (f *file) show(e any, first bool) {
	body, kind := text(e, "text"), text(e, "say")+text(e, "ask")
	is := normalizerstest.Parse([]byte(body))
	isAsk := text(e, "type") == "ask"
	switch kind {
	case "task", "user_feedback", "user_feedback_diff":
		f.prompt(e)
	case "text", "completion_result", "followup", "plan_mode_respond":
		if kind == "text" && first && !isAsk {
			f.prompt(e)
			return
		}
		body = strings.TrimSuffix(body, "HAS_CHANGES")
		if object, ok := is.(map[string]any); ok && kind != "text" && kind != "completion_result" {
			body = text(object, "question") + text(object, "response")
		}
		if body != "" && f.asked == body && !isAsk {
			f.asked = ""
			return
		}
		f.asked, f.ask = "", nil
		if isAsk {
			f.asked = body
		}
		f.answer(body)
	case "api_req_started", "deleted_api_reqs":
		f.asked, f.ask = "", nil
		if member(is, "tokensIn") == nil && member(is, "tokensOut") == nil {
			return
		}
		key := kind
		if kind == "api_req_started" {
			key = strconv.FormatInt(count(is, "tokensOut"), 10)
		} else if f.Noted("shown") != "" {
			return
		}
		in, cached := count(is, "tokensIn"), count(is, "cacheReads")+count(is, "cacheWrites")
		f.used(f.at, key, normalizerstest.Tokens{
			Input: in, Output: count(is, "tokensOut"), CacheRead: count(is, "cacheReads"), CacheWrite: count(is, "cacheWrites"),
			Cost: dollars(is, "cost"), CacheInInput: text(is, "apiProtocol") != "" && in >= cached,
		})
	case "condense_context":
		f.used(f.at, kind, normalizerstest.Tokens{Cost: dollars(member(e, "contextCondense"), "cost")})
	case "browser_action_launch":
		f.tool("browser_action", map[string]any{"action": "launch"}, body, isAsk)
	case "command":
		body = strings.TrimSuffix(body, "REQ_APP")
		f.tool("execute_command", map[string]any{"command": body}, body, isAsk)
	case "tool":
		name := map[string]string{
			"readFile": "read_file", "searchFiles": "search_files", "editedExistingFile": "replace_in_file", "newFileCreated": "write_to_file", "appliedDiff": "apply_diff",
			"listFilesTopLevel": "list_files", "listFilesRecursive": "list_files", "listCodeDefinitionNames": "list_code_definition_names",
		}[text(is, "tool")]
		f.tool(name, is, body, isAsk)
	case "use_mcp_server":
		f.tool(text(is, "type"), is, body, isAsk)
	case "command_output", "mcp_server_response", "browser_action_result":
		f.asked, f.ask = "", nil
		u := f.last[map[string]string{"command_output": "execute_command", "mcp_server_response": "mcp", "browser_action_result": "browser_action"}[kind]]
		if u == nil {
			f.Result("", nil, "")
		} else if f.Noted("sent "+u.key) == "" {
			f.result(u, "", u.key, body, false)
		}
	}
}

// tool notes a call that is shown, unless it repeats the question just before.
func (f *file) tool(name string, input any, args string, isAsk bool) {
	f.asked = ""
	if f.ask != nil && !isAsk && f.ask.name == name && f.ask.args == args {
		f.ask = nil
		return
	}
	u := f.call("", name, input, args)
	f.ask = nil
	if isAsk {
		f.ask = u
	}
}

// prompt notes a prompt that is shown.
func (f *file) prompt(e any) {
	if words(text(e, "text")) == "" && len(normalizerstest.Member[[]any](e, "images")) > 0 {
		f.say("attached", "human", "")
		return
	}
	f.human(text(e, "text"))
}

// send notes a message of the conversation with the model.
func (f *file) send(e any) {
	role := cmp.Or(text(e, "role"), text(e, "type"))
	content := normalizerstest.Member[[]any](e, "content")
	if body := cmp.Or(text(e, "content"), text(e, "text")); body != "" {
		content = []any{map[string]any{"type": "text", "text": body}}
	}
	switch {
	case normalizerstest.Member[bool](e, "isSummary"), text(e, "metadata", "kind") != "":
	case role == "assistant":
		f.waiting = nil
		for _, b := range content {
			switch text(b, "type") {
			case "text":
				f.answerOf(text(b, "text"))
			case "tool_use":
				f.calls[text(b, "id")] = f.toolUse(text(b, "id"), text(b, "name"), member(b, "input"))
			}
		}
	case role == "user":
		f.receive(content)
	}
	if m := member(e, "metrics"); member(m, "outputTokens") != nil {
		f.used(f.id, "", normalizerstest.Tokens{
			Input: count(m, "inputTokens"), Output: count(m, "outputTokens"), CacheRead: count(m, "cacheReadTokens"),
			CacheWrite: count(m, "cacheWriteTokens"), Cost: dollars(m, "cost"), CacheInInput: true,
		})
	} else if t := member(m, "tokens"); t != nil {
		f.used(f.id, strconv.FormatInt(count(t, "completion"), 10), normalizerstest.Tokens{
			Input: count(t, "prompt"), Output: count(t, "completion"), Cost: dollars(m, "cost"),
		})
	}
}

// toolUse notes a call, or the answer that a tool has as its input.
func (f *file) toolUse(id, name string, input any) *use {
	a := asked{id: id, tool: name, input: input}
	if isSpeech(name) {
		f.answer(text(input, "result") + text(input, "question") + text(input, "response"))
	} else {
		a.use = f.call(id, name, input, "")
	}
	f.waiting = append(f.waiting, a)
	return a.use
}

func isSpeech(tool string) bool {
	return tool == "attempt_completion" || tool == "ask_followup_question" || tool == "plan_mode_respond"
}

// headed returns the tool of a header, with the argument that it quotes, and the text behind it.
func headed(body string) (tool, quoted, rest string) {
	found := header.FindStringSubmatch(body)
	if found == nil {
		return "", "", body
	}
	_, quoted, _ = strings.Cut(found[2], " for '")
	if strings.HasPrefix(found[1], "subagent") {
		return "use_subagents", quoted, found[3]
	}
	return found[1], quoted, found[3]
}

// isTool reports whether a header with this tool is of a call with this name.
func isTool(tool, name string) bool {
	switch {
	case tool == "use_subagents" && strings.HasPrefix(name, "use_subagent_"):
		return true
	case tool == "use_mcp_tool" && strings.Contains(name, "0mcp0"):
		return true
	default:
		return tool == name
	}
}

// answers returns what the text behind a header answers, and does not wait for it any longer.
func (f *file) answers(tool, quoted string) (found asked) {
	at, best := -1, 0
	for i, a := range f.waiting {
		points := 0
		if isTool(tool, a.tool) {
			points = 1
			input, _ := a.input.(map[string]any)
			for _, v := range input {
				if value, ok := v.(string); ok && !isSpeech(a.tool) && strings.HasPrefix(quoted, value+"'") {
					points = 2
				}
			}
		}
		if points > best {
			at, best = i, points
		}
	}
	if at < 0 {
		return asked{tool: tool}
	}
	found = f.waiting[at]
	f.waiting = append(append([]asked{}, f.waiting[:at]...), f.waiting[at+1:]...)
	return found
}

var (
	element   = regexp.MustCompile(`(?s)^(.*?)<(execute_command|write_to_file|ask_followup_question)>(.*?)</(?:execute_command|write_to_file|ask_followup_question)>(.*)$`)
	parameter = regexp.MustCompile(`(?s)<(command|path|question)>(.*?)</`)
	tags      = regexp.MustCompile(`(?s)<(task|user_message|feedback|answer|user_input)(?: [^<>]*)?>(.*?)</(?:task|user_message|feedback|answer|user_input)>`)
	header    = regexp.MustCompile(`(?s)^\[([a-z_]+)((?:: | ).*?)?\] Result:\s*(.*)$`)
	machine   = regexp.MustCompile(`^\s*(?:<environment_details>|\[|\(The user did not provide|Files attached by the user:|` +
		`# (?:TODO LIST UPDATE|task_progress)|The user (?:has provided feedback on|provided additional content)|` +
		`Command (?:is still running|executed|execution timed out|timed out|failed with|cancelled|terminated by)|` +
		`Skipping tool due|Tool was interrupted)`)
)

// answerOf notes a text of the model, in which calls may be elements.
func (f *file) answerOf(body string) {
	if found := element.FindStringSubmatch(body); found != nil {
		f.answerOf(found[1])
		input := map[string]any{}
		for _, p := range parameter.FindAllStringSubmatch(found[3], -1) {
			if input[p[1]] == nil {
				input[p[1]] = strings.TrimSpace(p[2])
			}
		}
		f.toolUse("", found[2], input)
		f.answerOf(found[4])
		return
	}
	f.answer(strings.ReplaceAll(strings.ReplaceAll(body, "<thinking>\n", ""), "\n</thinking>", ""))
}

// receive notes the statements of a message under the user's name.
func (f *file) receive(content []any) {
	var of *asked
	images, stated := false, false
	defer func() {
		if images && !stated {
			f.say("attached", "human", "")
		}
	}()
	for _, b := range content {
		body := text(b, "text")
		images = images || text(b, "type") == "image"
		stated = stated || text(b, "type") == "tool_result" || words(body) != "" && !strings.HasPrefix(body, "<environment_details>")
		if text(b, "type") == "tool_result" {
			f.resultOf(text(b, "tool_use_id"), member(b, "content"))
			continue
		}
		if tool, quoted, rest := headed(body); tool != "" {
			found := f.answers(tool, quoted)
			if of, body = &found, rest; body == "" {
				continue
			}
		}
		if of != nil {
			if !isSpeech(of.tool) {
				f.result(of.use, of.tool, "", body, true)
			}
			f.typed(body)
			of = nil
		} else if !f.typed(body) && !machine.MatchString(body) {
			f.human(body)
		}
	}
}

// resultOf notes a tool_result.
func (f *file) resultOf(id string, content any) {
	body, _ := content.(string)
	if list, ok := content.([]any); ok {
		var all []string
		for _, item := range list {
			all = append(all, text(item, "text")+text(item, "result"))
		}
		body = strings.Join(all, "\n")
	}
	of := asked{id: id}
	for i, a := range f.waiting {
		if a.id == id && id != "" {
			of = a
			f.waiting = append(append([]asked{}, f.waiting[:i]...), f.waiting[i+1:]...)
			break
		}
	}
	u, known := f.calls[id]
	if u != nil {
		of.tool = u.name
	}
	if tool, _, rest := headed(body); tool != "" && (of.tool == "" || isTool(tool, of.tool)) {
		body = rest
	}
	if u != nil || !known {
		f.result(u, "", id, body, true)
	}
	f.typed(body)
	if is := normalizerstest.Parse([]byte(body)); text(is, "status") != "" {
		f.human(text(is, "feedback"))
	}
}

// typed notes what a human typed in a text; false if the text has no element for it.
func (f *file) typed(body string) bool {
	found := tags.FindAllStringSubmatch(body, -1)
	for _, t := range found {
		f.human(mentioned.ReplaceAllString(t[2], "@$1"))
	}
	return len(found) > 0
}
