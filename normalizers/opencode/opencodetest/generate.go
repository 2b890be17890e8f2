package opencodetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// script writes the log of one session of OpenCode in all forms at once: events of the server as things happen, lines
// of a run, and documents of the whole session. It is well formed, in any order.
type script struct {
	normalizerstest.Script

	n        int            // number of ids
	info     map[string]any // of the session
	messages []*written
	total    bool // tokens have a total
	includes bool // the output includes the reasoning
}

// written is a message in its current form.
type written struct {
	info  map[string]any
	parts []map[string]any
}

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	s := &script{Script: normalizerstest.NewScript(t, session)}
	s.begin()
	moves := []func(){
		s.user, s.user, s.user, s.assistant, s.assistant, s.assistant, s.text, s.text, s.text, s.grow, s.grow, s.grow, s.delta,
		s.tool, s.tool, s.tool, s.toolOn, s.toolOn, s.toolOn, s.toolOn, s.finish, s.finish, s.finish, s.fail, s.patch, s.machine, s.odd,
		s.status, s.removed, s.export, s.export, s.list, s.whole, s.run, s.run, s.run, s.redacted, s.rows, s.rows, s.retitle, s.other, s.other,
	}
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.Lines
}

// typed are texts that matter to a rule, and some that do not.
var typed = []string{
	"fix the test", "yes", "  \n", "", "what is \"this\"?\n\ttwo lines \u2028 \U0001F642", "/init", "Done.", "I will look.",
	"Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed.",
}

func (s *script) word() string {
	if rapid.IntRange(0, 9).Draw(s.T, "free text") == 0 {
		return rapid.String().Draw(s.T, "text")
	}
	return rapid.SampledFrom(typed).Draw(s.T, "word")
}

func (s *script) id(prefix string) string {
	s.n++
	return fmt.Sprintf("%s_%s%d", prefix, s.Session, s.n)
}

// ms returns the time of the next record.
func (s *script) ms() int64 {
	s.Stamp()
	return s.Now.UnixMilli()
}

// event writes an event of the server.
func (s *script) event(kind string, properties map[string]any) {
	e := map[string]any{"type": kind, "properties": properties}
	if s.Chance(10) {
		e = map[string]any{"directory": "/home/dev/app", "payload": e}
	}
	s.Emit(e)
}

// begin states the session. Half of the versions include the reasoning in the output.
func (s *script) begin() {
	s.info = map[string]any{
		"id": s.Session, "slug": "quiet-river", "projectID": "global", "directory": "/home/dev/app", "title": "New session - 2026-03-01T09:00:00.000Z",
		"time": map[string]any{"created": s.ms(), "updated": s.ms()},
	}
	version := s.OneOf("1.2.16", "1.3.13", "1.4.1", "1.18.21", "0.15.3", "")
	s.includes = version == "1.2.16" || version == "1.3.13" || version == "0.15.3"
	s.total = s.Chance(60)
	if version != "" {
		s.info["version"] = version
	} else {
		s.includes = !s.total || s.Chance(50)
	}
	if s.Chance(20) {
		s.info["parentID"] = s.OneOf("ses_parent", "REDACTED")
	}
	if s.Chance(10) {
		s.info["time"].(map[string]any)["created"] = s.Now.UnixMilli() + 20_000 // a fork: its history is older
	}
	s.event(s.OneOf("session.created", "session.updated"), map[string]any{"info": s.info})
}

func (s *script) retitle() {
	s.info["title"] = s.OneOf("Fix the test", "Greeting", "")
	delete(s.info, "revert")
	if s.Chance(30) {
		s.info["revert"] = map[string]any{"messageID": s.id("msg"), "snapshot": "a1"}
	}
	s.event("session.updated", map[string]any{"info": s.info})
}

// add begins a message.
func (s *script) add(info map[string]any) *written {
	info["id"], info["sessionID"] = s.id("msg"), s.Session
	m := &written{info: info}
	s.messages = append(s.messages, m)
	s.event("message.updated", map[string]any{"info": info})
	return m
}

// put adds a part to a message.
func (s *script) put(m *written, part map[string]any) map[string]any {
	part["id"], part["sessionID"], part["messageID"] = s.id("prt"), s.Session, m.info["id"]
	m.parts = append(m.parts, part)
	return part
}

func (s *script) updated(part map[string]any) {
	s.event("message.part.updated", map[string]any{"part": part})
}

func (s *script) user() {
	m := s.add(map[string]any{
		"role": "user", "time": map[string]any{"created": s.ms()}, "agent": "build",
		"model": map[string]any{"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}, "summary": map[string]any{"diffs": []any{}},
	})
	s.updated(s.put(m, map[string]any{"type": "text", "text": s.word()}))
}

// machine writes a text that no human wrote, or that no model read.
func (s *script) machine() {
	m := s.add(map[string]any{"role": "user", "time": map[string]any{"created": s.ms()}})
	s.updated(s.put(m, map[string]any{"type": "text", "text": s.word(), s.OneOf("synthetic", "ignored"): true}))
}

func (s *script) assistant() {
	zero := map[string]any{"input": 0, "output": 0, "reasoning": 0, "cache": map[string]any{"read": 0, "write": 0}}
	info := map[string]any{
		"role": "assistant", "time": map[string]any{"created": s.ms()}, "mode": "build", "modelID": s.OneOf("claude-sonnet-4-5", "gpt-5.4"),
		"providerID": "anthropic", "path": map[string]any{"cwd": "/home/dev/app", "root": "/"}, "cost": 0, "tokens": zero,
	}
	if s.Chance(10) {
		info["mode"], info["summary"] = "compaction", true
	}
	m := s.add(info)
	if s.Chance(50) {
		s.updated(s.put(m, map[string]any{"type": "step-start", "snapshot": "a1"}))
	}
}

// last returns the last assistant message, nil if there is none.
func (s *script) last() *written {
	for _, m := range slices.Backward(s.messages) {
		if m.info["role"] == "assistant" {
			return m
		}
	}
	return nil
}

// text writes a text of the model, whole or its beginning.
func (s *script) text() {
	m := s.last()
	if m == nil {
		return
	}
	p := s.put(m, map[string]any{"type": s.OneOf("text", "text", "reasoning"), "text": s.word(), "time": map[string]any{"start": s.ms()}})
	if s.Chance(40) {
		p["time"] = map[string]any{"start": s.ms(), "end": s.ms()}
	}
	s.updated(p)
}

// growing returns the last unfinished text of the model, nil for none.
func (s *script) growing() map[string]any {
	if m := s.last(); m != nil {
		for _, p := range slices.Backward(m.parts) {
			if _, ok := p["text"]; ok {
				if _, ended := p["time"].(map[string]any)["end"]; !ended {
					return p
				}
			}
		}
	}
	return nil
}

func (s *script) grow() {
	p := s.growing()
	if p == nil {
		return
	}
	p["text"] = p["text"].(string) + s.word()
	if s.Chance(50) {
		p["time"] = map[string]any{"start": s.ms(), "end": s.ms()}
	}
	s.updated(p)
}

func (s *script) delta() {
	p := s.growing()
	if p == nil {
		return
	}
	more := s.word()
	p["text"] = p["text"].(string) + more
	s.event("message.part.delta", map[string]any{"sessionID": s.Session, "messageID": p["messageID"], "partID": p["id"], "field": s.OneOf("text", "text", "metadata"), "delta": more})
}

var inputs = map[string]map[string]any{
	"bash": {"command": "go test ./...", "description": "Run the tests"}, "read": {"filePath": "/home/dev/app/main.go"},
	"edit": {"filePath": "/home/dev/app/main.go", "oldString": "a", "newString": "b"}, "write": {"filePath": "new.py", "content": "x"},
	"apply_patch": {"patchText": "*** Begin Patch\n*** Add File: a.go\n+x\n*** Delete File: b.go\n*** End Patch"},
	"glob":        {"pattern": "*"}, "list": {"path": "."}, "todowrite": {"todos": []any{}}, "task": {"prompt": "look"}, "invalid": {"tool": "x", "error": "no"},
	"context7_query-docs": {"query": "x"},
}

// tool begins a call. Some models start their callIDs anew with each message.
func (s *script) tool() {
	m := s.last()
	if m == nil {
		return
	}
	p := s.put(m, map[string]any{
		"type": "tool", "callID": s.OneOf("functions.bash:0", "call_1", "call_2"),
		"tool":  s.OneOf("bash", "bash", "bash", "read", "edit", "write", "apply_patch", "glob", "list", "todowrite", "task", "invalid", "context7_query-docs"),
		"state": map[string]any{"status": "pending", "input": map[string]any{}, "raw": ""},
	})
	s.updated(p)
	if s.Chance(60) {
		s.toolOn()
	}
}

// toolOn advances the last unfinished call by one state.
func (s *script) toolOn() {
	m := s.last()
	if m == nil {
		return
	}
	for _, p := range slices.Backward(m.parts) {
		state, ok := p["state"].(map[string]any)
		if !ok {
			continue
		}
		switch state["status"] {
		case "pending":
			p["state"] = map[string]any{"status": "running", "input": inputs[p["tool"].(string)], "time": map[string]any{"start": s.ms()}}
		case "running":
			state = maps.Clone(state)
			p["state"] = state
			state["time"] = map[string]any{"start": s.ms(), "end": s.ms()}
			s.finishTool(p["tool"].(string), state)
		default: // pruned
			state = maps.Clone(state)
			p["state"] = state
			state["time"] = map[string]any{"start": s.ms(), "end": s.ms(), "compacted": s.ms()}
		}
		s.updated(p)
		return
	}
}

// finishTool gives a call its result.
func (s *script) finishTool(tool string, state map[string]any) {
	if s.Chance(15) {
		state["status"], state["error"] = "error", s.OneOf("no such file", "Tool execution aborted")
		return
	}
	state["status"], state["output"], state["title"] = "completed", s.OneOf("ok", "", "a\nb\nexit code 9"), "x"
	metadata := map[string]any{"truncated": false}
	if tool == "bash" {
		metadata["output"] = state["output"]
		switch s.OneOf("zero", "zero", "one", "null", "none") {
		case "zero":
			metadata["exit"] = 0
		case "one":
			metadata["exit"] = rapid.SampledFrom([]int{1, 2, 127, -1}).Draw(s.T, "exit")
		case "null":
			metadata["exit"] = nil
		}
	}
	state["metadata"] = metadata
}

// tokens returns the last figures or larger ones; of several steps each has its own.
func (s *script) tokens(last map[string]any) map[string]any {
	draw := func(name string) int { return rapid.SampledFrom([]int{0, 1, 57, 11_480}).Draw(s.T, name) }
	own := s.Chance(50)
	was := func(name string) int {
		if own {
			return 0
		}
		v, _ := last[name].(int)
		return v
	}
	cache, _ := last["cache"].(map[string]any)
	in, visible, reasoning, read, write := draw("input"), draw("output"), draw("reasoning"), draw("read"), draw("write")
	output := visible
	if s.includes {
		output += reasoning
	}
	read += cache["read"].(int)
	write += cache["write"].(int)
	next := map[string]any{
		"input": was("input") + in, "output": was("output") + output, "reasoning": was("reasoning") + reasoning,
		"cache": map[string]any{"read": read, "write": write},
	}
	if s.total {
		sum := next["input"].(int) + next["output"].(int) + read + write
		if !s.includes {
			sum += next["reasoning"].(int)
		}
		next["total"] = sum
	}
	return next
}

// finish ends a step, and states its tokens twice.
func (s *script) finish() {
	m := s.last()
	if m == nil {
		return
	}
	tokens := s.tokens(m.info["tokens"].(map[string]any))
	m.info = maps.Clone(m.info)
	cost := float64(rapid.SampledFrom([]int{0, 0, 1, 123_456}).Draw(s.T, "cost")) / 1e7
	m.info["tokens"], m.info["cost"], m.info["finish"] = tokens, cost, s.OneOf("stop", "tool-calls", "length")
	if s.Chance(80) {
		s.updated(s.put(m, map[string]any{"type": "step-finish", "reason": m.info["finish"], "cost": cost, "tokens": tokens}))
	}
	if s.Chance(80) {
		s.event("message.updated", map[string]any{"info": m.info})
	}
	if s.Chance(80) {
		m.info = maps.Clone(m.info)
		m.info["time"] = map[string]any{"created": m.info["time"].(map[string]any)["created"], "completed": s.ms()}
		s.event("message.updated", map[string]any{"info": m.info})
	}
}

// fail states an error of the session, of a message, or of both.
func (s *script) fail() {
	err := map[string]any{"name": s.OneOf("MessageAbortedError", "APIError", "UnknownError"), "data": map[string]any{"message": s.OneOf("Aborted", "slow down")}}
	if s.Chance(50) {
		s.event("session.error", map[string]any{"sessionID": s.Session, "error": err})
	}
	if s.Chance(20) {
		s.Emit(map[string]any{"type": "error", "timestamp": s.ms(), "sessionID": s.Session, "error": err})
	}
	if m := s.last(); m != nil && s.Chance(70) {
		m.info = maps.Clone(m.info)
		m.info["error"] = err
		for range rapid.IntRange(1, 2).Draw(s.T, "times") {
			s.event("message.updated", map[string]any{"info": m.info})
		}
	}
}

func (s *script) patch() {
	if m := s.last(); m != nil {
		s.updated(s.put(m, map[string]any{"type": "patch", "hash": "a1", "files": []any{"/home/dev/app/main.go"}}))
	}
}

// odd adds a part in which nobody speaks.
func (s *script) odd() {
	m := s.last()
	if m == nil {
		return
	}
	p := map[string]any{"type": s.OneOf("file", "subtask", "compaction", "agent", "retry", "hologram")}
	switch p["type"] {
	case "file":
		p["mime"], p["filename"], p["url"] = "image/png", s.OneOf("a.png", ""), "data:image/png;base64,"+strings.Repeat("iVBORw0K", rapid.SampledFrom([]int{1, 1000}).Draw(s.T, "size"))
	case "subtask":
		p["prompt"], p["description"], p["agent"] = "look around", "Look", "explore"
	case "agent":
		p["name"] = "explore"
	case "retry":
		p["attempt"], p["error"] = 1, map[string]any{"name": "APIError", "data": map[string]any{"message": "slow down"}}
	}
	s.updated(s.put(m, p))
}

func (s *script) status() {
	switch s.OneOf("idle", "busy", "retry", "session.idle", "server.heartbeat", "session.diff", "permission.asked", "empty") {
	case "idle":
		s.event("session.status", map[string]any{"sessionID": s.Session, "status": map[string]any{"type": "idle"}})
	case "busy":
		s.event("session.status", map[string]any{"sessionID": s.Session, "status": map[string]any{"type": "busy"}})
	case "retry":
		s.event("session.status", map[string]any{"sessionID": s.Session, "status": map[string]any{"type": "retry", "attempt": 1, "message": "slow down"}})
	case "session.idle":
		s.event("session.idle", map[string]any{"sessionID": s.Session})
	case "server.heartbeat":
		s.event("server.heartbeat", map[string]any{})
	case "session.diff":
		s.event("session.diff", map[string]any{"sessionID": s.Session, "diff": []any{}})
	case "permission.asked":
		s.event("permission.asked", map[string]any{"sessionID": s.Session, "id": "per_1", "permission": "edit"})
	case "empty":
		s.Emit(map[string]any{"type": "custom.emit_events.finished", "properties": []any{}})
	}
}

func (s *script) removed() {
	m := s.last()
	if m == nil || len(m.parts) == 0 || s.Chance(50) {
		s.event("message.removed", map[string]any{"sessionID": s.Session, "messageID": s.OneOf("msg_x", fmt.Sprintf("msg_%s%d", s.Session, s.n))})
		return
	}
	p := rapid.SampledFrom(m.parts).Draw(s.T, "part")
	s.event("message.part.removed", map[string]any{"sessionID": s.Session, "messageID": m.info["id"], "partID": p["id"]})
}

// document returns the whole session.
func (s *script) document() []any {
	var out []any
	for _, m := range s.messages {
		out = append(out, s.message(m))
	}
	return out
}

func (s *script) message(m *written) map[string]any {
	parts := []any{}
	for _, p := range m.parts {
		parts = append(parts, p)
	}
	return map[string]any{"info": m.info, "parts": parts}
}

func (s *script) export() {
	messages := s.document()
	if s.Chance(10) {
		messages = append(messages, map[string]any{"of": "tomorrow"})
	}
	if messages == nil {
		messages = []any{}
	}
	s.Emit(map[string]any{"info": s.info, "messages": messages})
}

func (s *script) list() {
	if messages := s.document(); messages != nil {
		s.Emit(messages)
	}
}

func (s *script) whole() {
	if len(s.messages) > 0 {
		s.Emit(s.message(rapid.SampledFrom(s.messages).Draw(s.T, "message")))
	}
}

// run writes a part as a line of a run.
func (s *script) run() {
	m := s.last()
	if m == nil || len(m.parts) == 0 {
		return
	}
	p := rapid.SampledFrom(m.parts).Draw(s.T, "part")
	kind := strings.ReplaceAll(p["type"].(string), "-", "_")
	if kind == "tool" {
		kind = "tool_use"
	}
	s.Emit(map[string]any{"type": kind, "timestamp": s.ms(), "sessionID": s.Session, "part": p})
}

// rows writes the session, a message and its parts as rows of the database, all or some of them.
func (s *script) rows() {
	row := func(table string, columns map[string]any) { s.Emit(map[string]any{"table": table, "row": columns}) }
	without := func(of map[string]any) map[string]any {
		data := maps.Clone(of)
		delete(data, "id")
		delete(data, "sessionID")
		delete(data, "messageID")
		return data
	}
	created := s.info["time"].(map[string]any)["created"]
	if s.Chance(50) {
		row("session", map[string]any{
			"id": s.info["id"], "parent_id": s.info["parentID"], "directory": s.info["directory"], "title": s.info["title"],
			"version": s.info["version"], "revert": nil, "time_created": created,
		})
	}
	m := s.last()
	if m == nil {
		return
	}
	if s.Chance(80) {
		row("message", map[string]any{"id": m.info["id"], "session_id": s.Session, "time_created": created, "data": without(m.info)})
	}
	for _, p := range m.parts {
		if s.Chance(80) {
			row("part", map[string]any{"id": p["id"], "message_id": m.info["id"], "session_id": s.Session, "time_created": created, "data": without(p)})
		}
	}
}

// redacted writes lines of a run without ids.
func (s *script) redacted() {
	line := func(kind string, part map[string]any) {
		part["id"], part["messageID"], part["sessionID"] = "REDACTED", "REDACTED", "REDACTED"
		s.Emit(map[string]any{"type": kind, "timestamp": s.ms(), "sessionID": s.Session, "part": part})
	}
	line("step_start", map[string]any{"type": "step-start"})
	state := map[string]any{"status": "running", "input": inputs["bash"]}
	s.finishTool("bash", state)
	line("tool_use", map[string]any{"type": "tool", "tool": "bash", "callID": "REDACTED", "state": state})
	line("text", map[string]any{"type": "text", "text": s.word(), "time": map[string]any{"start": s.ms(), "end": s.ms()}})
	none := map[string]any{"cache": map[string]any{"read": 0, "write": 0}}
	line("step_finish", map[string]any{"type": "step-finish", "tokens": s.tokens(none)})
}

// other writes unknown records, and values that are no object.
func (s *script) other() {
	switch kind := s.OneOf("event", "branch", "line", "silly", "text", "string", "number", "array", "empty", "null", "again", "again"); kind {
	case "event":
		s.event("hologram.shown", map[string]any{"sessionID": s.Session, "depth": 3})
	case "branch":
		s.event("vcs.branch.updated", map[string]any{"branch": s.OneOf("main", "fix/total", "HEAD", "")})
	case "line":
		s.Emit(map[string]any{"type": "hologram", "timestamp": s.ms(), "sessionID": s.Session, "part": map[string]any{"type": "hologram", "depth": 3}})
	case "silly":
		s.Emit(map[string]any{"silly": "this"})
	case "text":
		s.Lines = append(s.Lines, []byte("Exporting session: "+s.Session))
	default:
		s.EmitValue(kind)
	}
}
