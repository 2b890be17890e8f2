package otlp

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxParts bounds how many documents are made of a batch. Their bytes are bounded by [core.MaxRecordBytes], because
// each repeats the resource of the batch. A larger batch stays whole.
const maxParts = 10_000

// Part is a record of a batch as a document of its own.
type Part struct {
	Data   jsontext.Value
	Offset int // of the record in the batch; greater than that of the part before
}

// Split returns the records of an export request, each as a document with all that the batch states of it; nil if
// there are fewer than two, or too many.
func Split(batch jsontext.Value) []Part {
	var s splitter
	for _, path := range paths {
		s.split(batch, path, func(v jsontext.Value) jsontext.Value { return v })
	}
	if len(s.parts) < 2 || s.full {
		return nil
	}
	at := 0
	for i, v := range s.records {
		if j := bytes.Index(batch[at:], v); j > 0 {
			at += j
		}
		s.parts[i].Offset = at
		at += len(v)
	}
	return s.parts
}

type splitter struct {
	parts   []Part
	records []jsontext.Value // of the batch, one for each part
	size    int
	full    bool
}

// split adds the records below v at a path of lists. within makes the document of what replaces v.
func (s *splitter) split(v jsontext.Value, path []string, within func(jsontext.Value) jsontext.Value) {
	if len(path) == 0 {
		s.add(v, within)
		return
	}
	for _, m := range lenient.ObjectMembers(v) {
		if m.Name != path[0] {
			continue
		}
		for _, e := range lenient.Elements(m.Value) {
			in := func(part jsontext.Value) jsontext.Value {
				return within(with(v, m.Name, slices.Concat([]byte{'['}, part, []byte{']'})))
			}
			if m.Name == metrics {
				s.splitPoints(e, in)
				continue
			}
			s.split(e, path[1:], in)
		}
	}
}

// splitPoints adds the data points of a metric, which stand in an object named after the type of the metric.
func (s *splitter) splitPoints(metric jsontext.Value, within func(jsontext.Value) jsontext.Value) {
	for _, m := range lenient.ObjectMembers(metric) {
		s.split(m.Value, []string{"dataPoints"}, func(part jsontext.Value) jsontext.Value {
			return within(with(metric, m.Name, part))
		})
	}
}

func (s *splitter) add(record jsontext.Value, within func(jsontext.Value) jsontext.Value) {
	if s.full = s.full || len(s.parts) == maxParts; s.full {
		return
	}
	data := within(record)
	s.size += len(data)
	s.full = s.size > core.MaxRecordBytes
	s.parts = append(s.parts, Part{Data: data})
	s.records = append(s.records, record)
}

// with returns an object in which the member of a name has another value.
func with(v jsontext.Value, name string, value jsontext.Value) jsontext.Value {
	out := make(jsontext.Value, 0, len(value)+64)
	out = append(out, '{')
	for _, m := range lenient.Members(v) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(lenient.AppendQuote(out, m.Name), ':')
		if m.Name == name {
			out = append(out, value...)
		} else {
			out = append(out, m.Value...)
		}
	}
	return append(out, '}')
}
