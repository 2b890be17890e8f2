package codextest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// codexScript writes the rollout of one session, record by record, in the shapes of README.md: well formed, in any
// order.
type codexScript struct {
	normalizerstest.Script

	version  string
	bare     bool
	ordinal  bool
	n        int // number of ids
	turn     string
	thread   string   // of the last session_meta
	total    [5]int   // input, cached, written, output, reasoning
	last     any      // the last token_count
	open     []string // calls without a result
	done     []string // calls with a result
	messages []string // texts that only a response_item or only an event_msg has
}

// lines generates the lines of one session: a rollout of some version, or the stream of codex exec.
func lines(t *rapid.T, session string) [][]byte {
	s := &codexScript{
		Script:  normalizerstest.NewScript(t, fmt.Sprintf("019ca000-0000-7000-8000-%012x", []byte(session))),
		version: rapid.SampledFrom([]string{"0.66.0", "0.125.0", "0.147.0", "0.159.0", "none"}).Draw(t, "version"),
	}
	switch rapid.IntRange(0, 9).Draw(t, "generation") {
	case 0:
		return s.execStream()
	case 1:
		s.bare = true
		s.Emit(map[string]any{"id": s.Session, "timestamp": s.stamp(), "instructions": nil, "git": s.git()})
	default:
		s.ordinal = s.version == "0.147.0" || s.version == "0.159.0"
		if s.Chance(90) {
			s.meta(s.Session, nil)
		}
	}
	moves := []func(){
		s.prompt, s.prompt, s.answer, s.answer, s.answer, s.think, s.think, s.call, s.call, s.call, s.result, s.result, s.result,
		s.end, s.tokens, s.tokens, s.tokens, s.context, s.injected, s.search, s.compact, s.resume, s.notice, s.other,
		s.export,
	}
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.Lines
}

func (s *codexScript) id(kind string) string {
	s.n++
	return fmt.Sprintf("%s_%s_%d", kind, s.Session[len(s.Session)-4:], s.n)
}

// phrase draws a text, sometimes an earlier one.
func (s *codexScript) phrase() string {
	if len(s.messages) > 0 && s.Chance(10) {
		return rapid.SampledFrom(s.messages).Draw(s.T, "again")
	}
	s.n++
	w := fmt.Sprintf("%s %d%s", s.OneOf("yes", "fix the test", "**Looking**", "what is \"this\"?\n\ttwo \U0001F642", "I wrote <environment_context>"), s.n, s.OneOf("", "", "\n", strings.Repeat(" and more", 10)))
	s.messages = append(s.messages, w)
	return w
}

func (s *codexScript) stamp() string {
	s.Now = s.Now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(s.T, "ms")) * time.Millisecond)
	return s.Now.Format("2006-01-02T15:04:05.000Z")
}

// put writes a payload in an envelope; a bare rollout has only items.
func (s *codexScript) put(kind string, payload map[string]any) {
	if s.bare {
		if kind == "response_item" {
			s.Emit(payload)
		}
		return
	}
	r := map[string]any{"timestamp": s.stamp(), "type": kind, "payload": payload}
	if s.ordinal {
		r["ordinal"] = len(s.Lines)
	}
	s.Emit(r)
}

func (s *codexScript) event(of string, more map[string]any) {
	p := map[string]any{"type": of}
	maps.Copy(p, more)
	s.put("event_msg", p)
}

func (s *codexScript) item(of string, more map[string]any) {
	p := map[string]any{"type": of}
	if s.ordinal && s.Chance(70) {
		p["id"] = s.id(of)
	}
	maps.Copy(p, more)
	s.put("response_item", p)
}

// git returns what a session states about its working tree: all of it, or only a branch.
func (s *codexScript) git() map[string]any {
	if s.Chance(25) {
		return map[string]any{"branch": "main"}
	}
	return map[string]any{
		"commit_hash": s.OneOf("0f0e0d0c0b0a09080706050403020100f0e0d0c0", "[trimmed]"), "branch": s.OneOf("main", "fix/total", "HEAD"),
		"repository_url": s.OneOf("https://github.com/acme/shop.git", "git@github.com:acme/shop.git", "https://ada:secret@github.com/acme/shop", "/srv/git/shop"),
	}
}

func (s *codexScript) meta(id string, more map[string]any) {
	s.thread = id
	p := map[string]any{"id": id, "cwd": "/home/dev/app", "originator": "codex_cli_rs", "source": "cli", "git": s.git()}
	if s.version != "none" {
		p["cli_version"] = s.version
	}
	if s.Chance(20) {
		delete(p, "git")
	}
	maps.Copy(p, more)
	s.put("session_meta", p)
}

// texts returns the parts of content.
func (s *codexScript) texts(of string, phrase ...string) []any {
	var out []any
	for _, w := range phrase {
		out = append(out, map[string]any{"type": of, "text": w})
	}
	return out
}

// duplicate repeats a text the way the version does.
func (s *codexScript) duplicate(who string, phrase ...string) {
	for _, w := range phrase {
		switch {
		case s.ordinal && who == "user":
			s.event("item_completed", map[string]any{"item": map[string]any{"type": "UserMessage", "content": s.texts("text", w)}})
		case s.ordinal && who == "agent":
			s.event("item_completed", map[string]any{"item": map[string]any{"type": s.OneOf("AgentMessage", "AgentMessage"), "content": s.texts("Text", w)}})
		case s.ordinal:
			s.event("item_completed", map[string]any{"item": map[string]any{"type": "Reasoning", "summary_text": phrase, "raw_content": []any{}}})
			return
		case who == "user":
			s.event("user_message", map[string]any{"message": w, "images": []any{}})
		case who == "agent":
			s.event("agent_message", map[string]any{"message": w})
		default:
			s.event("agent_reasoning", map[string]any{"text": w})
		}
		s.between()
	}
}

// between writes records that may separate two that repeat each other.
func (s *codexScript) between() {
	switch rapid.IntRange(0, 12).Draw(s.T, "between") {
	case 0:
		s.event("token_count", map[string]any{"info": nil})
	case 1:
		s.tokens()
	case 2:
		s.item("reasoning", map[string]any{"summary": []any{}, "encrypted_content": "gAAAAABo"})
	case 3:
		s.item("message", map[string]any{"role": "developer", "content": s.texts("input_text", "<model_switch>\n</model_switch>")})
	case 4:
		s.put("world_state", map[string]any{"full": false})
	}
}

// pair writes a message, its duplicate, or both in any order.
func (s *codexScript) pair(item, duplicate func()) {
	switch rapid.IntRange(0, 9).Draw(s.T, "pair") {
	case 0:
		item()
	case 1:
		duplicate()
	case 2, 3, 4:
		item()
		s.between()
		duplicate()
	default:
		duplicate()
		item()
	}
}

func (s *codexScript) prompt() {
	phrase := s.phrase()
	content := s.texts("input_text", phrase)
	if s.Chance(15) {
		content = append(content, map[string]any{"type": "input_image", "image_url": "data:image/png;base64," + strings.Repeat("iVBORw0K", rapid.SampledFrom([]int{1, 1000}).Draw(s.T, "size"))})
	}
	if s.Chance(10) {
		ide := "# Context from my IDE setup:\n\n## Open tabs:\n- a.go\n\n## My request for Codex:\n" + phrase
		if s.Chance(30) {
			ide = fmt.Sprint("# Files mentioned by the user:\n\n## text ", len(s.Lines), "\n\n## My request for Codex:\n")
		}
		content, phrase = s.texts("input_text", ide), ide
	} else if s.Chance(20) {
		parts := []string{phrase + s.OneOf("", "\n"), s.phrase(), s.phrase()}
		content, phrase = s.texts("input_text", parts...), strings.Join(parts, s.OneOf("", "", "\n"))
	}
	message := map[string]any{"role": "user", "content": content}
	if s.Chance(15) {
		kinds := []any{"agents_md.instructions"}
		for range content {
			kinds = append(kinds, s.OneOf("user.text", "unknown", ""))
		}
		message["content"] = append(s.texts("input_text", s.phrase()), content...)
		message["internal_chat_message_metadata_passthrough"] = map[string]any{"content_item_kinds": kinds}
	}
	s.pair(func() { s.item("message", message) }, func() { s.duplicate("user", phrase) })
}

func (s *codexScript) answer() {
	phrase := s.phrase()
	content := s.texts("output_text", phrase)
	duplicates := []string{phrase}
	if s.Chance(10) {
		s.n++
		parts := []string{fmt.Sprint(phrase, " first ", s.n), fmt.Sprint("second ", s.n)}
		content, duplicates = s.texts("output_text", parts...), parts
		if s.Chance(50) {
			duplicates = []string{strings.Join(parts, s.OneOf("", "\n"))}
		}
	}
	s.pair(
		func() {
			s.item("message", map[string]any{"role": "assistant", "content": content, "phase": "commentary"})
		},
		func() { s.duplicate("agent", duplicates...) })
}

func (s *codexScript) think() {
	parts := make([]string, rapid.IntRange(1, 3).Draw(s.T, "parts"))
	for i := range parts {
		parts[i] = s.phrase()
	}
	s.pair(
		func() {
			s.item("reasoning", map[string]any{"summary": s.texts("summary_text", parts...), "encrypted_content": "gAAAAABo"})
		},
		func() { s.duplicate("thought", parts...) })
}

func (s *codexScript) call() {
	id := s.id("call")
	s.open = append(s.open, id)
	patch := "*** Begin Patch\n*** Update File: a.go\n@@\n-a\n+b\n*** Add File: b.py\n+x\n*** End Patch\n"
	switch s.OneOf("shell", "exec_command", "apply_patch", "exec", "local", "mcp", "search") {
	case "shell":
		s.item("function_call", map[string]any{"name": "shell", s.OneOf("call_id", "call_id", "id"): id, "arguments": `{"command":["bash","-lc","ls"]}`})
	case "exec_command":
		s.item("function_call", map[string]any{"name": "exec_command", "call_id": id, "arguments": s.OneOf(`{"cmd":"ls"}`, `{"cmd":"apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a.go\n*** End Patch\nEOF"}`, "not JSON {")})
	case "apply_patch":
		s.item("custom_tool_call", map[string]any{"name": "apply_patch", "call_id": id, "input": patch, "status": "completed"})
	case "exec":
		s.item("custom_tool_call", map[string]any{"name": "exec", "call_id": id, "input": "text(1)", "status": "completed"})
	case "local":
		s.item("local_shell_call", map[string]any{"call_id": id, "status": "completed", "action": map[string]any{"type": "exec", "command": []any{"ls"}}})
	case "mcp":
		s.item("function_call", map[string]any{"name": "find", "namespace": "mcp__docs__", "call_id": id, "arguments": `{"path":"/home/dev/app/a.go"}`})
	case "search":
		s.item("tool_search_call", map[string]any{"call_id": id, "status": "completed", "arguments": map[string]any{"query": "x"}})
	}
}

// take chooses a call that waits for its result, sometimes one that does not exist.
func (s *codexScript) take() string {
	if len(s.open) == 0 || s.Chance(3) {
		return s.id("call")
	}
	i := rapid.IntRange(0, len(s.open)-1).Draw(s.T, "open")
	id := s.open[i]
	s.open = append(s.open[:i:i], s.open[i+1:]...)
	s.done = append(s.done, id)
	return id
}

func (s *codexScript) result() {
	if len(s.open) == 0 && s.Chance(70) {
		return
	}
	body := s.OneOf("", "Exit code: 9\n", "Process exited with code 8\nOutput:\n", "x\n", strings.Repeat("x\n", 2_000))
	code := rapid.IntRange(-1, 3).Draw(s.T, "code")
	text := func(phrase string) []any { return s.texts("input_text", phrase, body) }
	output := rapid.SampledFrom([]any{
		fmt.Sprintf("Exit code: %d\nWall time: 0.5 seconds\nOutput:\n%s", code, body),
		fmt.Sprintf("Chunk ID: 1f\nWall time: 0.25 seconds\nProcess exited with code %d\nOriginal token count: 4\nOutput:\n%s", code, body),
		"Chunk ID: 1f\nWall time: 1.0 seconds\nProcess running with session ID 7\nOriginal token count: 4\nOutput:\n" + body,
		fmt.Sprintf("Command: echo '\nExit code: 6\n'\nChunk ID: 1f\nWall time: 0.25 seconds\nProcess exited with code %d\nOriginal token count: 4\nOutput:\n%s", code, body),
		fmt.Sprintf(`{"output":"%s","metadata":{"exit_code":%d,"duration_seconds":0.1}}`, "x", code),
		text("Script completed\nWall time 2.5 seconds\nOutput:\n"), text("Script failed\nWall time 2.5 seconds\nOutput:\n"), text("found"),
		"Plan updated", "aborted by user after 3.2s", "", nil,
		map[string]any{"content": "no", "success": false},
	}).Draw(s.T, "output")
	kind := s.OneOf("function_call_output", "custom_tool_call_output")
	s.item(kind, map[string]any{"call_id": s.take(), "output": output})
}

// end writes the end of a tool beside its result: before it, after it, or alone.
func (s *codexScript) end() {
	id := s.id("exec")
	switch {
	case len(s.open) > 0 && s.Chance(60):
		id = rapid.SampledFrom(s.open).Draw(s.T, "open")
	case len(s.done) > 0 && s.Chance(60):
		id = rapid.SampledFrom(s.done).Draw(s.T, "done")
	}
	duration := map[string]any{"secs": rapid.IntRange(0, 9).Draw(s.T, "secs"), "nanos": 500_000_000}
	if s.ordinal && s.Chance(50) {
		s.itemEnd(id, duration)
		return
	}
	switch s.OneOf("exec", "patch", "mcp", "image", "dynamic") {
	case "exec":
		code := rapid.IntRange(0, 2).Draw(s.T, "code")
		s.event("exec_command_end", map[string]any{"call_id": id, "command": []any{"ls"}, "aggregated_output": "x\n", "exit_code": code, "duration": duration, "status": "completed"})
	case "patch":
		s.event("patch_apply_end", map[string]any{"call_id": id, "stdout": "Success.", "stderr": "", "success": s.Chance(80), "changes": map[string]any{
			"/home/dev/app/a.go": map[string]any{"type": "update", "move_path": nil}, "/home/dev/app/b.py": map[string]any{"type": "add"},
		}})
	case "mcp":
		result := any(map[string]any{"Ok": map[string]any{"content": s.texts("text", "found"), "isError": s.Chance(20)}})
		if s.Chance(20) {
			result = map[string]any{"Err": "refused"}
		}
		s.event("mcp_tool_call_end", map[string]any{"call_id": id, "invocation": map[string]any{"server": "docs", "tool": "find", "arguments": map[string]any{"q": "x"}}, "duration": duration, "result": result})
	case "image":
		s.event("view_image_tool_call", map[string]any{"call_id": id, "path": "/tmp/a.png"})
	case "dynamic":
		if s.Chance(80) {
			s.event("dynamic_tool_call_request", map[string]any{"callId": id, "tool": "show", "arguments": map[string]any{}})
		}
		s.event("dynamic_tool_call_response", map[string]any{"call_id": id, "tool": "show", "content_items": s.texts("inputText", "shown"), "success": true, "duration": duration})
	}
}

// itemEnd writes the end of a tool in the form of rollouts with items.
func (s *codexScript) itemEnd(id string, duration map[string]any) {
	item := map[string]any{"type": s.OneOf("CommandExecution", "FileChange", "McpToolCall", "ImageView", "Extension", "Sleep"), "id": id, "duration": duration, "status": s.OneOf("completed", "failed")}
	switch item["type"] {
	case "CommandExecution":
		item["command"], item["aggregated_output"], item["exit_code"] = []any{"ls"}, "x\n", rapid.IntRange(0, 2).Draw(s.T, "code")
	case "FileChange":
		item["changes"] = map[string]any{"/home/dev/app/a.go": map[string]any{"type": "update", "move_path": nil}}
	case "McpToolCall":
		item["server"], item["tool"], item["arguments"] = "docs", "find", map[string]any{"q": "x"}
		if s.Chance(50) {
			item["error"] = map[string]any{"message": "refused"}
		} else {
			item["result"] = map[string]any{"content": s.texts("text", "found"), "isError": s.Chance(50)}
		}
	case "ImageView":
		item["path"] = "file:///tmp/a.png"
	case "Extension":
		item["kind"], item["query"], item["results"] = s.OneOf("web.search", "clock.sleep"), "x", []any{}
	}
	s.event("item_completed", map[string]any{"thread_id": "t", "item": item})
}

// tokens writes a token_count: higher, equal, lower, or empty.
func (s *codexScript) tokens() {
	usage := func(u [5]int) map[string]any {
		out := map[string]any{"input_tokens": u[0], "cached_input_tokens": u[1], "output_tokens": u[3], "reasoning_output_tokens": u[4], "total_tokens": u[0] + u[3]}
		if u[2] > 0 {
			out["cache_write_input_tokens"] = u[2]
		}
		return out
	}
	if s.last != nil && s.Chance(30) {
		s.event("token_count", map[string]any{"info": s.last})
		return
	}
	in, out := rapid.IntRange(0, 900).Draw(s.T, "in"), rapid.IntRange(0, 90).Draw(s.T, "out")
	last := [5]int{in, rapid.IntRange(0, in).Draw(s.T, "cached"), 0, out, rapid.IntRange(0, out).Draw(s.T, "reasoning")}
	if s.ordinal {
		last[2] = rapid.IntRange(0, in-last[1]).Draw(s.T, "written")
	}
	switch s.OneOf("more", "more", "more", "more", "reset", "jump", "null") {
	case "reset":
		s.total = last
	case "jump":
		for i := range s.total {
			s.total[i] += 2 * last[i]
		}
	case "null":
		s.event("token_count", map[string]any{"info": nil})
		return
	default:
		for i := range s.total {
			s.total[i] += last[i]
		}
	}
	info := map[string]any{"total_token_usage": usage(s.total), "last_token_usage": usage(last), "model_context_window": 258_400}
	record := func() {
		s.put("token_usage_record", map[string]any{
			"thread_id": s.OneOf(s.thread, s.thread, s.thread, "019ca000-ffff-7000-8000-000000000000"), "response_id": s.id("resp"),
			"usage": usage(last), "thread_token_usage": usage(s.total),
		})
	}
	s.last = info
	switch {
	case s.version != "0.159.0":
		s.event("token_count", map[string]any{"info": info})
	case s.Chance(60):
		record()
		s.event("token_count", map[string]any{"info": info})
	case s.Chance(50):
		s.event("token_count", map[string]any{"info": info})
		record()
	default:
		record()
	}
}

// context begins a turn.
func (s *codexScript) context() {
	p := map[string]any{"cwd": s.OneOf("/home/dev/app", "/elsewhere"), "model": s.OneOf("gpt-5.2-codex", "gpt-5.5"), "approval_policy": "never", "effort": s.OneOf("low", "high")}
	if s.version == "0.125.0" || s.ordinal {
		s.n++
		s.turn = fmt.Sprintf("019ca000-%04x-%s000-8000-000000000001", s.n, s.OneOf("7", "7", "7", "4"))
		p["turn_id"] = s.turn
		started := map[string]any{"turn_id": s.turn}
		if s.Chance(60) {
			at := s.Now.Unix() - int64(rapid.SampledFrom([]int{0, 0, 0, 1, 600}).Draw(s.T, "s ago"))
			if s.Chance(30) {
				at = at*1000 + 250
			}
			started["started_at"] = at
		}
		if s.Chance(90) {
			s.event(s.OneOf("task_started", "turn_started"), started)
		}
	}
	s.put("turn_context", p)
	if s.Chance(30) {
		s.event("thread_settings_applied", map[string]any{"thread_settings": map[string]any{"model": s.OneOf("gpt-5.5", "gpt-5.6-sol")}})
	}
}

func (s *codexScript) injected() {
	phrase := s.OneOf("# AGENTS.md instructions for /x", "<environment_context>\n</environment_context>", "<turn_aborted>\n</turn_aborted>", "<user_shell_command>\nls\n</user_shell_command>", "<heartbeat>\n</heartbeat>", "# Context from my IDE setup:\n\n## My request for Codex:\n")
	role := s.OneOf("user", "user", "developer", "system")
	s.item("message", map[string]any{"role": role, "content": s.texts("input_text", phrase)})
}

func (s *codexScript) search() {
	var ended, called any
	switch {
	case s.Chance(80):
		ended = map[string]any{"type": "search", "query": s.OneOf("one", "two")}
		called = ended
	case s.Chance(80):
		ended = map[string]any{"type": "other"}
	default:
		called = map[string]any{"type": "other"}
	}
	if s.Chance(80) {
		s.event("web_search_end", map[string]any{"call_id": s.id("ws"), "query": normalizerstest.Member[string](ended, "query"), "action": ended})
	}
	if s.Chance(60) {
		p := map[string]any{"type": "web_search_call", "status": "completed", "action": called}
		if s.Chance(30) {
			p["id"] = s.id("ws")
		}
		s.put("response_item", p)
	}
	if s.Chance(20) {
		s.put("response_item", map[string]any{"type": "image_generation_call", "id": s.id("ig"), "status": "completed", "revised_prompt": "a square", "result": "aGk="})
	}
}

func (s *codexScript) compact() {
	if s.Chance(50) {
		s.put("compacted", map[string]any{"message": s.OneOf("", "We fixed it."), "replacement_history": []any{map[string]any{"type": "message", "role": "user", "content": s.texts("input_text", "yes")}}})
		s.event("context_compacted", nil)
	}
}

// resume writes another session_meta: of this session, of another one, or of a fork with its copied history.
func (s *codexScript) resume() {
	if s.bare || !s.Chance(40) {
		return
	}
	s.n++
	id := fmt.Sprintf("019ca000-%04x-7000-8000-%s", s.n, s.Session[24:])
	switch s.OneOf("again", "other", "fork", "spawn", "subagent", "start") {
	case "again":
		s.meta(s.Session, nil)
		return
	case "other":
		s.meta(id, nil)
		s.total = [5]int{}
		return
	case "fork":
		id = fmt.Sprintf("019ca000-%04x-%s000-8000-%s", s.n, s.OneOf("7", "7", "4"), s.Session[24:])
		s.meta(id, map[string]any{"forked_from_id": s.Session})
	case "subagent":
		s.meta(id, map[string]any{"thread_source": "subagent", "parent_thread_id": s.Session})
	case "start":
		s.meta(id, map[string]any{"parent_thread_id": s.Session, "subagent_history_start_ordinal": len(s.Lines) + rapid.IntRange(1, 9).Draw(s.T, "copied")})
	case "spawn":
		s.meta(id, map[string]any{"source": map[string]any{"subagent": map[string]any{"thread_spawn": map[string]any{"parent_thread_id": s.Session, "depth": 1}}}})
	}
	// The copy repeats the file, at the time of the fork.
	for _, l := range append([][]byte(nil), s.Lines...) {
		var r map[string]any
		if json.Unmarshal(l, &r) != nil || r["payload"] == nil || s.Chance(40) {
			continue
		}
		r["timestamp"] = s.Now.Format("2006-01-02T15:04:05.000Z")
		s.Emit(r)
	}
	if s.Chance(80) {
		s.context()
	}
}

func (s *codexScript) notice() {
	switch s.OneOf(
		"error", "aborted", "name", "delta", "begin", "done", "review", "agents", "snapshot", "goal", "delivered", "plain",
	) {
	case "error":
		s.event("error", map[string]any{"message": "no more", "codex_error_info": s.OneOf("usage_limit_exceeded", "other")})
	case "aborted":
		s.event("turn_aborted", map[string]any{"reason": "interrupted"})
	case "name":
		s.event("thread_name_updated", map[string]any{"thread_name": "Fix it"})
	case "delta":
		s.event("agent_message_delta", map[string]any{"delta": "x"})
	case "begin":
		s.event("exec_command_begin", map[string]any{"call_id": "x"})
	case "done":
		s.event("task_complete", map[string]any{"turn_id": s.turn, "last_agent_message": s.OneOf(append(s.messages, "x")...)})
	case "review":
		s.event("entered_review_mode", map[string]any{"target": map[string]any{"type": "uncommittedChanges"}})
		s.review()
		s.put("response_item", map[string]any{"type": "message", "id": "review_rollout_assistant", "role": "assistant", "content": s.texts("output_text", s.phrase())})
		s.event("exited_review_mode", nil)
	case "agents":
		s.letter()
	case "snapshot":
		s.item("ghost_snapshot", map[string]any{"ghost_commit": map[string]any{"id": "2b41"}})
	case "delivered":
		s.delivered()
	case "plain":
		s.plain()
	case "goal":
		s.event("thread_goal_updated", map[string]any{"goal": map[string]any{"tokensUsed": 5}})
	}
}

// review writes the records of a review: texts, each twice, and a running total that begins at zero. The last
// token_count before it may follow again.
func (s *codexScript) review() {
	outer, last := s.total, s.last
	s.total, s.last = [5]int{}, nil
	for range rapid.IntRange(0, 4).Draw(s.T, "records of the review") {
		switch s.OneOf("prompt", "thought", "tokens") {
		case "prompt":
			text := s.phrase()
			s.duplicate("user", text)
			s.duplicate("user", text)
		case "thought":
			text := s.phrase()
			s.duplicate("thought", text)
			s.duplicate("thought", text)
		case "tokens":
			s.tokens()
		}
	}
	s.total, s.last = outer, last
}

// other writes unknown records, values that are no object, and repeated lines.
func (s *codexScript) other() {
	switch s.OneOf("item", "event", "record", "state", "value", "untyped", "again") {
	case "item":
		s.item("of_tomorrow", map[string]any{"x": 1})
	case "event":
		s.event("of_tomorrow", map[string]any{"x": 1})
	case "record":
		s.put("of_tomorrow", map[string]any{"x": 1})
	case "state":
		s.Emit(map[string]any{"record_type": "state"})
	case "value":
		s.Emit(rapid.SampledFrom([]any{"words", 42, []any{1}, nil, map[string]any{}}).Draw(s.T, "value"))
	case "untyped":
		s.put("response_item", map[string]any{"role": s.OneOf("user", "assistant"), "content": s.texts("text", s.phrase())})
	case "again":
		if len(s.Lines) > 0 {
			s.Lines = append(s.Lines, rapid.SampledFrom(s.Lines).Draw(s.T, "line again"))
		}
	}
}
