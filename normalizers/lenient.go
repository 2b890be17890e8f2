package normalizers

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Vendors change the type of a field without notice, and a field of another type than
// the expected one is unknown, not malformed. The wire structs of the vendors are made
// of the types of this file: each takes the kind of JSON value that it is for and is
// left empty by any other. Only what is not JSON at all is an error.

// vendorJSON are the options under which everything of a vendor is read: what its own
// tools read, we read.
var vendorJSON = json.JoinOptions(
	jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true),
)

// text is a JSON string.
type text string

func (t *text) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*t = ""
	if dec.PeekKind() != '"' {
		return dec.SkipValue()
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*t = text(tok.String())
	return nil
}

// ptr is the value of a nullable field: nil for the empty string.
func (t text) ptr() *string {
	if t == "" {
		return nil
	}
	return new(string(t))
}

// nullText is a JSON string of which the empty one counts too.
type nullText struct {
	value string
	ok    bool
}

func (t *nullText) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	t.ok = dec.PeekKind() == '"'
	return (*text)(&t.value).UnmarshalJSONFrom(dec)
}

// ptr is the value of a nullable field: nil where there is no string.
func (t nullText) ptr() *string {
	if !t.ok {
		return nil
	}
	return &t.value
}

// flag is a JSON boolean.
type flag bool

func (f *flag) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch k := dec.PeekKind(); k {
	case 't', 'f':
		*f = k == 't'
	default:
		*f = false
	}
	return dec.SkipValue()
}

// number is a JSON number with an exact or roundable value below 2^53.
type number struct {
	value float64
	ok    bool
}

const maxExact = 1 << 53

func (n *number) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*n = number{}
	if dec.PeekKind() != '0' {
		return dec.SkipValue()
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	// A million digits are a valid number, but not one that is a count or a time.
	if len(raw) > 64 {
		return nil
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err == nil && math.Abs(v) < maxExact {
		*n = number{value: v, ok: true}
	}
	return nil
}

// maxCount is more than anything that a vendor counts, and so little that sums of the
// parts of a usage are exact.
const maxCount = 1 << 50

// count is the value as a number of things: never below zero, and zero for what is none.
func (n number) count() int64 {
	if !n.ok || n.value < 0 || n.value > maxCount {
		return 0
	}
	return int64(math.Round(n.value))
}

// integer is the value where it is a whole number.
func (n number) integer() *int64 {
	if !n.ok || n.value != math.Trunc(n.value) {
		return nil
	}
	return new(int64(n.value))
}

// object is a JSON object with the members of T that are of interest.
type object[T any] struct {
	value T
	ok    bool
}

func (o *object[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*o = object[T]{}
	if dec.PeekKind() != '{' {
		return dec.SkipValue()
	}
	if err := json.UnmarshalDecode(dec, &o.value); err != nil {
		return err
	}
	o.ok = true
	return nil
}

// list is a JSON array. T takes the elements of its own kind and is left empty by the
// others, so that every element keeps its place.
type list[T any] []T

func (l *list[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
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

// present is any JSON value, of which only is known whether it is there and not null.
type present bool

func (p *present) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*p = present(dec.PeekKind() != 'n')
	return dec.SkipValue()
}

// kind is the kind of a JSON value, of which nothing else is known; 0 where there is none.
type kind jsontext.Kind

func (k *kind) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*k = kind(dec.PeekKind())
	return dec.SkipValue()
}

// readObject decodes the members of a vendor's JSON value that T names. A value that is
// no object leaves T as it is.
func readObject(data jsontext.Value, into any) {
	if data.Kind() == '{' {
		// The value has been read once already, so that it cannot fail.
		_ = json.Unmarshal(data, into, vendorJSON)
	}
}
