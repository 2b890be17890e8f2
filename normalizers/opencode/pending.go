package opencode

import (
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// Bounds of the pending parts.
const (
	maxPending     = 4
	maxPendingText = 48 << 10 // bytes of the texts of all pending parts, in JSON
)

// pendingPart is a growing text in the form of its last update.
type pendingPart struct {
	ID        string       `json:"id"`
	Message   message      `json:"msg"`
	Reasoning bool         `json:"r,omitzero"`
	Text      string       `json:"t"`
	Cut       bool         `json:"c,omitzero"` // Text is incomplete
	TS        string       `json:"ts,omitzero"`
	From      core.Pending `json:"from"`
}

// pendingParts are the growing texts of a session.
type pendingParts struct {
	Pending core.Window[pendingPart] `json:"pending,omitzero"`
}

// push adds a pending part, after emitting the oldest ones until there is room.
func (p *pendingParts) push(e *emitter, h pendingPart) {
	for len(p.Pending) > 0 && (len(p.Pending) == maxPending || pendingSize(p.Pending)+lenient.QuotedLen(h.Text) > maxPendingText) {
		oldest := p.Pending[0].ID
		p.release(e, func(o *pendingPart) bool { return o.ID == oldest })
	}
	p.Pending = p.Pending.Push(h, maxPending, nil)
}

// pendingSize returns how many bytes the texts of parts take in an encoded session.
func pendingSize(parts []pendingPart) int {
	n := 0
	for i := range parts {
		n += lenient.QuotedLen(parts[i].Text)
	}
	return n
}

// setText keeps as much of a text as a session may.
func (p *pendingPart) setText(s string) {
	p.Text = s
	for !core.FitsJSON(p.Text, maxPendingText-2) {
		p.Text, p.Cut = core.Cut(p.Text, len(p.Text)*3/4), true
	}
}

// drop forgets a pending part, because it came in a later form.
func (p *pendingParts) drop(id string) {
	p.Pending = p.Pending.Without(func(o pendingPart) bool { return o.ID == core.BoundID(id) })
}

// releaseAll emits all pending parts.
func (p *pendingParts) releaseAll(e *emitter) { p.release(e, func(*pendingPart) bool { return true }) }

// release emits the pending parts that match, as they are.
func (p *pendingParts) release(e *emitter, match func(*pendingPart) bool) {
	var kept core.Window[pendingPart]
	var out []pendingPart
	for _, o := range p.Pending {
		if match(&o) {
			out = append(out, o)
		} else {
			kept = append(kept, o)
		}
	}
	if len(out) == 0 {
		return
	}
	p.Pending = kept
	for i := range out {
		out[i].emit(e)
	}
}

// emit emits a pending part as it is.
func (p *pendingPart) emit(e *emitter) {
	if strings.TrimSpace(p.Text) == "" {
		return
	}
	text := part{Type: "text", Text: lenient.Text(p.Text)}
	if p.Reasoning {
		text.Type = "reasoning"
	}
	d := speech(p.Message, &text)
	d.From, d.TS, d.TextTruncated = &p.From, p.TS, p.Cut
	e.say(p.Message, p.ID, d)
}
