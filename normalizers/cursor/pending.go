package cursor

import (
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// A thought comes in deltas, and a record `completed` ends it. An answer comes whole. With --stream-partial-output it
// comes in deltas (with a time, without a model_call_id), and before a tool and at the end all deltas since the last
// tool are repeated in one record (with a model_call_id, or without a time). A whole answer without a model_call_id may
// be followed by more of it, so it is a chunk, too. Consecutive chunks of a kind are one event.

// maxPending bounds the bytes that pending chunks take as JSON.
const maxPending = 48 << 10

// state is what a session of Cursor remembers beyond what all sessions do: the form of its records, the pending
// chunks, and the part of the answer emitted before them.
type state struct {
	Form     form `json:"form,omitzero"`
	IsChild  bool `json:"child,omitzero"`
	Thoughts form `json:"thoughts,omitzero"` // beside a transcript, whose they are
	IsOld    bool `json:"old,omitzero"`      // the run is of before April 2026, whose input includes the cache

	Open core.Window[openCall] `json:"open,omitzero"` // calls of a transcript

	From      core.Pending `json:"from,omitzero"` // record of the last chunk
	Text      string       `json:"w,omitzero"`
	Quoted    int          `json:"q,omitzero"` // bytes of the text as JSON
	IsThought bool         `json:"t,omitzero"` // otherwise an answer
	Chunks    int          `json:"n,omitzero"`
	AllDeltas bool         `json:"d,omitzero"` // every chunk is marked as a delta
	Answer    answer       `json:"s,omitzero"`
}

// answer is the part of the answer emitted since the last tool: its length and hash, to recognize it when it is
// repeated.
type answer struct {
	Length int    `json:"n,omitzero"`
	Digest uint64 `json:"h,omitzero"`
}

// add adds an emitted text. The hash is FNV-1a, which can be continued.
func (a answer) add(text string) answer {
	if a.Length == 0 {
		a.Digest = 14695981039346656037
	}
	for i := range len(text) {
		a.Digest = (a.Digest ^ uint64(text[i])) * 1099511628211
	}
	a.Length += len(text)
	return a
}

// cutPrefix returns text without the answer in front; false if it does not begin with the answer.
func (a answer) cutPrefix(text string) (rest string, ok bool) {
	if a.Length > len(text) || a.Length > 0 && (answer{}).add(text[:a.Length]) != a {
		return "", false
	}
	return text[a.Length:], true
}

// emitText emits an answer or a thought; from is its record, nil for the current one. It ignores white space.
func (m *mapper) emitText(t envelopes.EventType, text string, from *core.Pending) {
	if strings.TrimSpace(text) == "" {
		return
	}
	d := core.ChatDraft(t, &text, lenient.Text(m.Session.Model).Ptr())
	d.From = from
	m.Emit(d)
}

// take removes and returns the pending chunks.
func (s *state) take() state {
	is := *s
	*s = is.source()
	s.Answer = is.Answer
	return is
}

// source returns the state without anything of an answer or a thought.
func (s *state) source() state {
	return state{Form: s.Form, IsChild: s.IsChild, Thoughts: s.Thoughts, IsOld: s.IsOld, Open: s.Open}
}

// flush emits the pending chunks as one event of the last of them.
func (s *state) flush(m *mapper) {
	is := s.take()
	switch {
	case is.Chunks == 0:
	case is.IsThought:
		m.emitText(envelopes.Reasoning, is.Text, &is.From)
	default:
		s.Answer = answer{}
		if is.AllDeltas {
			s.Answer = is.Answer.add(is.Text)
		}
		m.emitText(envelopes.AssistantMessage, is.Text, &is.From)
	}
}

// join adds a chunk to the pending ones. It first emits chunks of another kind, and chunks of a text that would
// become too long to keep.
func (s *state) join(m *mapper, text string, isThought, isDelta bool) {
	quoted := lenient.QuotedLen(text)
	if s.Chunks > 0 && (s.IsThought != isThought || s.Quoted+quoted > maxPending) {
		s.flush(m)
	}
	s.AllDeltas = isDelta && (s.AllDeltas || s.Chunks == 0)
	s.From, s.IsThought = m.PendingRecord(), isThought
	s.Text += text
	s.Quoted += quoted
	s.Chunks++
}

// emitJoined emits a text together with the pending chunks of its kind, as an event of the current record.
func emitJoined(m *mapper, t envelopes.EventType, text string) {
	if m.st.Chunks > 0 && m.st.IsThought != (t == envelopes.Reasoning) {
		m.st.flush(m)
	}
	m.emitText(t, m.st.take().Text+text, nil)
}

// emitThoughtDelta adds a delta of a thought. An empty one ends nothing.
func emitThoughtDelta(m *mapper) {
	text := string(m.Text)
	switch {
	case text == "":
	case core.FitsDelta(text):
		m.st.join(m, text, true, true)
		m.skip = core.SkipProgress
	default:
		emitJoined(m, envelopes.Reasoning, text)
	}
}

// emitThoughtEnd emits a thought with the id and time of this record. Some versions repeat the whole thought here.
func emitThoughtEnd(m *mapper) {
	text := string(m.Text)
	if isOpen := m.st.Chunks > 0 && m.st.IsThought; isOpen {
		text = strings.TrimPrefix(text, m.st.Text)
	} else if text == "" {
		return
	}
	emitJoined(m, envelopes.Reasoning, text)
}

// isTextOnly reports whether an assistant's record of the stream only has text.
func (r *wireRecord) isTextOnly() bool {
	for _, b := range r.blocks() {
		if b.Type != "text" {
			return false
		}
	}
	return r.Message.OK
}

// emitAnswer emits an answer, adds a chunk of it, or drops the whole answer that repeats the chunks. A record that is
// too long to keep is not a chunk.
func emitAnswer(m *mapper) {
	text := joinTexts(m.blocks(), "")
	if text == "" {
		return
	}
	if m.st.IsThought {
		m.st.flush(m)
	}
	isDelta := m.TimestampMS.OK && m.ModelCallID == ""
	rest, isRepeat := m.st.cutRepeated(text, isDelta)
	switch {
	case isRepeat:
		m.st.take()
		m.st.Answer = answer{}
		m.emitText(envelopes.AssistantMessage, rest, nil)
		m.skip = core.SkipMirror
	case m.ModelCallID != "" || len(m.Record.Data) > core.MaxPendingRaw || !core.FitsDelta(text):
		emitJoined(m, envelopes.AssistantMessage, text)
		m.st.Answer = answer{}
	case isDelta:
		m.st.join(m, text, false, true)
		m.skip = core.SkipProgress
	default:
		m.st.join(m, text, false, false)
		m.skip = core.SkipHeld
	}
}

// cutRepeated reports whether a text repeats the chunks before it, and returns the part that was not emitted: the
// pending chunks, and what follows them. A delta repeats nothing. An answer after another answer repeats only if it
// matches several chunks that are too long together for this to be chance.
func (s *state) cutRepeated(text string, isDelta bool) (rest string, ok bool) {
	const noChance = 16 // bytes
	if rest, ok = s.Answer.cutPrefix(text); !ok {
		return "", false
	}
	if !isDelta && (s.AllDeltas || s.Chunks == 0 && s.Answer.Length > 0) {
		return rest, strings.HasPrefix(rest, s.Text)
	}
	return rest, rest == s.Text && s.Chunks > 1 && len(rest) >= noChance
}
