package codextest

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// This file reads the rollouts of Codex a second time, with nothing but encoding/json
// and the design pages. It looks ahead where the normalizer must wait: what a duplicate is
// stated by is looked up in the whole file.

// Raw is one record of a rollout or of the exec stream.
type Raw struct {
	Number  int
	bad     bool
	value   any
	Kind    string // of the envelope; empty for a bare item
	item    any    // the payload, or the bare item
	of      string // payload.type
	Copied  bool   // history of another session
	Turn    string // id of the turn that it stands in; of a token_usage_record that of its response
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

// codexItemEnd is the end of a tool that an item of the newer event stream states, as the
// older one has it.
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

// markCodex says of each record whether it is copied, and in which turn and with which
// model it stands (README.md).
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
		if r.Kind == "token_usage_record" {
			r.Turn = cmp.Or(normalizerstest.Member[string](r.item, "response_id"), turn)
		}
	}
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

var (
	codexBlock   = regexp.MustCompile(`(?s)^\s*<([^\s>]+)`)
	codexRequest = regexp.MustCompile(`(?s)^\s*#.*?## My request for Codex:(.*)$`)
)

// codexTyped is what a human typed in some texts; false when it was a machine.
func codexTyped(texts []string, pictures bool) (string, bool) {
	machine := func(t string) bool {
		return slices.ContainsFunc(codexMachine, func(p string) bool { return strings.HasPrefix(strings.TrimSpace(t), p) })
	}
	var typed []string
	for _, t := range texts {
		for machine(t) {
			tag := codexBlock.FindStringSubmatch(t)
			behind := ""
			if tag != nil {
				_, behind, _ = strings.Cut(t, "</"+tag[1]+">")
			}
			if t = strings.TrimSpace(behind); t == "" {
				break
			}
		}
		if t != "" {
			typed = append(typed, t)
		}
	}
	if len(typed) == 0 {
		return "", pictures
	}
	phrase := strings.Join(typed, "\n")
	if m := codexRequest.FindStringSubmatch(phrase); m != nil {
		phrase = strings.TrimSpace(m[1])
		return phrase, phrase != "" || pictures
	}
	if strings.HasPrefix(strings.TrimSpace(phrase), "# Context from my IDE setup:") {
		return "", pictures
	}
	return phrase, true
}

// Saying is something said in a record: in a response_item, or in an event_msg that
// may state the same again.
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

// take claims a text: all that is said, which leaves nothing, or one part of it.
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

// Sayings are what the records say, in the order in which it is emitted: each text
// once (README.md).
func Sayings(records []Raw) []*Saying {
	byRecord := make([][]*Saying, len(records))
	agent := codexAgent(records)
	for i, r := range records {
		byRecord[i] = sayingsOf(i, r, agent >= 0 && i >= agent)
	}
	var out []*Saying
	tools := make(map[int]bool) // records about a tool
	for _, t := range ToolsOf(records) {
		tools[t.Call], tools[t.Result] = true, true
	}
	var waited []*Saying
	for i := range records {
		for _, s := range byRecord[i] {
			if s.Duplicate {
				s.pair(records, byRecord, tools)
				// One that is emitted takes those with it that wait in front of it.
				for _, o := range waited {
					if !s.dropped && o.place[0] > s.place[0] {
						o.dropped, o.place[0] = false, s.place[0]
					}
				}
				waited = append(waited, s)
			}
		}
	}
	emitted := make(map[string]bool)
	for i, r := range records {
		for _, s := range byRecord[i] {
			id := normalizerstest.Member[string](r.item, "id")
			again := fmt.Sprint(id, s.Who, s.Text)
			if s.Duplicate || r.of == "item.completed" || id == "" || strings.HasPrefix(id, "review_rollout_") {
				again = ""
			}
			if !s.dropped && !emitted[again] {
				out = append(out, s)
			}
			emitted[again] = again != ""
		}
	}
	slices.SortStableFunc(out, func(a, b *Saying) int {
		return cmp.Or(cmp.Compare(a.place[0], b.place[0]), cmp.Compare(a.place[1], b.place[1]))
	})
	return out
}

// pair looks for the response_item that states what a duplicate states: the last one, or one
// that follows before another record ends the wait.
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

// letsPass reports whether a duplicate that waits goes on waiting beyond a record: it does so
// beyond a response_item that repeats a duplicate in front of it, for its own may follow.
func (s *Saying) letsPass(r Raw, says []*Saying) bool {
	for _, o := range says {
		switch {
		case o.Duplicate && (o.Who == "human") != (s.Who == "human"):
			return false
		case !o.Duplicate && !o.before && !(o.Who == "thought" && s.Who == "assistant"):
			return false
		}
	}
	if len(says) > 0 {
		return true
	}
	item := r.of
	if role := normalizerstest.Member[string](r.item, "role"); item == "" && role != "" && normalizerstest.Member[any](r.item, "content") != nil {
		item = "message"
	} else if item == "" && normalizerstest.Member[string](r.item, "id") != "" && r.Kind == "" && role == "" {
		item = "header"
	}
	switch r.Kind {
	case "event_msg":
		return r.of != "task_complete" && r.of != "turn_complete"
	case "response_item", "":
		return item != "agent_message" && item != "ghost_snapshot" && item != "header"
	default: // what no one knows ends no wait
		return r.Kind != "session_meta" && r.Kind != "compacted"
	}
}

// sayingsOf is what a record says itself.
func sayingsOf(at int, r Raw, subagent bool) []*Saying {
	var out []*Saying
	say := func(who string, duplicate bool, text string, whole int, keys ...string) {
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
				say(who, true, phrase, 1, phrase)
			}
			return
		}
		if strings.TrimSpace(text) != "" {
			say(who, true, text, 1, text)
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
			say("assistant", false, joined, whole, keys...)
		}
		if phrase, human := codexTyped(texts, pictures); role == "user" && human {
			keys = append([]string{phrase}, keys...)
			for i, t := range texts {
				if part, human := codexTyped([]string{t}, false); human {
					keys[whole+1+i] = part
				}
			}
			say("human", false, phrase, whole+1, keys...)
		}
	case r.of == "agent_message" && normalizerstest.Member[string](r.item, "author") == "/root" && !subagent:
		say("assistant", false, betweenAgents(normalizerstest.Member[any](r.item, "content")), 0)
	case r.of == "reasoning":
		parts, _ := codexTexts(normalizerstest.Member[any](r.item, "summary"))
		if len(parts) == 0 {
			parts = texts
		}
		if len(parts) == 0 && normalizerstest.Member[string](r.item, "text") != "" {
			parts = []string{normalizerstest.Member[string](r.item, "text")}
		}
		if len(parts) > 0 {
			say("thought", false, strings.Join(parts, "\n"), 0, parts...)
		}
	case r.of == "item.completed":
		text := normalizerstest.Member[string](r.item, "item", "text")
		switch normalizerstest.Member[string](r.item, "item", "type") {
		case "agent_message", "plan":
			say("assistant", false, text, 0)
		case "reasoning":
			say("thought", false, text, 0)
		}
	}
	return out
}

// betweenAgents is the text of a message between agents, which may stand in clear where it
// should be encrypted.
func betweenAgents(content any) string {
	parts, _ := content.([]any)
	for i, p := range parts {
		secret := normalizerstest.Member[string](p, "encrypted_content")
		if normalizerstest.Member[string](p, "text") == "" && len(strings.Fields(secret)) > 1 {
			parts[i] = secret
		}
	}
	texts, _ := codexTexts(content)
	return strings.Join(texts, "\n")
}

// codexAgent is the first session_meta, if it says that the rollout is of a subagent; -1
// when it does not.
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

// Interpret reads a file as the design pages say.
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
