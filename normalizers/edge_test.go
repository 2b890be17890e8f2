package normalizers_test

import (
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// An event has the sender of the record that it comes from, also where a later record of another sender releases it and
// the session was stored meanwhile. Apart from that, the senders change no event.
func TestEventHasTheSenderOfItsRecord(t *testing.T) {
	t.Parallel()
	senders := [...]*envelopes.Edge{nil, {Host: "one", User: "Zoë \"ada\""}, {Labels: map[string]string{"team": "garden", "env": "ci"}}}
	var released, read atomic.Int64
	t.Cleanup(func() {
		if read.Load() == int64(len(suites)) && released.Load() == 0 {
			t.Error("no record releases an event of another one")
		}
	})
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			read.Add(1)
			for _, g := range normalizerstest.Goldens(t, s) {
				framed := normalizerstest.Frame(g.File(s.Source), g.Raw)
				for i := range framed {
					framed[i].Record.Sequence = uint64(i) + 1
				}
				without := normalizerstest.Fold(normalizers.Normalize, framed)
				sessions := make(map[string]*core.Session)
				for i, r := range framed {
					r.Record.Origin.Edge = senders[i%len(senders)]
					if session := sessions[r.Record.Session]; session != nil {
						decoded, err := normalizers.DecodeSession(session.Encode())
						if err != nil {
							t.Fatal(err)
						}
						sessions[r.Record.Session] = decoded
					}
					step := normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
					for j := range step.Result.Events {
						e := &step.Result.Events[j]
						if e.Sequence != r.Record.Sequence {
							released.Add(1)
						}
						want := senders[(e.Sequence-1)%uint64(len(senders))]
						if diff := cmp.Diff(want, e.Event.Edge); diff != "" {
							t.Errorf("%s: event %s of record %d, with record %d (-want +got):\n%s", g.Name, e.Event.EventID, e.Sequence, i+1, diff)
						}
						e.Event.Edge = nil
					}
					if got, want := normalizerstest.Outcomes(step, true), normalizerstest.Outcomes(without[i], true); got != want {
						t.Errorf("%s: record %d yields\n%s\nand without senders\n%s", g.Name, i+1, got, want)
					}
				}
			}
		})
	}
}
