package claude

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf16"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

const (
	maxStatements = 64  // prompts, and answers, of other channels that the log has not stated yet
	maxThin       = 128 // calls and results without their content
	maxQueuedIDs  = 16  // records of prompts that the queue of the log has stated
)

// channels is what telemetry and hooks have stated of a session, so that the log's statement of the same prompt,
// answer, call or result is no second one (README.md, Telemetry and hooks).
type channels struct {
	Logged  bool                          `json:"logged,omitzero"`  // the log has stated a message
	Prompts core.Window[statement]        `json:"prompts,omitzero"` // by their prompt ids
	Answers core.Window[statement]        `json:"answers,omitzero"` // by their request ids; zero for those of hooks
	Thin    core.Window[core.Fingerprint] `json:"thin,omitzero"`    // events whose content telemetry does not state
	Queued  core.Window[core.Fingerprint] `json:"queued,omitzero"`  // ids of records whose prompt the queue has stated
}

func (t *channels) size() int {
	n := 12 * (len(t.Thin) + len(t.Queued))
	for _, list := range [...]core.Window[statement]{t.Prompts, t.Answers} {
		for i := range list {
			n += 64 + len(list[i].ID)
		}
	}
	return n
}

// statement is a prompt or an answer of another channel that the log has not stated yet.
type statement struct {
	Key    core.Fingerprint `json:"k,omitzero"`
	Of     core.Fingerprint `json:"o,omitzero"` // of an answer: its prompt and thread
	ID     string           `json:"i"`          // of its last event, bounded
	Text   core.Fingerprint `json:"t,omitzero"` // zero if only the length is stated
	Length int64            `json:"l,omitzero"` // in UTF-16 code units
	Own    bool             `json:"w,omitzero"` // the event has the id of the log's record
}

// isText reports whether a statement is of a text, by its length if it is all that is stated.
func (s *statement) isText(key core.Fingerprint, length int64) bool {
	return s.Text == key && key != core.Fingerprint{} || (s.Text == core.Fingerprint{} || key == core.Fingerprint{}) && s.Length == length
}

// ends reports whether a statement is the last block of a text. A hook states that block, telemetry joins all by lines.
func (s *statement) ends(text string) bool {
	units := utf16.Encode([]rune(strings.TrimSpace(text)))
	start := len(units) - int(s.Length)
	return start > 0 && units[start-1] == '\n' && core.PromptKey(string(utf16.Decode(units[start:]))) == s.Text
}

// lengthOf returns the length of a text as Claude Code counts it.
func lengthOf(text string) int64 { return int64(len(utf16.Encode([]rune(text)))) }

// promptSuffix ends the event id of a prompt whose record in the log is not known. The others have the id of that.
const promptSuffix = "#prompt"

// takeStatement removes the statement that the log now states itself, and returns its event, which that of the log
// replaces; empty for none.
func takeStatement(list *core.Window[statement], match func(statement) bool) (replaced string) {
	i := slices.IndexFunc(*list, match)
	if i < 0 {
		return ""
	}
	replaced = (*list)[i].ID
	*list = withoutIndex(*list, i)
	return replaced
}

// logPrompt returns the event that the log's statement of a prompt replaces; empty for none. An event of telemetry has
// the id of the log's record, so that the two find each other.
func (t *channels) logPrompt(prompt lenient.Text, text string, isPrompt bool) (replaced string) {
	key, length := core.PromptKey(text), lengthOf(text)
	return takeStatement(&t.Prompts, func(s statement) bool {
		switch {
		case s.Own:
			return false
		case prompt != "" && s.Key != core.Fingerprint{}:
			return s.Key == keyOf(prompt) && (isPrompt || s.isText(key, length))
		default: // older versions do not name the prompt
			return s.isText(key, length)
		}
	})
}

// queuePrompt is [channels.logPrompt] for a prompt that the queue of the log states, by its text or its length.
func (t *channels) queuePrompt(text string) (replaced string) {
	key, length := core.PromptKey(text), lengthOf(text)
	return takeStatement(&t.Prompts, func(s statement) bool {
		return s.isText(key, length)
	})
}

// logAnswer is [channels.logPrompt] for an answer of a request in a thread.
func (t *channels) logAnswer(request lenient.Text, thread core.Fingerprint, text string) (replaced string) {
	if request != "" {
		key := keyOf(request)
		if replaced = takeStatement(&t.Answers, func(s statement) bool { return s.Key == key }); replaced != "" {
			return replaced
		}
	}
	key := core.PromptKey(text)
	return takeStatement(&t.Answers, func(s statement) bool {
		return s.Key == core.Fingerprint{} && s.Text == key && s.inThread(thread)
	})
}

// logAnswer is [channels.logAnswer], also if telemetry is so far ahead of the log that its answer left the window: a
// session knows the event of an answer by its request.
func (e *emitter) logAnswer(request lenient.Text, text string) (replaced string) {
	replaced = e.st.logAnswer(request, e.thread, text)
	key := answerKey(request)
	if is, _ := e.Session.IDs.Get(key); request == "" || is != answerOpen {
		return replaced
	}
	e.Session.IDs.Put(key, core.Fingerprint{})
	return cmp.Or(replaced, core.BoundID(string(core.PartID(request, "response"))))
}

// answerKey is where a session notes that telemetry has stated the answer of a request, with answerOpen until the log has.
func answerKey(request lenient.Text) core.Fingerprint {
	return core.FingerprintOf("answer", string(request))
}

var answerOpen = core.Fingerprint{1}

// noteQueued notes the id of the record of a prompt that the queue of the log has stated.
func (t *channels) noteQueued(uuid lenient.Text) {
	if uuid != "" {
		t.Queued = t.Queued.Push(core.FingerprintOf(string(uuid)), maxQueuedIDs, nil)
	}
}

// answerOf identifies the prompt and the thread of an answer.
func answerOf(prompt lenient.Text, thread core.Fingerprint) core.Fingerprint {
	of := core.FingerprintOf(string(prompt))
	copy(of[3:], thread[:3])
	return of
}

// inThread reports whether an answer is of a thread.
func (s *statement) inThread(thread core.Fingerprint) bool {
	return [3]byte(s.Of[3:]) == [3]byte(thread[:3])
}

// isThin reports whether the event of a call or a result has no content yet.
func (t *channels) isThin(id string) bool {
	return len(t.Thin) > 0 && slices.Contains(t.Thin, core.FingerprintOf(id))
}

// setThin notes whether the event of a call or a result has no content yet.
func (t *channels) setThin(id string, thin bool) {
	switch is := t.isThin(id); {
	case thin && !is:
		t.Thin = t.Thin.Push(core.FingerprintOf(id), maxThin, nil)
	case is && !thin:
		key := core.FingerprintOf(id)
		t.Thin = t.Thin.Without(func(f core.Fingerprint) bool { return f == key })
	}
}

// wasQueued reports whether the prompt of a record of the log was stated by the queue.
func (t *channels) wasQueued(uuid lenient.Text) bool {
	return len(t.Queued) > 0 && slices.Contains(t.Queued, core.FingerprintOf(string(uuid)))
}

// promptOf returns the index of a prompt of another channel; -1 for none.
func (t *channels) promptOf(prompt lenient.Text) int {
	key := keyOf(prompt)
	return slices.IndexFunc(t.Prompts, func(s statement) bool { return s.Key == key })
}
