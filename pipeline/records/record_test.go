package records_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/records"
)

// A record that cannot be read has its place in its file all the same, so that its dead letter is found there, unless the
// place is what cannot be read.
func TestRecordThatCannotBeReadKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*nats.Msg){
		"nothing is wrong":       func(*nats.Msg) {},
		"claim that is none":     func(m *nats.Msg) { m.Header.Set(envelopes.HeaderClaim, "none") },
		"claim with a body":      func(m *nats.Msg) { m.Header.Set(envelopes.HeaderClaim, "none"); m.Data = []byte("x") },
		"claim twice":            func(m *nats.Msg) { m.Header[envelopes.HeaderClaim] = []string{"a", "b"} },
		"claim of an end":        func(m *nats.Msg) { m.Header.Set(envelopes.HeaderClaim, "none"); m.Header.Set(envelopes.HeaderEnd, "1") },
		"end with a body":        func(m *nats.Msg) { m.Header.Set(envelopes.HeaderEnd, "1"); m.Data = []byte("x") },
		"end of another kind":    func(m *nats.Msg) { m.Header.Set(envelopes.HeaderEnd, "2") },
		"time that is none":      func(m *nats.Msg) { m.Header.Set(envelopes.HeaderTime, "yesterday") },
		"trace that is no trace": func(m *nats.Msg) { m.Header.Set(envelopes.HeaderTraceparent, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := records.Message(core.Record{Source: envelopes.Codex, Session: "s", Origin: core.Origin{File: "f", Position: 7, Previous: 3}})
			m.Subject = strings.Replace(m.Subject, "raw.", "raw.0.", 1) // as the stream stores it
			spoil(m)
			r, _, err := records.Read(m, 1, time.Unix(0, 0))
			if _, permanent := records.Reason(err); err != nil && !permanent {
				t.Errorf("%v has no reason", err)
			}
			if o := r.Origin; r.Source != envelopes.Codex || r.Session != "s" || o.File != "f" || o.Position != 7 || o.Previous != 3 {
				t.Errorf("%v: the record is of %s %s, at %+v", err, r.Source, r.Session, o)
			}
		})
	}
}
