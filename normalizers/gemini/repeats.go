package gemini

import (
	"regexp"
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// known is what a session remembers about messages to recognize repeated ones. It uses the memory of event ids, with
// keys of its own.
type known struct {
	ids *core.Memory[core.Fingerprint]
}

// messageKey returns the key of a message by its id. Its value is the hash of the content; zero while it has none.
func messageKey(id lenient.Text) core.Fingerprint { return core.FingerprintOf("message", string(id)) }

// message reports whether the session has had a message with this id, and remembers it.
func (k known) message(id lenient.Text) bool {
	_, ok := k.ids.Get(messageKey(id))
	if !ok {
		k.ids.Put(messageKey(id), core.Fingerprint{})
	}
	return ok
}

// text remembers the text of a message. It reports whether the message had the same one before, and whether any
// message of its kind has had it.
func (k known) text(w *wireMessage, text string) (same, known bool) {
	content, contentKey := core.FingerprintOf(w.kind(), text), core.FingerprintOf("said", w.kind(), text)
	_, known = k.ids.Get(contentKey)
	k.ids.Put(contentKey, content)
	if w.ID == "" {
		return false, known
	}
	before, _ := k.ids.Get(messageKey(w.ID))
	k.ids.Put(messageKey(w.ID), content)
	return before == content, known
}

// saidKey returns the key of a text that a message of a kind has.
func saidKey(kind, text string) core.Fingerprint {
	if kind == "user" {
		text = unwrapped(text)
	}
	return core.FingerprintOf("said", kind, comparableText(text))
}

// said reports whether a message of this kind has had this text.
func (k known) said(kind, text string) bool {
	_, ok := k.ids.Get(saidKey(kind, text))
	return ok
}

// hasText reports whether the session has emitted the message before. It must be called before [known.text] remembers
// the new content.
func (k known) hasText(w *wireMessage) bool {
	content, ok := k.ids.Get(messageKey(w.ID))
	return ok && content != core.Fingerprint{} && w.ID != ""
}

// entry reports whether the session has had this entry of logs.json, and remembers it.
func (k known) entry(id, text lenient.Text) bool {
	key := core.FingerprintOf("line", string(id), string(text))
	_, ok := k.ids.Get(key)
	if !ok {
		k.ids.Put(key, key)
	}
	return ok
}

// isRepeat reports whether the text of a message was emitted before: under its id, or, in a rewritten history, under
// another id or as several messages. It remembers the text.
func (e *emitter) isRepeat(w *wireMessage, text string) bool {
	text = comparableText(text)
	isJoined := e.copied && e.known.joins(w) // before its own text is remembered
	same, isKnown := e.known.text(w, text)
	switch {
	case same:
		e.Duplicate = true
		e.repeated = e.repeated || e.history
	case w.ID != "" && e.copied && text != "" && (isKnown || isJoined):
		e.repeated = true
	default:
		return false
	}
	return true
}

// promptFile is one of the two files that state a prompt.
type promptFile int

const (
	inLogs    promptFile = iota // logs.json
	inSession                   // the session's own file
)

// prompt reports whether the other file has stated a prompt. Each prompt of a file repeats one of the other. The
// first bytes of a value in the memory of ids count, per file, the prompts without a repetition so far.
func (k known) prompt(text string, in promptFile) bool {
	key := core.FingerprintOf("prompt", strings.TrimSpace(text))
	counts, _ := k.ids.Get(key)
	mine, other := &counts[inLogs], &counts[inSession]
	if in == inSession {
		mine, other = other, mine
	}
	isRepeat := *other > 0
	if isRepeat {
		*other--
	} else if *mine < 255 {
		*mine++
	}
	k.ids.Put(key, counts)
	return isRepeat
}

// invisible matches what the vendor omits from an answer but keeps in the history.
var invisible = regexp.MustCompile(`[\x{200B}-\x{200D}\x{FEFF}\x{200E}\x{200F}]|(?s:<!--.*?-->)`)

// comparableText returns a text for comparison, without invisible parts.
func comparableText(s string) string {
	// Every match of the expression begins with one of these bytes, which few texts have. Dashes and quotation marks
	// begin with the same two bytes.
	isHidden := strings.Contains(s, "\xe2\x80") && strings.ContainsAny(s, "\u200b\u200c\u200d\u200e\u200f")
	if isHidden || strings.Contains(s, "\ufeff") || strings.Contains(s, "<!--") {
		s = invisible.ReplaceAllString(s, "")
	}
	return strings.TrimSpace(s)
}
