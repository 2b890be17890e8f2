// Package lenient reads JSON of vendors, who change the type of a field without notice.
//
// Start with [ReadObject], which reads a record into a struct, and with the types for its fields: [Text], [Number],
// [Flag], [List], [Object]. [Members] and [Elements] iterate over values of any shape, and [Strict] rewrites a value
// as strict JSON.
//
// The invariant: each type accepts its own kind of JSON value, and any other value leaves it empty. So a field of an
// unexpected type is unknown, not malformed; only bytes that are not JSON are an error.
package lenient

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
)

// Options are the options for reading everything of a vendor: as tolerant as the vendor's own tools.
var Options = json.JoinOptions(
	jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true),
)

// Text is a JSON string.
type Text string

// ReadJSON implements [reader].
func (t *Text) ReadJSON(c *jsonscan.Scanner) {
	*t = ""
	if v := c.Value(); len(v) > 0 && v[0] == '"' {
		*t = Text(jsonscan.Unquote(v))
	}
}

// Ptr returns nil for the empty string.
func (t Text) Ptr() *string {
	if t == "" {
		return nil
	}
	return new(string(t))
}

// NullText is a JSON string that distinguishes the empty string from none.
type NullText struct {
	Value string
	OK    bool
}

// ReadJSON implements [reader].
func (t *NullText) ReadJSON(c *jsonscan.Scanner) {
	t.OK = c.Kind() == '"'
	(*Text)(&t.Value).ReadJSON(c)
}

// Ptr returns nil if there is no string.
func (t NullText) Ptr() *string {
	if !t.OK {
		return nil
	}
	return &t.Value
}

// Flag is a JSON boolean.
type Flag bool

// ReadJSON implements [reader].
func (f *Flag) ReadJSON(c *jsonscan.Scanner) {
	*f = c.Kind() == 't'
	c.Value()
}

// Number is a JSON number whose value is exact, or can be rounded, below 2^53.
type Number struct {
	Value float64
	OK    bool
}

// MaxExact is the bound below which a float64 is exact for every whole number.
const MaxExact = 1 << 53

// ReadJSON implements [reader].
func (n *Number) ReadJSON(c *jsonscan.Scanner) { *n = NumberOf(c.Value()) }

// NumberOf returns the value of a JSON number; not OK for any other value.
func NumberOf(v jsontext.Value) Number {
	// A million digits are a valid number, but no count or time.
	if v.Kind() != '0' || len(v) > 64 {
		return Number{}
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.Abs(f) >= MaxExact {
		return Number{}
	}
	return Number{Value: f, OK: true}
}

// NumberOfText is [NumberOf] for a text that is a JSON number.
func NumberOfText(s string) Number {
	v := jsontext.Value(s)
	if len(s) > 64 || !v.IsValid() {
		return Number{}
	}
	return NumberOf(v)
}

// MaxCount exceeds anything that a vendor counts, and keeps sums of the parts of a usage exact.
const MaxCount = 1 << 50

// Count returns the value as a count: at least zero, and zero for anything that is not a count.
func (n Number) Count() int64 {
	if !n.OK || n.Value < 0 || n.Value > MaxCount {
		return 0
	}
	return int64(math.Round(n.Value))
}

// Times returns the product of the value and a factor, as of seconds and 1000.
func (n Number) Times(factor float64) Number {
	n.Value *= factor
	return n
}

// Integer returns the value if it is a whole number; else nil.
func (n Number) Integer() *int64 {
	if !n.OK || n.Value != math.Trunc(n.Value) {
		return nil
	}
	return new(int64(n.Value))
}

// Object is a JSON object, read into the members of T.
type Object[T any] struct {
	Value T
	OK    bool
}

// ReadJSON implements [reader].
func (o *Object[T]) ReadJSON(c *jsonscan.Scanner) {
	*o = Object[T]{}
	if o.OK = c.Kind() == '{'; o.OK {
		ReadNext(c, &o.Value)
		return
	}
	c.Value()
}

// List is a JSON array. An element of another kind than T becomes an empty T, so that every element keeps its index.
type List[T any] []T

// ReadJSON implements [reader].
func (l *List[T]) ReadJSON(c *jsonscan.Scanner) {
	*l = nil
	if c.Kind() != '[' {
		c.Value()
		return
	}
	c.Enter()
	for c.Kind() != 0 {
		*l = append(*l, *new(T))
		read(c, &(*l)[len(*l)-1])
	}
	c.Leave()
}

// Present reports whether a JSON value is present and not null.
type Present bool

// ReadJSON implements [reader].
func (p *Present) ReadJSON(c *jsonscan.Scanner) {
	*p = Present(c.Kind() != 'n')
	c.Value()
}

// Kind is the kind of a JSON value; 0 if it is absent.
type Kind jsontext.Kind

// ReadJSON implements [reader].
func (k *Kind) ReadJSON(c *jsonscan.Scanner) {
	*k = Kind(c.Kind())
	c.Value()
}
