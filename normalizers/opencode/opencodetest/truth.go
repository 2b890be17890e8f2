package opencodetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads OpenCode's logs a second time, with nothing but encoding/json, for comparison with the events.

func str(v any, names ...string) string { return normalizerstest.Member[string](v, names...) }

func list(v any, names ...string) []any { return normalizerstest.Member[[]any](v, names...) }

func object(v any, names ...string) map[string]any {
	return normalizerstest.Member[map[string]any](v, names...)
}

func number(v any, names ...string) (float64, bool) {
	n, ok := normalizerstest.Member[any](v, names...).(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// own returns an id of the vendor, empty if it was removed from the log.
func own(id string) string {
	if id == "REDACTED" {
		return ""
	}
	return id
}

// read cuts a file into records: consecutive values on one line or several, the elements of an array that is a
// recording, and the line before an export.
func read(data []byte) []normalizerstest.Line {
	banner := func(line []byte) (int, bool) { return len(line), !bytes.HasPrefix(line, []byte("Exporting session: ")) }
	return normalizerstest.Values{Elements: recorded, Broken: banner}.Read(data)
}

// recorded returns the elements of an array of events or of lines of a run.
func recorded(v json.RawMessage) []json.RawMessage {
	var elements []json.RawMessage
	if json.Unmarshal(v, &elements) != nil || len(elements) == 0 {
		return nil
	}
	first := normalizerstest.Parse(elements[0])
	if _, ok := number(first, "timestamp"); !ok && normalizerstest.Member[any](first, "properties") == nil {
		return nil
	}
	return elements
}

// sessionOf returns the session that a record itself states.
func sessionOf(v any) string {
	if elements, ok := v.([]any); ok && len(elements) > 0 {
		v = elements[0]
	}
	if p := object(v, "payload"); p != nil {
		v = p
	}
	switch {
	case object(v, "row") != nil && str(v, "table") == "session":
		return own(str(v, "row", "id"))
	case object(v, "row") != nil:
		return own(str(v, "row", "session_id"))
	case object(v, "info") != nil && list(v, "messages") != nil:
		return own(str(v, "info", "id"))
	case object(v, "info") != nil && list(v, "parts") != nil:
		return own(str(v, "info", "sessionID"))
	case normalizerstest.Member[any](v, "properties") == nil:
		return own(str(v, "sessionID"))
	}
	for _, id := range []string{str(v, "properties", "sessionID"), str(v, "properties", "part", "sessionID"), str(v, "properties", "info", "sessionID")} {
		if own(id) != "" {
			return id
		}
	}
	if strings.HasPrefix(str(v, "type"), "session.") {
		return own(str(v, "properties", "info", "id"))
	}
	return ""
}

// interpret reads a file by the rules of the vendor.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures), Sessions: normalizerstest.SessionsOf(name, lines, sessionOf)}
	readers := make(map[string]*reader)
	var order []*reader
	for i, l := range lines {
		v, session := normalizerstest.Parse(l.Data), a.Sessions[i]
		r := readers[session]
		if r == nil {
			r = &reader{
				out: &a, session: session, messages: make(map[string]message), said: make(map[string]bool),
				made: make(map[string]bool), done: make(map[string]bool),
			}
			readers[session] = r
			order = append(order, r)
		}
		if !l.Bad {
			r.line = l.Number
			r.n++
			r.read(v)
		}
		thread := normalizerstest.RawThread{}
		if r.child {
			thread = normalizerstest.RawThread{Agent: session, Internal: true}
		}
		a.Threads = append(a.Threads, thread)
	}
	for _, r := range order {
		r.flush(func(pending) bool { return true })
	}
	return a
}

// message is what a message says about its parts.
type message struct {
	role            string
	summary, copied bool
}

// pending is an unfinished text.
type pending struct {
	id, message string
	of          message
	part        map[string]any
	text        string
}

// reader follows one session of a file.
type reader struct {
	out     *normalizerstest.Account
	session string
	line, n int
	child   bool
	created float64

	messages map[string]message
	open     []pending
	said     map[string]bool // by id, kind and text
	made     map[string]bool // ids of calls
	done     map[string]bool // ids of calls with a result
}

// read reads a record.
func (r *reader) read(v any) {
	if p := object(v, "payload"); p != nil {
		v = p
	}
	if elements, ok := v.([]any); ok {
		for _, e := range elements {
			if object(e, "info") != nil {
				r.document(elements)
				return
			}
		}
		return
	}
	info, part := object(v, "info"), object(v, "part")
	switch {
	case object(v, "row") != nil:
		r.row(str(v, "table"), fromRow(v))
	case info != nil && list(v, "messages") != nil:
		r.learn(info)
		r.document(list(v, "messages"))
	case info != nil && list(v, "parts") != nil:
		r.whole(v, 0)
	case normalizerstest.Member[any](v, "properties") != nil:
		r.event(str(v, "type"), normalizerstest.Member[any](v, "properties"))
	case part != nil && str(v, "type") != "":
		r.part(r.messageOf(part), part, own(str(part, "id")), false)
	}
}

// fromRow returns what a row of the database says, under the names that an export uses for it.
func fromRow(v any) map[string]any {
	row := object(v, "row")
	is := object(row, "data")
	if str(v, "table") == "session" {
		is = map[string]any{
			"parentID": row["parent_id"], "version": row["version"], "time": map[string]any{"created": row["time_created"]},
		}
	}
	if is != nil {
		is["id"], is["sessionID"], is["messageID"] = row["id"], row["session_id"], row["message_id"]
	}
	return is
}

// row reads a row of the database.
func (r *reader) row(table string, is map[string]any) {
	switch table {
	case "session":
		r.learn(is)
	case "message":
		r.messages[str(is, "id")] = r.message(is)
	case "part":
		r.part(r.messageOf(is), is, own(str(is, "id")), false)
	}
}

// learn notes what is said about the session.
func (r *reader) learn(info map[string]any) {
	if at, _ := number(info, "time", "created"); at > 0 {
		r.created = at
	}
	r.child = r.child || str(info, "parentID") != ""
}

// document reads all messages of the session.
func (r *reader) document(messages []any) {
	for _, m := range messages {
		for _, p := range list(m, "parts") {
			r.forget(str(p, "id"))
		}
	}
	for i, m := range messages {
		r.whole(m, i+1)
	}
}

// whole reads a message with its parts; place is its number in a document.
func (r *reader) whole(v any, place int) {
	info := object(v, "info")
	if info == nil {
		return
	}
	m := r.message(info)
	for i, p := range list(v, "parts") {
		id := own(str(p, "id"))
		if id == "" && place > 0 {
			id = fmt.Sprintf("@m%d.%d", place, i+1)
		}
		r.forget(str(p, "id"))
		r.part(m, p, id, place > 0)
	}
}

func (r *reader) message(info map[string]any) message {
	at, ok := number(info, "time", "created")
	return message{
		role: str(info, "role"), summary: normalizerstest.Member[bool](info, "summary"),
		copied: ok && at < r.created,
	}
}

func (r *reader) messageOf(part any) message {
	if m, ok := r.messages[str(part, "messageID")]; ok {
		return m
	}
	return message{role: "assistant"}
}

// event reads an event of the server.
func (r *reader) event(kind string, properties any) {
	info, part := object(properties, "info"), object(properties, "part")
	switch kind {
	case "session.created", "session.updated":
		r.learn(info)
	case "session.error", "session.idle":
		r.flush(func(pending) bool { return true })
	case "session.status":
		if str(properties, "status", "type") == "idle" {
			r.flush(func(pending) bool { return true })
		}
	case "message.updated":
		id := str(info, "id")
		r.messages[id] = r.message(info)
		if _, done := number(info, "time", "completed"); done || info["error"] != nil {
			r.flush(func(p pending) bool { return p.message == id })
		}
	case "message.removed":
		r.flush(func(p pending) bool { return p.message == str(properties, "messageID") })
	case "message.part.removed":
		r.flush(func(p pending) bool { return p.id == str(properties, "partID") })
	case "message.part.delta":
		for i, p := range r.open {
			if p.id == str(properties, "partID") && str(properties, "field") == "text" {
				p.text += str(properties, "delta")
				r.open = append(slices.Delete(r.open, i, i+1), p)
			}
		}
	case "message.part.updated":
		m, id := r.messageOf(part), own(str(part, "id"))
		r.forget(id)
		_, ended := number(part, "time", "end")
		machine := normalizerstest.Member[bool](part, "synthetic") || normalizerstest.Member[bool](part, "ignored")
		grows := str(part, "type") == "reasoning" || str(part, "type") == "text" && m.role == "assistant" && !machine
		if grows && !ended && id != "" {
			if len(r.open) == 4 {
				first := r.open[0].id
				r.flush(func(p pending) bool { return p.id == first })
			}
			r.open = append(r.open, pending{id, str(part, "messageID"), m, part, str(part, "text")})
			return
		}
		r.part(m, part, id, false)
	}
}

func (r *reader) forget(id string) {
	r.open = slices.DeleteFunc(r.open, func(p pending) bool { return p.id == id })
}

// flush emits unfinished texts.
func (r *reader) flush(match func(pending) bool) {
	var out, kept []pending
	for _, p := range r.open {
		if match(p) {
			out = append(out, p)
		} else {
			kept = append(kept, p)
		}
	}
	r.open = kept
	for _, p := range out {
		r.text(p.of, p.part, p.id, p.text)
	}
}

// part reads a part in its final form.
func (r *reader) part(m message, p any, id string, document bool) {
	switch str(p, "type") {
	case "text", "reasoning":
		r.text(m, p, id, str(p, "text"))
	case "tool":
		r.tool(p, id, document)
	}
}

// text emits a text as its author's.
func (r *reader) text(m message, p any, id, text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	who := "assistant"
	switch {
	case str(p, "type") == "reasoning":
		who = "reasoning"
	case normalizerstest.Member[bool](p, "synthetic"), normalizerstest.Member[bool](p, "ignored"), m.role != "user" && m.role != "assistant":
		who = "machine"
	case m.role == "user" && r.child:
		who = "agent"
	case m.role == "user" && m.copied:
		who = "user_message of origin copied"
	case m.role == "user":
		who = "human"
	case m.summary:
		who = "summary"
	}
	if m.role == "user" && who != "machine" && who != "reasoning" && !r.emitted(id) {
		r.flush(func(pending) bool { return true })
	}
	kind := who
	if m.role == "user" && who != "machine" && who != "reasoning" {
		kind = "user"
	}
	key := id + "\x00" + kind + "\x00" + text
	if id != "" && r.said[key] {
		return
	}
	r.said[key] = true
	switch who {
	case "machine", "reasoning", "summary":
	default:
		r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: who, Text: strings.TrimSpace(text), Line: r.line})
	}
}

// emitted reports whether an id has an event.
func (r *reader) emitted(id string) bool {
	for key := range r.said {
		if id != "" && strings.HasPrefix(key, id+"\x00") {
			return true
		}
	}
	return false
}

// tool reads a call, and its result if there is one.
func (r *reader) tool(p any, id string, document bool) {
	state := object(p, "state")
	_, output := state["output"].(string)
	_, failed := state["error"].(string)
	status := str(state, "status")
	done := status == "completed" || status == "error" || output || failed
	if status == "pending" && !done && !document {
		return
	}
	if id == "" {
		id = fmt.Sprintf("@%d", r.n)
	}
	if !r.made[id] {
		r.made[id] = true
		r.out.Calls = append(r.out.Calls, normalizerstest.ToolUse{Session: r.session, ID: id, Name: str(p, "tool"), Line: r.line})
	}
	if !done || r.done[id] {
		return
	}
	r.done[id] = true
	o := normalizerstest.ToolOutcome{Session: r.session, ID: id, Line: r.line}
	if code, ok := number(state, "metadata", "exit"); ok {
		o.Code, o.Form = new(int64(code)), "metadata.exit"
	}
	r.out.Results = append(r.out.Results, o)
}

// rawOfDocument is the Raw of the suite: raw is the session of a document, or one of its messages.
func rawOfDocument(record []byte) func(raw []byte) (ok, known bool) {
	v := normalizerstest.Plain(record)
	elements, _ := v.([]any)
	isDocument := slices.ContainsFunc(elements, func(e any) bool { return object(e, "info") != nil || str(e, "id") != "" })
	if messages := list(v, "messages"); messages != nil && object(v, "info") != nil {
		elements, isDocument = append(slices.Clone(messages), normalizerstest.Member[any](v, "info")), true
	}
	if !isDocument {
		return normalizerstest.NoRaw
	}
	return normalizerstest.PartOf(elements)
}
