package gemini

import (
	"regexp"
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What a session remembers of messages to know those that come again is in its memory of
// event ids, under keys of their own.

// messageKey is the key of a message by its id: its value is the hash of its content, zero
// while it has none.
func messageKey(id lenient.Text) core.Fingerprint { return core.FingerprintOf("message", string(id)) }

// isKnownMessage reports whether the session has had a message of this id, and remembers it.
func (m *mapper) isKnownMessage(id lenient.Text) bool {
	_, ok := m.Session.IDs.Get(messageKey(id))
	if !ok {
		m.Session.IDs.Put(messageKey(id), core.Fingerprint{})
	}
	return ok
}

// isRepeat reports whether the text of a message was emitted before: under its id, or, in a
// history that is written again, under another id. It remembers the text.
func (m *mapper) isRepeat(w *wireMessage, text string) bool {
	text = comparableText(text)
	content, contentKey := core.FingerprintOf(w.kind(), text), core.FingerprintOf("said", w.kind(), text)
	_, isKnownContent := m.Session.IDs.Get(contentKey)
	m.Session.IDs.Put(contentKey, content)
	if w.ID == "" {
		return false
	}
	before, _ := m.Session.IDs.Get(messageKey(w.ID))
	m.Session.IDs.Put(messageKey(w.ID), content)
	switch {
	case before == content:
		m.Duplicate = true
		m.repeated = m.repeated || m.history
		return true
	case m.copied && isKnownContent && text != "":
		m.repeated = true
		return true
	default:
		return false
	}
}

// isRevised reports whether the session has emitted the message before. It is asked before
// [mapper.isRepeat] remembers the new content.
func (m *mapper) isRevised(w *wireMessage) bool {
	content, ok := m.Session.IDs.Get(messageKey(w.ID))
	return ok && content != core.Fingerprint{} && w.ID != ""
}

// isKnownEntry reports whether the session has had this entry of logs.json, and remembers
// it.
func (m *mapper) isKnownEntry(id, text lenient.Text) bool {
	key := core.FingerprintOf("line", string(id), string(text))
	if _, ok := m.Session.IDs.Get(key); ok {
		m.Duplicate = true
		return true
	}
	m.Session.IDs.Put(key, key)
	return false
}

// promptFile is one of the two files that state a prompt.
type promptFile int

const (
	inLogs    promptFile = iota // logs.json
	inSession                   // the session's own file
)

// isPromptRepeat reports whether the other file has stated a prompt. Each prompt of a file
// repeats one of the other: the counts of those that are not repeated yet, by file, are
// the first bytes of a value in the memory of ids.
func (m *mapper) isPromptRepeat(text string, in promptFile) bool {
	key := core.FingerprintOf("prompt", strings.TrimSpace(text))
	counts, _ := m.Session.IDs.Get(key)
	mine, other := &counts[inLogs], &counts[inSession]
	if in == inSession {
		mine, other = other, mine
	}
	isRepeat := *other > 0
	if isRepeat {
		*other--
		m.repeated = true
	} else if *mine < 255 {
		*mine++
	}
	m.Session.IDs.Put(key, counts)
	return isRepeat
}

// invisible is what the vendor leaves out of an answer but keeps in the history.
var invisible = regexp.MustCompile(`[\x{200B}-\x{200D}\x{FEFF}\x{200E}\x{200F}]|(?s:<!--.*?-->)`)

// comparableText returns a text as two of them are compared: without what cannot be seen.
func comparableText(s string) string {
	// Whatever the expression matches begins with one of these, and few texts have them; dashes
	// and quotation marks begin with the same two bytes.
	isHidden := strings.Contains(s, "\xe2\x80") && strings.ContainsAny(s, "\u200b\u200c\u200d\u200e\u200f")
	if isHidden || strings.Contains(s, "\ufeff") || strings.Contains(s, "<!--") {
		s = invisible.ReplaceAllString(s, "")
	}
	return strings.TrimSpace(s)
}
