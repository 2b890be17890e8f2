package copilottest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads Copilot CLI's logs a second time, with nothing but encoding/json: the events
// are compared with what it finds.

// isText reports whether a file is plain text: it does not begin with a brace, and none of its
// first lines is a record of a log, unless one before it states the session.
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

// read cuts a file into its records: of plain text lines with their ends, else values, on a
// line or over several.
func read(data []byte) []normalizerstest.Line {
	var out []normalizerstest.Line
	rest := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if isText(rest) {
		for i, l := range bytes.SplitAfter(data, []byte("\n")) {
			if len(l) > 0 {
				out = append(out, normalizerstest.Line{Number: i + 1, Data: l})
			}
		}
		return out
	}
	at := func(b []byte) int { return 1 + bytes.Count(data[:len(data)-len(b)], []byte("\n")) }
	for {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		if len(rest) == 0 {
			return out
		}
		dec := json.NewDecoder(bytes.NewReader(rest))
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			bad, _, _ := bytes.Cut(rest, []byte("\n"))
			// A writer that died within a line leaves its next record on it.
			for i := 1; i < len(bad); i++ {
				if bytes.HasPrefix(bad[i:], []byte(`{"type":`)) && json.Valid(bad[i:]) && normalizerstest.Member[string](normalizerstest.Parse(bad[i:]), "id") != "" {
					bad = bad[:i]
				}
			}
			out = append(out, normalizerstest.Line{Number: at(rest), Data: bytes.TrimSpace(bad), Bad: true})
			rest = rest[len(bad):]
			continue
		}
		out = append(out, normalizerstest.Line{Number: at(rest), Data: v})
		rest = rest[dec.InputOffset():]
	}
}

// What lines of plain text look like.
var (
	MarkerLine      = regexp.MustCompile(`^\[copilot-session\] ([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})\s*$`)
	copilotExitLine = regexp.MustCompile(`^<((?:shellId|command with id): [^<>]* )?(completed|exited) with exit code (-?[0-9]+)>$`)
	Colors          = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b\\][^\x1b\x07]*(\x1b\\\\|\x07)")
)

// interpret reads a file by the rules of README.md.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures), Trimmed: slices.ContainsFunc(lines, func(l normalizerstest.Line) bool {
		return bytes.Contains(l.Data, []byte(`"id":"[trimmed for fixture]"`))
	})}
	// Only lines of plain text have their ends; one without is the whole file.
	plain := len(lines) > 0 && !lines[0].Bad && (bytes.HasSuffix(lines[0].Data, []byte("\n")) ||
		len(lines) == 1 && bytes.TrimPrefix(lines[0].Data, []byte("\xef\xbb\xbf"))[0] != '{')
	own := func(l normalizerstest.Line) string {
		if plain {
			if m := MarkerLine.FindSubmatch(l.Data); m != nil {
				return string(m[1])
			}
			return ""
		}
		v := normalizerstest.Parse(l.Data)
		if id := normalizerstest.Member[string](v, "sessionId"); id != "" {
			return id
		}
		if normalizerstest.Member[string](v, "type") == "session.start" {
			return normalizerstest.Member[string](v, "data", "sessionId")
		}
		return ""
	}
	last, stem := "", strings.TrimSuffix(path.Base(name), path.Ext(name))
	readers := make(map[string]*copilotReader)
	var order []*copilotReader
	for i, l := range lines {
		if id := own(l); id != "" {
			last = id
		}
		if last == "" { // the first that follows, else the name of the file
			last = stem
			for _, next := range lines[i:] {
				if id := own(next); id != "" {
					last = id
					break
				}
			}
		}
		a.Sessions = append(a.Sessions, last)
		r := readers[last]
		if r == nil {
			r = &copilotReader{out: &a, session: last, emitted: make(map[string]string), names: make(map[string]string), started: make(map[string]bool)}
			readers[last] = r
			order = append(order, r)
		}
		thread := normalizerstest.RawThread{}
		switch {
		case l.Bad:
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
	return a
}

// copilotReader follows one session of a file.
type copilotReader struct {
	out     *normalizerstest.Account
	session string
	emitted map[string]string // ids with their contents
	names   map[string]string // of tools, by call
	started map[string]bool   // calls that an execution has stated, and no message yet

	open      string // text that is being joined
	openID    string // messageId and agent of it
	paragraph string
	number    int
}

// first reports whether no event of this id has had this content before.
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
	if timeline, ok := normalizerstest.Member[any](v, "timeline").([]any); ok && normalizerstest.Member[string](v, "type") == "" {
		for _, e := range timeline {
			r.entry(l.Number, e)
		}
		return normalizerstest.RawThread{}
	}
	kind, id, d := normalizerstest.Member[string](v, "type"), normalizerstest.Member[string](v, "id"), normalizerstest.Member[any](v, "data")
	agent := normalizerstest.Member[string](v, "agentId")
	if agent == "" {
		agent = normalizerstest.Member[string](d, "parentToolCallId")
	}
	if agent == "" && strings.HasPrefix(kind, "subagent.") {
		agent = normalizerstest.Member[string](d, "toolCallId")
	}
	thread := normalizerstest.RawThread{Agent: agent, Internal: agent != ""}
	content := normalizerstest.Member[string](d, "content")
	key := ""
	if kind == "assistant.message" && normalizerstest.Member[string](d, "messageId") != "" {
		key = normalizerstest.Member[string](d, "messageId") + "\x00" + agent
	}
	// What is not known ends nothing.
	isUnknown := kind == "" || strings.HasSuffix(kind, "of_tomorrow") || strings.HasPrefix(kind, "hologram.")
	if r.openID != "" && r.openID != key && !isUnknown {
		r.utter("assistant", "", r.open, r.number)
		r.open, r.openID = "", ""
	}
	switch kind {
	case "user.message":
		source := normalizerstest.Member[string](d, "source")
		switch {
		case normalizerstest.Member[bool](d, "isAutopilotContinuation"), strings.HasPrefix(strings.TrimSpace(content), "<system_notification>"), skillContext.MatchString(content):
		case strings.HasPrefix(source, "agent-"), agent != "" && (source == "" || source == "user"):
			if strings.TrimSpace(content) == "" && len(normalizerstest.Member[[]any](d, "attachments")) > 0 && r.first(id, "agent") {
				r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: "agent", Line: l.Number})
			}
			r.utter("agent", id, content, l.Number)
			if agent == "" && (strings.TrimSpace(content) != "" || len(normalizerstest.Member[[]any](d, "attachments")) > 0) {
				thread.Internal = true
			}
		case source == "" || source == "user":
			if strings.TrimSpace(content) == "" && len(normalizerstest.Member[[]any](d, "attachments")) > 0 && r.first(id, "human") {
				r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: "human", Line: l.Number})
			}
			r.utter("human", id, content, l.Number)
		}
	case "assistant.message":
		index, _ := normalizerstest.Member[json.Number](d, "chunkIndex").Int64()
		count, _ := normalizerstest.Member[json.Number](d, "chunkCount").Int64()
		body := r.open + content
		if key != "" && count > index+1 {
			r.open, r.openID, r.number = body, key, l.Number
		} else {
			r.open, r.openID = "", ""
			r.utter("assistant", id, body, l.Number)
		}
		for _, q := range normalizerstest.Member[[]any](d, "toolRequests") {
			call := normalizerstest.Member[string](q, "toolCallId")
			if r.started[call] {
				delete(r.started, call)
				continue
			}
			r.call(l.Number, call, normalizerstest.Member[string](q, "name"), normalizerstest.Member[any](q, "arguments"))
		}
	case "tool.execution_start":
		call := normalizerstest.Member[string](d, "toolCallId")
		if _, ok := r.names[call]; !ok {
			r.call(l.Number, call, normalizerstest.Member[string](d, "toolName"), normalizerstest.Member[any](d, "arguments"))
			r.started[call] = true
		}
	case "tool.execution_complete":
		body := normalizerstest.Member[string](d, "result", "content")
		if s := normalizerstest.Member[string](d, "result"); s != "" {
			body = s
		}
		if body == "" {
			body = normalizerstest.Member[string](d, "result", "detailedContent")
		}
		r.result(l.Number, normalizerstest.Member[string](d, "toolCallId"), body, normalizerstest.Member[json.Number](d, "shellExecution", "exitCode"), fmt.Sprint(normalizerstest.Member[any](d, "success"), normalizerstest.Member[any](d, "error")))
	}
	return thread
}

// call notes a call, once.
func (r *copilotReader) call(n int, id, name string, arguments any) {
	if _, again := r.emitted["call "+id]; r.first("call "+id, fmt.Sprint(name, arguments)) && !again {
		r.out.Calls = append(r.out.Calls, normalizerstest.ToolUse{Session: r.session, ID: id, Name: name, Line: n})
	}
	r.names[id] = name
}

// result notes a result, once, with the code that it states, or its last line.
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
		code, _ := strconv.ParseInt(m[3], 10, 64)
		w.Code, w.Form = &code, m[2]
	}
	r.out.Results = append(r.out.Results, w)
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

// skillContext is the beginning of a skill that the runtime reads out to the model.
var skillContext = regexp.MustCompile(`^\s*<skill-context[ >]`)

// ledger counts the tokens of every session (README.md, Tokens): the records
// of usage, else what the messages state, and the total of a session where it is more.
type ledger map[string]*copilotBill

type copilotBill struct {
	calls     map[string]normalizerstest.Figures // the figures emitted for each API call
	seen      map[string]bool                    // records of usage
	sum       normalizerstest.Figures
	reasoning int64 // stated so far
	emitted   int64 // of it
	recorded  bool
	last      int64
	model     string                             // of the main conversation
	models    map[string]normalizerstest.Figures // what was emitted of each model
}

// isModel reports whether a name is that of a model.
func isModel(name string) bool { return name != "" && !strings.EqualFold(name, "auto") }

// follow notes the model of the main conversation, and returns that of the record.
func (b *copilotBill) follow(v, d any) string {
	sub := normalizerstest.Member[string](v, "agentId") != "" || normalizerstest.Member[string](d, "parentToolCallId") != ""
	names := map[string]string{
		"session.start": "selectedModel", "session.resume": "selectedModel", "session.model_change": "newModel",
		"session.tools_updated": "model", "session.auto_mode_resolved": "chosenModel", "assistant.message": "model",
	}
	stated := normalizerstest.Member[string](d, names[normalizerstest.Member[string](v, "type")])
	if isModel(stated) && !sub {
		b.model = stated
	}
	switch own := normalizerstest.Member[string](d, "model"); {
	case isModel(own):
		return own
	case sub:
		return ""
	default:
		return b.model
	}
}

// spent adds to what was emitted of a model.
func (b *copilotBill) spent(model string, more normalizerstest.Figures) {
	if model != "" {
		sum := b.models[model]
		sum.Add(more)
		b.models[model] = sum
	}
}

// least and rest are, part by part, the lower of two and what one has above the other.
func least(f, g normalizerstest.Figures) normalizerstest.Figures {
	return normalizerstest.Figures{
		UsageInput: min(f.UsageInput, g.UsageInput), CacheRead: min(f.CacheRead, g.CacheRead), CacheWrite: min(f.CacheWrite, g.CacheWrite),
		Output: min(f.Output, g.Output), Thinking: min(f.Thinking, g.Thinking),
	}
}

func rest(f, g normalizerstest.Figures) normalizerstest.Figures {
	return normalizerstest.Figures{
		UsageInput: max(0, f.UsageInput-g.UsageInput), CacheRead: max(0, f.CacheRead-g.CacheRead), CacheWrite: max(0, f.CacheWrite-g.CacheWrite),
		Output: max(0, f.Output-g.Output), Thinking: max(0, f.Thinking-g.Thinking),
	}
}

// Add implements [normalizerstest.Ledger].
func (l ledger) Add(session string, record []byte) {
	b := l[session]
	if b == nil {
		b = &copilotBill{calls: make(map[string]normalizerstest.Figures), seen: make(map[string]bool), models: make(map[string]normalizerstest.Figures)}
		l[session] = b
	}
	v := normalizerstest.Parse(record)
	d := normalizerstest.Member[any](v, "data")
	number := func(v any, name string) int64 {
		n, _ := normalizerstest.Member[json.Number](v, name).Int64()
		return n
	}
	parts := func(v any) normalizerstest.Figures {
		f := normalizerstest.Figures{CacheRead: number(v, "cacheReadTokens"), CacheWrite: number(v, "cacheWriteTokens"), Output: number(v, "outputTokens"), Thinking: number(v, "reasoningTokens")}
		f.UsageInput = number(v, "inputTokens") - f.CacheRead - f.CacheWrite
		return f
	}
	first := func(names ...string) string {
		for _, n := range names {
			if n != "" {
				return n
			}
		}
		return ""
	}
	model := b.follow(v, d)
	switch kind := normalizerstest.Member[string](v, "type"); kind {
	case "assistant.message":
		key := first(normalizerstest.Member[string](d, "apiCallId"), normalizerstest.Member[string](d, "messageId"), normalizerstest.Member[string](v, "id"))
		more := number(d, "outputTokens") - b.calls[key].Output
		if b.recorded || more <= 0 {
			return
		}
		b.last = number(d, "outputTokens")
		if key != "" {
			f := b.calls[key]
			f.Output = b.last
			b.calls[key] = f
		}
		b.sum.Output += more
		b.sum.UsageOutput += more
		b.spent(model, normalizerstest.Figures{Output: more})
	case "session.usage_record", "assistant.usage":
		id := normalizerstest.Member[string](v, "id")
		again := id + "\x00" + string(record)
		if id != "" && b.seen[again] {
			return
		}
		b.seen[again] = true
		u := d
		if kind == "session.usage_record" {
			u = normalizerstest.Member[any](d, "usage")
		}
		now := parts(u)
		key := first(normalizerstest.Member[string](u, "apiCallId"), normalizerstest.Member[string](d, "apiCallId"), normalizerstest.Member[string](u, "accounting", "usageId"))
		was, known := b.calls[key]
		if known = known && key != ""; !known {
			was = normalizerstest.Figures{}
			if !b.recorded && b.last == now.Output {
				was.Output = b.last
			}
		}
		b.recorded = true
		if own := normalizerstest.Member[string](u, "model"); isModel(own) {
			model = own
		}
		b.grow(rest(now, was))
		b.spent(model, rest(now, was))
		if key != "" {
			b.calls[key] = normalizerstest.Figures{
				UsageInput: max(now.UsageInput, was.UsageInput), CacheRead: max(now.CacheRead, was.CacheRead), CacheWrite: max(now.CacheWrite, was.CacheWrite),
				Output: max(now.Output, was.Output), Thinking: max(now.Thinking, was.Thinking),
			}
		}
	case "session.shutdown":
		metrics := normalizerstest.Member[map[string]any](d, "modelMetrics")
		var total normalizerstest.Figures
		for _, m := range metrics {
			total.Add(parts(normalizerstest.Member[any](m, "usage")))
		}
		stated := b.sum
		stated.Thinking = b.reasoning
		left := rest(total, stated)
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			now := parts(normalizerstest.Member[any](metrics[name], "usage"))
			more := least(rest(now, b.models[name]), left)
			left = rest(left, more)
			b.grow(more)
			b.spent(name, more)
		}
	}
}

// grow adds to the sum. An event cannot carry more reasoning than output: what is left
// comes with the next one. tokens_thinking has all of it at once.
func (b *copilotBill) grow(more normalizerstest.Figures) {
	b.reasoning += more.Thinking
	reasoning := min(b.reasoning-b.emitted, more.Output)
	b.emitted += reasoning
	b.sum.UsageInput += more.UsageInput
	b.sum.CacheRead += more.CacheRead
	b.sum.CacheWrite += more.CacheWrite
	b.sum.Output += more.Output
	b.sum.UsageOutput += more.Output - reasoning
	b.sum.UsageReasoning += reasoning
	b.sum.Thinking += more.Thinking
	b.sum.Input += more.UsageInput + more.CacheRead + more.CacheWrite
	b.sum.Cached += more.CacheRead
}

// Sums implements [normalizerstest.Ledger].
func (l ledger) Sums(session string) normalizerstest.Figures {
	if l[session] == nil {
		return normalizerstest.Figures{}
	}
	sum := l[session].sum
	sum.Total = sum.Input + sum.Output
	return sum
}

// isRaw reports whether raw is what an event of a record may carry: an entry of a
// document, or a line of plain text as a string.
func isRaw(data, raw []byte) bool {
	timeline := normalizerstest.Member[[]any](normalizerstest.Parse(data), "timeline")
	if slices.ContainsFunc(timeline, func(e any) bool { return fmt.Sprint(e) == fmt.Sprint(normalizerstest.Parse(raw)) }) {
		return true
	}
	s, ok := normalizerstest.Parse(raw).(string)
	return ok && plainText(s) == plainText(string(data))
}

// plainText is a text without what is no UTF-8.
func plainText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\ufffd", "")
}
