package envelopes

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// members are the members of a vendor's JSON object. Vendors spell a name in several ways, so methods take several
// names and return the first value of their kind. They ignore values of other kinds.
type members map[string]jsontext.Value

// membersOf parses a JSON object; nil for any other value.
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

// value returns the first of the named members that is present and not null.
func (m members) value(names ...string) jsontext.Value {
	for _, name := range names {
		if v := m[name]; v != nil && v.Kind() != jsontext.KindNull {
			return v
		}
	}
	return nil
}

// text returns the first of the named members that is a string; false for none.
func (m members) text(names ...string) (string, bool) {
	for _, name := range names {
		if s, ok := stringOf(m[name]); ok {
			return s, true
		}
	}
	return "", false
}

// object returns the first of the named members that is an object; nil for none.
func (m members) object(names ...string) members {
	for _, name := range names {
		if m[name].Kind() == jsontext.KindBeginObject {
			return membersOf(m[name])
		}
	}
	return nil
}

// list returns the first of the named members that is an array; false for none.
func (m members) list(names ...string) ([]jsontext.Value, bool) {
	for _, name := range names {
		if list, ok := listOf(m[name]); ok {
			return list, true
		}
	}
	return nil, false
}

// stringOf returns the value of a JSON string; false for any other value.
func stringOf(v jsontext.Value) (string, bool) {
	if v.Kind() != jsontext.KindString {
		return "", false
	}
	var s string
	err := json.Unmarshal(v, &s)
	return s, err == nil
}

// listOf returns the elements of a JSON array; false for any other value.
func listOf(v jsontext.Value) ([]jsontext.Value, bool) {
	if v.Kind() != jsontext.KindBeginArray || deeper(v, maxDepth) {
		return nil, false
	}
	var list []jsontext.Value
	err := json.Unmarshal(v, &list)
	return list, err == nil
}

// jsonOf returns a text that is strict JSON, without the white space between its tokens; nil
// for any other text, like arguments of a model in which a name stands twice.
func jsonOf(text string) jsontext.Value {
	v := jsontext.Value(text)
	if deeper(v, maxDepth) || v.Compact(jsontext.AllowDuplicateNames(false)) != nil {
		return nil
	}
	return v
}

// jsonText returns a text as JSON: the value itself if it is strict JSON, else a string.
func jsonText(text string) jsontext.Value {
	if v := jsonOf(text); v != nil {
		return v
	}
	return quoted(text)
}

// quoted returns a text as a JSON string.
func quoted(text string) jsontext.Value {
	v, err := jsontext.AppendQuote(nil, text)
	if err != nil { // not UTF-8, which a valid event never holds
		v, _ = jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\ufffd"))
	}
	return v
}
