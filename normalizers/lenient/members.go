package lenient

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), Options)
	var out []Member
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() == '"' {
		var m Member
		var tok jsontext.Token
		if tok, err = dec.ReadToken(); err != nil {
			break
		}
		m.Name = tok.String()
		if m.Value, err = dec.ReadValue(); err != nil {
			break
		}
		end := dec.InputOffset()
		m.Value = v[end-int64(len(m.Value)) : end : end]
		out = append(out, m)
	}
	return out
}

// Elements cuts a valid JSON array into its elements. They share its memory.
func Elements(v jsontext.Value) []jsontext.Value {
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), Options)
	var out []jsontext.Value
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != ']' {
		var e jsontext.Value
		if e, err = dec.ReadValue(); err != nil {
			break
		}
		end := dec.InputOffset() // the decoder's value lives only until its next call
		out = append(out, v[end-int64(len(e)):end:end])
	}
	return out
}

// Unquote returns the text of a JSON string; empty for any other value.
func Unquote(v jsontext.Value) string {
	var t Text
	_ = json.Unmarshal(v, &t, Options)
	return string(t)
}

// AppendQuote writes a string of valid or invalid UTF-8 as JSON.
func AppendQuote(dst []byte, s string) []byte {
	// The only error is invalid UTF-8, which is replaced all the same.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

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

// CompactText is a JSON value as the text of an event.
func CompactText(v jsontext.Value) string {
	v = v.Clone()
	if v.Compact(Options) != nil {
		return ""
	}
	return strings.ToValidUTF8(string(v), "\ufffd")
}

// IsValue reports whether a member is there and not null.
func IsValue(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }
