package codextest

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads the rollouts of Codex a second time, with nothing but encoding/json and the design pages. It looks
// ahead where the normalizer must wait: it searches the whole file for what a duplicate repeats.

// Raw is one record of a rollout or of the exec stream.
type Raw struct {
	Number  int
	bad     bool
	value   any
	Kind    string // of the envelope; empty for a bare item
	item    any    // the payload, or the bare item
	of      string // payload.type
	Copied  bool   // history of another session
	Turn    string // id of the turn around the record; for a token_usage_record, of its response
	Model   string // known after the record
	Stamped string // its own time
}

// Read reads the records of a rollout, with no code of the package under test.
func Read(lines []normalizerstest.Line) []Raw {
	out := make([]Raw, len(lines))
	for i, l := range lines {
		out[i] = codexRawOf(l)
	}
	markCodex(out)
	return out
}

func codexRawOf(l normalizerstest.Line) Raw {
	r := Raw{Number: l.Number, bad: l.Bad}
	if !l.Bad {
		r.value = normalizerstest.Plain(l.Data)
	}
	r.item = r.value
	if p, ok := normalizerstest.Member[any](r.value, "payload").(map[string]any); ok {
		r.Kind, r.item = normalizerstest.Member[string](r.value, "type"), p
	}
	r.of = normalizerstest.Member[string](r.item, "type")
	if end, ok := codexItemEnd(r); ok {
		r.of, r.item = end["type"].(string), end
	}
	r.Stamped = normalizerstest.Member[string](r.value, "timestamp")
	if attributes := attributesOf(r.value); attributes != nil {
		r.Kind, r.of, r.item = exported, normalizerstest.Member[string](attributes, "event.name"), attributes
	}
	return r
}

// codexItemEnd turns the end of a tool, or another notice, in an item of the newer event stream into the older form.
func codexItemEnd(r Raw) (map[string]any, bool) {
	item := normalizerstest.Member[any](r.item, "item")
	kind := normalizerstest.Member[string](item, "type")
	if kind == "Extension" {
		kind += "/" + normalizerstest.Member[string](item, "kind")
	}
	of, ok := map[string]string{
		"CommandExecution": "exec_command_end", "FileChange": "patch_apply_end", "McpToolCall": "mcp_tool_call_end",
		"DynamicToolCall": "dynamic_tool_call_response", "ImageView": "view_image_tool_call", "ImageGeneration": "image_generation_end",
		"WebSearch": "web_search_end", "Extension/web.search": "web_search", "Extension/image_gen.generation": "image_generation_end",
		"EnteredReviewMode": "entered_review_mode", "ExitedReviewMode": "exited_review_mode",
		"SubAgentActivity": "sub_agent_activity", "ContextCompaction": "context_compacted", "CollabAgentToolCall": "collab_tool_call", "HookPrompt": "hook_prompt",
		"FunctionCallOutput": "output", "Sleep": "sleep", "Extension/clock.sleep": "sleep",
	}[kind]
	if !ok || r.Kind != "event_msg" || r.of != "item_completed" {
		return nil, false
	}
	end := maps.Clone(item.(map[string]any))
	end["call_id"] = end["id"]
	if end["type"] == "McpToolCall" {
		end["invocation"] = map[string]any{"server": end["server"], "tool": end["tool"]}
		end["result"] = map[string]any{"Ok": end["result"], "Err": end["error"]}
	}
	end["type"] = of
	return end, true
}

var codexV7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// markCodex sets for each record whether it is copied, its turn and its model (README.md).
func markCodex(records []Raw) {
	var c codexCopy
	turn, model, next, running := "", "", "", false
	for i := range records {
		r := &records[i]
		if r.Kind == "turn_context" || r.Kind == "event_msg" && (r.of == "task_started" || r.of == "turn_started") {
			turn = normalizerstest.Member[string](r.item, "turn_id")
		}
		settings := normalizerstest.Member[string](r.item, "thread_settings", "model")
		switch notice := strings.TrimPrefix(r.of, "task_"); {
		case r.Kind == "turn_context", r.Kind == "response_item":
			model = cmp.Or(normalizerstest.Member[string](r.item, "model"), model)
		case notice == "started", notice == "turn_started": // settings of the turn before apply from here on
			model, next, running = cmp.Or(next, model), "", true
		case notice == "complete", notice == "turn_complete", notice == "turn_aborted":
			running = false
		case running:
			next = cmp.Or(settings, next)
		case settings != "":
			model, next = settings, ""
		}
		r.Copied, r.Turn, r.Model = c.follow(*r), turn, model
		if r.Kind == "token_usage_record" {
			r.Turn = cmp.Or(normalizerstest.Member[string](r.item, "response_id"), turn)
		}
	}
}

// codexAgent returns the first session_meta if it says that the rollout is of a subagent, else -1.
func codexAgent(records []Raw) int {
	i := slices.IndexFunc(records, func(r Raw) bool { return r.Kind == "session_meta" })
	if i >= 0 && normalizerstest.Member[any](records[i].item, "source", "subagent") == nil {
		return -1
	}
	return i
}

// codexSession returns the session of a whole file: of its first session_meta, header or thread, else the stem of its
// name.
func codexSession(name string, records []Raw) string {
	for _, r := range records {
		id := normalizerstest.Member[string](r.item, "id")
		switch {
		case r.bad:
		case r.Kind == exported:
			return normalizerstest.Member[string](r.item, "conversation.id")
		case r.Kind == "session_meta" && id != "":
			return id
		case r.Kind == "" && r.of == "" && id != "" && r.Stamped != "":
			return id
		case r.Kind == "" && r.of == "thread.started":
			return normalizerstest.Member[string](r.value, "thread_id")
		}
	}
	return strings.TrimSuffix(path.Base(name), path.Ext(name))
}

// Interpret reads a file by the design pages.
func Interpret(name string, lines []normalizerstest.Line) normalizerstest.Account {
	records := Read(lines)
	a := normalizerstest.Account{Naive: make(map[string]normalizerstest.Figures)}
	session := codexSession(name, records)
	agent := codexAgent(records)
	var thread normalizerstest.RawThread
	for i, r := range records {
		if i == agent {
			thread = normalizerstest.RawThread{Agent: normalizerstest.Member[string](r.item, "id"), Internal: true}
		}
		a.Sessions = append(a.Sessions, session)
		a.Threads = append(a.Threads, thread)
		a.Trimmed = a.Trimmed || slices.Contains([]string{normalizerstest.Member[string](r.item, "id"), normalizerstest.Member[string](r.item, "call_id"), normalizerstest.Member[string](r.item, "callId"), normalizerstest.Member[string](r.item, "turn_id"), r.Stamped}, "[trimmed for fixture]")
		sum := a.Naive[session]
		sum.Add(codexUsageOf(normalizerstest.Member[any](r.item, "info", "last_token_usage")).figures())
		a.Naive[session] = sum
	}
	for _, s := range Sayings(records) {
		who := s.Who
		if who == "thought" {
			continue
		}
		if who == "human" && records[s.At].Copied {
			who = "user_message of origin copied"
		} else if who == "human" && a.Threads[s.At].Internal {
			who = "agent"
		}
		a.Talk = append(a.Talk, normalizerstest.Utterance{Session: session, Who: who, Text: strings.TrimSpace(s.Text), Line: records[s.At].Number})
	}
	a.Talk = addExported(a.Talk, session, records)
	called, resulted := make(map[string]bool), make(map[string]bool)
	for _, t := range withExported(ToolsOf(records), records, func(t *Tool) int { return t.Call }) {
		if t.Call >= 0 && !called[t.ID] {
			called[t.ID] = t.ID != ""
			a.Calls = append(a.Calls, normalizerstest.ToolUse{Session: session, ID: t.ID, Name: t.Name, Line: records[t.Call].Number})
		}
	}
	for _, t := range withExported(codexResultsOf(records), records, func(t *Tool) int { return t.Result }) {
		if resulted[t.ID] {
			continue
		}
		resulted[t.ID] = t.ID != ""
		a.Results = append(a.Results, normalizerstest.ToolOutcome{Session: session, ID: t.ID, Form: t.Form, Code: t.Code, Line: records[t.Result].Number})
	}
	return a
}
