package core

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// metadata is what a session states about itself in the metadata of its events.
type metadata struct {
	ResumeID   string                    `json:"resume,omitzero"`
	Model      string                    `json:"model,omitzero"`
	Extensions map[string]jsontext.Value `json:"ext,omitzero"`

	made *envelopes.Metadata // made from these values and shared by events; nil when it must be made again
}

func (m *metadata) size() int {
	n := len(m.ResumeID) + len(m.Model)
	for name, v := range m.Extensions {
		n += 32 + len(name) + len(v)
	}
	return n
}

// SetResumeID sets the id that resumes the session.
func (m *metadata) SetResumeID(id string) {
	if id != "" && id != m.ResumeID && len(id) <= MaxPath {
		m.ResumeID, m.made = id, nil
	}
}

// SetModel sets the model of later events.
func (m *metadata) SetModel(model string) {
	if model != "" && model != m.Model && len(model) <= MaxName {
		m.Model, m.made = model, nil
	}
}

// SetExtension sets a vendor's extension of the metadata.
func (m *metadata) SetExtension(name string, v jsontext.Value) {
	if old, ok := m.Extensions[name]; ok && string(old) == string(v) ||
		len(v) > MaxExtension || !ok && len(m.Extensions) >= maxExtensions {
		return
	}
	ext := maps.Clone(m.Extensions)
	if ext == nil {
		ext = make(map[string]jsontext.Value, 1)
	}
	ext[name] = v.Clone()
	m.Extensions, m.made = ext, nil
}

// SetTextExtension is [Session.SetExtension] for a string; it ignores an empty one.
func (m *metadata) SetTextExtension(name string, v lenient.Text) {
	if v == "" {
		return
	}
	if q, err := jsontext.AppendQuote(nil, string(v)); err == nil {
		m.SetExtension(name, q)
	}
}

// standardMetadata returns the metadata of the present event; nil while no id is known: neither the session, nor the
// model, nor the thread of a vendor without sessions to resume. Events share it.
func (m *metadata) standardMetadata() *envelopes.Metadata {
	if m.made == nil && (m.ResumeID != "" || m.Model != "" || m.Extensions["threadId"] != nil) {
		m.made = &envelopes.Metadata{
			SessionID:  lenient.Text(m.ResumeID).Ptr(),
			Model:      lenient.Text(m.Model).Ptr(),
			Extensions: m.Extensions,
		}
	}
	return m.made
}

// MetadataWith returns the metadata of the session with additions for one event. It ignores absent, null or too long
// values. Nil while no id is known.
func (m *metadata) MetadataWith(more map[string]jsontext.Value) *envelopes.Metadata {
	standard := m.standardMetadata()
	if standard == nil {
		return nil
	}
	out := *standard
	out.Extensions = maps.Clone(out.Extensions)
	if out.Extensions == nil {
		out.Extensions = make(map[string]jsontext.Value, len(more))
	}
	for name, v := range more {
		if !lenient.IsValue(v) {
			continue
		}
		if v = EventRaw(v); len(v) <= MaxExtension {
			out.Extensions[name] = v
		}
	}
	return &out
}

// Problem is an error reported by the vendor, in the form of event metadata.
type Problem struct {
	Code    *string `json:"code"`
	Message *string `json:"message"`
}

// ProblemOf returns a Problem; empty arguments are left out.
func ProblemOf(code, message string) Problem {
	return Problem{lenient.Text(Cut(code, MaxName)).Ptr(), lenient.Text(Cut(message, MaxFieldText)).Ptr()}
}

// MetadataWithError returns the metadata of the session with an error reported by the vendor, even while no id is
// known.
func (m *metadata) MetadataWithError(code, message string) *envelopes.Metadata {
	return m.MetadataWithFacts(map[string]any{"error": ProblemOf(code, message)})
}

// MetadataWithFacts returns the metadata of the session with facts stated by a record, even while no id is known.
// Facts are the members of metadata that have types in the schema of the event.
func (m *metadata) MetadataWithFacts(facts map[string]any) *envelopes.Metadata {
	out := envelopes.Metadata{SessionID: lenient.Text(m.ResumeID).Ptr(), Model: lenient.Text(m.Model).Ptr()}
	out.Extensions = maps.Clone(m.Extensions)
	if out.Extensions == nil {
		out.Extensions = make(map[string]jsontext.Value, len(facts))
	}
	for name, fact := range facts {
		v, err := json.Marshal(fact)
		if err != nil {
			return m.standardMetadata()
		}
		out.Extensions[name] = v
	}
	return &out
}

// NameOf returns a name, cut to a bounded length, for a fact; nil for an empty text.
func NameOf(t lenient.Text) *string { return lenient.Text(Cut(string(t), MaxName)).Ptr() }

// CountOf returns a count for a fact; nil if it is not a number.
func CountOf(n lenient.Number) *int64 {
	if !n.OK || n.Value < 0 {
		return nil
	}
	return new(n.Count())
}

// HexHash returns the sha256 of v in lower-case hex.
func HexHash[T string | []byte](v T) string {
	sum := sha256.Sum256([]byte(v))
	return hex.EncodeToString(sum[:])
}
