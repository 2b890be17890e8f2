package cursortest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// This file reads Cursor's logs a second time, with nothing but encoding/json, for comparison with the events.

// read cuts a file of lines into records. A line that is not JSON is a record, too; only too deep nesting makes a
// line unreadable.
func read(data []byte) []normalizerstest.Line {
	var lines []normalizerstest.Line
	for i, l := range bytes.Split(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), []byte("\n")) {
		rest := bytes.Trim(l, " \t\r")
		for len(rest) > 0 {
			n := len(rest) // anything but an object or array takes the whole line
			if rest[0] == '{' || rest[0] == '[' {
				dec := json.NewDecoder(bytes.NewReader(rest))
				var v json.RawMessage
				if dec.Decode(&v) == nil {
					n = int(dec.InputOffset())
				}
			}
			lines = append(lines, normalizerstest.Line{Number: i + 1, Data: rest[:n], Bad: nesting(rest[:n]) > core.MaxDepth})
			rest = bytes.TrimLeft(rest[n:], " \t\r")
		}
	}
	return lines
}

// nesting returns the number of levels of brackets.
func nesting(data []byte) int {
	level, deepest := 0, 0
	for _, c := range data {
		switch c {
		case '{', '[':
			level++
			deepest = max(deepest, level)
		case '}', ']':
			level--
		}
	}
	return deepest
}

// cursorReader follows one session of a file.
type cursorReader struct {
	out     *normalizerstest.Account
	session string
	line    int
	records int // of the session
	events  int // of the record, without ids of their own
	chunks  []string
	partial bool   // marks say that all parts are deltas
	segment string // deltas since the last tool
	emitted map[string]bool

	form  form
	child bool              // the session is that of a subagent
	said  map[string]bool   // texts with the ids of rows
	tools map[string]string // names by the ids of calls
	open  []openCall        // of a transcript, for which rows may state results

	thoughts form // beside a transcript, whose they are
}

// interpret reads a file by the rules of the vendor, without code of the normalizer.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	return interpretIn(false, name, lines)
}

// interpretIn reads a file that lies among the transcripts of subagents, or does not.
func interpretIn(subagents bool, name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures), Sessions: normalizerstest.SessionsOf(name, lines, sessionOf)}
	readers := make(map[string]*cursorReader)
	var order []*cursorReader
	for i, l := range lines {
		session := a.Sessions[i]
		a.Threads = append(a.Threads, normalizerstest.RawThread{})
		r := readers[session]
		if r == nil {
			r = &cursorReader{out: &a, session: session, emitted: make(map[string]bool), said: make(map[string]bool), tools: make(map[string]string), child: subagents}
			readers[session] = r
			order = append(order, r)
		}
		if !l.Bad {
			r.line = l.Number
			r.records++
			r.events = 0
			r.read(l.Data)
		}
		if r.child && !l.Bad {
			a.Threads[i] = normalizerstest.RawThread{Agent: session, Internal: true}
		}
	}
	for _, r := range order {
		r.end()
	}
	return a
}

// prompts returns who writes the prompts of the session.
func (r *cursorReader) prompts() string {
	if r.child {
		return "agent"
	}
	return "human"
}

func (r *cursorReader) utter(who, text string) {
	if text = strings.TrimSpace(text); text != "" {
		r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: who, Text: text, Line: r.line})
	}
}

// end emits the last deltas.
func (r *cursorReader) end() {
	phrase := strings.Join(r.chunks, "")
	r.utter("assistant", phrase)
	switch {
	case r.chunks == nil:
	case r.partial:
		r.segment += phrase
	default:
		r.segment = ""
	}
	r.chunks = nil
}

func (r *cursorReader) read(data []byte) {
	v := normalizerstest.Parse(data)
	if !r.form.accepts(v, data) {
		return
	}
	if isKnownRow(v) {
		r.row(v)
		return
	}
	if !json.Valid(data) {
		if len(bytes.TrimSpace(data)) > 0 {
			r.end()
		}
		return
	}
	kind, subtype := normalizerstest.Member[string](v, "type"), normalizerstest.Member[string](v, "subtype")
	blocks := cursorContent(normalizerstest.Member[any](v, "message", "content"))
	_, messaged := normalizerstest.Member[any](v, "message").(map[string]any)
	only := messaged
	for _, b := range blocks {
		only = only && normalizerstest.Member[string](b, "type") == "text"
	}
	switch {
	case kind == "thinking":
		if normalizerstest.Member[string](v, "text") != "" {
			r.end()
		}
		return
	case kind == "assistant" && only:
		r.answer(v, blocks, len(data))
		return
	}
	if !cursorKnows(kind, messaged, normalizerstest.Member[string](v, "role")) {
		return
	}
	r.end()
	switch {
	case kind == "user" || kind == "assistant" || kind == "" && messaged && (normalizerstest.Member[string](v, "role") == "user" || normalizerstest.Member[string](v, "role") == "assistant"):
		r.segment = ""
		r.message(blocks, kind == "user" || normalizerstest.Member[string](v, "role") == "user")
	case kind == "system":
		r.segment = ""
	case kind == "tool_call" && subtype == "started":
		r.segment = ""
		r.started(normalizerstest.Member[any](v, "tool_call"), normalizerstest.Member[string](v, "call_id"))
	case kind == "tool_call" && subtype == "completed":
		r.completed(normalizerstest.Member[any](v, "tool_call"), normalizerstest.Member[string](v, "call_id"))
	case kind == "result":
		r.segment = ""
		sum := r.out.Naive[r.session]
		sum.Add(cursorFigures(v))
		r.out.Naive[r.session] = sum
	}
}

// cursorKnows reports whether the type of a record is known.
func cursorKnows(kind string, messaged bool, role string) bool {
	known := []string{"user", "assistant", "system", "tool_call", "result", "turn_ended", "error", "interaction_query", "connection", "retry"}
	return slices.Contains(known, kind) || kind == "" && messaged && (role == "user" || role == "assistant")
}

// cursorContent returns the blocks of content; a text alone is one block.
func cursorContent(v any) []any {
	if s, ok := v.(string); ok {
		return []any{map[string]any{"type": "text", "text": s}}
	}
	list, _ := v.([]any)
	for i := range list {
		if s, ok := list[i].(string); ok {
			list[i] = map[string]any{"type": "text", "text": s}
		}
	}
	return list
}

// answer reads a delta of an answer, or the full text that repeats the deltas.
func (r *cursorReader) answer(v any, blocks []any, size int) {
	var texts []string
	for _, b := range blocks {
		texts = append(texts, normalizerstest.Member[string](b, "text"))
	}
	phrase := strings.Join(texts, "")
	if phrase == "" {
		return
	}
	call := normalizerstest.Member[string](v, "model_call_id")
	_, timed := normalizerstest.Member[any](v, "timestamp_ms").(json.Number)
	delta := timed && call == ""
	pending := strings.Join(r.chunks, "")
	if rest, ok := strings.CutPrefix(phrase, r.segment); ok {
		again := len(r.chunks) > 1 && rest == pending && len(pending) >= 16
		if !delta && (r.chunks != nil && r.partial || r.chunks == nil && r.segment != "") {
			again = strings.HasPrefix(rest, pending)
		}
		if again {
			r.chunks, r.segment = nil, ""
			r.utter("assistant", rest)
			return
		}
	}
	r.partial = delta && (r.partial || r.chunks == nil)
	r.chunks = append(r.chunks, phrase)
	if call != "" || size > 4096 { // no delta, but the whole text
		r.end()
		r.segment = ""
	}
}

// message reads a prompt, or a message of a transcript.
func (r *cursorReader) message(blocks []any, human bool) {
	var phrase []string
	for _, b := range blocks {
		if normalizerstest.Member[string](b, "type") == "text" {
			phrase = append(phrase, normalizerstest.Member[string](b, "text"))
		}
	}
	hasText := false
	for _, b := range blocks {
		switch normalizerstest.Member[string](b, "type") {
		case "text":
			text := strings.Join(phrase, "\n")
			if hasText {
				break
			}
			hasText = true
			if strings.TrimSpace(text) == "" {
				break
			}
			r.events++
			if !human {
				r.utter("assistant", text)
			} else if text, ok := cursorTyped(text); ok {
				r.utter(r.prompts(), text)
			}
		case "image":
			if human && !hasText && strings.TrimSpace(strings.Join(phrase, "")) == "" {
				r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: r.prompts(), Text: "", Line: r.line})
				r.events++
				hasText = true
			}
		case "thinking":
			if strings.TrimSpace(normalizerstest.Member[string](b, "thinking")+normalizerstest.Member[string](b, "text")) == "" {
				break
			}
			if r.form == "transcript" && r.thoughts == "" {
				r.thoughts = r.form
			}
			if r.form != "transcript" || r.thoughts == r.form {
				r.events++
			}
		case "tool_use":
			id := normalizerstest.Member[string](b, "id")
			if id == "" {
				id = r.placeID()
			}
			name := normalizerstest.Member[string](b, "name")
			if input := normalizerstest.Member[any](b, "input"); r.form == "transcript" && !r.emitted["call "+id] {
				text, _ := input.(string)
				r.open = append(r.open, openCall{id, name, sameArguments(input, text, name)})
			}
			r.call(id, name)
		case "tool_result":
			r.result(normalizerstest.Member[string](b, "tool_use_id"), nil)
		}
	}
}

// placeID returns an id for an event that has none.
func (r *cursorReader) placeID() string {
	id := "@" + strconv.Itoa(r.records)
	if r.events > 0 {
		id += "." + strconv.Itoa(r.events)
	}
	r.events++
	return id
}

// notice matches a message that Cursor wrote by itself.
var notice = regexp.MustCompile(`(?s)^\s*(?:(?:<timestamp>.*?</timestamp>|<user_info>.*?</user_info>|<attached_files>.*?</attached_files>|` +
	`<system_reminder>.*?</system_reminder>)\s*)*<system_notification(?: [^<]*)?>.*</system_notification>`)

// taskEnded matches what Cursor asks for, alone, when a task has ended.
var taskEnded = regexp.MustCompile(`^Briefly inform the user about the task result ` +
	`and perform any follow-up actions \(if needed\)\.(?: If there's no follow-ups needed, don't explicitly say that\.)?$`)

// cursorTyped returns what a human typed, in the wrappings of the generator and the golden files.
func cursorTyped(s string) (string, bool) {
	if notice.MatchString(s) {
		return "", false
	}
	if parts := strings.Split(s, "<user_query>"); len(parts) > 1 {
		var typed []string
		for _, p := range parts[1:] {
			p, _, _ = strings.Cut(p, "</user_query>")
			typed = append(typed, strings.TrimSpace(p))
		}
		text := strings.TrimSpace(strings.Join(typed, "\n"))
		return text, text != "" && (len(typed) > 1 || !taskEnded.MatchString(text))
	}
	cut := false
	for again := true; again; {
		again = false
		for _, name := range []string{"timestamp", "system_reminder", "attached_files", "user_info"} {
			trimmed := strings.TrimSpace(s)
			if _, after, ok := strings.Cut(trimmed, "</"+name+">"); ok && strings.HasPrefix(trimmed, "<"+name+">") {
				s, cut, again = after, true, true
			}
		}
	}
	return s, !cut || strings.TrimSpace(s) != ""
}

// cursorKey returns the tool of a tool_call: its name and its body.
func cursorKey(v any) (name string, body any) {
	object, _ := v.(map[string]any)
	for key, b := range object {
		kind, ok := strings.CutSuffix(key, "ToolCall")
		switch {
		case ok && kind == "updateTodos":
			return "todo", b
		case ok:
			return strings.ToLower(kind), b
		case key == "function":
			return normalizerstest.Member[string](b, "name"), b
		case key == "tool":
			return cursorKey(map[string]any{normalizerstest.Member[string](b, "case"): normalizerstest.Member[any](b, "value")})
		}
	}
	return "", nil
}

func cursorID(v, body any, id string) string {
	for _, other := range []string{normalizerstest.Member[string](v, "toolCallId"), normalizerstest.Member[string](body, "args", "toolCallId")} {
		if id == "" {
			id = other
		}
	}
	return id
}

func (r *cursorReader) started(v any, id string) {
	name, body := cursorKey(v)
	if id = cursorID(v, body, id); id == "" {
		id = r.placeID()
	}
	r.call(id, name)
}

func (r *cursorReader) call(id, name string) {
	if !r.emitted["call "+id] {
		r.out.Calls = append(r.out.Calls, normalizerstest.ToolUse{Session: r.session, ID: id, Name: name, Line: r.line})
	}
	r.emitted["call "+id] = true
}

func (r *cursorReader) completed(v any, id string) {
	_, body := cursorKey(v)
	var code *int64
	outcomes, _ := normalizerstest.Member[any](body, "result").(map[string]any)
	for _, o := range outcomes {
		if n, ok := normalizerstest.Member[any](o, "exitCode").(json.Number); ok {
			if i, err := n.Int64(); err == nil {
				code = &i
			}
		}
	}
	r.result(cursorID(v, body, id), code)
}

// result emits a result of a call, once per id.
func (r *cursorReader) result(id string, code *int64) {
	if id != "" && r.emitted["result "+id] {
		return
	}
	r.emitted["result "+id] = true
	o := normalizerstest.ToolOutcome{Session: r.session, ID: id, Code: code, Line: r.line}
	if code != nil {
		o.Form = "exitCode"
	}
	r.out.Results = append(r.out.Results, o)
}

// cursorFigures returns the figures of a result, unchanged.
func cursorFigures(v any) normalizerstest.Figures {
	number := func(name string) int64 { return normalizerstest.Count(v, "usage", name) }
	f := normalizerstest.Figures{
		Input: number("inputTokens"), Output: number("outputTokens"), Cached: number("cacheReadTokens"),
		CacheRead: number("cacheReadTokens"), CacheWrite: number("cacheWriteTokens"),
	}
	f.UsageInput, f.UsageOutput = f.Input, f.Output
	f.Total = f.Input + f.Output + f.CacheRead + f.CacheWrite
	return f
}

// ledger has the figures of each run of a session, and of each message of a database. A repeated result is the same run.
type ledger struct {
	runs  map[string]map[string]normalizerstest.Figures
	forms map[string]*form
	dates map[string]int64 // of the last dated record of the run, in milliseconds; 0 for none
}

func newLedger() normalizerstest.Ledger {
	return &ledger{make(map[string]map[string]normalizerstest.Figures), make(map[string]*form), make(map[string]int64)}
}

// april2026 is when the input of a run began to be stated without what the cache has.
const april2026 = 1_775_001_600_000

// date follows the date of the run.
func (l *ledger) date(session string, v any) {
	text := func(name string) string { return normalizerstest.Member[string](v, name) }
	kind, subtype := text("type"), text("subtype")
	_, messaged := normalizerstest.Member[any](v, "message").(map[string]any)
	if kind != "thinking" && !cursorKnows(kind, messaged, text("role")) {
		return
	}
	if ms, err := normalizerstest.Member[json.Number](v, "timestamp_ms").Float64(); err == nil && ms > 0 {
		l.dates[session] = int64(ms)
	} else if kind == "system" && (subtype == "" || subtype == "init") {
		delete(l.dates, session)
	}
}

// runFigures returns the figures of a run, whose input has the cache in it if the run is old enough.
func (l *ledger) runFigures(session string, v any) normalizerstest.Figures {
	f := cursorFigures(v)
	cached := f.CacheRead + f.CacheWrite
	if date := l.dates[session]; date > 0 && date < april2026 && cached <= f.Input {
		f.Input, f.UsageInput, f.Total = f.Input-cached, f.UsageInput-cached, f.Total-cached
	}
	return f
}

// Add implements [normalizerstest.Ledger].
func (l *ledger) Add(session string, record []byte) {
	v := normalizerstest.Parse(record)
	if l.forms[session] == nil {
		l.forms[session], l.runs[session] = new(form), make(map[string]normalizerstest.Figures)
	}
	runs := l.runs[session]
	if !l.forms[session].accepts(v, record) {
		return
	}
	if isKnownRow(v) {
		for id, f := range rowFigures(v) {
			runs[id] = higher(runs[id], f)
		}
		return
	}
	if !json.Valid(record) {
		return
	}
	l.date(session, v)
	if normalizerstest.Member[string](v, "type") != "result" {
		return
	}
	id := normalizerstest.Member[string](v, "request_id")
	if id == "" {
		id = fmt.Sprint("@", len(runs))
	}
	runs[id] = higher(runs[id], l.runFigures(session, v))
}

// higher returns the higher figures of two statements.
func higher(a, b normalizerstest.Figures) normalizerstest.Figures {
	f := normalizerstest.Figures{
		Input: max(a.Input, b.Input), Output: max(a.Output, b.Output), Cached: max(a.Cached, b.Cached), CacheWrite: max(a.CacheWrite, b.CacheWrite),
	}
	f.UsageInput, f.UsageOutput, f.CacheRead = f.Input, f.Output, f.Cached
	f.Total = f.Input + f.Output + f.CacheRead + f.CacheWrite
	f.Cost = max(a.Cost, b.Cost)
	return f
}

// Sums implements [normalizerstest.Ledger].
func (l *ledger) Sums(session string) normalizerstest.Figures {
	var sum normalizerstest.Figures
	for _, f := range l.runs[session] {
		sum.Add(f)
	}
	return sum
}
