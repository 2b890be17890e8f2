package acptest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads records of ACP a second time, with nothing but encoding/json: the events
// are compared with what it finds.

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
	records int // that can be read

	run, agent string
	next       map[string]int      // message of each run that the stream is at
	streamed   map[string][]string // texts of the messages of each run that came in its stream
	emitted    map[string][]string // emitted contents, by id
	last       map[string]string   // each run as it was last stated
	asked      map[string]string   // what each run awaits the answer of
	utterances []*acpUtterance
	open       *acpMessageOpen

	line     int
	speakers []string // of the events of the record
	events   int      // of the record, without an id of their own
}

// acpUtterance is an emitted message, with what identifies its repetition.
type acpUtterance struct {
	text, time string
	by         string // request, run; empty once a history has repeated it
}

// acpMessageOpen is a message of a stream.
type acpMessageOpen struct {
	role, time string
	parts      []any
	announced  int // parts that it began with
	repeated   int // of them that have come by themselves since
	record     int
}

// complete takes what the message states as a whole.
func (o *acpMessageOpen) complete(m any, record int) {
	o.role, o.record = acpRole(m), record
	o.time = cmp.Or(normalizerstest.Member[string](m, "created_at"), o.time, normalizerstest.Member[string](m, "completed_at"))
}

// interpret reads a file by the rules of README.md.
func interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures)}
	last, stem := "", strings.TrimSuffix(path.Base(name), path.Ext(name))
	own := func(l normalizerstest.Line) string {
		v := normalizerstest.Parse(l.Data)
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
		}
		if normalizerstest.Member[map[string]any](v, "await_resume") != nil {
			return normalizerstest.Member[string](v, "session_id")
		}
		for _, id := range []string{
			normalizerstest.Member[string](v, "run", "session_id"), normalizerstest.Member[string](v, "session_id"),
			normalizerstest.Member[string](v, "run", "run_id"), normalizerstest.Member[string](v, "run_id"),
		} {
			if id != "" {
				return id
			}
		}
		return ""
	}
	readers := make(map[string]*acpReader)
	var order []*acpReader
	for i, l := range lines {
		if id := own(l); id != "" {
			last = id
		}
		for _, next := range lines[i:] {
			if last == "" {
				last = own(next)
			}
		}
		if last == "" {
			last = stem
		}
		a.Sessions = append(a.Sessions, last)
		r := readers[last]
		if r == nil {
			r = &acpReader{
				out: &a, session: last, next: make(map[string]int), streamed: make(map[string][]string), emitted: make(map[string][]string),
				last: make(map[string]string), asked: make(map[string]string),
			}
			readers[last] = r
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
	m, _ := v.(map[string]any)
	run, _ := m["run"].(map[string]any)
	message, _ := m["message"].(map[string]any)
	part, _ := m["part"].(map[string]any)
	parts, isMessage := m["parts"].([]any)
	input, isRequest := m["input"].([]any)
	answer := normalizerstest.Member[map[string]any](v, "await_resume", "message")
	output, _ := m["output"].([]any)
	list, _ := v.([]any)
	switch kind := normalizerstest.Member[string](v, "type"); {
	case strings.HasPrefix(kind, "run.") && run != nil:
		output, _ = run["output"].([]any)
		r.stated(run, strings.TrimPrefix(kind, "run."), output)
	case kind == "message.created" && message != nil:
		r.flush()
		announced, _ := message["parts"].([]any)
		r.open = &acpMessageOpen{acpRole(message), normalizerstest.Member[string](message, "created_at"), slices.Clone(announced), len(announced), 0, r.records}
	case kind == "message.part" && part != nil:
		if r.open == nil {
			r.open = &acpMessageOpen{role: "agent"}
		}
		r.open.record = r.records
		if o := r.open; o.repeated < o.announced && reflect.DeepEqual(o.parts[o.repeated], any(part)) {
			o.repeated++
		} else {
			o.announced = 0 // those that follow are others
			o.parts = append(o.parts, part)
		}
	case kind == "message.completed" && message != nil:
		if r.open == nil {
			r.open = &acpMessageOpen{}
		}
		if all, _ := message["parts"].([]any); len(all) > 0 {
			r.open.parts = all
		}
		r.open.complete(message, r.records)
		r.close()
	case kind == "error":
		r.flush()
		r.put("", false)
	case kind != "":
		r.put("", false)
	case isMessage:
		r.flush()
		if u := acpUtteranceOf(v, acpRole(v)); !r.repeats(u, "") {
			r.emit(parts, acpRole(v), "", false)
			r.utterances = append(r.utterances, u)
		}
	case answer != nil:
		r.flush()
		u := acpUtteranceOf(answer, "user")
		u.by = "request"
		r.utterances = append(r.utterances, u)
		all, _ := answer["parts"].([]any)
		r.emit(all, "user", "", false)
	case isRequest:
		r.flush()
		r.agent = normalizerstest.Member[string](v, "agent_name")
		r.list(input, true)
	case len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool { return normalizerstest.Member[[]any](e, "parts") == nil }):
		r.flush()
		r.list(list, false)
	case len(list) > 0 && slices.ContainsFunc(list, func(e any) bool { return normalizerstest.Member[string](e, "run_id") != "" }):
		for _, e := range list {
			r.read(e)
		}
	case normalizerstest.Member[string](v, "run_id") != "" || normalizerstest.Member[string](v, "agent_name") != "":
		r.stated(m, normalizerstest.Member[string](v, "status"), output)
	default:
		r.put("", false)
	}
}

func acpRole(m any) string {
	if role := normalizerstest.Member[string](m, "role"); role != "" {
		return role
	}
	return "user"
}

// acpUtteranceOf returns the texts of a message, with adjacent ones joined.
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

// repeats reports whether a message was emitted before, and its speaker now.
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

// list reads messages that may repeat others; the last one of a request does not.
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

// stated reads a run.
func (r *acpReader) stated(run map[string]any, status string, output []any) {
	id := normalizerstest.Member[string](run, "run_id")
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
	if last := len(output) - 1; r.open != nil && last >= 0 {
		parts, _ := normalizerstest.Member[any](output[last], "parts").([]any)
		if n := len(r.open.parts); n <= len(parts) && reflect.DeepEqual(r.open.parts, parts[:n:n]) || n == 0 {
			r.open.parts = parts
			r.open.complete(output[last], r.records)
		}
	}
	r.flush()
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
			key = "" // the id was taken by another message
		}
		r.message(m, key)
	}
	if len(output) > r.next[id] && id != "" {
		r.next[id], r.streamed[id] = len(output), nil
	}
	r.put("", false)
	asked := normalizerstest.Member[map[string]any](run, "await_request", "message")
	if status != "awaiting" || asked == nil {
		delete(r.asked, id)
		return
	}
	question, _ := json.Marshal(asked["parts"])
	if r.asked[id] != string(question) || id == "" {
		r.asked[id] = string(question)
		role := acpRole(asked)
		if role == "user" {
			role = "agent"
		}
		u := acpUtteranceOf(asked, role)
		u.by = "run"
		r.utterances = append(r.utterances, u)
		parts, _ := asked["parts"].([]any)
		r.emit(parts, role, "", false)
	}
}

// message reads a message of a run, identified by its place in the run.
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

// flush emits a message of the stream that was not completed.
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

// put counts an event of the record; it returns the id of one that has none of its own.
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

// acpText is the text of a part; empty for one that has none.
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

// emit notes the contents of a message, once for each id.
func (r *acpReader) emit(parts []any, role, key string, pending bool) {
	who, agent := "assistant", r.agent
	if name, ok := strings.CutPrefix(role, "agent/"); ok {
		agent = name
	} else if role == "user" {
		who, agent = "human", ""
	}
	// once reports whether an event of a run is new, and whether it supersedes another one
	// of its id; its number counts all the same.
	events := 0
	once := func(part int, suffix, content string) (emitted, supersedes bool) {
		events++
		if key == "" {
			return true, false
		}
		r.emitted[key] = nil // the message as a whole
		id := fmt.Sprintf("%s:%d%s", key, part, suffix)
		before := r.emitted[id]
		if slices.Contains(before, content) {
			return false, false
		}
		r.emitted[id] = append(before, content)
		return true, before != nil
	}
	var texts strings.Builder
	first := -1
	for i, p := range parts {
		if normalizerstest.Member[any](p, "name") == nil && acpText(p) != "" {
			texts.WriteString(acpText(p))
			if first < 0 {
				first = i
			}
		}
	}
	text := texts.String()
	if strings.TrimSpace(text) == "" {
		first = slices.IndexFunc(parts, func(p any) bool {
			kind := normalizerstest.Member[string](p, "content_type")
			return normalizerstest.Member[any](p, "name") == nil && (normalizerstest.Member[any](p, "content_url") != nil || normalizerstest.Member[any](p, "content") != nil && kind != "" && !strings.HasPrefix(kind, "text/"))
		})
		text = ""
	}
	var metadata []any
	put := func() string {
		if key != "" {
			if !pending {
				r.speakers = append(r.speakers, agent)
			}
			return ""
		}
		return r.put(agent, pending)
	}
	for _, p := range parts {
		if m := normalizerstest.Member[any](p, "metadata"); m != nil {
			metadata = append(metadata, m)
		}
	}
	for i, p := range parts {
		m := normalizerstest.Member[map[string]any](p, "metadata")
		before := events
		if m["kind"] == "trajectory" {
			r.step(m, func(suffix, content string) (string, bool) {
				id := fmt.Sprintf("%s:%d", key, i)
				emitted, supersedes := once(i, suffix, content)
				if emitted {
					id = cmp.Or(put(), id)
				}
				return id, emitted && !supersedes
			})
		}
		suffix := ""
		if events > before {
			suffix = "#content" // the step has the id
		}
		if i == first {
			if emitted, _ := once(i, suffix, who+text+fmt.Sprint(metadata)); emitted {
				put()
				r.out.Talk = append(r.out.Talk, normalizerstest.Utterance{Session: r.session, Who: who, Text: strings.TrimSpace(text), Line: r.line})
			}
		}
		if name := normalizerstest.Member[any](p, "name"); name != nil {
			if emitted, _ := once(i, suffix, fmt.Sprint("file", p)); emitted {
				put()
			}
		}
	}
	if events == 0 && len(metadata) > 0 {
		if emitted, _ := once(0, "", "metadata"); emitted {
			put()
		}
	}
}

// step reads a trajectory: a thought, or a call and its result. put returns the id of the
// part, and whether it is new.
func (r *acpReader) step(m map[string]any, put func(suffix, content string) (string, bool)) {
	if m["tool_name"] == nil && m["tool_input"] == nil && m["tool_output"] == nil {
		if thought := normalizerstest.Member[string](m, "message"); strings.TrimSpace(thought) != "" {
			put("", "thought"+thought)
		}
		return
	}
	name := normalizerstest.Member[string](m, "tool_name")
	id, ok := put("", fmt.Sprint("call", name, m["tool_input"]))
	if ok {
		r.out.Calls = append(r.out.Calls, normalizerstest.ToolUse{Session: r.session, ID: id, Name: name, Line: r.line})
	}
	output, _ := m["tool_output"].(map[string]any)
	if output == nil {
		return
	}
	if _, ok := put("#result", fmt.Sprint(name, output)); !ok {
		return
	}
	o := normalizerstest.ToolOutcome{Session: r.session, ID: id, Form: "exit_code", Line: r.line}
	for _, name := range []string{"exitCode", "exit_code"} {
		if n, ok := output[name].(json.Number); ok {
			if code, err := n.Int64(); err == nil {
				o.Code = &code
			}
		}
	}
	r.out.Results = append(r.out.Results, o)
}
