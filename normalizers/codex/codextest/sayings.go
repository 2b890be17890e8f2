package codextest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tributary/normalizers/normalizerstest"
)

// codexMachine has the beginnings of texts that a machine wrote under the role of the user.
var codexMachine = []string{
	"# AGENTS.md instructions", "<INSTRUCTIONS>", "<environment_context>", "<user_instructions>", "<turn_aborted>", "<user_shell_command>",
	"<user_action>", "<recommended_plugins>", "<skill>", "<subagent_notification>", "<permissions instructions>", "<collaboration_mode>",
	"<model_switch>", "<multi_agent_mode>", "<skills_instructions>", "<personality_spec>", "<hook_prompt ", "<codex_internal_context",
	"<goal_context>", "<heartbeat>", "<extension_context>", "<external_", "<agent_message_board_notification>", "<app-context>", "<apps_instructions>",
	"<plugins_instructions>", "Warning: apply_patch was requested via ", "Warning: Your account was flagged for potentially high-risk cyber activity",
	"Warning: The maximum number of unified exec processes you can keep open is",
}

// codexTexts returns the texts of content, without the marks around pictures.
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
	codexBlock    = regexp.MustCompile(`(?s)^\s*<([^\s>]+)`)
	codexRequest  = regexp.MustCompile(`(?s)^\s*#.*?## My request for Codex:(.*)$`)
	codexUserKind = regexp.MustCompile(`^(?:|unknown|user\..*|images\.(?:preparation_error|unsupported)|audio\.unsupported)$`)
	codexAttached = regexp.MustCompile(`(?m)^\s*# Files mentioned by the user`)
)

// codexTyped joins what a human typed in some texts. It returns false if a machine wrote them.
func codexTyped(texts []string, pictures bool, joint string) (string, bool) {
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
	phrase := strings.Join(typed, joint)
	if m := codexRequest.FindStringSubmatch(phrase); m != nil {
		request := strings.TrimSpace(m[1])
		if request == "" && codexAttached.MatchString(phrase) {
			return phrase, true // the request is in a file
		}
		return request, request != "" || pictures
	}
	if strings.HasPrefix(strings.TrimSpace(phrase), "# Context from my IDE setup:") {
		return "", pictures
	}
	return phrase, true
}

// Saying is something said in a record: in a response_item, or in an event_msg that may repeat it.
type Saying struct {
	At        int    // index of the record
	Who       string // human, assistant, thought
	Duplicate bool
	keys      []string // the texts that identify it; for a thought its parts
	Text      string   // the emitted text
	whole     int      // this many first keys are the whole saying, the others parts
	taken     []bool   // which keys a duplicate has, too
	all       bool     // a key of the whole saying is taken
	parts     []string // of a message; joined they are Text
	joints    []string // by key: how it joins the parts, empty if it does not
	before    bool     // a duplicate before it has one of its keys
	dropped   bool     // for a duplicate: its response_item is emitted instead
	place     [2]int   // the record before whose events it stands, and its own record
}

// take claims a text: the whole saying, which leaves nothing, or one part of it. It returns how the text joins the
// parts, empty if it does not.
func (s *Saying) take(key string) (joint string, ok bool) {
	for i, k := range s.keys {
		part := i >= s.whole
		if k != key || s.taken[i] || s.all || !part && slices.Contains(s.taken, true) {
			continue
		}
		s.taken[i], s.all = true, !part
		if i < len(s.joints) {
			joint = s.joints[i]
		}
		return joint, true
	}
	return "", false
}

// Sayings returns what the records say, each text once, in the order of emission (README.md).
func Sayings(records []Raw) []*Saying {
	byRecord := make([][]*Saying, len(records))
	agent := codexAgent(records)
	var read letters
	for i, r := range records {
		subagent := agent >= 0 && i >= agent
		if l := letterOf(r); l == nil {
			byRecord[i] = sayingsOf(i, r)
		} else if !read.has(l) {
			byRecord[i] = l.sayings(i, subagent)
		}
	}
	dropEchoes(records, byRecord)
	var out []*Saying
	tools := make(map[int]bool) // records about tools
	for _, t := range ToolsOf(records) {
		tools[t.Call], tools[t.Result] = true, true
	}
	joints := make(map[int]string) // by the record that shows how parts are joined
	var waited []*Saying
	for i := range records {
		for _, s := range byRecord[i] {
			if s.Duplicate {
				if at, joint := s.pair(records, byRecord, tools); joint != "" {
					joints[at] = joint
				}
				// An emitted saying takes those that wait before it along.
				for _, o := range waited {
					if !s.dropped && o.place[0] > s.place[0] {
						o.dropped, o.place[0] = false, s.place[0]
					}
				}
				waited = append(waited, s)
			}
		}
	}
	join(records, byRecord, joints)
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

// The two ways in which a duplicate joins the parts of a message.
const (
	byLines   = "lines"
	byNothing = "nothing"
)

// join joins the texts of messages with several parts, the way the last duplicate with several parts did; if there
// was none, with nothing from version 0.142 on.
func join(records []Raw, byRecord [][]*Saying, joints map[int]string) {
	joint, version := "", ""
	for i, r := range records {
		joint = cmp.Or(joints[i], joint)
		if r.Kind == "session_meta" && !r.Copied {
			version = cmp.Or(normalizerstest.Member[string](r.item, "cli_version"), version)
		}
		minor := 0
		_, _ = fmt.Sscanf(version, "0.%d", &minor) // 0 if it is no version
		for _, s := range byRecord[i] {
			if joint == byNothing || joint == "" && minor >= 142 {
				if s.parts != nil {
					s.Text = strings.Join(s.parts, "")
				}
			}
		}
	}
}

// dropEchoes drops what a duplicate of a review repeats from the one before it.
func dropEchoes(records []Raw, byRecord [][]*Saying) {
	reviewed := false
	var last *Saying
	for i, r := range records {
		switch {
		case r.bad, strings.Contains(r.Kind+r.of, "of_tomorrow"):
			continue
		case r.Kind == "event_msg" && r.of == "entered_review_mode":
			reviewed = true
		case r.Kind == "event_msg" && r.of == "exited_review_mode":
			reviewed = false
		}
		before := last
		last = nil
		byRecord[i] = slices.DeleteFunc(byRecord[i], func(s *Saying) bool {
			if !reviewed || !s.Duplicate {
				return false
			}
			echo := before != nil && before.Who == s.Who && before.keys[0] == s.keys[0]
			before, last = s, s
			return echo
		})
	}
}

// pair finds the response_item that a duplicate repeats: the last of those that are repeated at all, or one that
// follows before another record ends the wait. It returns the record at which both are known, and how the duplicate
// joins the parts of the other.
func (s *Saying) pair(records []Raw, byRecord [][]*Saying, tools map[int]bool) (at int, joint string) {
	for j := s.At - 1; j >= 0; j-- {
		k := slices.IndexFunc(byRecord[j], func(o *Saying) bool { return !o.Duplicate && o.Who == s.Who && len(o.keys) > 0 })
		if k >= 0 {
			if joint, s.dropped = byRecord[j][k].take(s.keys[0]); s.dropped {
				return s.At, joint
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
			if o.Duplicate || o.Who != s.Who || records[s.At].Copied && !records[j].Copied {
				continue
			}
			if joint, ok := o.take(s.keys[0]); ok {
				s.dropped, o.before = true, true
				s.place = [2]int{j, s.At - len(records)}
				return j, joint
			}
		}
		if tools[j] || !s.letsPass(records[j], byRecord[j]) || records[s.At].Copied && !records[j].Copied {
			break
		}
	}
	s.place = [2]int{j, s.At - len(records)}
	return j, ""
}

// letsPass reports whether a waiting duplicate continues to wait after a record: it does after a response_item that
// repeats an earlier duplicate, because its own may follow.
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
	if letterOf(r) != nil {
		return false
	}
	item := r.of
	if role := normalizerstest.Member[string](r.item, "role"); item == "" && role != "" && normalizerstest.Member[any](r.item, "content") != nil {
		item = "message"
	} else if item == "" && normalizerstest.Member[string](r.item, "id") != "" && r.Kind == "" && role == "" {
		item = "header"
	}
	switch r.Kind {
	case "event_msg":
		return !slices.Contains([]string{"task_complete", "turn_complete", "turn_aborted", "exited_review_mode"}, r.of)
	case "response_item", "":
		return !r.isToolItem() && item != "ghost_snapshot" && item != "header"
	default: // unknown records end no wait
		return r.Kind != "session_meta" && r.Kind != "compacted"
	}
}

// sayingsOf returns the texts that a record itself states, if it is no letter between agents.
func sayingsOf(at int, r Raw) []*Saying {
	say := recordSayings{at: at}
	switch {
	case r.bad:
	case r.Kind == "event_msg":
		say.eventMessage(r)
	case r.Kind != "response_item" && r.Kind != "":
	case r.of == "message" || r.of == "" && normalizerstest.Member[string](r.item, "role") != "" && normalizerstest.Member[any](r.item, "content") != nil:
		say.message(r)
	case r.of == "reasoning":
		say.reasoning(r)
	case r.of == "item.completed":
		say.execItem(r)
	}
	return say.all
}

// recordSayings collects the sayings of one record.
type recordSayings struct {
	at  int // index of the record
	all []*Saying
}

// add adds what an item states, and the texts with which a duplicate may repeat it.
func (l *recordSayings) add(who, text string, whole int, keys ...string) *Saying {
	s := &Saying{At: l.at, Who: who, Text: text, whole: whole, place: [2]int{l.at, l.at}, taken: make([]bool, len(keys))}
	for _, k := range keys {
		s.keys = append(s.keys, strings.TrimSpace(k))
	}
	l.all = append(l.all, s)
	return s
}

// addDuplicate adds what an event_msg states, unless that is no text of a speaker.
func (l *recordSayings) addDuplicate(who, text string) {
	stated := strings.TrimSpace(text) != ""
	if who == "human" {
		text, stated = codexTyped([]string{text}, !stated, "\n")
	}
	if stated {
		l.add(who, text, 1, text).Duplicate = true
	}
}

// eventMessage adds the texts of an event_msg.
func (l *recordSayings) eventMessage(r Raw) {
	content, _ := codexTexts(normalizerstest.Member[any](r.item, "item", "content"))
	switch r.of + "/" + normalizerstest.Member[string](r.item, "item", "type") {
	case "user_message/":
		l.addDuplicate("human", normalizerstest.Member[string](r.item, "message"))
	case "agent_message/":
		l.addDuplicate("assistant", normalizerstest.Member[string](r.item, "message"))
	case "agent_reasoning/":
		l.addDuplicate("thought", normalizerstest.Member[string](r.item, "text"))
	case "item_completed/UserMessage":
		l.addDuplicate("human", strings.Join(content, "\n"))
	case "item_completed/AgentMessage":
		l.addDuplicate("assistant", strings.Join(content, "\n"))
	case "item_completed/Plan":
		l.addDuplicate("assistant", normalizerstest.Member[string](r.item, "item", "text"))
	case "item_completed/Reasoning":
		parts, _ := codexTexts(normalizerstest.Member[any](r.item, "item", "summary_text"))
		for _, t := range parts {
			l.addDuplicate("thought", t)
		}
	}
}

// userParts returns the content of a message. If it states a kind for each part, it has only those of the user's.
func userParts(item any) any {
	list, _ := normalizerstest.Member[any](item, "content").([]any)
	kinds := normalizerstest.Member[[]any](item, "internal_chat_message_metadata_passthrough", "content_item_kinds")
	if len(list) == 0 || len(kinds) != len(list) || normalizerstest.Member[string](item, "role") != "user" {
		return normalizerstest.Member[any](item, "content")
	}
	var users []any
	for i, p := range list {
		kind, _ := kinds[i].(string)
		if codexUserKind.MatchString(kind) && kind != "user.heartbeat" {
			users = append(users, p)
		}
	}
	return users
}

// message adds a message item. A duplicate may repeat all of it, its plan, or one of its parts.
func (l *recordSayings) message(r Raw) {
	texts, pictures := codexTexts(userParts(r.item))
	texts = deliveredTexts(r, texts)
	joined := strings.Join(texts, "\n")
	keys := []string{joined}
	if _, plan, ok := strings.Cut(joined, "<proposed_plan>"); ok {
		plan, _, _ = strings.Cut(plan, "</proposed_plan>")
		keys = append(keys, plan)
	}
	var parts, joints []string
	if len(texts) > 1 {
		keys = append(slices.Insert(keys, 1, strings.Join(texts, "")), texts...)
		parts, joints = texts, []string{byLines, byNothing}
	} else {
		keys = append(keys, texts...)
	}
	whole := len(keys) - len(texts)
	switch normalizerstest.Member[string](r.item, "role") {
	case "assistant":
		if len(texts) > 0 {
			s := l.add("assistant", joined, whole, keys...)
			s.parts, s.joints = parts, joints
		}
	case "user":
		phrase, human := codexTyped(texts, pictures, "\n")
		if !human {
			return
		}
		for i, t := range texts {
			if part, human := codexTyped([]string{t}, false, "\n"); human {
				keys[whole+i] = part
			}
		}
		if len(texts) < 2 {
			l.add("human", phrase, whole+1, append([]string{phrase}, keys...)...)
			return
		}
		bare, _ := codexTyped(texts, pictures, "")
		s := l.add("human", phrase, whole+2, append([]string{phrase, bare}, keys...)...)
		s.parts, s.joints = []string{bare}, append(slices.Clone(joints), joints...)
	}
}

// reasoning adds a thought: its summary, else its content, else its text.
func (l *recordSayings) reasoning(r Raw) {
	parts, _ := codexTexts(normalizerstest.Member[any](r.item, "summary"))
	if len(parts) == 0 {
		parts, _ = codexTexts(normalizerstest.Member[any](r.item, "content"))
	}
	if text := normalizerstest.Member[string](r.item, "text"); len(parts) == 0 && text != "" {
		parts = []string{text}
	}
	if len(parts) > 0 {
		l.add("thought", strings.Join(parts, "\n"), 0, parts...)
	}
}

// execItem adds the text of a completed item of the exec stream.
func (l *recordSayings) execItem(r Raw) {
	text := normalizerstest.Member[string](r.item, "item", "text")
	switch normalizerstest.Member[string](r.item, "item", "type") {
	case "agent_message", "plan":
		l.add("assistant", text, 0)
	case "reasoning":
		l.add("thought", text, 0)
	}
}

// deliveredTexts returns the texts of a message, of one that was delivered without them what its metadata have of them.
func deliveredTexts(r Raw, texts []string) []string {
	mark := normalizerstest.Member[string](r.value, "metadata", "delivered_assistant_message")
	m := regexp.MustCompile(`(?s)^codex:code-mode-delivery:v1:incomplete:(.*)$`).FindStringSubmatch(mark)
	switch {
	case m == nil || normalizerstest.Member[string](r.item, "role") != "assistant":
		return texts
	case strings.TrimSpace(m[1]) == "":
		return nil
	default:
		return m[1:]
	}
}
