package lenient

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tributary/envelopes/jsonscan"
)

// Data marks a wire struct that embeds it: its object is data, such as the arguments of a tool, so it may have members of
// any name. [Unread] reports none of them, at any depth.
type Data struct{}

// Field is a member that no wire struct names, and how often a record has it.
type Field struct {
	// Path has the names from the outermost object on, joined by dots: an element of an array is [], a member of a map
	// *, and a name that is no identifier [NameOther].
	Path  string
	Count int
}

// NameOther stands for a name that is no identifier, and is a path that is too long or one too many.
const NameOther = "other"

const (
	maxFields   = 256 // paths of a record
	maxPath     = 128 // bytes
	maxPathName = 64  // bytes of a name
)

// Unread calls read, and returns the members of the record that it did not read, ordered by path: those of objects
// that were read into wire structs, of which none names the member. Other objects may have members of any name.
//
// The record must be JSON if read reads it. Calls wait for each other.
func Unread(record []byte, read func()) []Field {
	watching.Lock()
	defer watching.Unlock()
	w := &watch{record: record, objects: make(map[int]*object), found: make(map[string]int)}
	watched.Store(w)
	defer watched.Store(nil)
	read()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.objects) > 0 {
		c := jsonscan.NewScanner(record)
		w.walk(&c, nil)
	}
	fields := make([]Field, 0, len(w.found))
	for _, path := range slices.Sorted(maps.Keys(w.found)) {
		fields = append(fields, Field{path, w.found[path]})
	}
	return fields
}

// The record that Unread watches is a variable, because parts of records are read in many places, which would all
// have to pass it on. Its memory distinguishes it from the records that other goroutines read meanwhile.
var (
	watching sync.Mutex
	watched  atomic.Pointer[watch] // nil for none
)

// watch is what was read of a record.
type watch struct {
	record []byte

	mu      sync.Mutex
	objects map[int]*object // by offset in the record
	found   map[string]int  // how often each path was not read
}

// object is how an object was read: into maps, or by plans.
type object struct {
	isMap, isData bool
	plans         []*plan
}

// saw notes that the next object is read by a plan, nil for a map. An object that is not in the memory of the record
// is none of its own, but JSON in a text.
func (w *watch) saw(c *jsonscan.Scanner, p *plan) {
	c.Kind()
	at := w.offset(c)
	if at < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objects[at]
	if o == nil {
		o = &object{}
		w.objects[at] = o
	}
	switch {
	case p == nil:
		o.isMap = true
	case !slices.Contains(o.plans, p):
		o.plans = append(o.plans, p)
		o.isData = o.isData || p.isData
	}
}

// offset returns where the next value of c is in the record; -1 if it is elsewhere.
func (w *watch) offset(c *jsonscan.Scanner) int {
	rest := c.Rest()
	if len(rest) == 0 || len(w.record) == 0 {
		return -1
	}
	at, start := reflect.ValueOf(rest).Pointer(), reflect.ValueOf(w.record).Pointer()
	if at < start || at-start >= uintptr(len(w.record)) {
		return -1
	}
	return int(at - start)
}

// names reports whether an object was read in a way that reads a member.
func (o *object) names(name []byte) bool {
	return o.isMap || slices.ContainsFunc(o.plans, func(p *plan) bool {
		_, ok := p.fields[string(name)]
		return ok || p.others != nil
	})
}

// walk finds the members of the next value that were not read.
func (w *watch) walk(c *jsonscan.Scanner, path []byte) {
	switch c.Kind() {
	case '{':
		w.walkObject(c, path)
	case '[':
		path = append(path, "[]"...)
		c.Enter()
		for c.Kind() != 0 {
			w.walk(c, path)
		}
		c.Leave()
	default:
		c.Value()
	}
}

func (w *watch) walkObject(c *jsonscan.Scanner, path []byte) {
	o := w.objects[w.offset(c)]
	if o != nil && o.isData {
		c.Value()
		return
	}
	if len(path) > 0 {
		path = append(path, '.')
	}
	c.Enter()
	for name, ok := c.Name(); ok; name, ok = c.Name() {
		switch {
		case o == nil:
			w.walk(c, append(path, pathName(name)...))
		case !o.names(name):
			w.note(append(path, pathName(name)...))
			c.Value()
		case o.isMap:
			w.walk(c, append(path, '*'))
		default:
			w.walk(c, append(path, pathName(name)...))
		}
	}
	c.Leave()
}

// note counts a member that was not read.
func (w *watch) note(path []byte) {
	name := string(path)
	if _, ok := w.found[name]; len(path) > maxPath || !ok && len(w.found) >= maxFields {
		name = NameOther
	}
	w.found[name]++
}

// pathName returns a name in the form of a part of a path.
func pathName(name []byte) string {
	if len(name) == 0 || len(name) > maxPathName || strings.ContainsFunc(string(name), func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' || r == '$' || r == '@')
	}) {
		return NameOther
	}
	return string(name)
}
