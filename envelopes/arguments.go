package envelopes

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// members are the members of a JSON object that a vendor wrote. Its methods take the
// value of the first name that has one of the right kind: vendors spell a name in several
// ways, and a value of an unexpected kind is as good as none.
type members map[string]jsontext.Value

// membersOf reads a JSON object; nil for everything else.
func membersOf(v jsontext.Value) members {
	if v.Kind() != jsontext.KindBeginObject || deeper(v, maxDepth) {
		return nil
	}
	var m members
	if json.Unmarshal(v, &m) != nil {
		return nil
	}
	return m
}

// value is the first of the named members that is there and not null.
func (m members) value(names ...string) jsontext.Value {
	for _, name := range names {
		if v := m[name]; v != nil && v.Kind() != jsontext.KindNull {
			return v
		}
	}
	return nil
}

// text is the first of the named members that is a string; false when none is.
func (m members) text(names ...string) (string, bool) {
	for _, name := range names {
		if s, ok := stringOf(m[name]); ok {
			return s, true
		}
	}
	return "", false
}

// object is the first of the named members that is an object, else nil.
func (m members) object(names ...string) members {
	for _, name := range names {
		if m[name].Kind() == jsontext.KindBeginObject {
			return membersOf(m[name])
		}
	}
	return nil
}

// list is the first of the named members that is an array; false when none is.
func (m members) list(names ...string) ([]jsontext.Value, bool) {
	for _, name := range names {
		if list, ok := listOf(m[name]); ok {
			return list, true
		}
	}
	return nil, false
}

// stringOf is the value of a JSON string.
func stringOf(v jsontext.Value) (string, bool) {
	if v.Kind() != jsontext.KindString {
		return "", false
	}
	var s string
	err := json.Unmarshal(v, &s)
	return s, err == nil
}

// listOf is the elements of a JSON array.
func listOf(v jsontext.Value) ([]jsontext.Value, bool) {
	if v.Kind() != jsontext.KindBeginArray || deeper(v, maxDepth) {
		return nil, false
	}
	var list []jsontext.Value
	err := json.Unmarshal(v, &list)
	return list, err == nil
}

// jsonOf is a text that is strict JSON, without the white space between its tokens; else
// nil.
func jsonOf(text string) jsontext.Value {
	v := jsontext.Value(text)
	if deeper(v, maxDepth) || v.Compact() != nil {
		return nil
	}
	return v
}

// jsonText is a text as JSON: as it is where it is strict JSON, else as a string.
func jsonText(text string) jsontext.Value {
	if v := jsonOf(text); v != nil {
		return v
	}
	return quoted(text)
}

// quoted is a text as a JSON string.
func quoted(text string) jsontext.Value {
	v, err := jsontext.AppendQuote(nil, text)
	if err != nil { // not UTF-8, which no valid event holds
		v, _ = jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\ufffd"))
	}
	return v
}
