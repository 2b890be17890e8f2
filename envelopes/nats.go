package envelopes

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-json-experiment/json/jsontext"
)

// Mode is the content mode of a CloudEvent in a message, as section 1.3 of the NATS protocol
// binding of CloudEvents defines them.
type Mode string

// The modes.
const (
	// Binary: the attributes are headers, the payload is the data.
	Binary Mode = "binary"
	// Structured: the payload is a JSON document of attributes and data.
	Structured Mode = "structured"
)

// headerContentType distinguishes the modes: in a structured message it begins with [structuredType]. In binary mode
// it repeats the datacontenttype, for readers that do not know CloudEvents.
const headerContentType = "Content-Type"

const structuredType = "application/cloudevents"

// Encode writes a CloudEvent as a message, strictly by the NATS protocol binding: lower-case header names,
// percent-encoded values, and as Content-Type application/cloudevents+json in structured mode, or the type of the
// data in binary mode. In binary mode the payload is the data of ce, not a copy. The header is new; the caller may
// add to it.
//
// Encode checks the rules of CloudEvents 1.0, which the library does not. The error wraps
// [ErrInvalidCloudEvent].
func Encode(ce event.Event, mode Mode) (header map[string][]string, data []byte, err error) {
	attributes, err := cloudEventAttributes(ce)
	if err != nil {
		return nil, nil, err
	}
	asJSON := isJSONData(ce.DataContentType()) && jsontext.Value(ce.DataEncoded).IsValid() &&
		!deeper(ce.DataEncoded, maxDepth-1)
	return encode(new(EventHeader), attributes, ce.DataEncoded, asJSON, mode)
}

// EncodeEvent writes an event as the message that [Encode] writes for [AgentEventV1.CloudEvent], without making the
// CloudEvent. e must be valid. The error wraps [ErrInvalidEvent], [errInvalidSubject] for the generation, or
// [ErrInvalidCloudEvent] for the mode.
func EncodeEvent(e *AgentEventV1, p Provenance, mode Mode) (header map[string][]string, data []byte, err error) {
	return AppendEvent(nil, new(EventHeader), e, Checked{}, p, mode)
}

// EventHeader is reusable memory for the headers of an event. The zero value is ready for use.
type EventHeader struct {
	lines  map[string][]string
	values [maxAttributes]string
}

// headerLines is the maximum number of headers of an event, with the Content-Type and those added by its publisher.
const headerLines = maxAttributes + 5

// AppendEvent is [EncodeEvent] for an event with checked native JSON. In binary mode it appends the payload to dst;
// the headers are in h and valid until h is used again.
func AppendEvent(dst []byte, h *EventHeader, e *AgentEventV1, c Checked, p Provenance, mode Mode) (header map[string][]string, data []byte, err error) {
	var list [maxAttributes]attribute // on the stack
	attributes, err := e.attributes(list[:0], p)
	if err != nil {
		return nil, nil, err
	}
	if mode != Binary {
		dst = nil
	}
	data, err = e.AppendCheckedJSON(dst, c)
	if err != nil {
		return nil, nil, err
	}
	return encode(h, attributes, data, true, mode)
}

// encode writes checked attributes and data. asJSON means that the data is strict JSON, which a structured document
// includes as a JSON value.
func encode(h *EventHeader, attributes []attribute, data []byte, asJSON bool, mode Mode) (map[string][]string, []byte, error) {
	switch mode {
	case Binary:
		return h.binary(attributes), data, nil
	case Structured:
		header := map[string][]string{headerContentType: {event.ApplicationCloudEventsJSON}}
		return header, structuredDocument(attributes, data, asJSON), nil
	default:
		return nil, nil, fmt.Errorf("%w: the mode is neither %s nor %s", ErrInvalidCloudEvent, Binary, Structured)
	}
}

// binary returns attributes as headers.
func (h *EventHeader) binary(attributes []attribute) map[string][]string {
	if h.lines == nil {
		h.lines = make(map[string][]string, headerLines)
	} else {
		clear(h.lines)
	}
	values := h.values[:]
	if len(attributes) > len(values) {
		values = make([]string, len(attributes))
	}
	for i, a := range attributes {
		values[i] = EncodeHeaderValue(a.value)
		h.lines[a.header] = values[i : i+1 : i+1]
		if a.header == attrDataContentType && values[i] == a.value && !strings.HasPrefix(strings.ToLower(a.value), structuredType) {
			h.lines[headerContentType] = h.lines[a.header]
		}
	}
	return h.lines
}

// structuredDocument returns the JSON event format of CloudEvents.
func structuredDocument(attributes []attribute, data []byte, asJSON bool) []byte {
	size := len(data) + 64
	for _, a := range attributes {
		size += len(a.header) + len(a.value) + 4
	}
	b := append(make([]byte, 0, size), '{')
	for i, a := range attributes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, a.name()...)
		b = append(b, `":`...)
		if a.kind == kindString {
			b, _ = jsontext.AppendQuote(b, a.value) // fails only on invalid UTF-8, which was checked
		} else {
			b = append(b, a.value...)
		}
	}
	switch {
	case data == nil:
	case asJSON:
		b = append(append(b, `,"data":`...), bytes.Trim(data, " \t\r\n")...)
	default:
		b = base64.StdEncoding.AppendEncode(append(b, `,"data_base64":"`...), data)
		b = append(b, '"')
	}
	return append(b, '}')
}

// Decode reads the message of any producer as a CloudEvent. The mode is structured if the Content-Type begins with
// application/cloudevents, or if the message has neither a Content-Type nor a ce- header. Header names may have any
// case; values may be percent-encoded and quoted or not. Two spellings of a name with different values are an error.
//
// A structured document must be strict JSON: UTF-8, no name twice in one object, at most 130
// levels, nothing after it. The error wraps [ErrInvalidCloudEvent] or [errInvalidHeader] and
// repeats nothing of the message. In binary mode the CloudEvent retains data.
func Decode(header map[string][]string, data []byte) (event.Event, error) {
	contentType, attributes, err := readHeader(header)
	if err != nil {
		return event.Event{}, err
	}
	mediaType, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	mediaType = strings.TrimSpace(mediaType)
	switch {
	case mediaType == event.ApplicationCloudEventsJSON, mediaType == structuredType,
		contentType == "" && len(attributes) == 0:
		attributes, data, err = readDocument(data)
		if err != nil {
			return event.Event{}, err
		}
	case strings.HasPrefix(mediaType, structuredType):
		return event.Event{}, fmt.Errorf("%w: the event format of the Content-Type is not JSON", ErrInvalidCloudEvent)
	case len(data) == 0:
		data = nil
	}
	return newCloudEvent(attributes, data)
}

// DecodeEvent reads one event from the header and payload of a message in either mode: [Decode], then
// [FromCloudEvent]. A nats.Header can be passed unchanged. The event shares no memory with data.
func DecodeEvent(header map[string][]string, data []byte) (AgentEventV1, Provenance, error) {
	ce, err := Decode(header, data)
	if err != nil {
		return AgentEventV1{}, Provenance{}, err
	}
	return FromCloudEvent(ce)
}

// readHeader returns the Content-Type and the attributes of a message.
func readHeader(header map[string][]string) (contentType string, attributes []attribute, err error) {
	const contentTypeKey = "content-type"
	found := make(map[string]string, len(header))
	for name, values := range header {
		key := strings.ToLower(name)
		if key != contentTypeKey && !strings.HasPrefix(key, headerPrefix) {
			continue
		}
		for _, v := range values {
			value, err := DecodeHeaderValue(v)
			if err != nil {
				return "", nil, err
			}
			if before, ok := found[key]; ok && before != value {
				return "", nil, fmt.Errorf("%w: two headers of one name differ in value", ErrInvalidCloudEvent)
			}
			found[key] = value
		}
	}
	contentType = found[contentTypeKey]
	delete(found, contentTypeKey)
	attributes = make([]attribute, 0, len(found))
	for key, value := range found {
		attributes = append(attributes, attribute{header: key, value: value})
	}
	return contentType, attributes, nil
}

// readDocument parses the JSON event format of CloudEvents.
func readDocument(document []byte) (attributes []attribute, data []byte, err error) {
	if deeper(document, maxDepth) {
		return nil, nil, invalidDocument("is nested too deep")
	}
	if jsontext.Value(document).Kind() != jsontext.KindBeginObject {
		return nil, nil, invalidDocument("is not a JSON object")
	}
	decoder := jsontext.NewDecoder(bytes.NewBuffer(document))
	if _, err := decoder.ReadToken(); err != nil {
		return nil, nil, notStrict(err)
	}
	var value jsontext.Value // of the member data
	var encoded *string      // of the member data_base64
	for decoder.PeekKind() != jsontext.KindEndObject {
		token, err := decoder.ReadToken()
		if err != nil {
			return nil, nil, notStrict(err)
		}
		name := token.String()
		if name == "data" {
			if value, err = decoder.ReadValue(); err != nil {
				return nil, nil, notStrict(err)
			}
			value = value.Clone()
			continue
		}
		a, ok, err := readAttribute(decoder, name)
		switch {
		case err != nil:
			return nil, nil, err
		case !ok: // null means absent
		case name != "data_base64":
			attributes = append(attributes, a)
		case a.kind != kindString:
			return nil, nil, invalidDocument("has data_base64 that is not a string")
		default:
			encoded = new(a.value)
		}
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, nil, notStrict(err)
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, nil, invalidDocument("has data after its end")
	}
	data, err = documentData(attributes, value, encoded)
	return attributes, data, err
}

// readAttribute reads the value of an attribute; false if it is null.
func readAttribute(decoder *jsontext.Decoder, name string) (attribute, bool, error) {
	token, err := decoder.ReadToken()
	if err != nil {
		return attribute{}, false, notStrict(err)
	}
	a := attribute{header: headerPrefix + name, value: token.String()}
	switch token.Kind() {
	case jsontext.KindNull:
		return attribute{}, false, nil
	case jsontext.KindString:
	case jsontext.KindNumber:
		a.kind = kindInteger
	case jsontext.KindTrue, jsontext.KindFalse:
		a.kind = kindBoolean
	default:
		return attribute{}, false, invalidDocument("has an object or an array as an attribute")
	}
	return a, true, nil
}

// invalidDocument is the error of a document that breaks a rule.
func invalidDocument(rule string) error {
	return fmt.Errorf("%w: the document %s", ErrInvalidCloudEvent, rule)
}

// notStrict is the error of a document that is not strict JSON.
func notStrict(err error) error { return invalidDocument("is not strict JSON: " + jsonProblem(err)) }

// documentData returns the data of a document: the JSON value itself, the text of a string if
// the content type is not JSON, or the decoded base64.
func documentData(attributes []attribute, value jsontext.Value, encoded *string) ([]byte, error) {
	switch {
	case encoded != nil && value != nil:
		return nil, invalidDocument("has both data and data_base64")
	case encoded != nil:
		data, err := base64.StdEncoding.DecodeString(*encoded)
		if err != nil {
			return nil, invalidDocument("has data_base64 that is not base64")
		}
		return data, nil
	case value == nil:
		return nil, nil
	}
	for _, a := range attributes {
		if a.header != attrDataContentType || isJSONData(a.value) {
			continue
		}
		text, err := jsontext.AppendUnquote([]byte{}, value)
		if err != nil {
			return nil, invalidDocument("has data that is neither JSON nor a string")
		}
		return text, nil
	}
	return value, nil
}
