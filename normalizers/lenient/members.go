package lenient

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
)

// ObjectMembers are the members of a value that is an object, else none.
func ObjectMembers(v jsontext.Value) []Member {
	if v.Kind() != '{' {
		return nil
	}
	return Members(v)
}

// Member is a member of an object. The value shares the memory of the object.
type Member struct {
	Name  string
	Value jsontext.Value
}

// Members cuts a valid JSON object into its members. The values share its memory.
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

// Elements cuts a valid JSON array into its elements. They share its memory.
func Elements(v jsontext.Value) []jsontext.Value {
	var out []jsontext.Value
	c := jsonscan.NewScanner(v)
	c.Kind()
	c.Enter()
	for c.Kind() != 0 {
		out = append(out, c.Value())
	}
	return out
}

// Unquote returns the text of a JSON string; empty for any other value.
func Unquote(v jsontext.Value) string {
	if v.Kind() != '"' {
		return ""
	}
	return jsonscan.Unquote(bytes.TrimSpace(v))
}

// AppendQuote writes a string of valid or invalid UTF-8 as JSON.
func AppendQuote(dst []byte, s string) []byte {
	if out, ok := jsonscan.AppendString(dst, s); ok {
		return out
	}
	dst, _ = jsontext.AppendQuote(dst, s) // the replaced characters are its only error
	return dst
}

// QuotedLen is how many bytes a string takes in JSON, with its quotes.
func QuotedLen(s string) int { return len(AppendQuote(nil, s)) }

// Scalar is a string or a number as text; empty for any other value.
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

// CompactText is a JSON value as the text of an event.
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

// IsValue reports whether a member is there and not null.
func IsValue(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }
