package core

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
	"tributary/normalizers/lenient"
)

// errTrailing is the error of a line with text behind a JSON value that is neither an object nor an array.
var errTrailing = errors.New("text behind a JSON value")

// Shape is the outer form of a record: the names of its members, and the values that are asked for. It identifies the
// vendor, and gives the session and time of a record before a normalizer reads the record. The zero Shape is that of
// an unreadable record.
//
// A Shape shares the memory of the bytes that it was read from.
type Shape struct {
	Readable bool   // JSON
	Array    bool   // then Readable too
	First    *Shape // first element of an array, if that is an object

	form    jsonscan.Form     // with at most MaxDepth levels
	members []jsonscan.Member // of an object, in order
}

// ShapeReader reads the shapes of records one by one.
type ShapeReader struct {
	dec     *jsontext.Decoder
	members []jsonscan.Member // of the last shape
}

// NewShapeReader returns a reader.
func NewShapeReader() *ShapeReader {
	return &ShapeReader{jsontext.NewDecoder(bytes.NewReader(nil), lenient.Options), make([]jsonscan.Member, 0, 32)}
}

// Read reads the first value of b; n is the length of the value with leading white space. It does not look at what
// follows an object or array. Any other value may only be followed by white space, because such a value is a record
// only on a line of its own. The shape is valid until the next Read.
func (r *ShapeReader) Read(b []byte) (s Shape, n int, err error) {
	line := bytes.TrimRight(b, " \t\r\n")
	if s.form, r.members = jsonscan.CheckMembers(r.members[:0], line, MaxDepth); s.form.Strict { // nearly every line of a log is one value
		switch s.Readable = true; jsontext.Value(line).Kind() {
		case '{':
			s.members = r.members
		case '[':
			s.Array, s.First = true, firstShape(line)
		default: // no members
		}
		return s, len(line), nil
	}
	dec := r.dec
	dec.Reset(bytes.NewBuffer(b), lenient.Options)
	switch dec.PeekKind() {
	case '{':
		err = s.readMembers(dec, b)
	case '[':
		s.Array = true
		var v jsontext.Value
		if v, err = dec.ReadValue(); err == nil {
			s.First = firstShape(v)
		}
	default:
		if err = dec.SkipValue(); err == nil && len(bytes.TrimSpace(b[dec.InputOffset():])) > 0 {
			err = errTrailing
		}
	}
	s.Readable = err == nil
	return s, int(dec.InputOffset()), err
}

// Deep reports whether the record of the shape has more than [MaxDepth] levels.
func (s *Shape) Deep(record []byte) bool { return !s.form.Strict && Depth(record) > MaxDepth }

// Describe sets on a record what its shape s shows, so that it need not be checked again.
func (s *Shape) Describe(r *Record) { r.form, r.checked = s.form, r.Data }

// firstShape returns the shape of the first element of a valid array; nil if that is not an object.
func firstShape(array jsontext.Value) *Shape {
	c := jsonscan.NewScanner(array)
	c.Kind()
	c.Enter()
	if c.Kind() != '{' {
		return nil
	}
	s := &Shape{Readable: true, members: make([]jsonscan.Member, 0, 16)}
	c.Enter()
	for name, ok := c.Name(); ok; name, ok = c.Name() {
		s.members = append(s.members, jsonscan.Member{Name: name, Value: c.Value()})
	}
	return s
}

// maxMembers is how many members of an object are looked at, because a member takes more memory than its bytes.
const maxMembers = 1 << 16

// readMembers reads the object in b where dec is.
func (s *Shape) readMembers(dec *jsontext.Decoder, b []byte) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	s.members = make([]jsonscan.Member, 0, 16)
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return err
		}
		var m jsonscan.Member
		if end := dec.InputOffset(); bytes.IndexByte(name, '\\') < 0 {
			m.Name = b[end-int64(len(name))+1 : end-1]
		} else {
			m.Name = jsontext.Value(lenient.Unquote(name))
		}
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		end := dec.InputOffset()
		m.Value = b[end-int64(len(value)) : end : end]
		if len(s.members) < maxMembers {
			s.members = append(s.members, m)
		}
	}
	_, err := dec.ReadToken()
	return err
}

// Value returns the member at a path of names; nil if there is none. Of several members with the same name the last
// one counts.
func (s *Shape) Value(path ...string) jsontext.Value {
	for _, m := range slices.Backward(s.members) {
		switch {
		case string(m.Name) != path[0]:
		case len(path) == 1:
			return m.Value
		default:
			return memberOf(m.Value, path[1:], s.form.Strict)
		}
	}
	return nil
}

// memberOf is [Shape.Value] for a value in the record; unique means that its names are known to be unique.
func memberOf(v jsontext.Value, path []string, unique bool) jsontext.Value {
	c := jsonscan.NewScanner(v)
	if c.Kind() != '{' {
		return nil
	}
	var last jsontext.Value
	c.Enter()
	for name, ok := c.Name(); ok; name, ok = c.Name() {
		found := string(name) == path[0]
		if value := c.Value(); found {
			last = value
		}
		if found && unique {
			break
		}
	}
	if last == nil || len(path) == 1 {
		return last
	}
	return memberOf(last, path[1:], unique)
}

// Kind returns the kind of the member at a path; 0 if there is none.
func (s *Shape) Kind(path ...string) jsontext.Kind {
	if v := s.Value(path...); v != nil {
		return v.Kind()
	}
	return 0
}

// Has reports whether the record has a non-null member at a path.
func (s *Shape) Has(path ...string) bool {
	k := s.Kind(path...)
	return k != 0 && k != 'n'
}

// Text returns the string at a path; empty for anything else.
func (s *Shape) Text(path ...string) string {
	if v := s.Value(path...); v != nil && v.Kind() == '"' {
		return lenient.Unquote(v)
	}
	return ""
}

// Number returns the number in the member of this name.
func (s *Shape) Number(name string) lenient.Number {
	var n lenient.Number
	if v := s.Value(name); v != nil {
		n = lenient.NumberOf(v)
	}
	return n
}

// Session returns the session that a record of any vendor states under the usual names.
func (s *Shape) Session() string {
	if id := s.Text("sessionId"); id != "" {
		return id
	}
	return s.Text("session_id")
}

// Time returns the first of the members at paths that is a time in RFC 3339; zero for none.
func (s *Shape) Time(paths ...[]string) time.Time {
	for _, path := range paths {
		if t, ok := momentOf(s.Text(path...)); ok {
			return t
		}
	}
	return time.Time{}
}

// TextAt returns the [Vendor.Session] of an agent whose records state it at a path.
func TextAt(path ...string) func(*Shape) string {
	return func(s *Shape) string { return s.Text(path...) }
}

// TimeAt returns the [Vendor.Time] of an agent whose records state it at a path, in RFC 3339.
func TimeAt(path ...string) func(*Shape) time.Time {
	return func(s *Shape) time.Time { return s.Time(path) }
}

// TextShape returns the shape of a line of plain text that states session.
func TextShape(session string) Shape {
	s := Shape{Readable: true}
	if session != "" {
		s.members = []jsonscan.Member{{Name: jsontext.Value("sessionId"), Value: lenient.AppendQuote(nil, session)}}
	}
	return s
}

// IsStructured reports whether the record is an object or an array.
func (s *Shape) IsStructured() bool { return s.Array || s.members != nil }
