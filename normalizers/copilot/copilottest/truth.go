package copilottest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads Copilot CLI's logs a second time, with nothing but encoding/json, for comparison with the events.

// isText reports whether a file is plain text: it does not begin with a brace, and none of its first lines is a
// record of a log, unless an earlier line states the session.
func isText(data []byte) bool {
	if first := bytes.TrimSpace(data); len(first) == 0 || first[0] == '{' {
		return false
	}
	for i, l := range bytes.SplitAfterN(data, []byte("\n"), 33) {
		if i == 32 || MarkerLine.Match(l) {
			break
		}
		if v := normalizerstest.Parse(l); l != nil && bytes.HasPrefix(l, []byte("{")) && normalizerstest.Member[string](v, "type") != "" &&
			normalizerstest.Member[string](v, "timestamp") != "" && normalizerstest.Member[string](v, "id") != "" {
			return false
		}
	}
	return true
}

// read cuts a file into records: lines of plain text with their ends, else values on one line or several.
func read(data []byte) []normalizerstest.Line {
	if !isText(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) {
		torn := normalizerstest.TornAt(`{"type":`, func(v any) bool { return normalizerstest.Member[string](v, "id") != "" })
		return normalizerstest.Values{Broken: torn}.Read(data)
	}
	var out []normalizerstest.Line
	for i, l := range bytes.SplitAfter(data, []byte("\n")) {
		if len(l) > 0 {
			out = append(out, normalizerstest.Line{Number: i + 1, Data: l})
		}
	}
	return out
}

// Shapes of lines of plain text.
var (
	MarkerLine      = regexp.MustCompile(`^\[copilot-session\] ([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})\s*$`)
	copilotExitLine = regexp.MustCompile(`^<((?:shellId|command with id): [^<>]* )?(completed|exited) with exit code (-?[0-9]+)>$`)
	Colors          = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b\\][^\x1b\x07]*(\x1b\\\\|\x07)")
)

// interpret reads a file by the rules of the vendor, without code of the normalizer.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures), Trimmed: slices.ContainsFunc(lines, func(l normalizerstest.Line) bool {
		return bytes.Contains(l.Data, []byte(`"id":"[trimmed for fixture]"`))
	})}
	plain := isPlain(lines)
	a.Sessions = sessionsOf(name, lines, plain)
	readers := make(map[string]*copilotReader)
	var order []*copilotReader
	for i, l := range lines {
		session := a.Sessions[i]
		r := readers[session]
		if r == nil {
			r = &copilotReader{out: &a, session: session, emitted: make(map[string]string), names: make(map[string]string), started: make(map[string]bool), prompts: make(map[string]int)}
			readers[session] = r
			order = append(order, r)
		}
		thread := normalizerstest.RawThread{}
		switch sent := exportedSpan(l); {
		case l.Bad:
		case sent != nil:
			thread = r.span(l.Number, sent)
		case plain:
			r.line(l)
		default:
			thread = r.read(l)
		}
		a.Threads = append(a.Threads, thread)
	}
	for _, r := range order {
		r.flush()
	}
	for _, r := range order {
		a.Talk = normalizerstest.AddExported(a.Talk, r.session, r.sent())
	}
	return a
}

// isPlain reports whether the records of a file are lines of plain text. Only those include their line ends; one
// without is the whole file.
func isPlain(lines []normalizerstest.Line) bool {
	return len(lines) > 0 && !lines[0].Bad && (bytes.HasSuffix(lines[0].Data, []byte("\n")) ||
		len(lines) == 1 && bytes.TrimPrefix(lines[0].Data, []byte("\xef\xbb\xbf"))[0] != '{')
}

// sessionsOf returns the session of each record: the last one stated, else the first one that follows, else the name
// of the file.
func sessionsOf(name string, lines []normalizerstest.Line, plain bool) []string {
	last := strings.TrimSuffix(path.Base(name), path.Ext(name))
	for _, l := range lines {
		if id := statedSession(l, plain); id != "" {
			last = id
			break
		}
	}
	var out []string
	for _, l := range lines {
		if sent := sentSession.FindSubmatch(l.Data); sent != nil {
			out = append(out, string(sent[1]))
			continue
		}
		last = cmp.Or(statedSession(l, plain), last)
		out = append(out, last)
	}
	return out
}

// statedSession returns the session that a record states, empty for none.
func statedSession(l normalizerstest.Line, plain bool) string {
	if plain {
		if m := MarkerLine.FindSubmatch(l.Data); m != nil {
			return string(m[1])
		}
		return ""
	}
	v := normalizerstest.Parse(l.Data)
	id := normalizerstest.Member[string](v, "sessionId")
	if id == "" && normalizerstest.Member[string](v, "type") == "session.start" {
		return normalizerstest.Member[string](v, "data", "sessionId")
	}
	return id
}

// copilotReader follows one session of a file.
type copilotReader struct {
	out     *normalizerstest.Account
	session string
	emitted map[string]string // contents by id
	names   map[string]string // of tools, by call
	started map[string]bool   // calls that an execution stated before any message

	open      string // the joined beginning of a text
	openID    string // its messageId and agent
	paragraph string
	number    int

	prompts map[string]int // of the log, by interaction
	said    []sentText     // by the telemetry
}

// first reports whether this content is new for events with this id.
func (r *copilotReader) first(id, content string) bool {
	if id == "" {
		return true
	}
	if r.emitted[id] == content {
		return false
	}
	r.emitted[id] = content
	return true
}

func (r *copilotReader) utter(who, id, text string, n int) {
	if strings.TrimSpace(text) != "" && r.first(id, who+text) {
		r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: who, Text: strings.TrimSpace(text), Line: n})
	}
}

func (r *copilotReader) flush() {
	r.utter("assistant", "", r.open, r.number)
	r.utter("assistant", "", r.paragraph, r.number)
	r.open, r.openID, r.paragraph = "", "", ""
}

// line reads a line of plain text.
func (r *copilotReader) line(l normalizerstest.Line) {
	body := Colors.ReplaceAllString(string(bytes.TrimPrefix(l.Data, []byte("\xef\xbb\xbf"))), "")
	r.number = l.Number
	if MarkerLine.Match(l.Data) || strings.TrimSpace(body) == "" {
		r.flush()
		return
	}
	r.paragraph += body
}

// read reads a record and returns its thread.
func (r *copilotReader) read(l normalizerstest.Line) normalizerstest.RawThread {
	v := normalizerstest.Parse(l.Data)
	kind, id, d := normalizerstest.Member[string](v, "type"), normalizerstest.Member[string](v, "id"), normalizerstest.Member[any](v, "data")
	if timeline, ok := normalizerstest.Member[any](v, "timeline").([]any); ok && kind == "" {
		for _, e := range timeline {
			r.entry(l.Number, e)
		}
		return normalizerstest.RawThread{}
	}
	agent := agentOf(v)
	thread := normalizerstest.RawThread{Agent: agent, Internal: agent != ""}
	key := ""
	if message := normalizerstest.Member[string](d, "messageId"); kind == "assistant.message" && message != "" {
		key = message + "\x00" + agent
	}
	// An unknown record ends nothing.
	isUnknown := kind == "" || strings.HasSuffix(kind, "of_tomorrow") || strings.HasPrefix(kind, "hologram.")
	if r.openID != "" && r.openID != key && !isUnknown {
		r.utter("assistant", "", r.open, r.number)
		r.open, r.openID = "", ""
	}
	switch kind {
	case "user.message":
		if r.prompt(l.Number, id, agent, d) == "agent" {
			thread.Internal = true
		}
	case "assistant.message":
		r.message(l.Number, id, key, d)
	case "tool.execution_start":
		r.execution(l.Number, d)
	case "tool.execution_complete":
		r.completion(l.Number, d)
	}
	return thread
}

// agentOf returns the subagent that a record states, empty for the main conversation.
func agentOf(v any) string {
	d, started := normalizerstest.Member[any](v, "data"), ""
	if strings.HasPrefix(normalizerstest.Member[string](v, "type"), "subagent.") {
		started = normalizerstest.Member[string](d, "toolCallId")
	}
	return cmp.Or(normalizerstest.Member[string](v, "agentId"), normalizerstest.Member[string](d, "parentToolCallId"), started)
}

// prompt notes a prompt and returns its author: human or agent, empty for the program and for an empty prompt.
func (r *copilotReader) prompt(n int, id, agent string, d any) (who string) {
	content, source := normalizerstest.Member[string](d, "content"), normalizerstest.Member[string](d, "source")
	byUser := source == "" || source == "user"
	switch {
	case normalizerstest.Member[bool](d, "isAutopilotContinuation"), strings.HasPrefix(strings.TrimSpace(content), "<system_notification>"), skillContext.MatchString(content):
		return ""
	case strings.HasPrefix(source, "agent-"), agent != "" && byUser:
		who = "agent"
	case byUser:
		who = "human"
	default:
		return ""
	}
	switch {
	case strings.TrimSpace(content) != "":
		said := len(r.out.Talk)
		if r.utter(who, id, content, n); who == "human" && len(r.out.Talk) > said {
			r.prompts[normalizerstest.Member[string](d, "interactionId")]++
		}
	case len(normalizerstest.Member[[]any](d, "attachments")) == 0:
		return ""
	case r.first(id, who):
		r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: who, Line: n})
		if who == "human" {
			r.prompts[normalizerstest.Member[string](d, "interactionId")]++
		}
	}
	return who
}

// message notes a message of the assistant, joined from chunks, and the calls that it requests.
func (r *copilotReader) message(n int, id, key string, d any) {
	index, _ := normalizerstest.Member[json.Number](d, "chunkIndex").Int64()
	count, _ := normalizerstest.Member[json.Number](d, "chunkCount").Int64()
	body := r.open + normalizerstest.Member[string](d, "content")
	if key != "" && count > index+1 {
		r.open, r.openID, r.number = body, key, n
	} else {
		r.open, r.openID = "", ""
		r.utter("assistant", id, body, n)
	}
	for _, q := range normalizerstest.Member[[]any](d, "toolRequests") {
		call := normalizerstest.Member[string](q, "toolCallId")
		if r.started[call] {
			delete(r.started, call)
			continue
		}
		r.call(n, call, normalizerstest.Member[string](q, "name"), normalizerstest.Member[any](q, "arguments"))
	}
}

// execution notes the start of a call, unless a message has requested it.
func (r *copilotReader) execution(n int, d any) {
	call := normalizerstest.Member[string](d, "toolCallId")
	if _, ok := r.names[call]; !ok {
		r.call(n, call, normalizerstest.Member[string](d, "toolName"), normalizerstest.Member[any](d, "arguments"))
		r.started[call] = true
	}
}

// completion notes the end of a call.
func (r *copilotReader) completion(n int, d any) {
	body := cmp.Or(normalizerstest.Member[string](d, "result"), normalizerstest.Member[string](d, "result", "content"), normalizerstest.Member[string](d, "result", "detailedContent"))
	r.result(n, normalizerstest.Member[string](d, "toolCallId"), body, normalizerstest.Member[json.Number](d, "shellExecution", "exitCode"), fmt.Sprint(normalizerstest.Member[any](d, "success"), normalizerstest.Member[any](d, "error")))
}

// call notes a call, once.
func (r *copilotReader) call(n int, id, name string, arguments any) {
	if _, again := r.emitted["call "+id]; r.first("call "+id, fmt.Sprint(name, arguments)) && !again {
		r.out.Calls = append(r.out.Calls, normalizerstest.ToolUse{Session: r.session, ID: id, Name: name, Line: n})
	}
	r.names[id] = name
}

// result notes a result once, with the exit code that it states or that its last line has.
func (r *copilotReader) result(n int, id, body string, exit json.Number, outcome string) {
	if _, again := r.emitted["result "+id]; !r.first("result "+id, body+outcome+string(exit)) || again {
		return
	}
	w := normalizerstest.ToolOutcome{Session: r.session, ID: id, Line: n}
	lines := strings.Split(strings.TrimRight(body, " \t\r\n"), "\n")
	name, known := r.names[id]
	if code, err := exit.Int64(); err == nil {
		w.Code, w.Form = &code, "shellExecution"
	} else if m := copilotExitLine.FindStringSubmatch(lines[len(lines)-1]); m != nil && (!known || strings.Contains(name, "bash") || strings.Contains(name, "shell")) {
		w.Code, w.Form = number(m[3]), m[2]
	}
	r.out.Results = append(r.out.Results, w)
}

func number(text string) *int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return &n
}

// entry reads an entry of a timeline.
func (r *copilotReader) entry(n int, e any) {
	id, body := normalizerstest.Member[string](e, "id"), normalizerstest.Member[string](e, "text")
	switch kind := normalizerstest.Member[string](e, "type"); kind {
	case "user":
		r.utter("human", id, body, n)
	case "copilot":
		r.utter("assistant", id, body, n)
	case "tool_call_requested", "tool_call_completed":
		call := normalizerstest.Member[string](e, "callId")
		if _, ok := r.names[call]; !ok {
			r.call(n, call, normalizerstest.Member[string](e, "name"), normalizerstest.Member[any](e, "arguments"))
		}
		if kind == "tool_call_completed" {
			r.result(n, call, normalizerstest.Member[string](e, "result", "log"), "", normalizerstest.Member[string](e, "result", "type"))
		}
	}
}

// skillContext matches the beginning of a skill that the runtime reads to the model.
var skillContext = regexp.MustCompile(`^\s*<skill-context[ >]`)

// rawOf is the Raw of the suite: raw is an entry of a document, or a line of plain text as a string.
func rawOf(data []byte) func(raw []byte) (ok, known bool) {
	entries := map[string]bool{}
	for _, e := range normalizerstest.Member[[]any](normalizerstest.Parse(data), "timeline") {
		entries[fmt.Sprint(e)] = true
	}
	return func(raw []byte) (ok, known bool) {
		if raw == nil {
			return false, false
		}
		is := normalizerstest.Parse(raw)
		s, text := is.(string)
		known = entries[fmt.Sprint(is)] || text && plainText(s) == plainText(string(data))
		return known, known
	}
}

// plainText returns a text without bytes that are not UTF-8.
func plainText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\ufffd", "")
}
