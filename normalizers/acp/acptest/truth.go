package acptest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads records of ACP a second time, with nothing but encoding/json, for comparison with the events.

// ledger is empty: ACP states no tokens.
type ledger struct{}

// Add implements [normalizerstest.Ledger].
func (ledger) Add(string, []byte) {}

// Sums implements [normalizerstest.Ledger].
func (ledger) Sums(string) normalizerstest.Figures { return normalizerstest.Figures{} }

// acpReader follows one session of a file.
type acpReader struct {
	out     *normalizerstest.Account
	session string
	records int // readable ones

	run, agent string
	next       map[string]int      // current message of the stream of each run
	streamed   map[string][]string // texts of the streamed messages of each run
	emitted    map[string][]string // emitted contents, by id
	last       map[string]string   // the last stated form of each run
	asked      map[string]string   // what each run awaits an answer to
	utterances []*acpUtterance
	open       *acpMessageOpen

	line     int
	speakers []string // of the events of the record
	events   int      // of the record, without ids of their own
}

// acpUtterance is an emitted message and what identifies its repetition.
type acpUtterance struct {
	text, time string
	by         string // request or run; empty once a history has repeated it
}

// acpMessageOpen is an unfinished message of a stream.
type acpMessageOpen struct {
	role, time string
	parts      []any
	announced  int // parts at its beginning
	repeated   int // how many of them have come by themselves since
	record     int
}

// add adds a part to the message, unless it repeats one of its beginning.
func (o *acpMessageOpen) add(part any, record int) {
	o.record = record
	if o.repeated < o.announced && reflect.DeepEqual(o.parts[o.repeated], part) {
		o.repeated++
		return
	}
	o.announced = 0 // later parts are new
	o.parts = append(o.parts, part)
}

// complete takes the parts of the whole message.
func (o *acpMessageOpen) complete(m any, record int) {
	o.role, o.record = acpRole(m), record
	o.time = cmp.Or(normalizerstest.Member[string](m, "created_at"), o.time, normalizerstest.Member[string](m, "completed_at"))
}

// interpret reads a file by the rules of the vendor, without code of the normalizer.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures), Sessions: normalizerstest.SessionsOf(name, lines, func(v any) string {
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
		}
		if normalizerstest.Member[map[string]any](v, "await_resume") != nil {
			return normalizerstest.Member[string](v, "session_id")
		}
		return cmp.Or(
			normalizerstest.Member[string](v, "run", "session_id"), normalizerstest.Member[string](v, "session_id"),
			normalizerstest.Member[string](v, "run", "run_id"), normalizerstest.Member[string](v, "run_id"))
	})}
	readers := make(map[string]*acpReader)
	var order []*acpReader
	for i, l := range lines {
		session := a.Sessions[i]
		r := readers[session]
		if r == nil {
			r = &acpReader{
				out: &a, session: session, next: make(map[string]int), streamed: make(map[string][]string), emitted: make(map[string][]string),
				last: make(map[string]string), asked: make(map[string]string),
			}
			readers[session] = r
			order = append(order, r)
		}
		r.line, r.speakers, r.events = l.Number, nil, 0
		if !l.Bad {
			r.records++
			r.read(normalizerstest.Parse(l.Data))
		}
		a.Threads = append(a.Threads, normalizerstest.RawThread{})
		a.Speakers = append(a.Speakers, r.speakers)
	}
	for _, r := range order {
		r.flush()
	}
	return a
}

// read reads a record.
func (r *acpReader) read(v any) {
	if kind := normalizerstest.Member[string](v, "type"); kind != "" {
		r.event(v, kind)
		return
	}
	r.document(v)
}

// event reads an event of a run's stream.
func (r *acpReader) event(v any, kind string) {
	run := normalizerstest.Member[map[string]any](v, "run")
	message := normalizerstest.Member[map[string]any](v, "message")
	part := normalizerstest.Member[map[string]any](v, "part")
	switch {
	case strings.HasPrefix(kind, "run.") && run != nil:
		r.stated(run, strings.TrimPrefix(kind, "run."))
	case kind == "message.created" && message != nil:
		r.flush()
		announced := normalizerstest.Member[[]any](message, "parts")
		r.open = &acpMessageOpen{acpRole(message), normalizerstest.Member[string](message, "created_at"), slices.Clone(announced), len(announced), 0, r.records}
	case kind == "message.part" && part != nil:
		if r.open == nil {
			r.open = &acpMessageOpen{role: "agent"}
		}
		r.open.add(part, r.records)
	case kind == "message.completed" && message != nil:
		if r.open == nil {
			r.open = &acpMessageOpen{}
		}
		if all := normalizerstest.Member[[]any](message, "parts"); len(all) > 0 {
			r.open.parts = all
		}
		r.open.complete(message, r.records)
		r.close()
	case kind == "error":
		r.flush()
		r.put("", false)
	default:
		r.put("", false)
	}
}

// document reads a record that is not an event: a message, an answer, a request, a run, or a list of messages or
// runs.
func (r *acpReader) document(v any) {
	m, _ := v.(map[string]any)
	parts, isMessage := m["parts"].([]any)
	input, isRequest := m["input"].([]any)
	answer := normalizerstest.Member[map[string]any](v, "await_resume", "message")
	list, _ := v.([]any)
	switch {
	case isMessage:
		r.flush()
		if u := acpUtteranceOf(v, acpRole(v)); !r.repeats(u, "") {
			r.emit(parts, acpRole(v), "", false)
			r.utterances = append(r.utterances, u)
		}
	case answer != nil:
		r.flush()
		r.utter(answer, "user", "request")
	case isRequest:
		r.flush()
		r.agent = normalizerstest.Member[string](v, "agent_name")
		r.list(input, true)
	case len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool { return normalizerstest.Member[[]any](e, "parts") == nil }):
		r.flush()
		r.list(list, false)
	case slices.ContainsFunc(list, func(e any) bool { return normalizerstest.Member[string](e, "run_id") != "" }):
		for _, e := range list {
			r.read(e)
		}
	case normalizerstest.Member[string](v, "run_id") != "" || normalizerstest.Member[string](v, "agent_name") != "":
		r.stated(m, normalizerstest.Member[string](v, "status"))
	default:
		r.put("", false)
	}
}

// utter notes a message of by, a request or a run, and emits it.
func (r *acpReader) utter(m any, role, by string) {
	u := acpUtteranceOf(m, role)
	u.by = by
	r.utterances = append(r.utterances, u)
	r.emit(normalizerstest.Member[[]any](m, "parts"), role, "", false)
}

func acpRole(m any) string {
	if role := normalizerstest.Member[string](m, "role"); role != "" {
		return role
	}
	return "user"
}

// acpUtteranceOf returns the texts of a message, adjacent ones joined.
func acpUtteranceOf(m any, role string) *acpUtterance {
	speaker, _, _ := strings.Cut(role, "/")
	text, sep := speaker, "|"
	parts, _ := normalizerstest.Member[any](m, "parts").([]any)
	for _, p := range parts {
		plain := normalizerstest.Member[any](p, "metadata") == nil && normalizerstest.Member[any](p, "name") == nil && acpIsText(p)
		if !plain || sep != "" {
			text += "|"
		}
		if sep = ""; plain {
			text += acpText(p)
			continue
		}
		b, _ := json.Marshal(p)
		text, sep = text+string(b), "|"
	}
	at := normalizerstest.Member[string](m, "created_at")
	if at == "" {
		at = normalizerstest.Member[string](m, "completed_at")
	}
	return &acpUtterance{text: text, time: at}
}

// repeats reports whether a message was emitted before, so that its speaker is known now.
func (r *acpReader) repeats(u *acpUtterance, by string) bool {
	for _, o := range r.utterances {
		if u.text != o.text || u.time != "" && o.time != "" && u.time != o.time {
			continue
		}
		if by == "" && u.time != "" && o.time == u.time || o.by == "request" && by != "request" || o.by == "run" && by == "" {
			o.by = by
			if o.time == "" {
				o.time = u.time
			}
			return true
		}
	}
	return false
}

// list reads messages that may repeat others, except the last one of a request.
func (r *acpReader) list(messages []any, request bool) {
	before := slices.Clone(r.utterances)
	for i, m := range messages {
		u := acpUtteranceOf(m, acpRole(m))
		at := slices.IndexFunc(before, func(o *acpUtterance) bool {
			return o.text == u.text && (u.time == "" || o.time == "" || u.time == o.time)
		})
		if at >= 0 && !(request && i == len(messages)-1) {
			before = slices.Delete(before, at, at+1)
			continue
		}
		if request {
			u.by = "request"
		}
		r.utterances = append(r.utterances, u)
		parts, _ := normalizerstest.Member[any](m, "parts").([]any)
		r.emit(parts, acpRole(m), "", false)
	}
}

// stated reads a run: the messages of its output, and its question.
func (r *acpReader) stated(run map[string]any, status string) {
	id, output := normalizerstest.Member[string](run, "run_id"), normalizerstest.Member[[]any](run, "output")
	if id != r.run {
		r.flush()
		r.run = id
	}
	r.agent = normalizerstest.Member[string](run, "agent_name")
	is, _ := json.Marshal(run)
	if id != "" && r.last[id] == string(is) {
		return
	}
	r.last[id] = string(is)
	if len(output) > 0 {
		r.completeOpen(output[len(output)-1])
	}
	r.flush()
	r.output(id, output)
	r.put("", false)
	asked := normalizerstest.Member[map[string]any](run, "await_request", "message")
	if status != "awaiting" || asked == nil {
		delete(r.asked, id)
		return
	}
	r.question(id, asked)
}

// completeOpen takes the last message of a run's output as the open message of its stream if both begin with the same
// parts.
func (r *acpReader) completeOpen(m any) {
	if r.open == nil {
		return
	}
	parts := normalizerstest.Member[[]any](m, "parts")
	if n := len(r.open.parts); n <= len(parts) && reflect.DeepEqual(r.open.parts, parts[:n:n]) || n == 0 {
		r.open.parts = parts
		r.open.complete(m, r.records)
	}
}

// output reads the messages of a run's output that its stream did not have.
func (r *acpReader) output(id string, output []any) {
	var text []string
	for _, m := range output {
		text = append(text, acpUtteranceOf(m, acpRole(m)).text)
	}
	left, first := slices.Clone(r.streamed[id]), r.next[id]-len(r.streamed[id])
	for i, m := range output {
		if at := slices.Index(left, text[i]); at >= 0 {
			left = slices.Delete(left, at, at+1)
			continue
		}
		key := id + ":" + strconv.Itoa(i)
		if i >= first && i < r.next[id] && slices.Contains(text, r.streamed[id][i-first]) || id == "" {
			key = "" // another message has taken the id
		}
		r.message(m, key)
	}
	if len(output) > r.next[id] && id != "" {
		r.next[id], r.streamed[id] = len(output), nil
	}
}

// question reads the message that asks for an answer, once.
func (r *acpReader) question(id string, asked map[string]any) {
	question, _ := json.Marshal(asked["parts"])
	if r.asked[id] == string(question) && id != "" {
		return
	}
	r.asked[id] = string(question)
	role := acpRole(asked)
	if role == "user" {
		role = "agent"
	}
	r.utter(asked, role, "run")
}

// message reads a message of a run. Its place in the run identifies it.
func (r *acpReader) message(m any, key string) {
	parts, _ := normalizerstest.Member[any](m, "parts").([]any)
	u := acpUtteranceOf(m, acpRole(m))
	if _, emitted := r.emitted[key]; key != "" && emitted {
		r.emit(parts, acpRole(m), key, false)
		return
	}
	if acpRole(m) == "user" && r.repeats(u, "run") {
		return
	}
	u.by = "run"
	r.utterances = append(r.utterances, u)
	r.emit(parts, acpRole(m), key, false)
}

// flush emits an uncompleted message of the stream.
func (r *acpReader) flush() {
	if r.open != nil {
		r.close()
	}
}

// close emits the message of the stream.
func (r *acpReader) close() {
	o, key := r.open, ""
	r.open = nil
	m := map[string]any{"role": o.role, "parts": o.parts, "created_at": o.time}
	u := acpUtteranceOf(m, o.role)
	if r.run != "" {
		key = r.run + ":" + strconv.Itoa(r.next[r.run])
		r.next[r.run]++
		r.streamed[r.run] = append(r.streamed[r.run], u.text)
	}
	if len(o.parts) == 0 {
		return
	}
	if o.role == "user" && r.repeats(u, "run") {
		return
	}
	u.by = "run"
	r.utterances = append(r.utterances, u)
	pending := o.record != r.records
	records, events := r.records, r.events
	if pending {
		r.records, r.events = o.record, 0
	}
	r.emit(o.parts, o.role, key, pending)
	if pending {
		r.records, r.events = records, events
	}
}

// put counts an event of the record. It returns an id for an event without one.
func (r *acpReader) put(agent string, pending bool) string {
	id := "@" + strconv.Itoa(r.records)
	if r.events > 0 {
		id += "." + strconv.Itoa(r.events)
	}
	r.events++
	if !pending {
		r.speakers = append(r.speakers, agent)
	}
	return id
}

// acpIsText reports whether the content of a part is text.
func acpIsText(p any) bool {
	kind := normalizerstest.Member[string](p, "content_type")
	return normalizerstest.Member[any](p, "content") != nil && (kind == "" || strings.HasPrefix(kind, "text/"))
}

// acpText returns the text of a part, empty if it has none.
func acpText(p any) string {
	content := normalizerstest.Member[string](p, "content")
	if !acpIsText(p) {
		return ""
	}
	if normalizerstest.Member[string](p, "content_encoding") == "base64" {
		if b, err := base64.StdEncoding.DecodeString(content); err == nil {
			return string(b)
		}
	}
	return content
}

// acpEmission emits the contents of one message, each once for its id.
type acpEmission struct {
	*acpReader

	key        string // id of the message; empty for none
	pending    bool   // the message is of an earlier record
	who, agent string
	count      int // number of its events, including those emitted before
}

// emit notes the contents of a message.
func (r *acpReader) emit(parts []any, role, key string, pending bool) {
	m := acpEmission{acpReader: r, key: key, pending: pending, who: "assistant", agent: r.agent}
	if name, ok := strings.CutPrefix(role, "agent/"); ok {
		m.agent = name
	} else if role == "user" {
		m.who, m.agent = "human", ""
	}
	first, text := acpSpeech(parts)
	metadata := acpMetadata(parts)
	for i, p := range parts {
		suffix := m.step(i, normalizerstest.Member[map[string]any](p, "metadata"))
		if i == first && m.emitOnce(i, suffix, m.who+text+fmt.Sprint(metadata)) {
			r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: m.who, Text: strings.TrimSpace(text), Line: r.line})
		}
		if normalizerstest.Member[any](p, "name") != nil {
			m.emitOnce(i, suffix, fmt.Sprint("file", p))
		}
	}
	if m.count == 0 && len(metadata) > 0 {
		m.emitOnce(0, "", "metadata")
	}
}

// acpSpeech returns the text of a message and the part at which it is emitted: the first part with text, else the
// first with other content; -1 if there is neither.
func acpSpeech(parts []any) (first int, text string) {
	var texts strings.Builder
	first = -1
	for i, p := range parts {
		if normalizerstest.Member[any](p, "name") == nil && acpText(p) != "" {
			texts.WriteString(acpText(p))
			if first < 0 {
				first = i
			}
		}
	}
	if strings.TrimSpace(texts.String()) != "" {
		return first, texts.String()
	}
	return slices.IndexFunc(parts, func(p any) bool {
		kind := normalizerstest.Member[string](p, "content_type")
		return normalizerstest.Member[any](p, "name") == nil && (normalizerstest.Member[any](p, "content_url") != nil || normalizerstest.Member[any](p, "content") != nil && kind != "" && !strings.HasPrefix(kind, "text/"))
	}), ""
}

// acpMetadata is the metadata of all parts that have any.
func acpMetadata(parts []any) []any {
	var out []any
	for _, p := range parts {
		if m := normalizerstest.Member[any](p, "metadata"); m != nil {
			out = append(out, m)
		}
	}
	return out
}

// once reports whether an event of the message is new, and whether it supersedes another event with its id. It counts
// the event in any case.
func (m *acpEmission) once(part int, suffix, content string) (emitted, supersedes bool) {
	m.count++
	if m.key == "" {
		return true, false
	}
	m.emitted[m.key] = nil // the message as a whole
	id := fmt.Sprintf("%s:%d%s", m.key, part, suffix)
	before := m.emitted[id]
	if slices.Contains(before, content) {
		return false, false
	}
	m.emitted[id] = append(before, content)
	return true, before != nil
}

// emitOnce emits an event of a part if it is new, and reports whether it is.
func (m *acpEmission) emitOnce(part int, suffix, content string) bool {
	emitted, _ := m.once(part, suffix, content)
	if emitted {
		m.putEvent()
	}
	return emitted
}

// putEvent counts an event. It returns an id for an event of a message without one.
func (m *acpEmission) putEvent() string {
	if m.key == "" {
		return m.put(m.agent, m.pending)
	}
	if !m.pending {
		m.speakers = append(m.speakers, m.agent)
	}
	return ""
}

// stepEvent emits an event of a trajectory. It returns the id of the part, and whether the event is the first with
// that id.
func (m *acpEmission) stepEvent(part int, suffix, content string) (id string, first bool) {
	id = fmt.Sprintf("%s:%d", m.key, part)
	emitted, supersedes := m.once(part, suffix, content)
	if emitted {
		id = cmp.Or(m.putEvent(), id)
	}
	return id, emitted && !supersedes
}

// step reads the trajectory of a part. It returns the suffix for the ids of other contents of the part, not empty if
// the step has the id of the part.
func (m *acpEmission) step(part int, metadata map[string]any) (suffix string) {
	before := m.count
	if metadata["kind"] == "trajectory" {
		m.trajectory(part, metadata)
	}
	if m.count > before {
		return "#content"
	}
	return ""
}

// trajectory emits a thought, or a call and its result.
func (m *acpEmission) trajectory(part int, step map[string]any) {
	if step["tool_name"] == nil && step["tool_input"] == nil && step["tool_output"] == nil {
		if thought := normalizerstest.Member[string](step, "message"); strings.TrimSpace(thought) != "" {
			m.stepEvent(part, "", "thought"+thought)
		}
		return
	}
	name := normalizerstest.Member[string](step, "tool_name")
	id, first := m.stepEvent(part, "", fmt.Sprint("call", name, step["tool_input"]))
	if first {
		m.out.Calls = append(m.out.Calls, normalizerstest.ToolUse{Session: m.session, ID: id, Name: name, Line: m.line})
	}
	output, _ := step["tool_output"].(map[string]any)
	if output == nil {
		return
	}
	if _, first := m.stepEvent(part, "#result", fmt.Sprint(name, output)); !first {
		return
	}
	m.out.Results = append(m.out.Results, normalizerstest.ToolOutcome{Session: m.session, ID: id, Form: "exit_code", Code: exitCode(output), Line: m.line})
}

// exitCode returns the exit code in the output of a tool, nil if there is none.
func exitCode(output map[string]any) *int64 {
	var out *int64
	for _, name := range []string{"exitCode", "exit_code"} {
		if code, err := normalizerstest.Member[json.Number](output, name).Int64(); err == nil {
			out = &code
		}
	}
	return out
}
