package chat

import (
	"cmp"
	"maps"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// element is where a Writer is in a document.
type element struct {
	place    lenient.Text // id of an event of the element without one; empty outside of an element
	placed   int          // events with such an id so far
	emitted  bool         // an element of the record has an event
	repeated bool         // an element of the record was read before
}

// Elements reads the elements of a document that the vendor rewrites in place, each as a record of its own: its first
// event carries it, and one without an id has that of its place. Elements at the start of the document that were there
// at its last read, and can no longer change, are not read again. Agent, Model and Copied are for all elements. name
// distinguishes the documents of a session; it may be empty. The vendor needs [NewState] in its row.
func (w *Writer) Elements(name string, elements []jsontext.Value, read func(raw jsontext.Value)) {
	s := w.Session.State.(*State)
	head := s.Documents[name]
	w.ElementsFrom(name, head.Unchanged(elements), elements, read)
	if head.Read(elements); head != s.Documents[name] {
		s.Documents = maps.Clone(s.Documents)
		if s.Documents == nil {
			s.Documents = make(map[string]core.DocumentHead, 1)
		}
		s.Documents[name] = head
	}
}

// ElementsFrom is [Writer.Elements] for a vendor that knows itself how many elements were read before.
func (w *Writer) ElementsFrom(name string, from int, elements []jsontext.Value, read func(raw jsontext.Value)) {
	before, whole := *w, w.Raw
	w.element.repeated = w.element.repeated || from > 0
	for i := from; i < len(elements); i++ {
		w.NextElement()
		w.ID, w.Agent, w.Model, w.Copied, w.number = "", before.Agent, before.Model, before.Copied, 0
		// The number of a record stands without a name.
		w.element.place, w.element.placed = lenient.Text(cmp.Or(name, "element")+"@"+strconv.Itoa(i+1)), 0
		if w.Raw = elements[i]; w.Session.TS != "" {
			w.TS = w.Session.TS
		}
		read(elements[i])
		if w.First >= 0 {
			w.CarryRaw(w.First, elements[i])
			w.element.emitted = true
		}
		w.element.repeated = w.element.repeated || w.Duplicate
	}
	w.NextElement()
	w.ID, w.Agent, w.Model, w.Copied, w.named, w.number = before.ID, before.Agent, before.Model, before.Copied, before.named, before.number
	w.element.place = ""
	if w.Raw = whole; w.element.emitted {
		w.Raw = nil // the events of its elements have all of it
	}
}

// nextID returns the id of the next event without one.
func (e *element) nextID() lenient.Text {
	id := e.place
	if e.placed > 0 {
		id += lenient.Text("." + strconv.Itoa(e.placed))
	}
	e.placed++
	return id
}

// HasElements reports whether the record is a document of which [Writer.Elements] has read an element, now or before.
func (w *Writer) HasElements() bool { return w.element.emitted || w.element.repeated }
