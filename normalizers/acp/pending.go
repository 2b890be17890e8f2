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

// openMessage is an incomplete message of a stream.
type openMessage struct {
	Active    bool                        `json:"on,omitzero"`
	Role      string                      `json:"role,omitzero"`
	CreatedAt string                      `json:"at,omitzero"`
	Parts     core.Window[jsontext.Value] `json:"parts,omitzero"`   // buffered, in the form of [bufferedPart]
	Emitted   int                         `json:"emitted,omitzero"` // number of earlier parts that were emitted
	Announced int                         `json:"ann,omitzero"`     // number of parts in message.created, which the stream repeats
	Repeated  int                         `json:"rep,omitzero"`     // number of these that the stream has repeated
	From      core.Pending                `json:"from,omitzero"`    // last record of the message
}

// size returns how many bytes the buffered parts take.
func (o *openMessage) size() int {
	n := 0
	for _, p := range o.Parts {
		n += len(p) + 1
	}
	return n
}

// isPrefixOf reports whether the parts of the open message are the first parts of m.
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

// isReplacedBy reports whether the parts of the complete message replace those of the stream. A message with fewer
// parts does not if some parts of the stream were emitted.
func (o *openMessage) isReplacedBy(complete *envelopes.ACPMessage) bool {
	return len(complete.Parts) >= o.Emitted+len(o.Parts) || o.Emitted == 0 && len(complete.Parts) > 0
}

// parts decodes the buffered parts.
func (o *openMessage) parts() []envelopes.ACPPart {
	parts := make([]envelopes.ACPPart, len(o.Parts))
	for i, v := range o.Parts {
		if p, err := envelopes.DecodeACPPart(v); err == nil { // written by bufferedPart, so this cannot fail
			parts[i] = p
		}
	}
	return parts
}

// digest begins the digest that replaces bytes that are not text. No base64 has a colon.
const digest = "sha256:"

// bufferedPart returns a part in the form kept by a session: bytes that are not text are replaced by their digest. A
// part that was buffered before stays unchanged.
func bufferedPart(p *envelopes.ACPPart) jsontext.Value {
	part := *p
	if _, ok := part.Text(); !ok && part.Content != nil && part.ContentEncoding == envelopes.ACPBase64 && !strings.HasPrefix(*part.Content, digest) {
		part.Content = new(digest + core.HexHash(*part.Content))
	}
	v, err := json.Marshal(part)
	if err != nil {
		return jsontext.Value(`{}`) // decoded from JSON, so this cannot fail
	}
	return v
}

// begin begins a message of the stream. If it already has parts, the stream repeats them.
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

// add appends a part of the stream to the open message, unless message.created announced it.
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
		o.Announced = 0 // a different part: the stream does not repeat the announced ones
	}
	o.buffer(m, p)
}

// buffer keeps a part until its message ends. If the buffer is full, or a part is too large for it, the parts are
// emitted.
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

// complete emits the open message, given its complete form.
func (o *openMessage) complete(m *mapper, complete *envelopes.ACPMessage) {
	if !o.Active {
		o.open(m, complete)
	}
	m.setTime(complete.CompletedAt, complete.CreatedAt)
	o.close(m, o.emit(m, complete, nil))
}

// flush emits the open message, which the stream did not complete. Its events belong to its last record.
func (o *openMessage) flush(m *mapper) {
	if !o.Active {
		return
	}
	from := o.From
	o.close(m, o.emit(m, nil, &from))
}

// emit emits the parts of the open message that were not emitted yet. complete is the complete message, nil if
// unknown. from is the record of the events, nil for the current one. It returns the content hash of the message;
// zero if its first parts are no longer known.
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
