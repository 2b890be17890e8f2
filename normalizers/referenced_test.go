package normalizers_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// Events that refer to their records are those that carry them, but for raw: with the same
// projections, and the same states.
func TestReferencedRawChangesNothingElse(t *testing.T) {
	t.Parallel()
	refer := func(s *core.Session, r core.Record) (core.Result, error) {
		s.ReferToRaw(true)
		return normalizers.Normalize(s, r)
	}
	references := 0
	for _, suite := range suites {
		for _, g := range normalizerstest.Goldens(t, suite) {
			records := normalizerstest.Frame(g.File(suite.Source), g.Raw)
			carried := normalizerstest.Fold(normalizers.Normalize, records)
			referenced := normalizerstest.Fold(refer, records)
			for i := range carried {
				want := slices.Clone(carried[i].Result.Events)
				for j := range want {
					e := &want[j]
					if e.Referenced || e.Event.Raw != nil != referenced[i].Result.Events[j].Referenced {
						t.Errorf("%s: event %s refers: %t", g.Path, e.Event.EventID, !e.Referenced)
					}
					e.Checked.Raw = false // which is known of what is carried
					if e.Event.Raw != nil {
						e.Event.Raw, e.Referenced = nil, true
						references++
					}
				}
				if diff := cmp.Diff(want, referenced[i].Result.Events); diff != "" {
					t.Errorf("%s, line %d (-carried +referenced):\n%s", g.Path, carried[i].Line, diff)
				}
			}
			a, b := bySession(normalizerstest.Events(carried)), bySession(normalizerstest.Events(referenced))
			for id := range a {
				if diff := cmp.Diff(entriesOf(t, a[id]), entriesOf(t, b[id])); diff != "" {
					t.Errorf("%s: entries (-carried +referenced):\n%s", g.Path, diff)
				}
				if diff := cmp.Diff(messagesOf(a[id]), messagesOf(b[id])); diff != "" {
					t.Errorf("%s: messages (-carried +referenced):\n%s", g.Path, diff)
				}
			}
		}
	}
	if references < 100 {
		t.Errorf("%d references", references)
	}
}

// bySession sorts events by their session.
func bySession(events []envelopes.AgentEventV1) map[string][]envelopes.AgentEventV1 {
	out := make(map[string][]envelopes.AgentEventV1)
	for _, e := range events {
		out[e.SessionID] = append(out[e.SessionID], e)
	}
	return out
}
