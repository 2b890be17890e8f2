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

// The session that started a subagent's travels with its records, as only the path of their file shows it.
func TestParentOfASessionTravels(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{"", "b8e41d07", "call 9\nfc_9", "%", strings.Repeat("p", records.MaxSessionBytes)} {
		m := records.Message(core.Record{Source: envelopes.Cursor, Session: "s", Data: []byte("{}"), Origin: core.Origin{Parent: parent}})
		m.Subject = strings.Replace(m.Subject, "raw.", "raw.0.", 1)
		if _, set := m.Header[envelopes.HeaderParent]; set != (parent != "") {
			t.Errorf("parent %q: the header is set: %t", parent, set)
		}
		if r, _, err := records.Read(m, 1, time.Unix(0, 0)); err != nil || r.Origin.Parent != parent {
			t.Errorf("parent %q arrives as %q, %v", parent, r.Origin.Parent, err)
		}
	}
}

// A record that cannot be read has its place in its file all the same, so that its dead letter is found there, unless the
// place is what cannot be read.
func TestRecordThatCannotBeReadKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*nats.Msg){
		"nothing is wrong":         func(*nats.Msg) {},
		"claim that is none":       func(m *nats.Msg) { m.Header.Set(envelopes.HeaderClaim, "none") },
		"claim with a body":        func(m *nats.Msg) { m.Header.Set(envelopes.HeaderClaim, "none"); m.Data = []byte("x") },
		"claim twice":              func(m *nats.Msg) { m.Header[envelopes.HeaderClaim] = []string{"a", "b"} },
		"claim of an end":          func(m *nats.Msg) { m.Header.Set(envelopes.HeaderClaim, "none"); m.Header.Set(envelopes.HeaderEnd, "1") },
		"end with a body":          func(m *nats.Msg) { m.Header.Set(envelopes.HeaderEnd, "1"); m.Data = []byte("x") },
		"end of another kind":      func(m *nats.Msg) { m.Header.Set(envelopes.HeaderEnd, "2") },
		"parent that is not UTF-8": func(m *nats.Msg) { m.Header.Set(envelopes.HeaderParent, "%C3") },
		"time that is none":        func(m *nats.Msg) { m.Header.Set(envelopes.HeaderTime, "yesterday") },
		"trace that is no trace":   func(m *nats.Msg) { m.Header.Set(envelopes.HeaderTraceparent, "x") },
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
