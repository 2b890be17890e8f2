package pipelinetest

import (
	"bytes"
	"math"
	"slices"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// Places are the records of sessions by their places in files, with their bytes. The zero value is ready for use.
type Places struct {
	records map[recordPlace][][]byte
	begins  map[recordPlace]int64 // the position of the first record of each file
	gone    uint64                // all records up to this sequence have left the raw stream
}

// recordPlace is where a record of a session lies in a file.
type recordPlace struct {
	source   envelopes.Source
	session  string
	file     string
	position int64
}

// Forget forgets all records up to a sequence, which have left the raw stream, and thus all noted ones.
func (p *Places) Forget(sequence uint64) { *p = Places{gone: sequence} }

// Note notes the next record of the raw stream. If its session has passed the place of the record, it sets Earlier as
// the raw stream would.
func (p *Places) Note(s *core.Session, r *core.Record) {
	o := r.Origin
	if o.File == "" || o.End || o.Requeued != 0 {
		return
	}
	if p.records == nil {
		p.records, p.begins = make(map[recordPlace][][]byte), make(map[recordPlace]int64)
	}
	at := recordPlace{r.Source, r.Session, o.File, o.Position}
	file := recordPlace{r.Source, r.Session, o.File, 0}
	if s.Passed(*r) {
		r.Earlier.Known = true
		r.Earlier.Same = slices.ContainsFunc(p.records[at], func(b []byte) bool { return bytes.Equal(b, r.Data) })
		if p.gone > 0 && s.First <= p.gone {
			r.Earlier.From = math.MaxInt64
			if begin, ok := p.begins[file]; ok {
				r.Earlier.From = begin
			}
		}
	}
	if _, ok := p.begins[file]; !ok {
		p.begins[file] = o.Position
	}
	p.records[at] = append(p.records[at], bytes.Clone(r.Data))
}
