package cursortest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"pgregory.net/rapid"

	"tributary/normalizers/normalizerstest"
)

// cursorScript writes the lines of one session of Cursor, record by record, in the shapes of README.md: well formed,
// in any order, the stream and the transcript mixed, with lines of the program among them.
type cursorScript struct {
	normalizerstest.Script

	n          int              // number of ids
	rows       []map[string]any // values of the messages of the database, by the numbers of their ids
	millis     int64            // since 1970, of the next record
	open       []map[string]any
	deltas     string // since the last tool
	isSubagent bool   // as its rows state from the start
}

// lines generates the lines of one session.
func lines(t *rapid.T, session string) [][]byte {
	starts := []int64{1_770_823_434_041, 1_775_001_590_000, 1_785_515_118_821} // before, about and after April 2026
	s := &cursorScript{Script: normalizerstest.NewScript(t, session), millis: rapid.SampledFrom(starts).Draw(t, "start")}
	if s.Chance(40) {
		s.database()
		return s.Lines
	}
	s.system()
	moves := []func(){
		s.user, s.user, s.think, s.think, s.thought, s.delta, s.delta, s.delta, s.recap, s.recap, s.answer, s.answer,
		s.started, s.started, s.completed, s.completed, s.completed, s.orphan, s.result, s.system, s.transcript, s.transcript,
		s.ended, s.connection, s.other, s.other, s.bubble,
	}
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		rapid.SampledFrom(moves).Draw(t, "move")()
	}
	return s.Lines
}

// ended is what Cursor asks for when a task has ended.
const ended = "Briefly inform the user about the task result and perform any follow-up actions (if needed)."

// cursorTexts are texts that matter to a rule, and some that do not.
var cursorTexts = []string{
	"fix the test", "ha", "  \n", "", "what is \"this\"?\n\ttwo lines \u2028 \U0001F642", "please login first", "<user_query>\nrun ls\n</user_query>",
	"<timestamp>Thursday, Mar 5, 2026, 10:15 AM (UTC-8)</timestamp>\n<user_query>\ngo on\n</user_query>", "<timestamp>soon</timestamp>",
	"<system_reminder>\nbe brief\n</system_reminder>", "<attached_files>\na.go\n</attached_files>\n<user_query>look</user_query><user_query>and think</user_query>",
	"<user_query>", "<user_query></user_query>", "<div>x</div>", "<",
	"<timestamp>soon</timestamp>\n<system_notification>\nA task has ended.\n<task>\nkind: shell\n</task>\n</system_notification>\n<user_query>Go on.</user_query>",
	"<system_notification source=\"goal\">\nGo on.\n</system_notification>", "<system_notification>x",
	"<timestamp>soon</timestamp>\n\n<user_query>" + ended + "</user_query>",
	"<user_query>" + ended + " If there's no follow-ups needed, don't explicitly say that.\n</user_query>",
	"<user_query>" + ended + " Then stop.</user_query>",
	"<user_query>" + ended + "</user_query><user_query>look</user_query>", ended,
	"<user_query>what is <system_notification>x</system_notification>?</user_query>",
}

func (s *cursorScript) word() string {
	if rapid.IntRange(0, 9).Draw(s.T, "free text") == 0 {
		return rapid.StringMatching(`[a-z <>/\n"é]{0,40}`).Draw(s.T, "text")
	}
	return rapid.SampledFrom(cursorTexts).Draw(s.T, "word")
}

// emit writes a record of the stream with its session and, if timed, mostly with its time.
func (s *cursorScript) emit(record map[string]any, timed bool) {
	record["session_id"] = s.Session
	if timed {
		s.millis += int64(rapid.IntRange(-50, 5000).Draw(s.T, "ms"))
		record["timestamp_ms"] = s.millis
	}
	s.Script.Emit(record)
}

func content(role, text string) map[string]any {
	return map[string]any{"role": role, "content": []any{map[string]any{"type": "text", "text": text}}}
}

func (s *cursorScript) system() {
	mode := s.OneOf("permissionMode", "permission_mode")
	s.emit(map[string]any{
		"type": "system", "subtype": s.OneOf("init", "init", "init", "status"), "model": s.OneOf("Auto", "GPT-5", "Claude 4 Sonnet"), mode: s.OneOf("default", "force"),
		s.OneOf("apiKeySource", "api_key_source"): "login", "cwd": s.OneOf("/home/dev/app", "/elsewhere"),
	}, false)
}

func (s *cursorScript) user() {
	s.deltas = ""
	s.emit(map[string]any{"type": "user", "message": content("user", s.word())}, s.Chance(10))
}

func (s *cursorScript) think() {
	s.emit(map[string]any{"type": "thinking", "subtype": "delta", "text": s.OneOf("**Planning", " the", " work**\n", "", " ")}, true)
}

func (s *cursorScript) thought() {
	r := map[string]any{"type": "thinking", "subtype": "completed"}
	if s.Chance(10) {
		r["text"] = "**Planning the work**"
	}
	s.emit(r, true)
}

func (s *cursorScript) delta() {
	text := s.OneOf("ha", "I will ", "look at the ", "test.\n", "=", "", " ")
	s.deltas += text
	s.emit(map[string]any{"type": "assistant", "message": content("assistant", text)}, true)
}

// recap repeats the deltas since the last tool, exactly or almost.
func (s *cursorScript) recap() {
	r := map[string]any{"type": "assistant", "message": content("assistant", s.deltas+s.OneOf("", "", "", " And so on."))}
	before := s.Chance(50)
	if before {
		r["model_call_id"] = s.id("m")
	}
	s.emit(r, before)
	s.deltas = ""
}

func (s *cursorScript) answer() {
	text := s.OneOf("Done.", "I will look at the test.", "ha", "", strings.Repeat("long ", 1000))
	r := map[string]any{"type": "assistant", "message": content("assistant", text)}
	if s.Chance(30) {
		r["model_call_id"] = s.id("m")
	}
	s.emit(r, r["model_call_id"] != nil)
}

func (s *cursorScript) id(prefix string) string {
	s.n++
	return fmt.Sprintf("%s-%s%d", s.Session, prefix, s.n)
}

// call returns a tool and its arguments.
func (s *cursorScript) call() (key string, body map[string]any) {
	key = s.OneOf("shellToolCall", "shellToolCall", "readToolCall", "writeToolCall", "editToolCall", "deleteToolCall", "grepToolCall", "updateTodosToolCall", "mcpToolCall", "hologramToolCall", "function")
	if key == "function" {
		return key, map[string]any{"name": "web_search", "arguments": `{"q":"nats"}`}
	}
	return key, map[string]any{"args": map[string]any{
		"path": "main.go", "command": "go test ./...", "pattern": "x", "strReplace": map[string]any{"oldText": "a", "newText": "b"}, "args": map[string]any{"a": 1},
	}}
}

func (s *cursorScript) started() {
	s.deltas = ""
	key, body := s.call()
	r := map[string]any{"type": "tool_call", "subtype": "started", "tool_call": map[string]any{key: body, "startedAtMs": "1785515118821"}}
	switch rapid.IntRange(0, 9).Draw(s.T, "id") {
	case 0: // none
	case 1:
		r["tool_call"].(map[string]any)["toolCallId"] = s.id("t")
	default:
		r["call_id"] = s.id("c") + s.OneOf("", "\nfc_1", " fc_1")
	}
	s.emit(r, s.Chance(80))
	s.open = append(s.open, r)
}

// outcome returns the result of a tool.
func (s *cursorScript) outcome() any {
	outcomes := []any{
		map[string]any{"success": map[string]any{"exitCode": 0, "stdout": "ok\n", "stderr": "", "executionTime": 5399}, "isBackground": false},
		map[string]any{"success": map[string]any{"exitCode": 3, "stdout": "", "stderr": "bad"}},
		map[string]any{"failure": map[string]any{"exitCode": 7, "stdout": "a", "stderr": "b", "executionTime": 12}},
		map[string]any{"success": map[string]any{"pid": 7}, "isBackground": true},
		map[string]any{"success": map[string]any{"content": "package main\n", "totalLines": 1}},
		map[string]any{"success": map[string]any{"content": []any{map[string]any{"text": map[string]any{"text": "# Readme"}}, map[string]any{"image": "x"}}, "isError": s.Chance(50)}},
		map[string]any{"success": map[string]any{"path": "main.go", "linesAdded": 1, "diffString": "@@ -1 +1 @@\n-a\n+b"}},
		map[string]any{"rejected": map[string]any{"reason": "no"}},
		map[string]any{"permissionDenied": map[string]any{"path": "main.go"}},
		map[string]any{"timeout": map[string]any{"timeoutMs": 30000}},
		map[string]any{"error": map[string]any{"errorMessage": "no such file"}},
		map[string]any{"fileNotFound": map[string]any{}},
		map[string]any{"files": []any{"a"}},
		map[string]any{"success": true},
		map[string]any{},
		map[string]any{"isBackground": false},
		"a bare result", nil,
	}
	return rapid.SampledFrom(outcomes).Draw(s.T, "outcome")
}

func (s *cursorScript) completed() {
	if len(s.open) == 0 {
		return
	}
	started := rapid.SampledFrom(s.open).Draw(s.T, "open")
	r := maps.Clone(started)
	tool := make(map[string]any)
	for k, v := range started["tool_call"].(map[string]any) {
		if body, ok := v.(map[string]any); ok {
			done := maps.Clone(body)
			done["result"] = s.outcome()
			v = done
		}
		tool[k] = v
	}
	r["subtype"], r["tool_call"] = "completed", tool
	s.emit(r, s.Chance(80))
}

func (s *cursorScript) orphan() {
	key, body := s.call()
	body["result"] = s.outcome()
	s.emit(map[string]any{"type": "tool_call", "subtype": "completed", "call_id": s.id("o"), "tool_call": map[string]any{key: body}}, false)
}

func (s *cursorScript) result() {
	s.deltas = ""
	r := map[string]any{"type": "result", "subtype": "success", "duration_ms": 1234, "is_error": false, "result": "told before"}
	if s.Chance(30) {
		r["is_error"], r["subtype"] = true, s.OneOf("error", "success", "")
		r["result"] = rapid.SampledFrom([]any{"it failed", map[string]any{"error": "it failed"}, nil}).Draw(s.T, "problem")
	}
	if s.Chance(70) {
		r["request_id"] = s.Session + s.OneOf("-q1", "-q2")
	}
	if s.Chance(70) {
		usage := make(map[string]any)
		for _, name := range []string{"inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"} {
			usage[name] = rapid.SampledFrom([]int{0, 1, 57, 11_480}).Draw(s.T, name)
		}
		r["usage"] = usage
	}
	s.emit(r, false)
}

// transcript writes a line of the other format.
func (s *cursorScript) transcript() {
	s.deltas = ""
	if s.Chance(40) {
		list := []any{map[string]any{"type": "text", "text": s.word()}}
		if s.Chance(30) {
			list = append(list, map[string]any{"type": "tool_result", "tool_use_id": s.OneOf("t1", "t2"), "content": s.OneOf("a file", ""), "is_error": s.Chance(30)})
		}
		s.Script.Emit(map[string]any{"role": "user", "session_id": s.Session, "message": map[string]any{"content": list}})
		return
	}
	var list []any
	for range rapid.IntRange(0, 4).Draw(s.T, "blocks") {
		list = append(list, rapid.SampledFrom([]any{
			map[string]any{"type": "text", "text": "I will look."},
			map[string]any{"type": "text", "text": "[REDACTED]"},
			map[string]any{"type": "thinking", "thinking": "Hm."},
			map[string]any{"type": "tool_use", "name": "Shell", "input": map[string]any{"command": "ls"}},
			map[string]any{"type": "tool_use", "name": "Shell", "input": map[string]any{"target_file": "a.go", "command": "ls"}},
			map[string]any{"type": "tool_use", "id": fmt.Sprint("b", len(s.rows)+1, "-call"), "name": "Shell", "input": map[string]any{}},
			map[string]any{"type": "tool_use", "id": s.id("u"), "name": "StrReplace", "input": map[string]any{"path": "main.go"}},
			map[string]any{"type": "hologram"},
		}).Draw(s.T, "block"))
	}
	s.Script.Emit(map[string]any{"role": "assistant", "session_id": s.Session, "message": map[string]any{"content": list}})
}

func (s *cursorScript) ended() {
	r := map[string]any{"type": "turn_ended", "status": s.OneOf("success", "aborted", "error")}
	if s.Chance(40) {
		r["error"] = "User aborted/interrupted manually."
	}
	if s.Chance(10) {
		r = map[string]any{"type": "error", "error": "The provider is busy."}
	}
	s.emit(r, false)
}

func (s *cursorScript) connection() {
	s.emit(map[string]any{"type": s.OneOf("connection", "retry"), "subtype": "reconnecting", "attempt": 1}, true)
}

// other writes unknown records, values that are no object, and lines of the program.
func (s *cursorScript) other() {
	switch kind := s.OneOf("unknown", "string", "array", "null", "again", "plain", "login", "torn"); kind {
	case "unknown":
		s.emit(map[string]any{"type": "hologram", "depth": 3}, true)
	case "plain":
		s.Lines = append(s.Lines, []byte("Warning: slow network"))
	case "login":
		s.Lines = append(s.Lines, []byte("Authentication required. Please run 'cursor-agent login' first."))
	case "torn":
		s.Lines = append(s.Lines, []byte(`not JSON: {"type":"user"`))
	default:
		s.EmitValue(kind)
	}
}

// database writes the rows of a session, and a few lines of its transcript.
func (s *cursorScript) database() {
	if s.Chance(75) {
		s.isSubagent = s.Chance(15)
		s.composer()
	} else if s.Chance(80) { // which came first
		s.transcript()
	}
	moves := []func(){s.bubble, s.bubble, s.bubble, s.bubble, s.bubble, s.rewrite, s.rewrite, s.composer, s.transcript, s.other, s.Repeat}
	for range rapid.IntRange(1, 30).Draw(s.T, "records") {
		rapid.SampledFrom(moves).Draw(s.T, "move")()
	}
}

// row writes a row.
func (s *cursorScript) row(key string, value any) {
	s.Script.Emit(map[string]any{"table": "cursorDiskKV", "row": map[string]any{"key": key, "value": value}})
}

func (s *cursorScript) composer() {
	if !s.isSubagent && s.Chance(5) {
		s.row("composerData:"+s.Session, nil)
		return
	}
	value := map[string]any{
		"_v": 10, "composerId": s.Session, "name": s.OneOf("Fix the ledger", "Fix the ledger", ""), "createdAt": s.millis, "unifiedMode": "agent",
		"modelConfig": map[string]any{"modelName": s.OneOf("default", "claude-4.5-sonnet")}, "createdOnBranch": s.OneOf("main", "", "HEAD"),
	}
	if s.Chance(40) {
		value["workspaceIdentifier"] = map[string]any{"id": "w1", "uri": map[string]any{"fsPath": "/home/ada/src/ledger"}}
	}
	if s.isSubagent {
		value["subagentInfo"] = map[string]any{"parentComposerId": "p1", "subagentTypeName": "explore", "toolCallId": "c1"}
	}
	if s.Chance(40) {
		used := make(map[string]any)
		for _, model := range []string{"default", "gpt-5"}[rapid.IntRange(0, 2).Draw(s.T, "models"):] {
			used[model] = map[string]any{"costInCents": rapid.SampledFrom([]any{0, 7, 245, 90.5, "x", -3}).Draw(s.T, "cents"), "amount": 4}
		}
		value["usageData"] = used
	}
	if s.Chance(10) {
		value["conversation"] = []any{s.message("i1"), s.message(s.OneOf("i2", "")), s.message("i3")}
	}
	s.row("composerData:"+s.Session, value)
}

// message returns a message of the database with an id.
func (s *cursorScript) message(id string) map[string]any {
	s.millis += int64(rapid.IntRange(-50, 5000).Draw(s.T, "ms"))
	b := map[string]any{"_v": 3, "bubbleId": id, "type": 2, "text": "", "createdAt": time.UnixMilli(s.millis).UTC().Format("2006-01-02T15:04:05.000Z")}
	if s.Chance(20) {
		delete(b, "createdAt")
		b["timingInfo"] = map[string]any{"clientStartTime": 812.5, "clientRpcSendTime": float64(s.millis) + 0.25}
	}
	switch s.OneOf("user", "user", "text", "text", "thought", "tool", "tool", "tool", "all", "summary", "error", "image", "none") {
	case "user":
		b["type"], b["text"] = 1, s.OneOf("fix the test", "yes", "  \n", "", "<b>", "two\nlines \u2028 \U0001F642", "<system_notification>x</system_notification>")
		if s.Chance(10) {
			b["isSimulatedMsg"], b["simulatedMsgReason"] = s.Chance(80), 3
		}
	case "image":
		b["type"], b["images"] = 1, []any{map[string]any{"path": "/tmp/a.png"}}
	case "text":
		b["text"] = s.OneOf("Done.", "<|eos|>", "", " ", "I will look.")
		if s.Chance(20) { // no call
			b["toolFormerData"] = map[string]any{"additionalData": map[string]any{"status": "error"}}
		}
	case "thought":
		b["capabilityType"], b["thinking"] = 30, rapid.SampledFrom([]any{map[string]any{"text": "Hm.", "signature": ""}, "Hm.", ""}).Draw(s.T, "thought")
	case "tool":
		b["capabilityType"], b["toolFormerData"] = 15, s.formerTool(id)
	case "all":
		b["text"], b["thinking"], b["toolFormerData"] = "I look.", map[string]any{"text": "Hm."}, s.formerTool(id)
	case "summary":
		b["capabilityType"], b["text"] = 22, s.OneOf("What was done so far.", "")
	case "error":
		b["text"], b["errorDetails"] = s.OneOf("", "Sorry."), map[string]any{"code": "resource_exhausted", "message": "slow down"}
	}
	if s.Chance(30) {
		figure := func() int { return rapid.SampledFrom([]int{0, 0, 1, 57, 11_480}).Draw(s.T, "tokens") }
		b["tokenCount"] = map[string]any{"inputTokens": figure(), "outputTokens": figure()}
	}
	if s.Chance(20) {
		b["modelInfo"] = map[string]any{"modelName": s.OneOf("default", "gpt-5")}
	}
	return b
}

// formerTool returns a call. Its name follows from its id.
func (s *cursorScript) formerTool(id string) map[string]any {
	names := []string{"run_terminal_cmd", "run_terminal_command_v2", "read_file", "edit_file_v2", "codebase_search", "task_v2", "mcp_notes_add"}
	t := map[string]any{
		"tool": 15, "name": names[len(id)%len(names)], "status": s.OneOf("completed", "completed", "error", "cancelled", "loading"),
		"rawArgs": s.OneOf(`{"command":"ls","target_file":"a.go"}`, "", `{"comm`), "params": `{"relativeWorkspacePath":"b.go"}`,
	}
	if s.Chance(80) {
		t["toolCallId"] = id + "-call" + s.OneOf("", "\nfc_1")
		t["name"] = names[0]
	}
	if s.Chance(60) {
		t["result"] = s.OneOf(`{"output":"a\n","exitCode":0}`, `{"output":"no","exitCodeV2":2,"rejected":false}`, `{"contents":"package main"}`, `{"diff":{"chunks":[]}}`, "plain", "")
	}
	if s.Chance(20) {
		t["error"] = s.OneOf(`{"clientVisibleErrorMessage":"no such file"}`, "broken", "")
	}
	if s.Chance(10) {
		t["userDecision"] = s.OneOf("accepted", "rejected")
	}
	return t
}

// bubble writes a message of the database.
func (s *cursorScript) bubble() {
	id := fmt.Sprint("b", len(s.rows)+1)
	s.rows = append(s.rows, s.message(id))
	s.row("bubbleId:"+s.Session+":"+id, s.rows[len(s.rows)-1])
}

// rewrite writes a message of the database again: as it was, with more, with other content, or without any.
func (s *cursorScript) rewrite() {
	if len(s.rows) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.rows)-1).Draw(s.T, "row")
	id, value := fmt.Sprint("b", i+1), maps.Clone(s.rows[i])
	switch s.OneOf("same", "tokens", "tokens", "other", "null") {
	case "tokens":
		value["tokenCount"] = map[string]any{"inputTokens": 90_000, "outputTokens": 7}
	case "other":
		value = s.message(id)
	case "null":
		s.row("bubbleId:"+s.Session+":"+id, nil)
		return
	}
	s.row("bubbleId:"+s.Session+":"+id, value)
}
