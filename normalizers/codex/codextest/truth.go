package codextest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads the rollouts of Codex a second time, with nothing but encoding/json. It looks
// ahead where the normalizer must wait: it searches the whole file for the response_item that
// an event_msg duplicates.

// Raw is one record of a rollout or of the exec stream.
type Raw struct {
	Number  int
	bad     bool
	value   any
	Kind    string // of the envelope; empty for a bare item
	item    any    // the payload, or the bare item
	of      string // payload.type
	Copied  bool   // history of another session
	Turn    string // id of the turn that it stands in
	Model   string // that is known after it
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
	return r
}

// codexItemEnd returns the end of a tool in an item of the newer event stream, in the form of
// the older one.
func codexItemEnd(r Raw) (map[string]any, bool) {
	item := normalizerstest.Member[any](r.item, "item")
	of, ok := map[string]string{
		"CommandExecution": "exec_command_end", "FileChange": "patch_apply_end", "McpToolCall": "mcp_tool_call_end",
		"DynamicToolCall": "dynamic_tool_call_response", "ImageView": "view_image_tool_call", "ImageGeneration": "image_generation_end",
		"WebSearch": "web_search_end", "Extension/web.search": "web_search", "Extension/image_gen.generation": "image_generation_end",
	}[strings.TrimSuffix(normalizerstest.Member[string](item, "type")+"/"+normalizerstest.Member[string](item, "kind"), "/")]
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

// markCodex marks each record as copied or not, with its turn and its model.
func markCodex(records []Raw) {
	var c codexCopy
	turn, model := "", ""
	for i := range records {
		r := &records[i]
		if r.Kind == "turn_context" || r.Kind == "event_msg" && (r.of == "task_started" || r.of == "turn_started") {
			turn = normalizerstest.Member[string](r.item, "turn_id")
		}
		switch {
		case r.Kind == "turn_context", r.Kind == "response_item":
			model = cmp.Or(normalizerstest.Member[string](r.item, "model"), model)
		default:
			model = cmp.Or(normalizerstest.Member[string](r.item, "thread_settings", "model"), model)
		}
		r.Copied, r.Turn, r.Model = c.follow(*r), turn, model
	}
}

// codexCopy follows the history of another session that a fork begins with.
type codexCopy struct {
	child   string // whose copy goes on
	promise bool   // turns have the ids that end it
}

// follow reports whether a record is copied. The first turn of the child ends the copy,
// as does the first turn of all where the version of the child promises no turn ids: it
// does since 0.118.
func (c *codexCopy) follow(r Raw) bool {
	if r.Kind == "turn_context" || r.of == "task_started" || r.of == "turn_started" {
		id := normalizerstest.Member[string](r.item, "turn_id")
		v7 := codexV7.MatchString(id)
		c.promise = c.promise || v7
		if v7 && id >= c.child || !c.promise {
			c.child = ""
		}
	}
	copied := c.child != ""
	if id := normalizerstest.Member[string](r.item, "id"); !copied && isCodexFork(r) && codexV7.MatchString(id) {
		minor := 0
		_, _ = fmt.Sscanf(normalizerstest.Member[string](r.item, "cli_version"), "0.%d", &minor) // 0 when it is none
		c.child, c.promise = id, minor >= 118
	}
	return copied
}

// isCodexFork reports whether copied history may follow a session_meta.
func isCodexFork(r Raw) bool {
	base := normalizerstest.Member[string](r.item, "history_base", "thread_id")
	return r.Kind == "session_meta" && (normalizerstest.Member[string](r.item, "forked_from_id") != "" || normalizerstest.Member[any](r.item, "source", "subagent", "thread_spawn") != nil ||
		base != "" && base != normalizerstest.Member[string](r.item, "id"))
}

// codexMachine are the beginnings of what a machine wrote under the role of the user.
var codexMachine = []string{
	"# AGENTS.md instructions", "<INSTRUCTIONS>", "<environment_context>", "<user_instructions>", "<turn_aborted>", "<user_shell_command>",
	"<user_action>", "<recommended_plugins>", "<skill>", "<subagent_notification>", "<permissions instructions>", "<collaboration_mode>",
	"<model_switch>", "<multi_agent_mode>", "<skills_instructions>", "<personality_spec>", "<hook_prompt ", "<codex_internal_context",
	"<goal_context>", "<extension_context>", "<external_", "<agent_message_board_notification>", "<app-context>", "<apps_instructions>",
	"<plugins_instructions>", "Warning: apply_patch was requested via ", "Warning: Your account was flagged for potentially high-risk cyber activity",
	"Warning: The maximum number of unified exec processes you can keep open is",
}

// codexTexts are the texts of a content, without the marks around a picture.
func codexTexts(content any) (texts []string, pictures bool) {
	switch c := content.(type) {
	case string:
		return []string{c}, false
	case []any:
		for _, p := range c {
			text := normalizerstest.Member[string](p, "text")
			if s, ok := p.(string); ok {
				text = s
			}
			if strings.Contains(normalizerstest.Member[string](p, "type"), "image") {
				pictures = true
			}
			if mark := strings.TrimSpace(text); text == "" || regexp.MustCompile(`^</?image[^\n]*>$`).MatchString(mark) {
				continue
			}
			texts = append(texts, text)
		}
	}
	return texts, pictures
}

// codexTyped is what a human typed in some texts; false when it was a machine.
func codexTyped(texts []string, pictures bool) (string, bool) {
	var typed []string
	for _, t := range texts {
		if !slices.ContainsFunc(codexMachine, func(p string) bool { return strings.HasPrefix(strings.TrimSpace(t), p) }) {
			typed = append(typed, t)
		}
	}
	if len(typed) == 0 {
		return "", pictures
	}
	phrase := strings.Join(typed, "\n")
	if strings.HasPrefix(strings.TrimSpace(phrase), "# Context from my IDE setup:") {
		_, phrase, _ = strings.Cut(phrase, "## My request for Codex:")
		phrase = strings.TrimSpace(phrase)
		return phrase, phrase != "" || pictures
	}
	return phrase, true
}

// Saying is a text of a record: of a response_item, or of an event_msg that may repeat it.
type Saying struct {
	At        int    // index of the record
	Who       string // human, assistant, thought
	Duplicate bool
	keys      []string // the texts under which it is known; of a thought its parts
	Text      string   // as it is emitted
	whole     int      // of keys: so many are all of it, the others parts
	taken     []bool   // of keys: a duplicate has it too
	all       bool     // one that is all of it is taken
	before    bool     // by one that stands before it
	dropped   bool     // of a duplicate: its response_item is emitted instead
	place     [2]int   // the record whose events it stands in front of, and its own
}

// take marks a text as duplicated: the whole of it, or one part.
func (s *Saying) take(key string) bool {
	for i, k := range s.keys {
		part := i >= s.whole
		if k != key || s.taken[i] || s.all || !part && slices.Contains(s.taken, true) {
			continue
		}
		s.taken[i], s.all = true, !part
		return true
	}
	return false
}

// Sayings returns the texts of the records, in the order of their events: each text once
// (README.md, Speech).
func Sayings(records []Raw) []*Saying {
	byRecord := make([][]*Saying, len(records))
	agent := codexAgent(records)
	for i, r := range records {
		byRecord[i] = sayingsOf(i, r, agent >= 0 && i >= agent)
	}
	var out []*Saying
	tools := make(map[int]bool) // records of a tool
	for _, t := range ToolsOf(records) {
		tools[t.Call], tools[t.Result] = true, true
	}
	var waited []*Saying
	for i := range records {
		for _, s := range byRecord[i] {
			if s.Duplicate {
				s.pair(records, byRecord, tools)
				// An emitted text releases the pending ones in front of it.
				for _, o := range waited {
					if !s.dropped && o.place[0] > s.place[0] {
						o.dropped, o.place[0] = false, s.place[0]
					}
				}
				waited = append(waited, s)
			}
		}
	}
	known := make(map[string]bool)
	for i, r := range records {
		for _, s := range byRecord[i] {
			id := normalizerstest.Member[string](r.item, "id")
			again := fmt.Sprint(id, s.Who, s.Text)
			if s.Duplicate || r.of == "item.completed" || id == "" || strings.HasPrefix(id, "review_rollout_") {
				again = ""
			}
			if !s.dropped && !known[again] {
				out = append(out, s)
			}
			known[again] = again != ""
		}
	}
	slices.SortStableFunc(out, func(a, b *Saying) int {
		return cmp.Or(cmp.Compare(a.place[0], b.place[0]), cmp.Compare(a.place[1], b.place[1]))
	})
	return out
}

// pair finds the response_item that an event_msg duplicates: the last one, or one that follows
// before another record ends the wait.
func (s *Saying) pair(records []Raw, byRecord [][]*Saying, tools map[int]bool) {
	for j := s.At - 1; j >= 0; j-- {
		k := slices.IndexFunc(byRecord[j], func(o *Saying) bool { return !o.Duplicate && o.Who == s.Who })
		if k >= 0 {
			if s.dropped = byRecord[j][k].take(s.keys[0]); s.dropped {
				return
			}
			break
		}
	}
	j := s.At + 1
	for ; j < len(records); j++ {
		if records[j].bad {
			continue
		}
		for _, o := range byRecord[j] {
			if !o.Duplicate && o.Who == s.Who && o.take(s.keys[0]) {
				s.dropped, o.before = true, true
				s.place = [2]int{j, s.At - len(records)}
				return
			}
		}
		if tools[j] || !s.letsPass(records[j], byRecord[j]) {
			break
		}
	}
	s.place = [2]int{j, s.At - len(records)}
}

// letsPass reports whether a pending event_msg waits beyond a record: it waits beyond a
// response_item that an earlier event_msg duplicates, because its own may follow.
func (s *Saying) letsPass(r Raw, sayings []*Saying) bool {
	for _, o := range sayings {
		switch {
		case o.Duplicate && (o.Who == "human") != (s.Who == "human"):
			return false
		case !o.Duplicate && !o.before && !(o.Who == "thought" && s.Who == "assistant"):
			return false
		}
	}
	if len(sayings) > 0 {
		return true
	}
	switch r.Kind {
	case "event_msg":
		return r.of != "task_complete" && r.of != "turn_complete"
	case "turn_context", "world_state":
		return true
	case "response_item", "":
		if normalizerstest.Member[string](r.item, "record_type") != "" && r.of == "" {
			return true // no record of the conversation at all
		}
		return r.of == "reasoning" || r.of == "message"
	case "inter_agent_communication_metadata":
		return true
	}
	return false
}

// sayingsOf returns the texts of a record.
func sayingsOf(at int, r Raw, subagent bool) []*Saying {
	var out []*Saying
	utter := func(who string, duplicate bool, text string, whole int, keys ...string) {
		s := &Saying{At: at, Who: who, Duplicate: duplicate, Text: text, whole: whole, place: [2]int{at, at}}
		for _, k := range keys {
			s.keys = append(s.keys, strings.TrimSpace(k))
		}
		s.taken = make([]bool, len(s.keys))
		out = append(out, s)
	}
	duplicate := func(who, text string) {
		if who == "human" {
			phrase, human := codexTyped([]string{text}, strings.TrimSpace(text) == "")
			if human {
				utter(who, true, phrase, 1, text)
			}
			return
		}
		if strings.TrimSpace(text) != "" {
			utter(who, true, text, 1, text)
		}
	}
	texts, pictures := codexTexts(normalizerstest.Member[any](r.item, "content"))
	joined := strings.Join(texts, "\n")
	role := normalizerstest.Member[string](r.item, "role")
	switch {
	case r.bad:
	case r.Kind == "event_msg":
		phrase, _ := codexTexts(normalizerstest.Member[any](r.item, "item", "content"))
		switch r.of + "/" + normalizerstest.Member[string](r.item, "item", "type") {
		case "user_message/":
			duplicate("human", normalizerstest.Member[string](r.item, "message"))
		case "agent_message/":
			duplicate("assistant", normalizerstest.Member[string](r.item, "message"))
		case "agent_reasoning/":
			duplicate("thought", normalizerstest.Member[string](r.item, "text"))
		case "item_completed/UserMessage":
			duplicate("human", strings.Join(phrase, "\n"))
		case "item_completed/AgentMessage":
			duplicate("assistant", strings.Join(phrase, "\n"))
		case "item_completed/Plan":
			duplicate("assistant", normalizerstest.Member[string](r.item, "item", "text"))
		case "item_completed/Reasoning":
			parts, _ := codexTexts(normalizerstest.Member[any](r.item, "item", "summary_text"))
			for _, t := range parts {
				duplicate("thought", t)
			}
		}
	case r.Kind != "response_item" && r.Kind != "":
	case r.of == "message" || r.of == "" && role != "" && normalizerstest.Member[any](r.item, "content") != nil:
		keys := []string{joined}
		if _, plan, ok := strings.Cut(joined, "<proposed_plan>"); ok {
			plan, _, _ = strings.Cut(plan, "</proposed_plan>")
			keys = append(keys, plan)
		}
		whole := len(keys)
		keys = append(keys, texts...)
		if role == "assistant" && len(texts) > 0 {
			utter("assistant", false, joined, whole, keys...)
		}
		if phrase, human := codexTyped(texts, pictures); role == "user" && human {
			utter("human", false, phrase, whole, keys...)
		}
	case r.of == "agent_message" && normalizerstest.Member[string](r.item, "author") == "/root" && !subagent:
		utter("assistant", false, joined, 0)
	case r.of == "reasoning":
		parts, _ := codexTexts(normalizerstest.Member[any](r.item, "summary"))
		if len(parts) == 0 {
			parts = texts
		}
		if len(parts) == 0 && normalizerstest.Member[string](r.item, "text") != "" {
			parts = []string{normalizerstest.Member[string](r.item, "text")}
		}
		if len(parts) > 0 {
			utter("thought", false, strings.Join(parts, "\n"), 0, parts...)
		}
	case r.of == "item.completed":
		text := normalizerstest.Member[string](r.item, "item", "text")
		switch normalizerstest.Member[string](r.item, "item", "type") {
		case "agent_message", "plan":
			utter("assistant", false, text, 0)
		case "reasoning":
			utter("thought", false, text, 0)
		}
	}
	return out
}

// codexAgent returns the index of the first session_meta if it states that the rollout is of a
// subagent, else -1.
func codexAgent(records []Raw) int {
	i := slices.IndexFunc(records, func(r Raw) bool { return r.Kind == "session_meta" })
	if i >= 0 && normalizerstest.Member[any](records[i].item, "source", "subagent") == nil {
		return -1
	}
	return i
}

// codexSession is the session of a whole file: that of its first session_meta, header or
// thread, else the stem of its name.
func codexSession(name string, records []Raw) string {
	for _, r := range records {
		id := normalizerstest.Member[string](r.item, "id")
		switch {
		case r.bad:
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

// Interpret reads a file by the rules of README.md.
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
	called, resulted := make(map[string]bool), make(map[string]bool)
	for _, t := range ToolsOf(records) {
		if t.Call >= 0 && !called[t.ID] {
			called[t.ID] = t.ID != ""
			a.Calls = append(a.Calls, normalizerstest.ToolUse{Session: session, ID: t.ID, Name: t.Name, Line: records[t.Call].Number})
		}
	}
	for _, t := range codexResultsOf(records) {
		if resulted[t.ID] {
			continue
		}
		resulted[t.ID] = t.ID != ""
		a.Results = append(a.Results, normalizerstest.ToolOutcome{Session: session, ID: t.ID, Form: t.Form, Code: t.Code, Line: records[t.Result].Number})
	}
	return a
}

// codexUsage are the figures of a usage as Codex states them.
type codexUsage struct{ input, cached, written, output, reasoning int64 }

func codexUsageOf(v any) codexUsage {
	n := func(name string) int64 {
		f, _ := normalizerstest.Member[json.Number](v, name).Float64()
		if f < 0 || f > 1<<50 {
			return 0 // no count of anything
		}
		return int64(math.Round(f))
	}
	return codexUsage{n("input_tokens"), n("cached_input_tokens"), n("cache_write_input_tokens"), n("output_tokens"), n("reasoning_output_tokens")}
}

// figures are those of an event that carries this usage.
func (u codexUsage) figures() normalizerstest.Figures {
	u.cached = min(u.cached, u.input)
	u.written = min(u.written, u.input-u.cached)
	u.reasoning = min(u.reasoning, u.output)
	return normalizerstest.Figures{
		Input: u.input, Output: u.output, Cached: u.cached, Thinking: u.reasoning, Total: u.input + u.output,
		UsageInput: u.input - u.cached - u.written, CacheRead: u.cached, CacheWrite: u.written,
		UsageOutput: u.output - u.reasoning, UsageReasoning: u.reasoning,
	}
}

// above is what u is above before, field by field.
func (u codexUsage) above(before codexUsage) codexUsage {
	return codexUsage{
		max(0, u.input-before.input), max(0, u.cached-before.cached), max(0, u.written-before.written),
		max(0, u.output-before.output), max(0, u.reasoning-before.reasoning),
	}
}

// Ledger follows the running total of each session (README.md, Tokens).
type Ledger map[string]*codexAccount

type codexAccount struct {
	sum    normalizerstest.Figures
	total  codexUsage
	last   string          // the last pair
	pairs  map[string]bool // all pairs
	forked bool
	meta   string
	copy   codexCopy
}

// Add implements [normalizerstest.Ledger].
func (l Ledger) Add(session string, record []byte) {
	a := l[session]
	if a == nil {
		a = &codexAccount{pairs: make(map[string]bool)}
		l[session] = a
	}
	r := codexRawOf(normalizerstest.Line{Data: record})
	copied := a.copy.follow(r)
	switch {
	case r.Kind == "" && r.of == "turn.completed":
		now := codexUsageOf(normalizerstest.Member[any](r.value, "usage"))
		if now.input+now.output < a.total.input+a.total.output {
			a.total = codexUsage{}
		}
		a.sum.Add(now.above(a.total).figures())
		a.total = now
	case r.Kind == "session_meta" && !copied:
		id := normalizerstest.Member[string](r.item, "id")
		a.forked = a.forked || isCodexFork(r) || normalizerstest.Member[string](r.item, "history_base", "thread_id") != ""
		if !isCodexFork(r) && id != a.meta {
			a.total, a.last = codexUsage{}, ""
		}
		a.meta = id
	case r.Kind == "event_msg" && r.of == "token_count":
		a.count(normalizerstest.Member[any](r.item, "info"), copied)
	case r.Kind == "response_item" && r.of == "" && normalizerstest.Member[string](r.item, "status") != "" && normalizerstest.Member[string](r.item, "role") == "" && normalizerstest.Member[string](r.item, "name") == "":
		a.sum.Add(codexUsageOf(normalizerstest.Member[any](r.item, "info", "last_token_usage")).figures())
	}
}

func (a *codexAccount) count(info any, copied bool) {
	t, l := normalizerstest.Member[any](info, "total_token_usage"), normalizerstest.Member[any](info, "last_token_usage")
	_, hasTotal := t.(map[string]any)
	_, hasLast := l.(map[string]any)
	if !hasTotal && !hasLast {
		return
	}
	total, last := codexUsageOf(t), codexUsageOf(l)
	pair := fmt.Sprint(hasTotal, total, hasLast, last)
	repeated := pair == a.last || a.forked && a.pairs[pair]
	a.last, a.pairs[pair] = pair, true
	before := a.total
	if hasTotal {
		a.total = total
	}
	switch {
	case repeated, copied:
	case a.forked && hasTotal && hasLast && before == (codexUsage{}): // of the parent
		a.sum.Add(last.figures())
	case hasTotal && (total.input+total.output >= before.input+before.output || !hasLast):
		if total.input+total.output < before.input+before.output {
			before = codexUsage{}
		}
		a.sum.Add(total.above(before).figures())
	default:
		a.sum.Add(last.figures())
	}
}

// Sums implements [normalizerstest.Ledger].
func (l Ledger) Sums(session string) normalizerstest.Figures {
	if a := l[session]; a != nil {
		return a.sum
	}
	return normalizerstest.Figures{}
}
