package geminitest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads Gemini CLI's logs a second time, with nothing but encoding/json, for comparison with the events.

// Read cuts a file into records: consecutive values on one line or several, and each prompt of a list of prompts.
func Read(data []byte) []normalizerstest.Line {
	return normalizerstest.Values{Elements: geminiPrompts, Broken: normalizerstest.TornAt(`{"id":`, nil)}.Read(data)
}

// geminiPrompts returns the elements of an array that begins with a line of logs.json.
func geminiPrompts(v json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || len(list) == 0 {
		return nil
	}
	first := normalizerstest.Parse(list[0])
	if normalizerstest.Member[string](first, "message") == "" || normalizerstest.Member[any](first, "messageId") == nil {
		return nil
	}
	return list
}

// geminiMessages returns the messages of a record, and whether the record is a rewritten history.
func geminiMessages(v any) (messages []any, history bool) {
	if list, ok := v.([]any); ok {
		return list, false
	}
	for _, name := range []string{"messages", "history"} {
		if list, ok := normalizerstest.Member[any](v, name).([]any); ok {
			return list, false
		}
	}
	if set, ok := normalizerstest.Member[any](v, "$set").(map[string]any); ok {
		list, _ := set["messages"].([]any)
		return list, true
	}
	if normalizerstest.Member[string](v, "id") != "" || normalizerstest.Member[string](v, "role") != "" || normalizerstest.Member[any](v, "messageId") != nil || normalizerstest.Member[any](v, "content") != nil {
		return []any{v}, false
	}
	return nil, false
}

func geminiKind(m any) string {
	switch kind := normalizerstest.Member[string](m, "type"); kind {
	case "model", "assistant":
		return "gemini"
	case "":
		if role := normalizerstest.Member[string](m, "role"); role != "model" {
			return role
		}
		return "gemini"
	default:
		return kind
	}
}

// geminiContent returns the parts of content in any of its forms.
func geminiContent(v any) []any {
	switch c := v.(type) {
	case string:
		return []any{map[string]any{"text": c}}
	case map[string]any:
		return []any{c}
	case []any:
		for i := range c {
			if s, ok := c[i].(string); ok {
				c[i] = map[string]any{"text": s}
			}
		}
		return c
	}
	return nil
}

func geminiBody(m any) []any {
	if v := normalizerstest.Member[any](m, "content"); v != nil {
		return geminiContent(v)
	}
	return geminiContent(normalizerstest.Member[any](m, "parts"))
}

func geminiText(parts []any) string {
	var b strings.Builder
	for _, p := range parts {
		if !normalizerstest.Member[bool](p, "thought") {
			b.WriteString(normalizerstest.Member[string](p, "text"))
		}
	}
	return b.String()
}

// interpret reads a file by the rules of the vendor, without code of the normalizer.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures), Sessions: normalizerstest.SessionsOf(name, lines, func(v any) string {
		if a := normalizerstest.ExportedAttributes(v); a != nil {
			return exportedSession(a)
		}
		return cmp.Or(normalizerstest.Member[string](v, "sessionId"), normalizerstest.Member[string](v, "$set", "sessionId"), normalizerstest.Member[string](v, "session_id"))
	})}
	readers := make(map[string]*geminiReader)
	var order []*geminiReader
	for i, l := range lines {
		v, session := normalizerstest.Parse(l.Data), a.Sessions[i]
		r := readers[session]
		if r == nil {
			r = &geminiReader{
				out: &a, session: session, phrase: make(map[string]string), texts: make(map[string]bool),
				emitted: make(map[string]bool), names: make(map[string]string), alone: make(map[string][2]int),
				shown: make(map[string]bool),
			}
			readers[session] = r
			order = append(order, r)
		}
		if !l.Bad {
			r.read(l.Number, v)
		}
		a.Threads = append(a.Threads, normalizerstest.RawThread{Agent: r.agent, Internal: r.agent != ""})
	}
	for _, r := range order {
		r.flush()
	}
	for _, r := range order {
		a.Talk = normalizerstest.AddExported(a.Talk, r.session, r.said)
	}
	return a
}

// exportedSession returns the session of an exported record: of the subagent that its prompt names, or the stated one.
func exportedSession(a map[string]any) string {
	if m := regexp.MustCompile(`^([0-9a-f]+(?:-[0-9a-f]+){4})#[0-9]+$`).FindStringSubmatch(normalizerstest.Member[string](a, "prompt_id")); m != nil {
		return m[1]
	}
	return normalizerstest.Member[string](a, "session.id")
}

// export reads what Gemini CLI exports by OpenTelemetry.
func (r *geminiReader) export(a map[string]any) {
	str := func(name string) string { return normalizerstest.Member[string](a, name) }
	if str("session.id") != r.session && r.agent == "" {
		r.agent = r.session
	}
	switch strings.TrimPrefix(str("event.name"), "gemini_cli.") {
	case "user_prompt":
		if text := unwrapped(str("prompt")); !begins(text, machineSpeech) && !begins(text, programSpeech) {
			if a["prompt"] == nil {
				text = "[REDACTED]"
			}
			r.said = append(r.said, normalizerstest.Utterance{Who: "human", Text: text, Line: r.number})
		}
	case "api_response":
		if role := str("role"); role != "" && role != "main" && (role != "subagent" || r.agent == "") {
			return
		}
		var said strings.Builder
		for _, chunk := range normalizerstest.Member[[]any](map[string]any{"": normalizerstest.Parse([]byte(str("response_text")))}, "") {
			candidates := normalizerstest.Member[[]any](chunk, "candidates")
			if len(candidates) == 0 {
				continue
			}
			body := geminiContent(normalizerstest.Member[any](candidates[0], "content", "parts"))
			said.WriteString(geminiText(body))
			for _, p := range body {
				if fc := normalizerstest.Member[any](p, "functionCall"); normalizerstest.Member[string](fc, "id") != "" {
					r.call(normalizerstest.Member[string](fc, "id"), normalizerstest.Member[string](fc, "name"))
					r.asked = append(r.asked, fc)
				}
			}
		}
		if text := said.String(); strings.TrimSpace(text) != "" {
			r.said = append(r.said, normalizerstest.Utterance{Who: "assistant", Text: text, Line: r.number})
		}
	case "tool_call":
		args := normalizerstest.Parse([]byte(str("function_args")))
		at := slices.IndexFunc(r.asked, func(fc any) bool {
			return normalizerstest.Member[string](fc, "name") == str("function_name") && reflect.DeepEqual(normalizerstest.Member[any](fc, "args"), args)
		})
		if at >= 0 {
			r.result("", normalizerstest.Member[string](r.asked[at], "id"), "", nil)
			r.asked = slices.Delete(slices.Clone(r.asked), at, at+1)
		}
	}
}

// geminiReader follows one session of a file.
type geminiReader struct {
	out     *normalizerstest.Account
	session string
	number  int
	agent   string
	phrase  map[string]string // of a message, by id
	texts   map[string]bool   // by kind and text
	emitted map[string]bool   // calls, results and prompts of logs.json, by id
	names   map[string]string // of the tool of a call
	alone   map[string][2]int // prompts that only one of the two files has
	shown   map[string]bool   // displayed prompts with the first text of their content
	delta   string
	copied  bool
	context bool                        // the context of the session was seen
	lines   bool                        // lines write the history again
	said    []normalizerstest.Utterance // by the telemetry
	asked   []any                       // calls in exported answers
}

func (r *geminiReader) utter(who, text string) {
	if r.copied && who == "human" {
		who = "user_message of origin copied"
	}
	r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: who, Text: strings.TrimSpace(text), Line: r.number})
}

func (r *geminiReader) read(number int, v any) {
	r.number = number
	if a := normalizerstest.ExportedAttributes(v); a != nil {
		r.export(a)
		return
	}
	if hash, kind := normalizerstest.Member[string](v, "projectHash"), normalizerstest.Member[string](v, "kind"); hash != "" && kind != "" {
		r.agent = ""
		if kind == "subagent" {
			r.agent = normalizerstest.Member[string](v, "sessionId")
		}
	}
	messages, history := geminiMessages(v)
	if normalizerstest.Member[string](v, "$rewindTo") != "" || normalizerstest.Member[any](v, "$set", "messages") != nil {
		r.lines = false
	}
	if len(messages) == 0 {
		if normalizerstest.Member[string](v, "projectHash") != "" {
			r.lines = false
		}
		r.stream(v)
		return
	}
	r.pair(messages)
	for i, m := range messages {
		if normalizerstest.Member[string](m, "type") == "message" { // of the stream
			r.stream(m)
			continue
		}
		id := normalizerstest.Member[string](m, "id")
		if id == "" && len(messages) > 1 { // a document that may be written again
			id = "@" + strconv.Itoa(i+1)
		}
		_, known := r.phrase[id]
		r.copied = (history || r.again(v, m, id)) && !known
		r.message(i, m, id)
		r.copied = false
	}
}

func (r *geminiReader) message(i int, m any, id string) {
	if normalizerstest.Member[any](m, "messageId") != nil {
		r.prompt(m)
		return
	}
	if id != "" {
		if _, ok := r.phrase[id]; !ok {
			r.phrase[id] = ""
		}
	}
	switch geminiKind(m) {
	case "user":
		for j, p := range geminiBody(m) {
			if fr := normalizerstest.Member[any](p, "functionResponse"); fr != nil {
				r.result(fmt.Sprint(id, i, j), normalizerstest.Member[string](fr, "id"), normalizerstest.Member[string](fr, "name"), normalizerstest.Member[any](fr, "response"))
			}
		}
		r.user(m, id)
	case "gemini":
		sum := r.out.Naive[r.session]
		sum.Add(geminiFigures(m))
		r.out.Naive[r.session] = sum
		text := geminiText(geminiBody(m))
		if r.fresh(id, "gemini", text, geminiTexts(geminiBody(m))) && strings.TrimSpace(text) != "" {
			r.utter("assistant", text)
		}
		r.calls(m, id)
	}
}

// fresh reports whether the text of a message, which consists of parts, is new.
func (r *geminiReader) fresh(id, kind, text string, parts []string) bool {
	text = strings.TrimSpace(text)
	dropped := r.texts[kind+text] || r.joined(kind, parts)
	r.texts[kind+text] = true
	if id == "" {
		return true
	}
	was := r.phrase[id]
	r.phrase[id] = kind + text
	return was != kind+text && (!r.copied || !dropped || text == "")
}

// prompt reads a line of logs.json.
func (r *geminiReader) prompt(m any) {
	text := normalizerstest.Member[string](m, "message")
	key := fmt.Sprint("prompt ", normalizerstest.Member[any](m, "messageId"), text)
	if r.emitted[key] {
		return
	}
	r.emitted[key] = true
	if !r.duplicate(strings.TrimSpace(text), 1) {
		r.utter("human", text)
	}
}

// duplicate reports whether the other file has had an equal prompt: only the first of the two is emitted.
func (r *geminiReader) duplicate(text string, file int) bool {
	alone := r.alone[text]
	found := alone[1-file] > 0
	if found {
		alone[1-file]--
	} else {
		alone[file]++
	}
	r.alone[text] = alone
	return found
}

func (r *geminiReader) calls(m any, id string) {
	listed := make(map[string]bool)
	list, _ := normalizerstest.Member[any](m, "toolCalls").([]any)
	for j, c := range list {
		call, name := normalizerstest.Member[string](c, "id"), normalizerstest.Member[string](c, "name")
		result := geminiContent(normalizerstest.Member[any](c, "result"))
		for _, p := range result {
			if call == "" {
				call = normalizerstest.Member[string](p, "functionResponse", "id")
			}
		}
		if call == "" {
			call = id + "#call" + strconv.Itoa(j)
		}
		listed[call] = true
		r.call(call, name)
		status := normalizerstest.Member[string](c, "status")
		switch status {
		case "success", "completed", "error", "cancelled":
		default:
			if normalizerstest.Member[any](c, "result") == nil && normalizerstest.Member[any](c, "resultDisplay") == nil {
				continue
			}
		}
		var response any
		for _, p := range result {
			if v := normalizerstest.Member[any](p, "functionResponse", "response"); v != nil {
				response = v
			}
		}
		r.result("", call, name, response)
	}
	for _, p := range geminiBody(m) {
		if fc := normalizerstest.Member[any](p, "functionCall"); fc != nil && !listed[normalizerstest.Member[string](fc, "id")] {
			call := normalizerstest.Member[string](fc, "id")
			r.call(call, normalizerstest.Member[string](fc, "name"))
		}
	}
}

func (r *geminiReader) call(id, name string) {
	r.names[id] = name
	if r.emitted["call "+id] {
		return
	}
	r.emitted["call "+id] = true
	r.out.Calls = append(r.out.Calls, normalizerstest.ToolUse{Session: r.session, ID: id, Name: name, Line: r.number})
}

var geminiExits = regexp.MustCompile(`(?m)^Exit Code: (-?\d+|\(none\))`)

// result emits a result of a call, once per id; place replaces a missing id.
func (r *geminiReader) result(place, id, name string, response any) {
	key := "result " + id
	if id == "" {
		key += place
	}
	if r.emitted[key] {
		return
	}
	r.emitted[key] = true
	o := normalizerstest.ToolOutcome{Session: r.session, ID: id, Line: r.number}
	if name == "" {
		name = r.names[id]
	}
	text := normalizerstest.Member[string](response, "output")
	shell := name == "run_shell_command"
	for _, head := range []string{"Command: ", "Output: ", "Stdout: "} {
		shell = shell || strings.HasPrefix(text, head)
	}
	if all := geminiExits.FindAllStringSubmatch(text, -1); len(all) > 0 && shell {
		if n, err := strconv.ParseInt(all[len(all)-1][1], 10, 64); err == nil {
			o.Form, o.Code = "Exit Code", &n
		}
	}
	if code, ok := strings.CutPrefix(text, "Command exited with code: "); ok {
		if n, err := strconv.ParseInt(code, 10, 64); err == nil {
			o.Form, o.Code = "exited", &n
		}
	}
	r.out.Results = append(r.out.Results, o)
}

// pair gives calls without an id the id of the result after them, else their place in the document.
func (r *geminiReader) pair(messages []any) {
	for i, m := range messages {
		for j, p := range geminiBody(m) {
			fc, _ := normalizerstest.Member[any](p, "functionCall").(map[string]any)
			if fc == nil || normalizerstest.Member[string](fc, "id") != "" {
				continue
			}
			place := normalizerstest.Member[string](m, "id")
			if place == "" {
				place = "@" + strconv.Itoa(i+1)
			}
			fc["id"] = place + "#call" + strconv.Itoa(j)
			if i+1 == len(messages) {
				continue
			}
			for _, q := range geminiBody(messages[i+1]) {
				fr, _ := normalizerstest.Member[any](q, "functionResponse").(map[string]any)
				if fr == nil || fr["taken"] != nil || normalizerstest.Member[string](fr, "name") != normalizerstest.Member[string](fc, "name") {
					continue
				}
				if normalizerstest.Member[string](fr, "id") == "" {
					fr["id"] = fc["id"]
				}
				fr["taken"], fc["id"] = true, fr["id"]
				break
			}
		}
	}
}

// stream reads a line of the stream.
func (r *geminiReader) stream(v any) {
	kind := normalizerstest.Member[string](v, "type")
	if kind == "message" && normalizerstest.Member[string](v, "role") != "user" && normalizerstest.Member[bool](v, "delta") {
		r.delta += normalizerstest.Member[string](v, "content")
		return
	}
	if normalizerstest.Member[any](v, "$set") != nil || normalizerstest.Member[any](v, "$rewindTo") != nil {
		return
	}
	text := normalizerstest.Member[string](v, "content")
	if kind == "message" && normalizerstest.Member[string](v, "role") != "user" && text == r.delta {
		r.delta = ""
	}
	r.flush()
	switch kind {
	case "message":
		if normalizerstest.Member[string](v, "role") == "user" {
			r.utter("human", text)
		} else {
			r.utter("assistant", text)
		}
	case "tool_use":
		r.call(normalizerstest.Member[string](v, "tool_id"), normalizerstest.Member[string](v, "tool_name"))
	case "tool_result":
		r.result("", normalizerstest.Member[string](v, "tool_id"), "", v)
	case "":
		if text := normalizerstest.Member[string](v, "response"); strings.TrimSpace(text) != "" {
			r.utter("assistant", text)
		}
	}
}

func (r *geminiReader) flush() {
	if strings.TrimSpace(r.delta) != "" {
		r.utter("assistant", r.delta)
	}
	r.delta = ""
}

// geminiFigures returns the figures of one message, unchanged.
func geminiFigures(m any) normalizerstest.Figures {
	number := func(name string) int64 { return normalizerstest.Count(m, "tokens", name) }
	return geminiParted(normalizerstest.Figures{
		Input: number("input"), Output: number("output"), Cached: number("cached"), Thinking: number("thoughts"), Tool: number("tool"),
	})
}

// geminiParted adds the parts of usage to the vendor's figures.
func geminiParted(f normalizerstest.Figures) normalizerstest.Figures {
	f.UsageInput, f.CacheRead = f.Input-f.Cached+f.Tool, f.Cached
	f.UsageOutput, f.UsageReasoning = f.Output, f.Thinking
	f.Total = f.Input + f.Output + f.Thinking + f.Tool
	return f
}

// elements returns the values that an event of a document may carry: the document and its messages.
func elements(data []byte) []any {
	v := normalizerstest.Parse(data)
	messages, history := geminiMessages(v)
	if _, alone := v.(map[string]any); alone && !history && normalizerstest.Member[any](v, "messages") == nil && normalizerstest.Member[any](v, "history") == nil {
		return nil
	}
	return append(messages, v)
}

// rawOfDocument is the Raw of the suite: raw is a document or one of its messages.
func rawOfDocument(record []byte) func(raw []byte) (ok, known bool) {
	parts := elements(record)
	if len(parts) == 0 {
		return normalizerstest.NoRaw
	}
	return normalizerstest.PartOf(parts)
}
