package normalizers_test

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
)

// This file reads the rollouts of Codex a second time, with nothing but encoding/json
// and the design pages. It looks ahead where the normalizer must wait: what a twin is
// told by is looked up in the whole file.

// codexRaw is one record of a rollout or of the exec stream.
type codexRaw struct {
	number  int
	bad     bool
	value   any
	kind    string // of the envelope; empty for a bare item
	item    any    // the payload, or the bare item
	of      string // payload.type
	copied  bool   // history of another session
	turn    string // id of the turn that it stands in
	model   string // that is known after it
	stamped string // its own time
}

func readCodex(lines []line) []codexRaw {
	out := make([]codexRaw, len(lines))
	for i, l := range lines {
		out[i] = codexRawOf(l)
	}
	markCodex(out)
	return out
}

func codexRawOf(l line) codexRaw {
	r := codexRaw{number: l.number, bad: l.bad}
	if !l.bad {
		r.value = plain(l.data)
	}
	r.item = r.value
	if p, ok := member[any](r.value, "payload").(map[string]any); ok {
		r.kind, r.item = member[string](r.value, "type"), p
	}
	r.of = member[string](r.item, "type")
	if end, ok := codexItemEnd(r); ok {
		r.of, r.item = end["type"].(string), end
	}
	r.stamped = member[string](r.value, "timestamp")
	return r
}

// codexItemEnd is the end of a tool that an item of the newer event stream tells, as the
// older one has it.
func codexItemEnd(r codexRaw) (map[string]any, bool) {
	item := member[any](r.item, "item")
	of, ok := map[string]string{
		"CommandExecution": "exec_command_end", "FileChange": "patch_apply_end", "McpToolCall": "mcp_tool_call_end",
		"DynamicToolCall": "dynamic_tool_call_response", "ImageView": "view_image_tool_call", "ImageGeneration": "image_generation_end",
		"WebSearch": "web_search_end", "Extension/web.search": "web_search", "Extension/image_gen.generation": "image_generation_end",
	}[strings.TrimSuffix(member[string](item, "type")+"/"+member[string](item, "kind"), "/")]
	if !ok || r.kind != "event_msg" || r.of != "item_completed" {
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

// markCodex says of each record whether it is copied, and in which turn and with which
// model it stands (semantics.md section 3).
func markCodex(records []codexRaw) {
	var c codexCopy
	turn, model := "", ""
	for i := range records {
		r := &records[i]
		if r.kind == "turn_context" || r.kind == "event_msg" && (r.of == "task_started" || r.of == "turn_started") {
			turn = member[string](r.item, "turn_id")
		}
		switch {
		case r.kind == "turn_context", r.kind == "response_item":
			model = cmp.Or(member[string](r.item, "model"), model)
		default:
			model = cmp.Or(member[string](r.item, "thread_settings", "model"), model)
		}
		r.copied, r.turn, r.model = c.follow(*r), turn, model
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
func (c *codexCopy) follow(r codexRaw) bool {
	if r.kind == "turn_context" || r.of == "task_started" || r.of == "turn_started" {
		id := member[string](r.item, "turn_id")
		v7 := codexV7.MatchString(id)
		c.promise = c.promise || v7
		if v7 && id >= c.child || !c.promise {
			c.child = ""
		}
	}
	copied := c.child != ""
	if id := member[string](r.item, "id"); !copied && isCodexFork(r) && codexV7.MatchString(id) {
		minor := 0
		_, _ = fmt.Sscanf(member[string](r.item, "cli_version"), "0.%d", &minor) // 0 when it is none
		c.child, c.promise = id, minor >= 118
	}
	return copied
}

// isCodexFork tells a session_meta that copied history may follow.
func isCodexFork(r codexRaw) bool {
	base := member[string](r.item, "history_base", "thread_id")
	return r.kind == "session_meta" && (member[string](r.item, "forked_from_id") != "" || member[any](r.item, "source", "subagent", "thread_spawn") != nil ||
		base != "" && base != member[string](r.item, "id"))
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
			text := member[string](p, "text")
			if s, ok := p.(string); ok {
				text = s
			}
			if strings.Contains(member[string](p, "type"), "image") {
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
	words := strings.Join(typed, "\n")
	if strings.HasPrefix(strings.TrimSpace(words), "# Context from my IDE setup:") {
		_, words, _ = strings.Cut(words, "## My request for Codex:")
		words = strings.TrimSpace(words)
		return words, words != "" || pictures
	}
	return words, true
}

// codexSaying is something said in a record: in a response_item, or in an event_msg that
// may tell the same again.
type codexSaying struct {
	at     int    // index of the record
	who    string // human, assistant, thought
	twin   bool
	keys   []string // the texts under which it is known; of a thought its parts
	text   string   // as it is told
	whole  int      // of keys: so many are all of it, the others parts
	taken  []bool   // of keys: told by a twin too
	all    bool     // one that is all of it is taken
	before bool     // by one that stands before it
	mirror bool     // of a twin: told by its response_item
	told   [2]int   // the record whose events it stands in front of, and its own
}

// take claims a text: all that is said, which leaves nothing, or one part of it.
func (s *codexSaying) take(key string) bool {
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

// codexSayings are what the records say, in the order in which it is told: each text
// once (semantics.md section 9).
func codexSayings(records []codexRaw) []*codexSaying {
	byRecord := make([][]*codexSaying, len(records))
	agent := codexAgent(records)
	for i, r := range records {
		byRecord[i] = codexSaid(i, r, agent >= 0 && i >= agent)
	}
	var out []*codexSaying
	tools := make(map[int]bool) // records that tell of a tool
	for _, t := range codexToolsOf(records) {
		tools[t.call], tools[t.result] = true, true
	}
	var waited []*codexSaying
	for i := range records {
		for _, s := range byRecord[i] {
			if s.twin {
				s.pair(records, byRecord, tools)
				// One that is told takes those with it that wait in front of it.
				for _, o := range waited {
					if !s.mirror && o.told[0] > s.told[0] {
						o.mirror, o.told[0] = false, s.told[0]
					}
				}
				waited = append(waited, s)
			}
		}
	}
	told := make(map[string]bool)
	for i, r := range records {
		for _, s := range byRecord[i] {
			id := member[string](r.item, "id")
			again := fmt.Sprint(id, s.who, s.text)
			if s.twin || r.of == "item.completed" || id == "" || strings.HasPrefix(id, "review_rollout_") {
				again = ""
			}
			if !s.mirror && !told[again] {
				out = append(out, s)
			}
			told[again] = again != ""
		}
	}
	slices.SortStableFunc(out, func(a, b *codexSaying) int {
		return cmp.Or(cmp.Compare(a.told[0], b.told[0]), cmp.Compare(a.told[1], b.told[1]))
	})
	return out
}

// pair looks for the response_item that tells what a twin tells: the last one, or one
// that follows before another record ends the wait.
func (s *codexSaying) pair(records []codexRaw, byRecord [][]*codexSaying, tools map[int]bool) {
	for j := s.at - 1; j >= 0; j-- {
		k := slices.IndexFunc(byRecord[j], func(o *codexSaying) bool { return !o.twin && o.who == s.who })
		if k >= 0 {
			if s.mirror = byRecord[j][k].take(s.keys[0]); s.mirror {
				return
			}
			break
		}
	}
	j := s.at + 1
	for ; j < len(records); j++ {
		if records[j].bad {
			continue
		}
		for _, o := range byRecord[j] {
			if !o.twin && o.who == s.who && o.take(s.keys[0]) {
				s.mirror, o.before = true, true
				s.told = [2]int{j, s.at - len(records)}
				return
			}
		}
		if tools[j] || !s.letsPass(records[j], byRecord[j]) {
			break
		}
	}
	s.told = [2]int{j, s.at - len(records)}
}

// letsPass reports whether a twin that waits goes on waiting beyond a record: it does so
// beyond a response_item that tells a twin in front of it, for its own may follow.
func (s *codexSaying) letsPass(r codexRaw, says []*codexSaying) bool {
	for _, o := range says {
		switch {
		case o.twin && (o.who == "human") != (s.who == "human"):
			return false
		case !o.twin && !o.before && !(o.who == "thought" && s.who == "assistant"):
			return false
		}
	}
	if len(says) > 0 {
		return true
	}
	switch r.kind {
	case "event_msg":
		return r.of != "task_complete" && r.of != "turn_complete"
	case "turn_context", "world_state":
		return true
	case "response_item", "":
		if member[string](r.item, "record_type") != "" && r.of == "" {
			return true // no record of the conversation at all
		}
		return r.of == "reasoning" || r.of == "message"
	case "inter_agent_communication_metadata":
		return true
	}
	return false
}

// codexSaid is what a record says itself.
func codexSaid(at int, r codexRaw, subagent bool) []*codexSaying {
	var out []*codexSaying
	say := func(who string, twin bool, text string, whole int, keys ...string) {
		s := &codexSaying{at: at, who: who, twin: twin, text: text, whole: whole, told: [2]int{at, at}}
		for _, k := range keys {
			s.keys = append(s.keys, strings.TrimSpace(k))
		}
		s.taken = make([]bool, len(s.keys))
		out = append(out, s)
	}
	twin := func(who, text string) {
		if who == "human" {
			words, human := codexTyped([]string{text}, strings.TrimSpace(text) == "")
			if human {
				say(who, true, words, 1, text)
			}
			return
		}
		if strings.TrimSpace(text) != "" {
			say(who, true, text, 1, text)
		}
	}
	texts, pictures := codexTexts(member[any](r.item, "content"))
	joined := strings.Join(texts, "\n")
	role := member[string](r.item, "role")
	switch {
	case r.bad:
	case r.kind == "event_msg":
		words, _ := codexTexts(member[any](r.item, "item", "content"))
		switch r.of + "/" + member[string](r.item, "item", "type") {
		case "user_message/":
			twin("human", member[string](r.item, "message"))
		case "agent_message/":
			twin("assistant", member[string](r.item, "message"))
		case "agent_reasoning/":
			twin("thought", member[string](r.item, "text"))
		case "item_completed/UserMessage":
			twin("human", strings.Join(words, "\n"))
		case "item_completed/AgentMessage":
			twin("assistant", strings.Join(words, "\n"))
		case "item_completed/Plan":
			twin("assistant", member[string](r.item, "item", "text"))
		case "item_completed/Reasoning":
			parts, _ := codexTexts(member[any](r.item, "item", "summary_text"))
			for _, t := range parts {
				twin("thought", t)
			}
		}
	case r.kind != "response_item" && r.kind != "":
	case r.of == "message" || r.of == "" && role != "" && member[any](r.item, "content") != nil:
		keys := []string{joined}
		if _, plan, ok := strings.Cut(joined, "<proposed_plan>"); ok {
			plan, _, _ = strings.Cut(plan, "</proposed_plan>")
			keys = append(keys, plan)
		}
		whole := len(keys)
		keys = append(keys, texts...)
		if role == "assistant" && len(texts) > 0 {
			say("assistant", false, joined, whole, keys...)
		}
		if words, human := codexTyped(texts, pictures); role == "user" && human {
			say("human", false, words, whole, keys...)
		}
	case r.of == "agent_message" && member[string](r.item, "author") == "/root" && !subagent:
		say("assistant", false, joined, 0)
	case r.of == "reasoning":
		parts, _ := codexTexts(member[any](r.item, "summary"))
		if len(parts) == 0 {
			parts = texts
		}
		if len(parts) == 0 && member[string](r.item, "text") != "" {
			parts = []string{member[string](r.item, "text")}
		}
		if len(parts) > 0 {
			say("thought", false, strings.Join(parts, "\n"), 0, parts...)
		}
	case r.of == "item.completed":
		text := member[string](r.item, "item", "text")
		switch member[string](r.item, "item", "type") {
		case "agent_message", "plan":
			say("assistant", false, text, 0)
		case "reasoning":
			say("thought", false, text, 0)
		}
	}
	return out
}

// codexAgent is the first session_meta, if it says that the rollout is of a subagent; -1
// when it does not.
func codexAgent(records []codexRaw) int {
	i := slices.IndexFunc(records, func(r codexRaw) bool { return r.kind == "session_meta" })
	if i >= 0 && member[any](records[i].item, "source", "subagent") == nil {
		return -1
	}
	return i
}

// codexSession is the session of a whole file: that of its first session_meta, header or
// thread, else the stem of its name.
func codexSession(name string, records []codexRaw) string {
	for _, r := range records {
		id := member[string](r.item, "id")
		switch {
		case r.bad:
		case r.kind == "session_meta" && id != "":
			return id
		case r.kind == "" && r.of == "" && id != "" && r.stamped != "":
			return id
		case r.kind == "" && r.of == "thread.started":
			return member[string](r.value, "thread_id")
		}
	}
	return strings.TrimSuffix(path.Base(name), path.Ext(name))
}

// interpretCodex reads a file as the design pages say.
func interpretCodex(name string, lines []line) account {
	records := readCodex(lines)
	a := account{naive: make(map[string]figures)}
	session := codexSession(name, records)
	agent := codexAgent(records)
	var thread rawThread
	for i, r := range records {
		if i == agent {
			thread = rawThread{agent: member[string](r.item, "id"), internal: true}
		}
		a.sessions = append(a.sessions, session)
		a.threads = append(a.threads, thread)
		a.trimmed = a.trimmed || slices.Contains([]string{member[string](r.item, "id"), member[string](r.item, "call_id"), member[string](r.item, "callId"), member[string](r.item, "turn_id"), r.stamped}, "[trimmed for fixture]")
		sum := a.naive[session]
		sum.add(codexUsageOf(member[any](r.item, "info", "last_token_usage")).figures())
		a.naive[session] = sum
	}
	for _, s := range codexSayings(records) {
		who := s.who
		if who == "thought" {
			continue
		}
		if who == "human" && records[s.at].copied {
			who = "user_message of origin copied"
		} else if who == "human" && a.threads[s.at].internal {
			who = "agent"
		}
		a.talk = append(a.talk, utterance{session, who, strings.TrimSpace(s.text), records[s.at].number})
	}
	called, resulted := make(map[string]bool), make(map[string]bool)
	for _, t := range codexToolsOf(records) {
		if t.call >= 0 && !called[t.id] {
			called[t.id] = t.id != ""
			a.calls = append(a.calls, toolUse{session, t.id, t.name, records[t.call].number})
		}
	}
	for _, t := range codexResultsOf(records) {
		if resulted[t.id] {
			continue
		}
		resulted[t.id] = t.id != ""
		a.results = append(a.results, toolOutcome{session: session, id: t.id, form: t.form, code: t.code, line: records[t.result].number})
	}
	return a
}

// codexUsage are the figures of a usage as Codex states them.
type codexUsage struct{ input, cached, written, output, reasoning int64 }

func codexUsageOf(v any) codexUsage {
	n := func(name string) int64 {
		f, _ := member[json.Number](v, name).Float64()
		if f < 0 || f > 1<<50 {
			return 0 // no count of anything
		}
		return int64(math.Round(f))
	}
	return codexUsage{n("input_tokens"), n("cached_input_tokens"), n("cache_write_input_tokens"), n("output_tokens"), n("reasoning_output_tokens")}
}

// figures are those of an event that carries this usage.
func (u codexUsage) figures() figures {
	u.cached = min(u.cached, u.input)
	u.written = min(u.written, u.input-u.cached)
	u.reasoning = min(u.reasoning, u.output)
	return figures{
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

// codexLedger follows the running total of each session (semantics.md section 3).
type codexLedger map[string]*codexAccount

type codexAccount struct {
	sum    figures
	total  codexUsage
	last   string          // the last pair
	pairs  map[string]bool // all pairs
	forked bool
	meta   string
	copy   codexCopy
}

func (l codexLedger) add(session string, record []byte) {
	a := l[session]
	if a == nil {
		a = &codexAccount{pairs: make(map[string]bool)}
		l[session] = a
	}
	r := codexRawOf(line{data: record})
	copied := a.copy.follow(r)
	switch {
	case r.kind == "" && r.of == "turn.completed":
		now := codexUsageOf(member[any](r.value, "usage"))
		if now.input+now.output < a.total.input+a.total.output {
			a.total = codexUsage{}
		}
		a.sum.add(now.above(a.total).figures())
		a.total = now
	case r.kind == "session_meta" && !copied:
		id := member[string](r.item, "id")
		a.forked = a.forked || isCodexFork(r) || member[string](r.item, "history_base", "thread_id") != ""
		if !isCodexFork(r) && id != a.meta {
			a.total, a.last = codexUsage{}, ""
		}
		a.meta = id
	case r.kind == "event_msg" && r.of == "token_count":
		a.count(member[any](r.item, "info"), copied)
	case r.kind == "response_item" && r.of == "" && member[string](r.item, "status") != "" && member[string](r.item, "role") == "" && member[string](r.item, "name") == "":
		a.sum.add(codexUsageOf(member[any](r.item, "info", "last_token_usage")).figures())
	}
}

func (a *codexAccount) count(info any, copied bool) {
	t, l := member[any](info, "total_token_usage"), member[any](info, "last_token_usage")
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
		a.sum.add(last.figures())
	case hasTotal && (total.input+total.output >= before.input+before.output || !hasLast):
		if total.input+total.output < before.input+before.output {
			before = codexUsage{}
		}
		a.sum.add(total.above(before).figures())
	default:
		a.sum.add(last.figures())
	}
}

func (l codexLedger) sums(session string) figures {
	if a := l[session]; a != nil {
		return a.sum
	}
	return figures{}
}
