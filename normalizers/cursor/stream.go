package cursor

import (
	"strings"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// What Cursor says in pieces. A thought comes in deltas, closed by `completed`. An answer
// comes whole; with --stream-partial-output in deltas (with a time, without a
// model_call_id), and before a tool and at the end all deltas since the last tool come
// once more as one (with a model_call_id, or without a time). Pieces of a kind that
// follow each other are one event (semantics.md section 9, "Deltas").

const maxDelta = 48 << 10 // bytes of JSON of what is being joined; beyond it the text goes on in another event

// state is what a session remembers beyond what all vendors do: what is being
// joined, and how much of the answer was told before it.
type state struct {
	From    core.Pending `json:"from,omitzero"` // the last piece
	Words   string       `json:"w,omitzero"`
	Quoted  int          `json:"q,omitzero"` // bytes that the words take as JSON
	Thought bool         `json:"t,omitzero"` // a thought, else an answer
	Pieces  int          `json:"n,omitzero"`
	Partial bool         `json:"d,omitzero"` // all pieces are deltas by their marks
	Segment segment      `json:"s,omitzero"`
}

// Size implements [core.State].
func (s *state) Size() int {
	n := len(s.Words) + len(s.From.Raw) + len(s.From.TS) + len(s.From.Traceparent) + len(s.From.Tracestate)
	if n > 0 || s.Segment.Told > 0 {
		n += 64
	}
	return n
}

// segment is the answer since the last tool, as far as it was told: its length and
// a hash, so that it is known when it comes once more.
type segment struct {
	Told   int    `json:"n,omitzero"`
	Digest uint64 `json:"h,omitzero"`
}

// add takes words that are told. The hash is FNV-1a, which goes on from what it was.
func (s segment) add(words string) segment {
	if s.Told == 0 {
		s.Digest = 14695981039346656037
	}
	for i := range len(words) {
		s.Digest = (s.Digest ^ uint64(words[i])) * 1099511628211
	}
	s.Told += len(words)
	return s
}

// rest is words without what was told of them; false when they begin otherwise.
func (s segment) rest(words string) (string, bool) {
	if s.Told > len(words) || s.Told > 0 && (segment{}).add(words[:s.Told]) != s {
		return "", false
	}
	return words[s.Told:], true
}

// say emits what was said or thought; from is its record where that is not the one at
// work.
func (c *mapper) say(t envelopes.EventType, words string, from *core.Pending) {
	if strings.TrimSpace(words) == "" {
		return
	}
	d := core.Draft{OnChannel: envelopes.ChannelChat, From: from}
	d.EventType, d.Text, d.Model = t, &words, lenient.Text(c.Session.Model).Ptr()
	c.Emit(d)
}

// take ends what is being joined, and returns it.
func (c *mapper) take() state {
	is := *c.st
	*c.st = state{Segment: is.Segment}
	return is
}

// release tells what is being joined: a record of another kind has come, or the end.
func (c *mapper) release() {
	is := c.take()
	switch {
	case is.Pieces == 0:
	case is.Thought:
		c.say(envelopes.Reasoning, is.Words, &is.From)
	default:
		c.st.Segment = segment{}
		if is.Partial {
			c.st.Segment = is.Segment.add(is.Words)
		}
		c.say(envelopes.AssistantMessage, is.Words, &is.From)
	}
}

// join holds a piece together with those before it. A text that is too long to be held
// goes on in another event.
func (c *mapper) join(words string, thought, delta bool) {
	quoted := len(lenient.AppendQuote(nil, words))
	if is := *c.st; is.Pieces > 0 && (is.Thought != thought || is.Quoted+quoted > maxDelta) {
		c.release()
	}
	is := *c.st
	*c.st = state{
		From:    c.PendingRecord(),
		Words:   is.Words + words,
		Quoted:  is.Quoted + quoted,
		Thought: thought,
		Pieces:  is.Pieces + 1,
		Partial: delta && (is.Partial || is.Pieces == 0),
		Segment: is.Segment,
	}
}

// whole emits words of the record at work together with those that are held before them.
func (c *mapper) whole(t envelopes.EventType, words string) {
	thought := t == envelopes.Reasoning
	if is := *c.st; is.Pieces > 0 && is.Thought != thought {
		c.release()
	}
	is := c.take()
	c.say(t, is.Words+words, nil)
}

// think takes a delta of a thought. An empty one says nothing and ends nothing.
func (c *mapper) think() core.SkipReason {
	words := string(c.Text)
	switch {
	case words == "":
		return core.SkipEmpty
	case !core.FitsDelta(words):
		c.whole(envelopes.Reasoning, words)
		return core.SkipEmpty
	default:
		c.join(words, true, true)
		return core.SkipProgress
	}
}

// thought ends a thought, which takes the id and the time of this record. A version that
// states the whole thought here says it once more.
func (c *mapper) thought() core.SkipReason {
	is := *c.st
	open := is.Pieces > 0 && is.Thought
	if !open && c.Text == "" {
		return core.SkipEmpty
	}
	words := string(c.Text)
	if open {
		words = strings.TrimPrefix(words, is.Words)
	}
	c.whole(envelopes.Reasoning, words)
	return core.SkipEmpty
}

// spoken reports whether an assistant's record of the stream holds text and nothing else.
func (c *mapper) spoken() bool {
	for _, b := range c.blocks() {
		if b.Type != "text" {
			return false
		}
	}
	return c.Message.OK
}

// speak takes what the assistant says: a piece, or the whole that ends the pieces. A
// record too long to be remembered is no piece.
func (c *mapper) speak() core.SkipReason {
	words := joinTexts(c.blocks(), "")
	if words == "" {
		return core.SkipEmpty
	}
	if c.st.Thought {
		c.release()
	}
	delta := c.TimestampMS.OK && c.ModelCallID == ""
	if rest, ok := c.recap(words, delta); ok {
		c.take()
		c.st.Segment = segment{}
		c.say(envelopes.AssistantMessage, rest, nil)
		return core.SkipMirror
	}
	if c.ModelCallID != "" || len(c.Record.Data) > core.MaxPendingRaw || !core.FitsDelta(words) {
		c.whole(envelopes.AssistantMessage, words)
		c.st.Segment = segment{}
		return core.SkipEmpty
	}
	c.join(words, false, delta)
	if delta {
		return core.SkipProgress
	}
	return core.SkipHeld
}

// recap reports whether words tell once more what was said in pieces, and returns what is
// not told of them: the pieces that are held, and what may follow them. A delta is none,
// nor is an answer after another one, unless it repeats several pieces that are too long
// together for it to be chance.
func (c *mapper) recap(words string, delta bool) (rest string, ok bool) {
	const noChance = 16
	is := *c.st
	if rest, ok = is.Segment.rest(words); !ok {
		return "", false
	}
	if !delta && (is.Partial || is.Pieces == 0 && is.Segment.Told > 0) {
		return rest, strings.HasPrefix(rest, is.Words)
	}
	return rest, rest == is.Words && is.Pieces > 1 && len(rest) >= noChance
}
