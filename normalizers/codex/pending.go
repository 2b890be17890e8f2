package codex

import (
	"cmp"
	"slices"
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// Codex writes a text twice, as a response_item and as an event_msg, in either order and without a common id. Texts
// are matched by content, kind by kind, each once, except for white space around them:
//
//   - An event_msg that follows its response_item finds the text in state.Canonical and is skipped.
//   - An event_msg that comes first is pending in state.Pending. The response_item that repeats it drops it. A record
//     that shows that none will repeat it releases it: it is emitted before that record.

// textKind is the kind of a text that Codex writes twice. A text only repeats texts of its kind.
type textKind int

const (
	userText textKind = iota
	agentText
	reasoningText
	injectedText // of a response_item with the user's role that a machine wrote
)

// texts has the texts that one of the two records has stated, to recognize the other record.
type texts struct {
	Notice    core.Fingerprint           `json:"notice,omitzero"`  // in a review: text of the last record, if that is a notice with one
	Joint     joint                      `json:"joint,omitzero"`   // how the last event_msg that repeated several parts joined them
	Canonical core.Window[canonicalText] `json:"said,omitzero"`    // texts of response_items that an event_msg may repeat
	Pending   core.Window[pendingText]   `json:"pending,omitzero"` // event_msgs that a response_item may repeat
}

func (t *texts) size() int {
	n := 24 * len(t.Canonical)
	for _, p := range t.Pending {
		n += 256 + len(p.Text) + p.From.Size()
	}
	return n
}

const (
	// maxPending is how many event_msgs are pending at once.
	maxPending = 64
	// maxPendingBytes bounds the bytes of all pending texts and raw records; texts beyond it are emitted at once. In
	// JSON a text takes up to six times as many bytes, for which the Session still has room.
	maxPendingBytes = 16 << 10
	// maxCanonical is how many texts of one response_item a later event_msg may repeat.
	maxCanonical = 32
)

// pendingText is an event_msg with a text that a response_item may repeat.
type pendingText struct {
	Kind    textKind         `json:"s,omitzero"`
	Key     core.Fingerprint `json:"k"`
	Text    string           `json:"w,omitzero"`
	Model   string           `json:"m,omitzero"`
	Copied  bool             `json:"c,omitzero"`
	Emitted bool             `json:"t,omitzero"` // it was too long to keep: its response_item is the duplicate
	From    core.Pending     `json:"from"`
}

// size returns the bytes of the text and the raw record.
func (p *pendingText) size() int { return len(p.Text) + len(p.From.Raw) }

// canonicalText is a text of a response_item that an event_msg may repeat: the whole text, or one of its parts.
// Either one event_msg repeats the whole, or each part is repeated by one.
type canonicalText struct {
	Kind  textKind         `json:"s,omitzero"`
	Key   core.Fingerprint `json:"k"`
	Part  bool             `json:"p,omitzero"`
	Joint joint            `json:"j,omitzero"` // for a whole text: how its parts are joined
}

// joint is the separator between the parts of a whole text.
type joint int8

const (
	unjoined joint = iota // the text has one part, or is one
	byLines
	byNothing
)

// text returns the separator.
func (j joint) text() string {
	if j == byNothing {
		return ""
	}
	return "\n"
}

// messageTexts returns the texts of a message that event_msgs may repeat: the whole, the plan in it, and finally its
// parts.
func messageTexts(kind textKind, parts []string) []canonicalText {
	out := wholeTexts(kind, parts, func(j joint) string { return strings.Join(parts, j.text()) })
	if plan := core.TagContent(strings.Join(parts, "\n"), "proposed_plan"); plan != "" {
		out = append(out, canonicalText{Kind: kind, Key: core.PromptKey(plan)})
	}
	return append(out, partTexts(kind, parts)...)
}

// wholeTexts returns the whole text, its parts joined in either way.
func wholeTexts(kind textKind, parts []string, join func(joint) string) []canonicalText {
	if len(parts) < 2 {
		return []canonicalText{{Kind: kind, Key: core.PromptKey(join(unjoined))}}
	}
	return []canonicalText{
		{Kind: kind, Key: core.PromptKey(join(byLines)), Joint: byLines},
		{Kind: kind, Key: core.PromptKey(join(byNothing)), Joint: byNothing},
	}
}

// userTexts returns the texts of a prompt that event_msgs may repeat: what a human typed, the whole, and its parts.
// An event_msg may omit what a machine added.
func userTexts(parts []string) []canonicalText {
	out := wholeTexts(userText, parts, func(j joint) string {
		typed, _ := typedText(parts, j)
		return typed
	})
	out = append(out, messageTexts(userText, parts)...)
	for i, p := range parts {
		out[len(out)-len(parts)+i].Key = userKey(p)
	}
	return out
}

// userKey returns the key of a prompt: of what a human typed in it, or else of all of it.
func userKey(text string) core.Fingerprint {
	text, _ = typedText([]string{text}, unjoined)
	return core.PromptKey(text)
}

// partTexts returns the parts of a text, each of which an event_msg may repeat.
func partTexts(kind textKind, parts []string) []canonicalText {
	out := make([]canonicalText, len(parts))
	for i, p := range parts {
		out[i] = canonicalText{Kind: kind, Key: core.PromptKey(p), Part: true}
	}
	return out
}

// eventText maps a text of an event_msg: a letter, a duplicate of a response_item or of the previous event_msg, or
// pending. An empty user text counts, because it may belong to a picture.
func eventText(m *mapper, kind textKind, text string) {
	if strings.TrimSpace(text) == "" && kind != userText {
		m.skip = core.SkipEmpty
		return
	}
	if l := letterIn(text); l != nil && kind != reasoningText {
		m.letter(noticeForm, l)
		return
	}
	if repeatsNotice(m, kind, text) {
		m.skip = core.SkipMirror
		return
	}
	key := core.PromptKey(text)
	if kind == userText {
		key = userKey(text)
	}
	t := &m.st.texts
	t.releaseOtherSide(&m.emitter, kind)
	if t.takeCanonical(kind, key) || kind == userText && t.takeCanonical(injectedText, key) {
		m.skip = core.SkipMirror
		return
	}
	m.skip = core.SkipHeld
	if len(t.Pending) == maxPending {
		t.release(&m.emitter, 1)
	}
	t.add(&m.emitter, pendingText{
		Kind: kind, Key: key, Text: text, Model: m.Session.Model, Copied: m.copied, From: m.PendingRecord(),
	})
}

// takeCanonical removes the text from those that an event_msg may repeat; false if it is not among them. A repeated
// part leaves the other parts; a repeated whole leaves nothing.
func (t *texts) takeCanonical(kind textKind, key core.Fingerprint) bool {
	at := slices.IndexFunc(t.Canonical, func(c canonicalText) bool { return c.Kind == kind && c.Key == key })
	if at < 0 {
		return false
	}
	t.Joint = cmp.Or(t.Canonical[at].Joint, t.Joint)
	var rest core.Window[canonicalText]
	for i, c := range t.Canonical {
		if i != at && (c.Kind != kind || c.Part && t.Canonical[at].Part) {
			rest = append(rest, c)
		}
	}
	t.Canonical = rest
	return true
}

// add adds a pending text. If all of them are too long to keep, their events are emitted now and only their keys
// stay.
func (t *texts) add(e *emitter, p pendingText) {
	pending := append(slices.Clip(t.Pending), p)
	size := 0
	for i := range pending {
		size += pending[i].size()
	}
	if size > maxPendingBytes {
		for i, p := range pending {
			if p.From.Record == e.Session.Records && !p.Emitted {
				e.put(e.pendingID(&p.From), p.draft()) // an event of the current record
			} else {
				p.emit(e)
			}
			pending[i].Text, pending[i].Emitted, pending[i].From.Raw = "", true, nil
		}
	}
	t.Pending = pending
}

// releaseOtherSide releases the pending texts up to the last one of the other side, user or agent: once the other
// side speaks, no response_item repeats them.
func (t *texts) releaseOtherSide(e *emitter, kind textKind) {
	n := 0
	for i, p := range t.Pending {
		if (p.Kind == userText) != (kind == userText) {
			n = i + 1
		}
	}
	t.release(e, n)
}

// releaseTexts releases all pending texts.
func (t *texts) releaseTexts(e *emitter) { t.release(e, len(t.Pending)) }

// release emits the first n pending texts, because no response_item repeats them.
func (t *texts) release(e *emitter, n int) {
	if n == 0 {
		return
	}
	released := t.Pending[:n]
	rest := slices.Clone(t.Pending[n:])
	if len(rest) == 0 {
		rest = nil // as decoded
	}
	t.Pending = rest
	for _, p := range released {
		p.emit(e)
	}
}

// emit emits a pending text, unless it was emitted before.
func (p *pendingText) emit(e *emitter) {
	if !p.Emitted {
		e.putPending("", p.draft(), p.From, p.Copied)
	}
}

// draft returns the event of the text.
func (p *pendingText) draft() core.Draft {
	switch p.Kind {
	case userText:
		text, speech := typedText([]string{p.Text}, unjoined)
		d := core.DraftOf(speech, text)
		if strings.TrimSpace(p.Text) == "" {
			d.Text = nil
		}
		return d
	case agentText:
		return agentDraft(envelopes.AssistantMessage, p.Text, p.Model)
	default:
		return agentDraft(envelopes.Reasoning, p.Text, p.Model)
	}
}

// matching matches pending texts with the texts of one response_item.
type matching struct {
	texts   []canonicalText
	matched []bool // by index of texts
	emitted []bool // by index of texts: the matching pending text was emitted before
	some    bool   // a text is matched, so no whole text may match
	whole   bool   // a whole text is matched, so nothing else may match
	joint   joint  // how the parts of the whole text are joined
}

// open reports whether text i may still match a pending text.
func (x *matching) open(i int) bool {
	return !x.matched[i] && !x.whole && (x.texts[i].Part || !x.some)
}

// match reports whether a pending text matches one of the texts, and marks that as matched.
func (x *matching) match(p *pendingText) bool {
	for i, t := range x.texts {
		if t.Kind == p.Kind && t.Key == p.Key && x.open(i) {
			x.matched[i], x.emitted[i] = true, p.Emitted
			x.some, x.whole = true, x.whole || !t.Part
			x.joint = cmp.Or(t.Joint, x.joint)
			return true
		}
	}
	return false
}

// drop drops the pending texts that a response_item of this kind repeats, and releases those before the first of
// them, or all if it repeats none. Later event_msgs may repeat the texts without a match. It returns, by index of
// repeated, which texts already have an event.
func (t *texts) drop(e *emitter, kind textKind, repeated []canonicalText) (emitted []bool) {
	x := matching{texts: repeated, matched: make([]bool, len(repeated)), emitted: make([]bool, len(repeated))}
	var rest core.Window[pendingText]
	front := -1 // how many of rest precede the first match
	for _, p := range t.Pending {
		if !x.match(&p) {
			rest = append(rest, p)
		} else if front < 0 {
			front = len(rest)
		}
	}
	if front < 0 {
		front = len(rest)
	}
	t.Pending = rest
	t.Joint = cmp.Or(x.joint, t.Joint)
	t.setCanonical(kind, &x)
	t.release(e, releasable(rest[:front], kind))
	return x.emitted
}

// dropInjected drops the pending text that an injected message repeats, or else keeps its text for the event_msg that
// may follow. Other texts stay: a machine may write between the two records of a prompt. It returns whether the text
// already has an event.
func (t *texts) dropInjected(text string) (emitted bool) {
	c := canonicalText{Kind: injectedText, Key: core.PromptKey(text)}
	t.Canonical = t.Canonical.Without(func(o canonicalText) bool { return o.Kind == injectedText })
	found := false
	t.Pending = t.Pending.Without(func(p pendingText) bool {
		if found || p.Kind != userText || p.Key != c.Key {
			return false
		}
		found, emitted = true, p.Emitted
		return true
	})
	if !found {
		t.Canonical = t.Canonical.Push(c, 3*maxCanonical+1, nil)
	}
	return emitted
}

// setCanonical replaces the texts of a kind that an event_msg may repeat by the unmatched texts of the current
// response_item.
func (t *texts) setCanonical(kind textKind, x *matching) {
	t.Canonical = t.Canonical.Without(func(c canonicalText) bool { return c.Kind == kind })
	for i, c := range x.texts[:min(len(x.texts), maxCanonical)] {
		if x.open(i) {
			t.Canonical = t.Canonical.Push(c, 3*maxCanonical, nil)
		}
	}
}

// releasable returns how many of the pending texts a response_item of this kind releases: all, except that reasoning
// keeps the agent texts at the end, whose response_item comes after it.
func releasable(pending []pendingText, kind textKind) int {
	n := len(pending)
	for kind == reasoningText && n > 0 && pending[n-1].Kind == agentText {
		n--
	}
	return n
}

// newParts drops the pending texts that a response_item repeats, and returns the parts of the response_item without
// an event. repeated has the whole texts first, then the parts.
func (t *texts) newParts(e *emitter, kind textKind, parts []string, repeated []canonicalText) []string {
	emitted := t.drop(e, kind, repeated)
	whole := len(repeated) - len(parts)
	if slices.Contains(emitted[:whole], true) {
		return nil
	}
	var out []string
	for i, e := range emitted[whole:] {
		if !e {
			out = append(out, parts[i])
		}
	}
	return out
}
