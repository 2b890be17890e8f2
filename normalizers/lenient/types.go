// Package lenient reads JSON of vendors, who change the type of a field without notice.
//
// Start with [ReadObject], which reads a record into a struct, and with the types for its
// fields: [Text], [Number], [Flag], [List], [Object]. [Members] and [Elements] iterate over
// values of any shape, and [Strict] rewrites a value as strict JSON.
//
// The invariant: each type takes the kind of JSON value that it is for, and any other value leaves
// it empty. So a field of an unexpected type is unknown, not malformed; only what is not JSON at
// all is an error.
package lenient

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Options are the options under which everything of a vendor is read: what its own
// tools read, we read.
var Options = json.JoinOptions(
	jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true),
)

// Text is a JSON string.
type Text string

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *Text) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*t = ""
	if dec.PeekKind() != '"' {
		return dec.SkipValue()
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*t = Text(tok.String())
	return nil
}

// Ptr is the value of a nullable field: nil for the empty string.
func (t Text) Ptr() *string {
	if t == "" {
		return nil
	}
	return new(string(t))
}

// NullText is a JSON string of which the empty one counts too.
type NullText struct {
	Value string
	OK    bool
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *NullText) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	t.OK = dec.PeekKind() == '"'
	return (*Text)(&t.Value).UnmarshalJSONFrom(dec)
}

// Ptr is the value of a nullable field: nil where there is no string.
func (t NullText) Ptr() *string {
	if !t.OK {
		return nil
	}
	return &t.Value
}

// Flag is a JSON boolean.
type Flag bool

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (f *Flag) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch k := dec.PeekKind(); k {
	case 't', 'f':
		*f = k == 't'
	default:
		*f = false
	}
	return dec.SkipValue()
}

// Number is a JSON number with an exact or roundable value below 2^53.
type Number struct {
	Value float64
	OK    bool
}

// MaxExact is the bound below which every whole number is exact in a float64.
const MaxExact = 1 << 53

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (n *Number) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*n = Number{}
	if dec.PeekKind() != '0' {
		return dec.SkipValue()
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*n = NumberOf(raw)
	return nil
}

// NumberOf returns the value of a JSON number; not OK for any other value.
func NumberOf(v jsontext.Value) Number {
	// A million digits are a valid number, but not one that is a count or a time.
	if v.Kind() != '0' || len(v) > 64 {
		return Number{}
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.Abs(f) >= MaxExact {
		return Number{}
	}
	return Number{Value: f, OK: true}
}

// MaxCount is more than anything that a vendor counts, and so little that sums of the
// parts of a usage are exact.
const MaxCount = 1 << 50

// Count is the value as a number of things: never below zero, and zero for what is none.
func (n Number) Count() int64 {
	if !n.OK || n.Value < 0 || n.Value > MaxCount {
		return 0
	}
	return int64(math.Round(n.Value))
}

// Integer is the value where it is a whole number.
func (n Number) Integer() *int64 {
	if !n.OK || n.Value != math.Trunc(n.Value) {
		return nil
	}
	return new(int64(n.Value))
}

// Object is a JSON object with the members of T that are of interest.
type Object[T any] struct {
	Value T
	OK    bool
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (o *Object[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*o = Object[T]{}
	if dec.PeekKind() != '{' {
		return dec.SkipValue()
	}
	if err := json.UnmarshalDecode(dec, &o.Value); err != nil {
		return err
	}
	o.OK = true
	return nil
}

// List is a JSON array. T takes the elements of its own kind and is left empty by the
// others, so that every element keeps its place.
type List[T any] []T

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *List[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*l = nil
	if dec.PeekKind() != '[' {
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		var v T
		if err := json.UnmarshalDecode(dec, &v); err != nil {
			return err
		}
		*l = append(*l, v)
	}
	_, err := dec.ReadToken()
	return err
}

// Present is any JSON value, of which only is known whether it is there and not null.
type Present bool

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (p *Present) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*p = Present(dec.PeekKind() != 'n')
	return dec.SkipValue()
}

// Kind is the kind of a JSON value, of which nothing else is known; 0 where there is none.
type Kind jsontext.Kind

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (k *Kind) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*k = Kind(dec.PeekKind())
	return dec.SkipValue()
}

// ReadObject decodes the members of a vendor's JSON value that T names. A value that is
// no object leaves T as it is.
func ReadObject(data jsontext.Value, into any) {
	if data.Kind() == '{' {
		// The value has been read once already, so that it cannot fail.
		_ = json.Unmarshal(data, into, Options)
	}
}
