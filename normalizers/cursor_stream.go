package normalizers

import (
	"strings"

	"tributary/envelopes"
)

// What Cursor says in pieces. A thought comes in deltas, closed by `completed`. An answer
// comes whole; with --stream-partial-output in deltas (with a time, without a
// model_call_id), and before a tool and at the end all deltas since the last tool come
// once more as one (with a model_call_id, or without a time). Pieces of a kind that
// follow each other are one event (semantics.md section 9, "Deltas").

// cursorState is what a session remembers beyond what all vendors do: what is being
// joined, and how much of the answer was told before it.
type cursorState struct {
	From    held          `json:"from,omitzero"` // the last piece
	Words   string        `json:"w,omitzero"`
	Thought bool          `json:"t,omitzero"` // a thought, else an answer
	Pieces  int           `json:"n,omitzero"`
	Partial bool          `json:"d,omitzero"` // all pieces are deltas by their marks
	Segment cursorSegment `json:"s,omitzero"`
}

func (s *cursorState) size() int {
	n := len(s.Words) + len(s.From.Raw) + len(s.From.TS) + len(s.From.Traceparent) + len(s.From.Tracestate)
	if n > 0 || s.Segment.Told > 0 {
		n += 64
	}
	return n
}

// cursorSegment is the answer since the last tool, as far as it was told: its length and
// a hash, so that it is known when it comes once more.
type cursorSegment struct {
	Told   int    `json:"n,omitzero"`
	Digest uint64 `json:"h,omitzero"`
}

// add takes words that are told. The hash is FNV-1a, which goes on from what it was.
func (s cursorSegment) add(words string) cursorSegment {
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
func (s cursorSegment) rest(words string) (string, bool) {
	if s.Told > len(words) || s.Told > 0 && (cursorSegment{}).add(words[:s.Told]) != s {
		return "", false
	}
	return words[s.Told:], true
}

// say emits what was said or thought; from is its record where that is not the one at
// work.
func (c *cursorFold) say(t envelopes.EventType, words string, from *held) {
	if strings.TrimSpace(words) == "" {
		return
	}
	d := draft{on: envelopes.ChannelChat, from: from}
	d.EventType, d.Text, d.Model = t, &words, text(c.s.Model).ptr()
	c.emit(d)
}

// take ends what is being joined, and returns it.
func (c *cursorFold) take() cursorState {
	is := c.s.Cursor
	c.s.Cursor = cursorState{Segment: is.Segment}
	return is
}

// release tells what is being joined: a record of another kind has come, or the end.
func (c *cursorFold) release() {
	is := c.take()
	switch {
	case is.Pieces == 0:
	case is.Thought:
		c.say(envelopes.Reasoning, is.Words, &is.From)
	default:
		c.s.Cursor.Segment = cursorSegment{}
		if is.Partial {
			c.s.Cursor.Segment = is.Segment.add(is.Words)
		}
		c.say(envelopes.AssistantMessage, is.Words, &is.From)
	}
}

// join holds a piece together with those before it. A text that is too long to be held
// goes on in another event.
func (c *cursorFold) join(words string, thought, delta bool) {
	if is := c.s.Cursor; is.Pieces > 0 && (is.Thought != thought || !fitsDelta(is.Words+words)) {
		c.release()
	}
	is := c.s.Cursor
	c.s.Cursor = cursorState{
		From:    c.hold(),
		Words:   is.Words + words,
		Thought: thought,
		Pieces:  is.Pieces + 1,
		Partial: delta && (is.Partial || is.Pieces == 0),
		Segment: is.Segment,
	}
}

// whole emits words of the record at work together with those that are held before them.
func (c *cursorFold) whole(t envelopes.EventType, words string) {
	thought := t == envelopes.Reasoning
	if is := c.s.Cursor; is.Pieces > 0 && is.Thought != thought {
		c.release()
	}
	is := c.take()
	c.say(t, is.Words+words, nil)
}

// think takes a delta of a thought. An empty one says nothing and ends nothing.
func (c *cursorFold) think() SkipReason {
	words := string(c.Text)
	switch {
	case words == "":
		return SkipEmpty
	case !fitsDelta(words):
		c.whole(envelopes.Reasoning, words)
		return SkipEmpty
	default:
		c.join(words, true, true)
		return SkipProgress
	}
}

// thought ends a thought, which takes the id and the time of this record. A version that
// states the whole thought here says it once more.
func (c *cursorFold) thought() SkipReason {
	is := c.s.Cursor
	open := is.Pieces > 0 && is.Thought
	if !open && c.Text == "" {
		return SkipEmpty
	}
	words := string(c.Text)
	if open {
		words = strings.TrimPrefix(words, is.Words)
	}
	c.whole(envelopes.Reasoning, words)
	return SkipEmpty
}

// spoken reports whether an assistant's record of the stream holds text and nothing else.
func (c *cursorFold) spoken() bool {
	for _, b := range c.blocks() {
		if b.Type != "text" {
			return false
		}
	}
	return c.Message.ok
}

// speak takes what the assistant says: a piece, or the whole that ends the pieces. A
// record too long to be remembered is no piece.
func (c *cursorFold) speak() SkipReason {
	words := joinTexts(c.blocks(), "")
	if words == "" {
		return SkipEmpty
	}
	if c.s.Cursor.Thought {
		c.release()
	}
	delta := c.TimestampMS.ok && c.ModelCallID == ""
	if rest, ok := c.recap(words, delta); ok {
		c.take()
		c.s.Cursor.Segment = cursorSegment{}
		c.say(envelopes.AssistantMessage, rest, nil)
		return SkipMirror
	}
	if c.ModelCallID != "" || len(c.r.Data) > maxHeldRaw || !fitsDelta(words) {
		c.whole(envelopes.AssistantMessage, words)
		c.s.Cursor.Segment = cursorSegment{}
		return SkipEmpty
	}
	c.join(words, false, delta)
	if delta {
		return SkipProgress
	}
	return SkipHeld
}

// recap reports whether words tell once more what was said in pieces, and returns what is
// not told of them: the pieces that are held, and what may follow them. A delta is none,
// nor is an answer after another one, unless it repeats several pieces that are too long
// together for it to be chance.
func (c *cursorFold) recap(words string, delta bool) (rest string, ok bool) {
	const noChance = 16
	is := c.s.Cursor
	if rest, ok = is.Segment.rest(words); !ok {
		return "", false
	}
	if !delta && (is.Partial || is.Pieces == 0 && is.Segment.Told > 0) {
		return rest, strings.HasPrefix(rest, is.Words)
	}
	return rest, rest == is.Words && is.Pieces > 1 && len(rest) >= noChance
}
