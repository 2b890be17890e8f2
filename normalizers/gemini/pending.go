package gemini

import (
	"strings"

	"tributary/normalizers/core"
)

// deltas is a text of the stream that is being joined.
type deltas struct {
	From core.Pending `json:"from,omitzero"` // the last delta
	Text string       `json:"w,omitzero"`
}

// join adds a delta to the text. If that becomes too long to keep, it continues in another event.
func (d *deltas) join(e *emitter, text string) {
	joined := d.Text + text
	if !core.FitsDelta(joined) {
		d.flush(e)
		joined = text
	}
	if !core.FitsDelta(joined) {
		e.emitStreamText(joined, nil)
		return
	}
	*d = deltas{From: e.PendingRecord(), Text: joined}
	e.skip = core.SkipProgress
}

// flush emits the pending deltas as one event of the last of them.
func (d *deltas) flush(e *emitter) {
	is := *d
	*d = deltas{}
	if strings.TrimSpace(is.Text) != "" {
		e.emitStreamText(is.Text, &is.From)
	}
}
