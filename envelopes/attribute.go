package envelopes

import (
	"fmt"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// attribute is one context attribute of a CloudEvent. All readers of CloudEvents produce lists of attributes, and all
// writers consume them.
type attribute struct {
	header string // its NATS header: "ce-" and the name
	value  string // its canonical string form (CloudEvents section 3.1)
	kind   kind
}

// kind is the JSON type of an attribute.
type kind byte

const (
	kindString kind = iota
	kindInteger
	kindBoolean
)

// headerPrefix is the prefix of the NATS header of an attribute.
const headerPrefix = "ce-"

// The headers of the attributes that CloudEvents defines.
const (
	attrSpecVersion     = headerPrefix + "specversion"
	attrID              = headerPrefix + "id"
	attrSource          = headerPrefix + "source"
	attrType            = headerPrefix + "type"
	attrSubject         = headerPrefix + "subject"
	attrTime            = headerPrefix + "time"
	attrDataContentType = headerPrefix + "datacontenttype"
	attrDataSchema      = headerPrefix + "dataschema"
)

func (a attribute) name() string { return a.header[len(headerPrefix):] }

// isDefined reports whether CloudEvents defines a; every other attribute is an extension.
func (a attribute) isDefined() bool {
	switch a.header {
	case attrSpecVersion, attrID, attrSource, attrType, attrSubject, attrTime, attrDataContentType, attrDataSchema:
		return true
	default:
		return false
	}
}

// invalidCloudEvent is the error of an attribute that breaks a rule.
func invalidCloudEvent(header, rule string) error {
	return fmt.Errorf("%w: %s %s", ErrInvalidCloudEvent, strings.TrimPrefix(header, headerPrefix), rule)
}

// check returns an error if a breaks a rule of CloudEvents 1.0. The library itself does not
// check these rules.
func (a attribute) check() error {
	if !isAttributeName(a.name()) {
		return invalidCloudEvent("an attribute", "has a name with characters other than a-z and 0-9")
	}
	if !isAttributeString(a.value) {
		return invalidCloudEvent(a.header, "has a character that CloudEvents forbids")
	}
	if a.isDefined() && (a.kind != kindString || a.value == "") {
		return invalidCloudEvent(a.header, "is empty or not a string")
	}
	switch a.header {
	case attrSpecVersion:
		if a.value != event.CloudEventsVersionV1 {
			return invalidCloudEvent(a.header, "is not "+event.CloudEventsVersionV1)
		}
	case attrDataContentType:
		if a.value == event.ApplicationJSON {
			return nil
		}
		if _, _, err := mime.ParseMediaType(a.value); err != nil {
			return invalidCloudEvent(a.header, "is not a media type")
		}
	case headerPrefix + "data":
		return invalidCloudEvent(a.header, "is not the name of an attribute")
	}
	return nil
}

// isAttributeName reports whether name is not empty and consists of a-z and 0-9.
func isAttributeName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isDigit(c) && (c < 'a' || c > 'z') {
			return false
		}
	}
	return name != ""
}

// isAttributeString reports whether s is a string as CloudEvents defines it.
func isAttributeString(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if isForbidden(r) {
			return false
		}
	}
	return true
}

// isForbidden reports whether CloudEvents forbids r in strings: control characters and the
// noncharacters of Unicode.
func isForbidden(r rune) bool {
	return unicode.IsControl(r) || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe
}

// EscapeAttribute encodes any UTF-8 string as a string of CloudEvents: forbidden characters,
// the percent sign, and white space at either end, which readers trim, become percent-encoded
// bytes.
func EscapeAttribute(s string) string {
	if !needsEscape(s) {
		return s
	}
	inner := strings.TrimSpace(s)
	start := strings.Index(s, inner)
	b := make([]byte, 0, 3*len(s))
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		encode := r == '%' || isForbidden(r) || i < start || i >= start+len(inner)
		for _, c := range []byte(s[i : i+size]) {
			if encode {
				b = append(b, '%', upperHex[c>>4], upperHex[c&15])
			} else {
				b = append(b, c)
			}
		}
		i += size
	}
	return string(b)
}

// needsEscape reports whether s may hold characters that [EscapeAttribute] encodes.
func needsEscape(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			return true
		}
	}
	return s != "" && (s[0] == ' ' || s[len(s)-1] == ' ')
}

// cloudEventAttributes returns the attributes of ce: the required ones, the optional ones of
// the specification, then the extensions in the order of their names. It checks every value,
// because the library accepts more than the specification allows.
func cloudEventAttributes(ce event.Event) ([]attribute, error) {
	context, ok := ce.Context.(*event.EventContextV1)
	if !ok {
		return nil, invalidCloudEvent(attrSpecVersion, "is not "+event.CloudEventsVersionV1)
	}
	if len(ce.FieldErrors) > 0 {
		return nil, fmt.Errorf("%w: a setter refused a value", ErrInvalidCloudEvent)
	}
	attributes := make([]attribute, 0, 8+len(context.Extensions))
	attributes = append(attributes,
		attribute{header: attrSpecVersion, value: event.CloudEventsVersionV1},
		attribute{header: attrID, value: context.ID},
		attribute{header: attrSource, value: context.Source.String()},
		attribute{header: attrType, value: context.Type},
	)
	if context.Subject != nil {
		attributes = append(attributes, attribute{header: attrSubject, value: *context.Subject})
	}
	if context.Time != nil {
		if !hasFourDigitYear(context.Time.Time) {
			return nil, invalidCloudEvent(attrTime, "is not RFC 3339")
		}
		attributes = append(attributes, attribute{header: attrTime, value: types.FormatTime(context.Time.Time)})
	}
	if context.DataContentType != nil {
		attributes = append(attributes, attribute{header: attrDataContentType, value: *context.DataContentType})
	}
	if context.DataSchema != nil {
		if !context.DataSchema.Validate() {
			return nil, invalidCloudEvent(attrDataSchema, "is not an absolute URI")
		}
		attributes = append(attributes, attribute{header: attrDataSchema, value: context.DataSchema.String()})
	}
	for _, name := range slices.Sorted(maps.Keys(context.Extensions)) {
		value, err := types.Format(context.Extensions[name])
		if err != nil {
			return nil, invalidCloudEvent("an extension", "has a type that CloudEvents does not have")
		}
		a := attribute{header: headerPrefix + name, value: value}
		if a.isDefined() {
			return nil, invalidCloudEvent("an extension", "has the name of an attribute that CloudEvents defines")
		}
		switch context.Extensions[name].(type) {
		case int32:
			a.kind = kindInteger
		case bool:
			a.kind = kindBoolean
		}
		attributes = append(attributes, a)
	}
	for _, a := range attributes {
		if err := a.check(); err != nil {
			return nil, err
		}
	}
	return attributes, nil
}

// newCloudEvent returns a CloudEvent of data and of attributes in any order. It retains both.
func newCloudEvent(attributes []attribute, data []byte) (event.Event, error) {
	context := &event.EventContextV1{}
	required := 0
	for i := range attributes {
		a := &attributes[i]
		if err := a.check(); err != nil {
			return event.Event{}, err
		}
		// The library's setters of id, type and subject trim, which would change ids.
		switch a.header {
		case attrSpecVersion:
			required++
		case attrID:
			required++
			context.ID = a.value
		case attrType:
			required++
			context.Type = a.value
		case attrSubject:
			context.Subject = &a.value
		case attrDataContentType:
			context.DataContentType = &a.value
		case attrSource:
			required++
			if context.SetSource(a.value) != nil || context.Source.String() == "" {
				return event.Event{}, invalidCloudEvent(a.header, "is not a URI reference")
			}
		case attrDataSchema:
			if context.SetDataSchema(a.value) != nil || !context.DataSchema.Validate() {
				return event.Event{}, invalidCloudEvent(a.header, "is not an absolute URI")
			}
		case attrTime:
			t, err := time.Parse(time.RFC3339Nano, a.value)
			if err != nil || !hasFourDigitYear(t) {
				return event.Event{}, invalidCloudEvent(a.header, "is not RFC 3339")
			}
			context.Time = &types.Timestamp{Time: t.UTC()}
		default:
			value, err := a.extension()
			if err != nil {
				return event.Event{}, err
			}
			if context.Extensions == nil {
				context.Extensions = make(map[string]any, len(attributes))
			}
			context.Extensions[a.name()] = value
		}
	}
	if required != 4 {
		return event.Event{}, fmt.Errorf("%w: id, source, specversion or type is missing", ErrInvalidCloudEvent)
	}
	ce := event.Event{Context: context, DataEncoded: data}
	ce.DataBase64 = data != nil && !isJSONData(ce.DataContentType())
	return ce, nil
}

// hasFourDigitYear reports whether RFC 3339 can represent t in UTC.
func hasFourDigitYear(t time.Time) bool {
	year := t.UTC().Year()
	return 0 <= year && year <= 9999
}

// extension returns the value of an extension in the library's types. Headers do not carry
// the type; partition is the one integer among the extensions of this package.
func (a attribute) extension() (any, error) {
	switch {
	case a.kind == kindInteger, a.header == attrPartition:
		n, err := strconv.ParseInt(a.value, 10, 32)
		if err != nil || strconv.FormatInt(n, 10) != a.value {
			return nil, invalidCloudEvent("an extension", "is not a CloudEvents integer")
		}
		return int32(n), nil
	case a.kind == kindBoolean:
		return a.value == "true", nil
	default:
		return a.value, nil
	}
}

// isJSONData reports whether a JSON document holds data of this content type as a JSON value.
// An empty content type means JSON.
func isJSONData(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	return mediaType == "" || mediaType == event.ApplicationJSON || mediaType == event.TextJSON ||
		strings.HasSuffix(mediaType, "+json")
}
