package lenient

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes/jsonscan"
)

// reader is a type in a wire struct. ReadJSON reads the next value and advances past it, whatever its kind; a value
// of another kind leaves the reader empty.
type reader interface{ ReadJSON(c *jsonscan.Scanner) }

// ReadObject reads the members of a vendor's JSON value that a wire struct names, or all members into a map. It
// ignores other names, and a value that is not an object. The value must be valid.
//
// A field of a wire struct is a [reader], a jsontext.Value, which shares the memory of the value, or a wire struct,
// which may be embedded. A jsontext.Value with the option embed collects the members without a field, as one object.
func ReadObject(value jsontext.Value, into any) {
	c := jsonscan.NewScanner(value)
	if c.Kind() == '{' {
		ReadNext(&c, into)
	}
}

// ReadNext is [ReadObject] for the next object, and advances past it.
func ReadNext(c *jsonscan.Scanner, into any) {
	v := reflect.ValueOf(into).Elem()
	if v.Kind() == reflect.Map {
		readMap(c, v)
		return
	}
	p := planOf(v.Type())
	if w := watched.Load(); w != nil {
		w.saw(c, p)
	}
	var others []byte
	c.Enter()
	for name, ok := c.Name(); ok; name, ok = c.Name() {
		f, known := p.fields[string(name)]
		switch {
		case known:
			f.read(c, v)
		case p.others == nil:
			c.Value()
		default:
			others = append(AppendQuote(append(others, ','), string(name)), ':')
			others = append(others, c.Value()...)
		}
	}
	c.Leave()
	if others != nil {
		others[0] = '{'
		v.FieldByIndex(p.others).SetBytes(append(others, '}'))
	}
}

// readMap reads the members of the next object into a map.
func readMap(c *jsonscan.Scanner, m reflect.Value) {
	if m.IsNil() {
		m.Set(reflect.MakeMap(m.Type()))
	}
	if w := watched.Load(); w != nil {
		w.saw(c, nil)
	}
	c.Enter()
	for name, ok := c.Name(); ok; name, ok = c.Name() {
		v := reflect.New(m.Type().Elem())
		read(c, v.Interface())
		m.SetMapIndex(reflect.ValueOf(string(name)), v.Elem())
	}
	c.Leave()
}

// plan is how to read a wire struct: its fields by JSON name.
type plan struct {
	fields map[string]field
	others []int // index of the field for all other members; nil if there is none
	isData bool  // other members are data, see [Data]
}

// field is the index of a field in a wire struct, possibly in an embedded one.
type field struct{ index []int }

func (f field) read(c *jsonscan.Scanner, v reflect.Value) {
	for _, i := range f.index {
		v = v.Field(i)
	}
	read(c, v.Addr().Interface())
}

// read reads the next value into a field, an element or a member of a map.
func read(c *jsonscan.Scanner, into any) {
	switch to := into.(type) {
	case *Text: // the most frequent type
		to.ReadJSON(c)
	case *jsontext.Value:
		*to = c.Value()
	case reader:
		to.ReadJSON(c)
	default: // a wire struct
		if c.Kind() == '{' {
			ReadNext(c, into)
		} else {
			c.Value()
		}
	}
}

// plans caches the plans of types, made on first use.
var plans sync.Map // of *plan by reflect.Type

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{fields: make(map[string]field)}
	p.add(t, nil, make(map[string]int))
	plans.Store(t, p)
	return p
}

// add adds the fields of a struct at index. As everywhere in Go, a field hides deeper embedded fields of the same
// name; depths has the depths of the names so far.
func (p *plan) add(t reflect.Type, index []int, depths map[string]int) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clip(index), i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[jsontext.Value]() && option == "embed":
			p.others = at
		case f.Type == reflect.TypeFor[Data]():
			p.isData = true
		case f.Anonymous && name == "":
			p.add(f.Type, at, depths)
		case name == "":
			// not of the vendor
		case !readable(f.Type):
			panic(fmt.Sprintf("%v cannot be read into %v.%s", f.Type, t, f.Name))
		default:
			if depth, ok := depths[name]; !ok || len(at) < depth {
				p.fields[name], depths[name] = field{at}, len(at)
			} else if len(at) == depth {
				panic(fmt.Sprintf("%v has %s twice", t, name))
			}
		}
	}
}

// readable reports whether a field of a wire struct may have a type.
func readable(t reflect.Type) bool {
	return t == reflect.TypeFor[jsontext.Value]() || t.Kind() == reflect.Struct ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[reader]())
}
