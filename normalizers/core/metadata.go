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

// metadata is what a session states of itself in the metadata of its events.
type metadata struct {
	ResumeID   string                    `json:"resume,omitzero"`
	Model      string                    `json:"model,omitzero"`
	Extensions map[string]jsontext.Value `json:"ext,omitzero"`

	made *envelopes.Metadata // of these values, shared by events; nil when it must be made again
}

func (m *metadata) size() int {
	n := len(m.ResumeID) + len(m.Model)
	for name, v := range m.Extensions {
		n += 32 + len(name) + len(v)
	}
	return n
}

// SetResumeID notes the id that resumes the session.
func (m *metadata) SetResumeID(id string) {
	if id != "" && id != m.ResumeID && len(id) <= MaxPath {
		m.ResumeID, m.made = id, nil
	}
}

// SetModel notes the model that the session uses from now on.
func (m *metadata) SetModel(model string) {
	if model != "" && model != m.Model && len(model) <= MaxName {
		m.Model, m.made = model, nil
	}
}

// SetExtension notes a vendor's value of the standardized metadata.
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

// SetTextExtension is [Session.SetExtension] for a string; an empty one says nothing.
func (m *metadata) SetTextExtension(name string, v lenient.Text) {
	if v == "" {
		return
	}
	if q, err := jsontext.AppendQuote(nil, string(v)); err == nil {
		m.SetExtension(name, q)
	}
}

// standardMetadata is the metadata for an event that happens now; nil while no id is
// known: neither the session, nor the model, nor the thread of a vendor without sessions
// to resume. Events share it.
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

// MetadataWith is the metadata of the session with what holds for one event alone; values
// that are not there, null or too long are left out. Nil while no id is known.
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

// Problem is an error that the vendor reports, as the metadata of an event has it.
type Problem struct {
	Code    *string `json:"code"`
	Message *string `json:"message"`
}

// ProblemOf returns an error with what is stated of it.
func ProblemOf(code, message string) Problem {
	return Problem{lenient.Text(Cut(code, MaxName)).Ptr(), lenient.Text(Cut(message, MaxFieldText)).Ptr()}
}

// MetadataWithError is the metadata of the session with an error that the vendor reports,
// also while no id is known.
func (m *metadata) MetadataWithError(code, message string) *envelopes.Metadata {
	return m.MetadataWithFacts(map[string]any{"error": ProblemOf(code, message)})
}

// MetadataWithFacts is the metadata of the session with what a record states of itself, also while
// no id is known. The facts are the members of metadata that the schema of the event has types for.
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

// NameOf returns a text that is a name, of bounded length, for a fact; nil where there is none.
func NameOf(t lenient.Text) *string { return lenient.Text(Cut(string(t), MaxName)).Ptr() }

// CountOf returns a count for a fact; nil where there is none.
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
