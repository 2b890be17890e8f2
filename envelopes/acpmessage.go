package envelopes

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ACPMessage is a message of the Agent Communication Protocol (acp-sdk 1.0.3, seed
// acp-message-metadata). The zero times are unknown.
type ACPMessage struct {
	Role        string // user, agent or agent/<name>; user where it is not stated
	Parts       []ACPPart
	CreatedAt   *string // as it was written; carried, not checked
	CompletedAt *string // nil while the message is still being written
}

// The defaults and the values of fields of a part.
const (
	ACPTextPlain = "text/plain" // the content type of a part that states none
	ACPPlain     = "plain"      // the encoding of a part that states none
	ACPBase64    = "base64"
)

// ACPPart is one part of a message: content, or where it is found, or metadata, or
// nothing at all. A part that states null for a field states nothing for it.
type ACPPart struct {
	Name            *string // of an artifact; nil for a part of the conversation
	ContentType     string
	Content         *string // never together with ContentURL
	ContentEncoding string  // [ACPPlain] or [ACPBase64]
	ContentURL      *string
	Metadata        ACPMetadata // nil when there is none
	// Extra are the members that the protocol does not know; it keeps them.
	Extra map[string]jsontext.Value
}

// ACPMetadata is the metadata of a part: an [ACPCitation] or an [ACPTrajectory]. In JSON
// the member kind tells which.
type ACPMetadata interface {
	json.Marshaler
	acpKind() string
}

// ACPCitation says from where the words of a message are. The range counts characters
// over the whole message: see [ACPMessage.ResolveCitations]. It is not checked: a range
// that makes no sense is valid.
type ACPCitation struct {
	StartIndex  *int64  `json:"start_index,omitzero"`
	EndIndex    *int64  `json:"end_index,omitzero"`
	URL         *string `json:"url,omitzero"` // any text
	Title       *string `json:"title,omitzero"`
	Description *string `json:"description,omitzero"`
}

// ACPTrajectory is a step of the agent on its way: a thought, a call of a tool, or both.
type ACPTrajectory struct {
	Message    *string        `json:"message,omitzero"`
	ToolName   *string        `json:"tool_name,omitzero"`
	ToolInput  jsontext.Value `json:"tool_input,omitzero"`  // an object, numbers as they were written; nil for none
	ToolOutput jsontext.Value `json:"tool_output,omitzero"` // likewise
}

// The kinds of metadata.
const (
	acpCitation   = "citation"
	acpTrajectory = "trajectory"
)

func (*ACPCitation) acpKind() string   { return acpCitation }
func (*ACPTrajectory) acpKind() string { return acpTrajectory }

// acpRole is the form of a role. A line feed at its end is not one.
var acpRole = regexp.MustCompile(`\A(user|agent(/[a-zA-Z0-9_-]+)?)\z`)

// Agent reports whether an agent speaks, and its name, empty where the role tells none.
func (m *ACPMessage) Agent() (name string, ok bool) {
	name, _ = strings.CutPrefix(m.Role, "agent/")
	switch {
	case m.Role == "agent":
		return "", true
	case name != m.Role:
		return name, true
	default:
		return "", false
	}
}

// Text is the content of a part that is text: of a content type text/*, decoded where it
// is base64. False for any other part, and for one without content.
func (p *ACPPart) Text() (string, bool) {
	if p.Content == nil || len(p.ContentType) < 5 || !strings.EqualFold(p.ContentType[:5], "text/") {
		return "", false
	}
	if p.ContentEncoding == ACPBase64 {
		if b, err := base64.StdEncoding.DecodeString(*p.Content); err == nil && utf8.Valid(b) {
			return string(b), true
		}
	}
	return *p.Content, true
}

// Compress returns the message with the texts of adjacent parts joined, where nothing is
// lost: parts that are plain text/plain with content, without a name, metadata and
// members of their own. The message itself stays as it is.
func (m *ACPMessage) Compress() ACPMessage {
	out := *m
	out.Parts = nil
	for _, p := range m.Parts {
		if last := len(out.Parts) - 1; last >= 0 && out.Parts[last].joins() && p.joins() {
			out.Parts[last].Content = new(*out.Parts[last].Content + *p.Content)
			continue
		}
		out.Parts = append(out.Parts, p)
	}
	return out
}

// joins reports whether a part is nothing but text.
func (p *ACPPart) joins() bool {
	return p.Content != nil && p.ContentType == ACPTextPlain && p.ContentEncoding == ACPPlain &&
		p.Name == nil && p.ContentURL == nil && p.Metadata == nil && len(p.Extra) == 0
}

// ACPCitationMode is how a citation is shown.
type ACPCitationMode string

// The modes, by the rule of the SDK for the range of a citation.
const (
	ACPRange       ACPCitationMode = "range"        // it belongs to a text
	ACPIcon        ACPCitationMode = "icon"         // it belongs to a place between two characters
	ACPIconAtPart  ACPCitationMode = "icon_at_part" // it belongs to the place of its part
	ACPPartContent ACPCitationMode = "part_content" // it belongs to the content of its part
	ACPOutOfRange  ACPCitationMode = "out_of_range" // its indices are none of the message, or the wrong way round
)

// ResolvedCitation is a citation and what of its message it belongs to.
type ResolvedCitation struct {
	Part     int // index of the part that carries it
	Citation *ACPCitation
	Mode     ACPCitationMode
	Text     string // of [ACPRange]
	At       int64  // of [ACPIcon], in code points
}

// ResolveCitations finds what each citation of the message belongs to, in the order of
// the parts. Indices count Unicode code points over the contents of all parts of type
// text/* one after the other, from 0; the end is the first one behind the range. Without
// an end, or a start, or where both are the same, it is a place. Without both it is the
// content of its own part, or the place of the part where that has none.
func (m *ACPMessage) ResolveCitations() []ResolvedCitation {
	var words []rune
	for i := range m.Parts {
		text, _ := m.Parts[i].Text()
		words = append(words, []rune(text)...)
	}
	var out []ResolvedCitation
	for i := range m.Parts {
		p := &m.Parts[i]
		if c, ok := p.Metadata.(*ACPCitation); ok && c != nil {
			r := ResolvedCitation{Part: i, Citation: c}
			r.resolve(p, words)
			out = append(out, r)
		}
	}
	return out
}

// resolve decides the mode of a citation of part p in a message of these words.
func (r *ResolvedCitation) resolve(p *ACPPart, words []rune) {
	start, end := r.Citation.StartIndex, r.Citation.EndIndex
	switch {
	case start == nil && end == nil && (p.Content != nil || p.ContentURL != nil):
		r.Mode = ACPPartContent
		return
	case start == nil && end == nil:
		r.Mode = ACPIconAtPart
		return
	case start == nil:
		start = end
	case end == nil:
		end = start
	}
	switch {
	case *start < 0 || *end < *start || *end > int64(len(words)):
		r.Mode = ACPOutOfRange
	case *start == *end:
		r.Mode, r.At = ACPIcon, *start
	default:
		r.Mode, r.Text = ACPRange, string(words[*start:*end])
	}
}

// DecodeACPMessage reads a message and checks it as the SDK does: fields that are not
// there or null have their defaults, members of the message that the protocol does not
// know are dropped. It is strict about the JSON itself, as [DecodeAgentEvent] is. The
// message shares no memory with data.
//
// The error wraps [ErrInvalidACP] and names the field, never its value.
func DecodeACPMessage(data []byte) (ACPMessage, error) {
	var wire struct {
		Role        jsontext.Value `json:"role"`
		Parts       jsontext.Value `json:"parts"`
		CreatedAt   jsontext.Value `json:"created_at"`
		CompletedAt jsontext.Value `json:"completed_at"`
	}
	if err := readACP(data, &wire); err != nil {
		return ACPMessage{}, err
	}
	m := ACPMessage{Role: "user", CreatedAt: acpTime(wire.CreatedAt), CompletedAt: acpTime(wire.CompletedAt)}
	role, err := acpString(wire.Role, "role")
	if err != nil {
		return ACPMessage{}, err
	}
	if role != nil {
		m.Role = *role
	}
	if !acpRole.MatchString(m.Role) {
		return ACPMessage{}, invalidACP("role")
	}
	var parts []jsontext.Value
	if wire.Parts.Kind() != '[' || json.Unmarshal(wire.Parts, &parts) != nil {
		return ACPMessage{}, invalidACP("parts")
	}
	for i, v := range parts {
		p, err := decodeACPPart(v, "parts."+strconv.Itoa(i)+".")
		if err != nil {
			return ACPMessage{}, err
		}
		m.Parts = append(m.Parts, p)
	}
	return m, nil
}

// DecodeACPPart reads one part as [DecodeACPMessage] reads those of a message.
func DecodeACPPart(data []byte) (ACPPart, error) { return decodeACPPart(data, "") }

// decodeACPPart reads a part; at is where it stands, for errors.
func decodeACPPart(data []byte, at string) (ACPPart, error) {
	var wire struct {
		Name            jsontext.Value            `json:"name"`
		ContentType     jsontext.Value            `json:"content_type"`
		Content         jsontext.Value            `json:"content"`
		ContentEncoding jsontext.Value            `json:"content_encoding"`
		ContentURL      jsontext.Value            `json:"content_url"`
		Metadata        jsontext.Value            `json:"metadata"`
		Extra           map[string]jsontext.Value `json:",embed"`
	}
	if err := readACP(data, &wire); err != nil {
		return ACPPart{}, err
	}
	p := ACPPart{ContentType: ACPTextPlain, ContentEncoding: ACPPlain, Extra: wire.Extra}
	for name, v := range p.Extra {
		p.Extra[name] = acpNative(v)
	}
	var contentType, encoding *string
	for _, f := range []struct {
		name string
		from jsontext.Value
		into **string
	}{
		{"name", wire.Name, &p.Name},
		{"content_type", wire.ContentType, &contentType},
		{"content", wire.Content, &p.Content},
		{"content_encoding", wire.ContentEncoding, &encoding},
		{"content_url", wire.ContentURL, &p.ContentURL},
	} {
		var err error
		if *f.into, err = acpString(f.from, at+f.name); err != nil {
			return ACPPart{}, err
		}
	}
	if contentType != nil {
		p.ContentType = *contentType
	}
	if encoding != nil {
		p.ContentEncoding = *encoding
	}
	switch {
	case p.ContentEncoding != ACPPlain && p.ContentEncoding != ACPBase64:
		return ACPPart{}, invalidACP(at + "content_encoding")
	case p.ContentURL != nil && !isURL(*p.ContentURL):
		return ACPPart{}, invalidACP(at + "content_url")
	case p.Content != nil && p.ContentURL != nil:
		return ACPPart{}, invalidACP(at + "Only one of content or content_url can be provided")
	}
	var err error
	if p.Metadata, err = decodeACPMetadata(wire.Metadata, at+"metadata"); err != nil {
		return ACPPart{}, err
	}
	return p, nil
}

// decodeACPMetadata reads the metadata of a part by its kind; nil for none.
func decodeACPMetadata(data jsontext.Value, at string) (ACPMetadata, error) {
	var wire struct {
		Kind        jsontext.Value `json:"kind"`
		StartIndex  jsontext.Value `json:"start_index"`
		EndIndex    jsontext.Value `json:"end_index"`
		URL         jsontext.Value `json:"url"`
		Title       jsontext.Value `json:"title"`
		Description jsontext.Value `json:"description"`
		Message     jsontext.Value `json:"message"`
		ToolName    jsontext.Value `json:"tool_name"`
		ToolInput   jsontext.Value `json:"tool_input"`
		ToolOutput  jsontext.Value `json:"tool_output"`
	}
	switch {
	case isNull(data):
		return nil, nil
	case data.Kind() != '{' || json.Unmarshal(data, &wire) != nil:
		return nil, invalidACP(at)
	case len(wire.Kind) == 0:
		return nil, invalidACP(at + ": discriminator kind missing")
	}
	switch kind, _ := acpString(wire.Kind, ""); {
	case kind != nil && *kind == acpCitation:
		at += "." + acpCitation
		c := &ACPCitation{}
		err := cmp.Or(
			acpIndex(wire.StartIndex, at+".start_index", &c.StartIndex),
			acpIndex(wire.EndIndex, at+".end_index", &c.EndIndex),
			acpInto(wire.URL, at+".url", &c.URL),
			acpInto(wire.Title, at+".title", &c.Title),
			acpInto(wire.Description, at+".description", &c.Description),
		)
		return c, err
	case kind != nil && *kind == acpTrajectory:
		at += "." + acpTrajectory
		t := &ACPTrajectory{}
		err := cmp.Or(
			acpInto(wire.Message, at+".message", &t.Message),
			acpInto(wire.ToolName, at+".tool_name", &t.ToolName),
			acpObject(wire.ToolInput, at+".tool_input", &t.ToolInput),
			acpObject(wire.ToolOutput, at+".tool_output", &t.ToolOutput),
		)
		return t, err
	default:
		return nil, invalidACP(at + ".kind")
	}
}

// invalidACP is the error for the field at.
func invalidACP(at string) error { return fmt.Errorf("%w: %s", ErrInvalidACP, at) }

// readACP reads an object of strict JSON.
func readACP(data []byte, into any) error {
	switch {
	case deeper(data, maxDepth-1):
		return invalidACP(errTooDeep.Error())
	case jsontext.Value(data).Kind() != '{':
		return invalidACP("not a JSON object")
	}
	if err := json.Unmarshal(data, into); err != nil {
		return invalidACP(jsonProblem(err))
	}
	return nil
}

// isNull reports whether a member is not there or null, which is the same.
func isNull(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }

// acpString reads a nullable string.
func acpString(v jsontext.Value, at string) (*string, error) {
	if isNull(v) {
		return nil, nil
	}
	if v.Kind() != '"' {
		return nil, invalidACP(at)
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		return nil, invalidACP(at)
	}
	return &s, nil
}

// acpInto is [acpString] for a field.
func acpInto(v jsontext.Value, at string, into **string) (err error) {
	*into, err = acpString(v, at)
	return err
}

// acpTime is a time as it was written; nil for what is no text.
func acpTime(v jsontext.Value) *string {
	s, _ := acpString(v, "")
	return s
}

// acpObject reads a nullable object.
func acpObject(v jsontext.Value, at string, into *jsontext.Value) error {
	switch {
	case isNull(v):
	case v.Kind() != '{':
		return invalidACP(at)
	default:
		*into = acpNative(v)
	}
	return nil
}

// acpNative is JSON that is carried as it is: numbers keep their spelling, strings have
// the one that every encoder of this package gives them, so that what was written and
// read again is the same.
func acpNative(v jsontext.Value) jsontext.Value {
	v = v.Clone()
	// It has been read once, and cannot fail.
	_ = v.Compact(jsontext.PreserveRawStrings(false))
	return v
}

// acpIndex reads a nullable index as the SDK does: a whole number, also one that is
// written as a fraction of zero, as text, or as a boolean. What is beyond all texts stays
// beyond them.
func acpIndex(v jsontext.Value, at string, into **int64) error {
	if isNull(v) {
		return nil
	}
	form := strings.TrimSpace(string(v))
	switch v.Kind() {
	case 't':
		form = "1"
	case 'f':
		form = "0"
	case '"':
		s, err := acpString(v, at)
		if err != nil {
			return err
		}
		if form = strings.TrimSpace(*s); !acpInteger.MatchString(form) {
			return invalidACP(at)
		}
		form, _, _ = strings.Cut(form, ".")
	case '0':
	default:
		return invalidACP(at)
	}
	n, err := strconv.ParseInt(form, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		var f float64
		if f, err = strconv.ParseFloat(form, 64); err != nil || f != math.Trunc(f) {
			return invalidACP(at)
		}
		// Only below 2^53 is a number exactly what was written; no text is that long.
		n = int64(max(-1<<53, min(f, 1<<53)))
	}
	*into = &n
	return nil
}

// acpInteger is the form of an index that is written as text.
var acpInteger = regexp.MustCompile(`\A[+-]?[0-9]+(\.0*)?\z`)

// urlScheme is the form of the scheme of a URL.
var urlScheme = regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9+.-]*\z`)

// isURL reports whether s is an absolute URL, as the SDK's parser understands the URL
// standard: a scheme, and for the schemes of the web also a host.
func isURL(s string) bool {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(s), ":")
	if !ok || !urlScheme.MatchString(scheme) {
		return false
	}
	switch strings.ToLower(scheme) {
	case "http", "https", "ws", "wss", "ftp":
	default:
		return true
	}
	host := strings.TrimLeft(rest, `/\`)
	if end := strings.IndexAny(host, `/\?#`); end >= 0 {
		host = host[:end]
	}
	host = host[strings.LastIndexByte(host, '@')+1:]
	if port := strings.LastIndexByte(host, ':'); port > strings.LastIndexByte(host, ']') {
		if n, err := strconv.ParseUint("0"+host[port+1:], 10, 16); err != nil || n > math.MaxUint16 {
			return false
		}
		host = host[:port]
	}
	return host != "" && !strings.ContainsAny(host, " <>^|%\t\r\n")
}

// MarshalJSON writes the message: the same message gives the same bytes everywhere.
// Fields that are not set are left out.
func (m ACPMessage) MarshalJSON() ([]byte, error) {
	parts := m.Parts
	if parts == nil {
		parts = []ACPPart{}
	}
	return marshalACP(struct {
		Role        string    `json:"role"`
		Parts       []ACPPart `json:"parts"`
		CreatedAt   *string   `json:"created_at,omitzero"`
		CompletedAt *string   `json:"completed_at,omitzero"`
	}{m.Role, parts, m.CreatedAt, m.CompletedAt})
}

// MarshalJSON writes the part. Content type and encoding are always there, other fields
// where they are set; the members that the protocol does not know come last, by name.
func (p ACPPart) MarshalJSON() ([]byte, error) {
	return marshalACP(struct {
		Name            *string                   `json:"name,omitzero"`
		ContentType     string                    `json:"content_type"`
		Content         *string                   `json:"content,omitzero"`
		ContentEncoding string                    `json:"content_encoding"`
		ContentURL      *string                   `json:"content_url,omitzero"`
		Metadata        ACPMetadata               `json:"metadata,omitzero"`
		Extra           map[string]jsontext.Value `json:",embed"`
	}{p.Name, p.ContentType, p.Content, p.ContentEncoding, p.ContentURL, p.Metadata, p.Extra})
}

// plainCitation and plainTrajectory are the types without their methods.
type (
	plainCitation   ACPCitation
	plainTrajectory ACPTrajectory
)

// MarshalJSON writes the kind and all fields that are set.
func (c *ACPCitation) MarshalJSON() ([]byte, error) {
	return marshalACP(struct {
		Kind string `json:"kind"`
		plainCitation
	}{acpCitation, plainCitation(*c)})
}

// MarshalJSON writes the kind and all fields that are set.
func (t *ACPTrajectory) MarshalJSON() ([]byte, error) {
	return marshalACP(struct {
		Kind string `json:"kind"`
		plainTrajectory
	}{acpTrajectory, plainTrajectory(*t)})
}

// marshalACP writes v; its error names no value.
func marshalACP(v any) ([]byte, error) {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, invalidACP(jsonProblem(err))
	}
	return b, nil
}

// UnmarshalJSON is [DecodeACPMessage] for every JSON library. By their convention null
// leaves m as it is.
func (m *ACPMessage) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	decoded, err := DecodeACPMessage(data)
	if err == nil {
		*m = decoded
	}
	return err
}

// UnmarshalJSON is [DecodeACPPart] for every JSON library.
func (p *ACPPart) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	decoded, err := DecodeACPPart(data)
	if err == nil {
		*p = decoded
	}
	return err
}
