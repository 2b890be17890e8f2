package acp

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxBuffered bounds the bytes of the buffered parts of an open message. Parts beyond it
// are emitted before their message is complete.
const maxBuffered = 32 << 10

// openMessage is a message of a stream that is not complete.
type openMessage struct {
	Active    bool                        `json:"on,omitzero"`
	Role      string                      `json:"role,omitzero"`
	CreatedAt string                      `json:"at,omitzero"`
	Parts     core.Window[jsontext.Value] `json:"parts,omitzero"`   // buffered, in the form of [bufferedPart]
	Emitted   int                         `json:"emitted,omitzero"` // parts before them that were emitted
	Announced int                         `json:"ann,omitzero"`     // parts that message.created stated; the stream repeats them
	Repeated  int                         `json:"rep,omitzero"`     // announced parts that the stream has repeated
	From      core.Pending                `json:"from,omitzero"`    // the last record of the message
}

// size is how many bytes the buffered parts take.
func (o *openMessage) size() int {
	n := 0
	for _, p := range o.Parts {
		n += len(p) + 1
	}
	return n
}

// isPrefixOf reports whether the parts of the open message are the first ones of m.
func (o *openMessage) isPrefixOf(m *envelopes.ACPMessage) bool {
	if !o.Active || len(m.Parts) < o.Emitted+len(o.Parts) {
		return false
	}
	for i, v := range o.Parts {
		if string(v) != string(bufferedPart(&m.Parts[o.Emitted+i])) {
			return false
		}
	}
	return true
}

// isReplacedBy reports whether the parts of the complete message stand for those of the
// stream. A message with fewer parts does not when some of the stream were emitted.
func (o *openMessage) isReplacedBy(complete *envelopes.ACPMessage) bool {
	return len(complete.Parts) >= o.Emitted+len(o.Parts) || o.Emitted == 0 && len(complete.Parts) > 0
}

// parts decodes the buffered parts.
func (o *openMessage) parts() []envelopes.ACPPart {
	parts := make([]envelopes.ACPPart, len(o.Parts))
	for i, v := range o.Parts {
		if p, err := envelopes.DecodeACPPart(v); err == nil { // bufferedPart wrote it: it cannot fail
			parts[i] = p
		}
	}
	return parts
}

// digest begins what a session remembers of bytes that are no text. No base64 has a colon.
const digest = "sha256:"

// bufferedPart returns a part as a session remembers it: bytes that are no text are replaced
// by their digest. A part that was buffered stays as it is.
func bufferedPart(p *envelopes.ACPPart) jsontext.Value {
	part := *p
	if _, ok := part.Text(); !ok && part.Content != nil && part.ContentEncoding == envelopes.ACPBase64 && !strings.HasPrefix(*part.Content, digest) {
		part.Content = new(digest + core.HexHash(*part.Content))
	}
	v, err := json.Marshal(part)
	if err != nil {
		return jsontext.Value(`{}`) // the part was decoded from JSON: it cannot fail
	}
	return v
}

// begin begins a message of the stream. It may have parts already; then the stream
// repeats them.
func (o *openMessage) begin(m *mapper, message *envelopes.ACPMessage) {
	o.flush(m)
	m.setTime(message.CreatedAt)
	o.open(m, message)
	for i := range message.Parts {
		o.buffer(m, &message.Parts[i])
	}
	o.Announced = len(message.Parts)
}

// open makes a message the open one, without its parts.
func (o *openMessage) open(m *mapper, message *envelopes.ACPMessage) {
	*o = openMessage{Active: true, Role: message.Role, From: m.PendingRecord()}
	if len(o.Role) > core.MaxIdentity {
		o.Role = "agent"
	}
	o.CreatedAt, _ = parseTime(message.CreatedAt)
}

// add appends a part of the stream to the open message, unless message.created has
// announced it.
func (o *openMessage) add(m *mapper, p *envelopes.ACPPart) {
	if !o.Active {
		o.open(m, &envelopes.ACPMessage{Role: "agent"})
	}
	o.From = m.PendingRecord()
	if o.Repeated < o.Announced {
		i := o.Repeated - o.Emitted
		if i < 0 || string(o.Parts[i]) == string(bufferedPart(p)) {
			o.Repeated++
			return
		}
		o.Announced = 0 // another part: the stream does not repeat what was announced
	}
	o.buffer(m, p)
}

// buffer buffers a part until its message ends. When the buffer is full, its parts are
// emitted; a part that is larger than the buffer too.
func (o *openMessage) buffer(m *mapper, p *envelopes.ACPPart) {
	v := bufferedPart(p)
	if o.size()+len(v) > maxBuffered {
		o.emit(m, nil, nil)
	}
	o.Parts = o.Parts.Push(v, maxBuffered, nil)
	if o.size() > maxBuffered {
		o.emit(m, nil, nil)
	}
}

// complete emits the open message, of which this is the complete form.
func (o *openMessage) complete(m *mapper, complete *envelopes.ACPMessage) {
	if !o.Active {
		o.open(m, complete)
	}
	m.setTime(complete.CompletedAt, complete.CreatedAt)
	o.close(m, o.emit(m, complete, nil))
}

// flush emits the open message, which the stream does not complete. Its events come from
// its last record.
func (o *openMessage) flush(m *mapper) {
	if !o.Active {
		return
	}
	from := o.From
	o.close(m, o.emit(m, nil, &from))
}

// emit emits the parts of the open message that were not emitted yet. complete is the
// complete message, nil where it is unknown. from is the record that the events come from,
// nil for the current record. It returns the content hash of the message, zero where its
// first parts are not known any more.
func (o *openMessage) emit(m *mapper, complete *envelopes.ACPMessage, from *core.Pending) (content core.Fingerprint) {
	message := envelopes.ACPMessage{Role: o.Role, CreatedAt: lenient.Text(o.CreatedAt).Ptr()}
	if complete != nil {
		message.Role = complete.Role
		message.CreatedAt, message.CompletedAt = cmp.Or(complete.CreatedAt, message.CreatedAt), complete.CompletedAt
	}
	if complete != nil && o.isReplacedBy(complete) {
		message.Parts = complete.Parts[o.Emitted:]
		content = contentHash(byRole, complete)
	} else {
		message.Parts = o.parts()
		if o.Emitted == 0 {
			content = contentHash(byRole, &message)
		}
	}
	m.emitOnce(&emission{message: &message, run: m.st.Run, index: m.st.current().Next, firstPart: o.Emitted, from: from})
	o.Emitted += max(len(o.Parts), len(message.Parts))
	o.Parts = nil
	return content
}

// close ends the open message, whose content hash is given.
func (o *openMessage) close(m *mapper, content core.Fingerprint) {
	*o = openMessage{}
	r := m.st.current()
	r.Next++
	r.Streamed = r.Streamed.Push(content, maxStreamed, nil)
	m.st.runs.set(r, &m.Session.Lost)
}
