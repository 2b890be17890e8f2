package pipelinetest

import (
	"bytes"
	"slices"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Places are the records that sessions have had at places in files, with their bytes. The zero value of a map is not
// ready for use.
type Places map[recordPlace][][]byte

// recordPlace is where a record of a session lies in a file.
type recordPlace struct {
	source   envelopes.Source
	session  string
	file     string
	position int64
}

// Note notes the next record of the raw stream. Where its session has passed the place of the record, it sets Earlier as
// the raw stream would say it, of which nothing has expired.
func (p Places) Note(s *normalizers.Session, r *normalizers.Record) {
	o := r.Origin
	if o.File == "" || o.End || o.Requeued != 0 {
		return
	}
	at := recordPlace{r.Source, r.Session, o.File, o.Position}
	same := slices.ContainsFunc(p[at], func(b []byte) bool { return bytes.Equal(b, r.Data) })
	p[at] = append(p[at], bytes.Clone(r.Data))
	if s.Passed(*r) {
		r.Earlier = normalizers.Earlier{Known: true, Same: same}
	}
}
