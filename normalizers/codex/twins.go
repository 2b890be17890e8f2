package codex

import (
	"slices"
	"strconv"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// The twins of Codex: what is said stands in a response_item and again in an event_msg,
// before or after it. Each text is told once, in order (semantics.md section 9).

// speaker is the kind of a twin.
type speaker int

const (
	speakerUser speaker = iota
	speakerAgent
	speakerThought
)

// maxTwinBytes is how many bytes of texts and raw records wait; beyond it twins are told
// at once. Written as JSON a text may take six times as many, and still fits a Session.
const maxTwinBytes = 16 << 10

// maxUnclaimed is how many texts of a response_item a later twin may claim.
const maxUnclaimed = 32

// twin is an event_msg that waits for the response_item that tells the same.
type twin struct {
	Speaker speaker          `json:"s,omitzero"`
	Key     core.Fingerprint `json:"k"`
	Words   string           `json:"w,omitzero"`
	Model   string           `json:"m,omitzero"`
	Copied  bool             `json:"c,omitzero"`
	Told    bool             `json:"t,omitzero"` // being too long to remember: its response_item will be the mirror
	From    core.Pending     `json:"from"`
}

// seenText is a text under which twins tell a response_item: all that it says, or a part
// of it, of which each has its own twin.
type seenText struct {
	Speaker speaker          `json:"s,omitzero"`
	Key     core.Fingerprint `json:"k"`
	Part    bool             `json:"p,omitzero"`
}

// twin takes an event_msg that may tell again what a response_item told: then it is a
// mirror. Else it waits for one that tells it.
func (c *mapper) twin(who speaker, words string) core.SkipReason {
	if strings.TrimSpace(words) == "" && who != speakerUser {
		return core.SkipEmpty
	}
	key := core.PromptKey(words)
	if i := slices.IndexFunc(c.st.Said, func(t seenText) bool { return t.Speaker == who && t.Key == key }); i >= 0 {
		by, at := c.st.Said[i], -1
		c.st.Said = c.st.Said.Without(func(t seenText) bool {
			at++
			return at == i || t.Speaker == who && !(t.Part && by.Part)
		})
		return core.SkipMirror
	}
	// A twin of the other speaker ends the wait of those before it.
	last := -1
	for i, t := range c.st.Twins {
		if (t.Speaker == speakerUser) != (who == speakerUser) {
			last = i
		}
	}
	c.promote(last + 1)
	if len(c.st.Twins) == core.MaxThreads {
		c.promote(1)
	}
	waiting := append(slices.Clip(c.st.Twins), twin{Speaker: who, Key: key, Words: words, Model: c.Session.Model, Copied: c.copied, From: c.PendingRecord()})
	size := 0
	for _, t := range waiting {
		size += len(t.Words) + len(t.From.Raw)
	}
	if size > maxTwinBytes {
		for i, t := range waiting {
			if t.From.Record == c.Session.Records && !t.Told {
				c.put(c.heldID(&t.From), c.said(t)) // an event of this record
			} else {
				c.tell(t)
			}
			waiting[i].Words, waiting[i].Told, waiting[i].From.Raw = "", true, nil
		}
	}
	c.st.Twins = waiting
	return core.SkipHeld
}

// tell emits a twin in its own right.
func (c *mapper) tell(t twin) {
	if t.Told {
		return
	}
	d := c.said(t)
	if t.Copied {
		d.Origin = envelopes.OriginCopied
	}
	id := c.heldID(&t.From)
	if strings.Contains(string(id), ".") {
		t.From.Raw = nil // on the first event of the record
	}
	d.From = &t.From
	c.put(id, d)
}

// said is the event of what a twin says.
func (c *mapper) said(t twin) core.Draft {
	var d core.Draft
	switch t.Speaker {
	case speakerUser:
		words, kind := speech([]string{t.Words})
		d = core.DraftOf(kind, words)
		if strings.TrimSpace(t.Words) == "" {
			d.Text = nil
		}
	case speakerAgent:
		d = c.utterance(envelopes.AssistantMessage, t.Words)
		d.Model = lenient.Text(t.Model).Ptr()
	default:
		d = c.utterance(envelopes.Reasoning, t.Words)
		d.Model = lenient.Text(t.Model).Ptr()
	}
	return d
}

// heldID is the id of the next event of a record that was held.
func (c *mapper) heldID(from *core.Pending) lenient.Text {
	base := "@" + strconv.FormatUint(from.Record, 10)
	id := base
	for i := 1; c.Session.HasEvent(id); i++ {
		id = base + "." + strconv.Itoa(i)
	}
	return lenient.Text(id)
}

// promote tells the first n twins that wait: no response_item will.
func (c *mapper) promote(n int) {
	if n == 0 {
		return
	}
	waiting := c.st.Twins
	c.st.Twins = slices.Clone(waiting[n:])
	if len(c.st.Twins) == 0 {
		c.st.Twins = nil
	}
	for _, t := range waiting[:n] {
		c.tell(t)
	}
}

// claim takes the twins that tell what a response_item tells: they are mirrors. Those in
// front of the first of them, or all when there is none, are told before it, but for what
// the agent said when it only thinks. What no twin has claimed may be claimed by one that
// follows. It reports which of the texts a twin has told already.
func (c *mapper) claim(who speaker, texts []seenText) (told []bool) {
	told = make([]bool, len(texts))
	claimed := make([]bool, len(texts))
	some, whole := false, false
	free := func(i int) bool { return !claimed[i] && !whole && (texts[i].Part || !some) }
	end := len(c.st.Twins) // of those whose wait may end
	var kept core.Window[twin]
	for _, t := range c.st.Twins {
		i := -1
		if t.Speaker == who {
			for k := range texts {
				if texts[k].Key == t.Key && free(k) {
					i = k
					break
				}
			}
		}
		if i < 0 {
			kept = append(kept, t)
			continue
		}
		if !some {
			end = len(kept)
		}
		claimed[i], told[i], some = true, t.Told, true
		whole = whole || !texts[i].Part
	}
	c.st.Said = c.st.Said.Without(func(t seenText) bool { return t.Speaker == who })
	for i := range texts[:min(len(texts), maxUnclaimed)] {
		if free(i) {
			c.st.Said = c.st.Said.Push(texts[i], 3*maxUnclaimed, nil)
		}
	}
	c.st.Twins = kept
	ended := 0
	for i, t := range kept[:end] {
		if who != speakerThought || t.Speaker != speakerAgent {
			ended = i + 1
		}
	}
	c.promote(ended)
	return told
}

// untold claims the twins of a response_item and returns which of its parts none of them
// has told already.
func (c *mapper) untold(who speaker, parts []string, texts []seenText) []string {
	told := c.claim(who, texts)
	whole := len(told) - len(parts)
	if slices.Contains(told[:whole], true) {
		return nil
	}
	var out []string
	for i, t := range told[whole:] {
		if !t {
			out = append(out, parts[i])
		}
	}
	return out
}

// textsOf are the texts under which twins may tell a message: the whole, the plan that is
// wrapped in it, its parts.
func textsOf(who speaker, parts []string) []seenText {
	whole := strings.Join(parts, "\n")
	out := []seenText{{who, core.PromptKey(whole), false}}
	if plan := core.TagContent(whole, "proposed_plan"); plan != "" {
		out = append(out, seenText{who, core.PromptKey(plan), false})
	}
	return append(out, partsOf(who, parts)...)
}

// partsOf are the texts under which twins tell a reasoning: each of its parts.
func partsOf(who speaker, parts []string) []seenText {
	out := make([]seenText, len(parts))
	for i, p := range parts {
		out[i] = seenText{who, core.PromptKey(p), true}
	}
	return out
}

// injected are the beginnings of what a machine puts into the conversation under
// the user's role (vendor-formats.md section 5.4).
var injected = []string{
	"# AGENTS.md instructions",
	"<INSTRUCTIONS>",
	"<environment_context>",
	"<user_instructions>",
	"<turn_aborted>",
	"<user_shell_command>",
	"<user_action>",
	"<recommended_plugins>",
	"<skill>",
	"<subagent_notification>",
	"<hook_prompt ",
	"<codex_internal_context",
	"<goal_context>",
	"<extension_context>",
	"<external_",
	"<agent_message_board_notification>",
	"<permissions instructions>",
	"<collaboration_mode>",
	"<model_switch>",
	"<multi_agent_mode>",
	"<skills_instructions>",
	"<personality_spec>",
	"<app-context>",
	"<apps_instructions>",
	"<plugins_instructions>",
	"Warning: apply_patch was requested via ",
	"Warning: The maximum number of unified exec processes you can keep open is",
	"Warning: Your account was flagged for potentially high-risk cyber activity",
}

// speech is what the user typed in the parts of a message, less what a machine put
// beside it. It is injected when the human typed none of it.
func speech(parts []string) (words string, kind core.Speech) {
	var typed []string
	for _, p := range parts {
		if !isInjected(p) {
			typed = append(typed, p)
		}
	}
	if len(typed) == 0 && len(parts) > 0 {
		return strings.Join(parts, "\n"), core.SpeechInjected
	}
	words = strings.Join(typed, "\n")
	// An IDE puts its state in front of the prompt; alone it is none.
	if strings.HasPrefix(strings.TrimSpace(words), "# Context from my IDE setup:") {
		_, request, _ := strings.Cut(words, "## My request for Codex:")
		if request = strings.TrimSpace(request); request == "" {
			return strings.Join(parts, "\n"), core.SpeechInjected
		}
		words = request
	}
	return words, core.SpeechHuman
}

func isInjected(s string) bool {
	s = strings.TrimSpace(s)
	return slices.ContainsFunc(injected, func(p string) bool { return strings.HasPrefix(s, p) })
}
