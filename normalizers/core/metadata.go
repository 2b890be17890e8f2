package core

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/lenient"
)

// SetRoot notes the project root; the first one of a session stays.
func (s *Session) SetRoot(path string) {
	if s.Root == "" && len(path) <= MaxPath {
		s.Root = path
	}
}

// SetResumeID notes the id that resumes the session.
func (s *Session) SetResumeID(id string) {
	if id != "" && id != s.ResumeID && len(id) <= MaxPath {
		s.ResumeID, s.metadata = id, nil
	}
}

// SetModel notes the model that the session uses from now on.
func (s *Session) SetModel(model string) {
	if model != "" && model != s.Model && len(model) <= MaxName {
		s.Model, s.metadata = model, nil
	}
}

// SetExtension notes a vendor's value of the standardized metadata.
func (s *Session) SetExtension(name string, v jsontext.Value) {
	if old, ok := s.Extensions[name]; ok && string(old) == string(v) ||
		len(v) > MaxExtension || !ok && len(s.Extensions) >= maxExtensions {
		return
	}
	ext := maps.Clone(s.Extensions)
	if ext == nil {
		ext = make(map[string]jsontext.Value, 1)
	}
	ext[name] = v.Clone()
	s.Extensions, s.metadata = ext, nil
}

// SetTextExtension is [Session.setExtension] for a string; an empty one says nothing.
func (s *Session) SetTextExtension(name string, v lenient.Text) {
	if v == "" {
		return
	}
	if q, err := jsontext.AppendQuote(nil, string(v)); err == nil {
		s.SetExtension(name, q)
	}
}

// standardMetadata is the metadata for an event that happens now; nil while no id is
// known: neither the session, nor the model, nor the thread of a vendor without sessions
// to resume. Events share it.
func (s *Session) standardMetadata() *envelopes.Metadata {
	if s.metadata == nil && (s.ResumeID != "" || s.Model != "" || s.Extensions["threadId"] != nil) {
		s.metadata = &envelopes.Metadata{
			SessionID:  lenient.Text(s.ResumeID).Ptr(),
			Model:      lenient.Text(s.Model).Ptr(),
			Extensions: s.Extensions,
		}
	}
	return s.metadata
}

// MetadataWith is [Session.standardMetadata] with what holds for one event alone; values
// that are not there, null or too long are left out. Nil while no id is known.
func (s *Session) MetadataWith(more map[string]jsontext.Value) *envelopes.Metadata {
	standard := s.standardMetadata()
	if standard == nil {
		return nil
	}
	m := *standard
	m.Extensions = maps.Clone(m.Extensions)
	if m.Extensions == nil {
		m.Extensions = make(map[string]jsontext.Value, len(more))
	}
	for name, v := range more {
		if !lenient.IsValue(v) {
			continue
		}
		if v = EventRaw(v); len(v) <= MaxExtension {
			m.Extensions[name] = v
		}
	}
	return &m
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

// MetadataWithError is [Session.standardMetadata] with an error that the vendor reports,
// also while no id is known.
func (s *Session) MetadataWithError(code, message string) *envelopes.Metadata {
	return s.MetadataWithFacts(map[string]any{"error": ProblemOf(code, message)})
}

// MetadataWithFacts is [Session.standardMetadata] with what a record states of itself, also while
// no id is known. The facts are the members of metadata that the schema of the event has types for.
func (s *Session) MetadataWithFacts(facts map[string]any) *envelopes.Metadata {
	m := envelopes.Metadata{SessionID: lenient.Text(s.ResumeID).Ptr(), Model: lenient.Text(s.Model).Ptr()}
	m.Extensions = maps.Clone(s.Extensions)
	if m.Extensions == nil {
		m.Extensions = make(map[string]jsontext.Value, len(facts))
	}
	for name, fact := range facts {
		v, err := json.Marshal(fact)
		if err != nil {
			return s.standardMetadata()
		}
		m.Extensions[name] = v
	}
	return &m
}

// projectHash is the identity of the project (README.md, Identity): of the session
// itself while the root is unknown, never one constant shared by many.
func (s *Session) projectHash() string {
	if s.ProjectHash != "" {
		return s.ProjectHash
	}
	if s.hash == "" || s.hashOf != s.Root {
		s.hashOf, s.hash = s.Root, HexHash(cmp.Or(s.Root, "session:"+s.id))
	}
	return s.hash
}

// HexHash returns the sha256 of v in lower-case hex.
func HexHash[T string | []byte](v T) string {
	sum := sha256.Sum256([]byte(v))
	return hex.EncodeToString(sum[:])
}
