package lenient

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
)

// ObjectMembers returns the members of an object; none for any other value.
func ObjectMembers(v jsontext.Value) []Member {
	if v.Kind() != '{' {
		return nil
	}
	return Members(v)
}

// Member is a member of an object. Its value shares the memory of the object.
type Member struct {
	Name  string
	Value jsontext.Value
}

// Members splits a valid JSON object into its members. The values share its memory.
func Members(v jsontext.Value) []Member {
	var out []Member
	c := jsonscan.NewScanner(v)
	c.Kind()
	c.Enter()
	for name, ok := c.Name(); ok; name, ok = c.Name() {
		out = append(out, Member{string(name), c.Value()})
	}
	return out
}

// Elements splits a valid JSON array into its elements, which share its memory; nil for any other value.
func Elements(v jsontext.Value) []jsontext.Value {
	if v.Kind() != '[' {
		return nil
	}
	var out []jsontext.Value
	c := jsonscan.NewScanner(v)
	c.Kind()
	c.Enter()
	for c.Kind() != 0 {
		out = append(out, c.Value())
	}
	return out
}

// ReadElements reads the elements of an array into wire structs, see [ReadObject]; nil for any other value. An element
// that is not an object becomes an empty T, so that every element keeps its index.
func ReadElements[T any](v jsontext.Value) []T {
	elements := Elements(v)
	if elements == nil {
		return nil
	}
	list := make([]T, len(elements))
	for i, e := range elements {
		ReadObject(e, &list[i])
	}
	return list
}

// Unquote returns the text of a JSON string; empty for any other value.
func Unquote(v jsontext.Value) string {
	if v.Kind() != '"' {
		return ""
	}
	return jsonscan.Unquote(bytes.TrimSpace(v))
}

// AppendQuote appends a string, which may be invalid UTF-8, as JSON.
func AppendQuote(dst []byte, s string) []byte {
	if out, ok := jsonscan.AppendString(dst, s); ok {
		return out
	}
	dst, _ = jsontext.AppendQuote(dst, s) // its only error is about replaced characters
	return dst
}

// QuotedLen returns the length of a string in JSON, with its quotes.
func QuotedLen(s string) int { return len(AppendQuote(nil, s)) }

// Scalar returns a string or a number as text; empty for any other value.
func Scalar(v jsontext.Value) Text {
	switch v.Kind() {
	case '"':
		return Text(Unquote(v))
	case '0':
		return Text(v)
	default:
		return ""
	}
}

// maxPlainDepth is the number of levels up to which a value is checked without the decoder.
const maxPlainDepth = 128

// TextOrJSON returns the text of a JSON string, and any other value as JSON; empty for none.
func TextOrJSON(v jsontext.Value) string {
	switch {
	case v.Kind() == '"':
		return Unquote(v)
	case IsValue(v):
		return CompactText(v)
	default:
		return ""
	}
}

// CompactText returns a JSON value as text for an event.
func CompactText(v jsontext.Value) string {
	if jsonscan.Check(v, maxPlainDepth).Compact {
		return string(v)
	}
	v = v.Clone()
	if v.Compact(Options) != nil {
		return ""
	}
	return strings.ToValidUTF8(string(v), "\ufffd")
}

// IsValue reports whether a member is present and not null.
func IsValue(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }
