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

// ACPMessage is a message of the Agent Communication Protocol, as acp-sdk 1.0.3 models it.
type ACPMessage struct {
	Role        string // user, agent or agent/<name>; user by default
	Parts       []ACPPart
	CreatedAt   *string // in its original spelling, not validated; nil if unknown
	CompletedAt *string // likewise; nil while the message is incomplete
}

// The values of ContentType and ContentEncoding of a part.
const (
	ACPTextPlain = "text/plain" // the default content type
	ACPPlain     = "plain"      // the default encoding
	ACPBase64    = "base64"
)

// ACPPart is one part of a message. It has content, the URL of content, or neither; metadata
// or none. Null is the same as an absent field.
type ACPPart struct {
	Name            *string // of an artifact; nil for a conversation part
	ContentType     string
	Content         *string // never together with ContentURL
	ContentEncoding string  // [ACPPlain] or [ACPBase64]
	ContentURL      *string
	Metadata        ACPMetadata // nil when there is none
	// Extra holds the members that the protocol does not define, which it preserves.
	Extra map[string]jsontext.Value
}

// ACPMetadata is the metadata of a part: an [ACPCitation] or an [ACPTrajectory]. In JSON the
// member kind distinguishes them.
type ACPMetadata interface {
	json.Marshaler
	acpKind() string
}

// ACPTrajectory is a step of an agent: a thought, a tool call, or both.
type ACPTrajectory struct {
	Message    *string        `json:"message,omitzero"`
	ToolName   *string        `json:"tool_name,omitzero"`
	ToolInput  jsontext.Value `json:"tool_input,omitzero"`  // an object with its original numbers; nil for none
	ToolOutput jsontext.Value `json:"tool_output,omitzero"` // likewise
}

// The kinds of metadata.
const (
	acpCitation   = "citation"
	acpTrajectory = "trajectory"
)

func (*ACPCitation) acpKind() string   { return acpCitation }
func (*ACPTrajectory) acpKind() string { return acpTrajectory }

// acpRole matches a role; a trailing line feed makes it invalid.
var acpRole = regexp.MustCompile(`\A(user|agent(/[a-zA-Z0-9_-]+)?)\z`)

// Agent returns the name of the agent in the role, empty for a role without a name; false if the role is not an
// agent.
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

// Text returns the content of a part of type text/*, decoded from base64 if needed; false for any other part, and for
// a part without content.
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

// Compress returns the message with adjacent text parts joined, without loss: it joins parts of type text/plain with
// content and without a name, metadata or extra members. It does not change m. It is for consumers of
// [ACPProjection]; acceptance row 004-20 (see TestSeed) requires it.
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

// joins reports whether a part is only text.
func (p *ACPPart) joins() bool {
	return p.Content != nil && p.ContentType == ACPTextPlain && p.ContentEncoding == ACPPlain &&
		p.Name == nil && p.ContentURL == nil && p.Metadata == nil && len(p.Extra) == 0
}

// DecodeACPMessage reads and validates a message as the SDK does: absent fields and null have
// their defaults, and members of the message that the protocol does not define are dropped.
// It is strict about the JSON itself, like [DecodeAgentEvent]. The message shares no memory
// with data.
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

// DecodeACPPart reads one part as [DecodeACPMessage] reads the parts of a message.
func DecodeACPPart(data []byte) (ACPPart, error) { return decodeACPPart(data, "") }

// decodeACPPart reads a part; at is its path in the message, for errors.
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

// decodeACPMetadata reads the metadata of a part by its kind; nil for null.
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

// invalidACP returns the error of the field at this path.
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

// isNull reports whether a member is absent or null, which are the same.
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

// acpTime returns a time in its original spelling; nil if v is not a string.
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

// acpNative returns JSON of the sender as a message stores it: numbers keep their spelling, strings get the spelling
// of this package's encoders, so that a message is unchanged when it is written and read again.
func acpNative(v jsontext.Value) jsontext.Value {
	v = v.Clone()
	// The decoder has accepted v, so this cannot fail.
	_ = v.Compact(jsontext.PreserveRawStrings(false))
	return v
}

// acpIndex reads a nullable index as the SDK does: an integer, also spelled with a fraction of
// zero, as a string, or as a boolean. A number beyond 2^53 is clamped to it.
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
		// A float64 is exact below 2^53 only; no text is that long.
		n = int64(max(-1<<53, min(f, 1<<53)))
	}
	*into = &n
	return nil
}

// acpInteger matches an index in a string.
var acpInteger = regexp.MustCompile(`\A[+-]?[0-9]+(\.0*)?\z`)

// urlScheme matches the scheme of a URL.
var urlScheme = regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9+.-]*\z`)

// isURL reports whether the parser of the SDK accepts s as an absolute URL: it needs a scheme,
// and a host for the web schemes.
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

// MarshalJSON writes the message, without fields that are not set. The same message gives the
// same bytes on every machine.
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

// MarshalJSON writes the part: always content type and encoding, other fields if they are set,
// then the members of Extra in the order of their names.
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

// UnmarshalJSON is [DecodeACPMessage] for every JSON library. By their convention null leaves
// m unchanged.
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
