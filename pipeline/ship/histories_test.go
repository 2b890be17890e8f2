package ship_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// histories is a log with a past, and the broker that it is shipped to.
type histories struct {
	*edge
	*pipelinetest.Log
}

func newHistories(tb testing.TB, source envelopes.Source, machines int) *histories {
	tb.Helper()
	session := "one"
	if source == envelopes.Codex {
		session = "0199a213-81c0-7800-8aa1-bbab2a035a53"
	}
	h := &histories{edge: newEdge(tb), Log: pipelinetest.NewLog(tb, source, session, machines)}
	h.forgetMessageIDs()
	return h
}

// forgetMessageIDs makes the broker forget message ids as soon as it may.
func (h *histories) forgetMessageIDs() {
	h.t.Helper()
	s, err := h.js.Stream(h.t.Context(), streams.RawStream)
	if err != nil {
		h.t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Duplicates = 100 * time.Millisecond // the least that the server accepts
	if _, err := h.js.UpdateStream(h.t.Context(), c); err != nil {
		h.t.Fatal(err)
	}
}

// ship ships the log of a machine once.
func (h *histories) ship(m *pipelinetest.Machine, change ...func(*ship.Config)) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	if err := h.Ship(ctx, h.js.Conn(), m, change...); err != nil {
		h.t.Fatal(err)
	}
}

// putBack makes an earlier state of ship the one in use; none for -1.
func (h *histories) putBack(m *pipelinetest.Machine, state int) {
	h.t.Helper()
	if err := m.PutBack(state); err != nil {
		h.t.Fatal(err)
	}
}

// work runs a stage on a generation until everything is done, and compares what it has stored with the records that were
// written: each is one prompt.
func (h *histories) work(generation string) {
	h.t.Helper()
	top := streams.Topology{Generation: generation, Partitions: 4}
	if err := streams.Provision(h.t.Context(), h.js, top); err != nil {
		h.t.Fatal(err)
	}
	stop := h.start(top)
	pipelinetest.Expectation{Topology: top}.RequireExact(h.t, h.js)
	stop()
	h.requireOnce(generation)
}

// start starts a stage, which the caller stops.
func (h *histories) start(top streams.Topology) (stop func()) {
	h.t.Helper()
	stage, err := worker.New(h.js, worker.Config{Topology: top, Heartbeat: 50 * time.Millisecond})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- stage.Run(ctx) }()
	return func() {
		h.t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			h.t.Fatal(err)
		}
	}
}

// requireOnce compares the records of a generation with those that were shipped.
func (h *histories) requireOnce(generation string) {
	h.t.Helper()
	d, err := h.Sent.Compare(h.t.Context(), h.js, generation)
	if err := errors.Join(err, d.Err()); err != nil {
		h.t.Errorf("%s: %v", generation, err)
	}
}

// rewrites returns the sessions that the status names, because their files had other records at the same places.
func (h *histories) rewrites() (all []events.SessionRewrites) {
	h.t.Helper()
	s, err := replay.ReadStatus(h.t.Context(), h.js, streams.Topology{Generation: "v1", Partitions: 4})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, p := range s.Partitions {
		all = append(all, p.Rewritten...)
	}
	return all
}

var historySources = []envelopes.Source{envelopes.ClaudeCode, envelopes.Codex}

// Each history keeps every record, once, in the live generation and in a replay.
func TestFileHistoriesKeepEveryRecordOnce(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		machines  int
		rewritten int // records at places at which the session had others
		history   func(h *histories)
	}{
		"the state is lost and the log was rewound": {1, 10, func(h *histories) {
			m := h.Machines[0]
			h.Write(m, 20)
			h.ship(m)
			m.Rewind(10)
			h.Write(m, 15)
			h.putBack(m, -1)
			h.ship(m)
		}},
		"a session goes on on two machines": {2, 13, func(h *histories) {
			one, two := h.Machines[0], h.Machines[1]
			h.Write(one, 10)
			h.ship(one)
			two.Content = slices.Clone(one.Content)
			h.Write(one, 10)
			h.ship(one)
			h.Write(two, 7)
			h.ship(two)
			h.Write(one, 3)
			h.ship(one)
			h.Write(two, 12)
			h.ship(two)
		}},
		"the log is cut to half and nothing is added": {1, 0, func(h *histories) {
			m := h.Machines[0]
			h.Write(m, 40)
			h.ship(m)
			m.Rewind(20)
			h.ship(m)
		}},
		"the state is lost after the log was cut": {1, 0, func(h *histories) {
			m := h.Machines[0]
			h.Write(m, 40)
			h.ship(m)
			m.Rewind(20)
			h.ship(m)
			h.putBack(m, -1)
			h.ship(m)
		}},
		"a backup of the log is restored, and restored back": {1, 5, func(h *histories) {
			m := h.Machines[0]
			h.Write(m, 20)
			h.ship(m)
			backup := slices.Clone(m.Content)
			h.Write(m, 20)
			h.ship(m)
			last := slices.Clone(m.Content)
			m.Content = backup
			h.Write(m, 5)
			h.ship(m)
			m.Content = last
			h.ship(m)
			h.Write(m, 5)
			h.ship(m)
		}},
		"the state of ship is older than the log": {1, 5, func(h *histories) {
			m := h.Machines[0]
			h.Write(m, 10)
			h.ship(m)
			h.Write(m, 10)
			h.ship(m)
			m.Rewind(5)
			h.Write(m, 8)
			h.ship(m)
			h.putBack(m, 0)
			h.ship(m)
		}},
		"everything is shipped again": {1, 10, func(h *histories) {
			m := h.Machines[0]
			h.Write(m, 30)
			h.ship(m)
			m.Rewind(10)
			h.Write(m, 10)
			h.ship(m)
			h.ship(m, func(c *ship.Config) { c.Again = true })
		}},
	}
	for name, c := range cases {
		for _, source := range historySources {
			t.Run(name+"/"+string(source), func(t *testing.T) {
				t.Parallel()
				h := newHistories(t, source, c.machines)
				c.history(h)
				h.work("v1")
				h.work("v2")
				rewritten := 0
				for _, r := range h.rewrites() {
					rewritten += r.Rewritten
				}
				if rewritten != c.rewritten {
					t.Errorf("the status names %d rewritten records, want %d", rewritten, c.rewritten)
				}
			})
		}
	}
}

// Whatever happens to the copies of a log on two machines, and to the states of ship, every record that a visit has seen is
// one event, in the live generation, whose workers stop and go on, and in a replay.
func TestDrawnFileHistoriesKeepEveryRecordOnce(t *testing.T) {
	t.Parallel()
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		for _, source := range historySources {
			t.Run(fmt.Sprintf("seed=%d/%s", seed, source), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(uint64(seed), 27))
				h := newHistories(t, source, 2)
				for range 40 {
					m, err := h.Draw(random)
					if err != nil {
						t.Fatal(err)
					}
					if random.IntN(2) == 0 {
						h.ship(m)
					}
					if random.IntN(12) == 0 {
						h.work("v1")
					}
				}
				h.work("v1")
				h.work("v2")
				if n := h.Sent.Len(); n < 40 {
					t.Errorf("the seed draws only %d records", n)
				}
			})
		}
	}
}

// A record with a position that is far too large, which no agent has written, harms no other record.
func TestForgedPositionHarmsItselfAlone(t *testing.T) {
	t.Parallel()
	h := newHistories(t, envelopes.ClaudeCode, 1)
	m := h.Machines[0]
	h.Write(m, 10)
	h.ship(m)
	forged := h.records()[0]
	forged.Origin.Position, forged.Origin.Previous = 1<<60, 0
	forged.Data = bytes.TrimSpace(h.Record("water the bed"))
	h.Sent.Must(h.Session, forged.Data)
	pipelinetest.Publish(t, h.js, forged.Record)
	h.Write(m, 10)
	h.ship(m)
	h.work("v1")
	h.work("v2")
}

// records returns the records of the raw stream without the ends.
func (h *histories) records() []stored { return recordsOf(h.all()) }

// What had expired from the raw stream when a log is shipped again is taken for duplicates, which the status says; what is new
// is an event.
func TestRepeatsOfExpiredRecordsAreDuplicatesAndCounted(t *testing.T) {
	t.Parallel()
	for _, keep := range []uint64{0, 8} {
		t.Run(fmt.Sprintf("keep=%d", keep), func(t *testing.T) {
			t.Parallel()
			h := newHistories(t, envelopes.Codex, 1)
			m := h.Machines[0]
			h.Write(m, 20)
			h.ship(m)
			h.work("v1")
			s, err := h.js.Stream(t.Context(), streams.RawStream)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Purge(t.Context(), jetstream.WithPurgeKeep(keep)); err != nil {
				t.Fatal(err)
			}
			h.putBack(m, -1)
			h.Write(m, 5)
			h.ship(m)
			top := streams.Topology{Generation: "v1", Partitions: 4}
			stop := h.start(top)
			if err := replay.CatchUp(t.Context(), h.js, top); err != nil {
				t.Fatal(err)
			}
			stop()
			h.requireOnce("v1")
			// All that the stream had are the first line and 20 records, and an end.
			want := events.SessionRewrites{Source: envelopes.Codex, Files: 1, Undecided: 21 - int(max(keep, 1)-1)}
			got := h.rewrites()
			if len(got) != 1 || got[0].Undecided != want.Undecided || got[0].Rewritten != 0 {
				t.Errorf("the status has %+v, want %+v", got, want)
			}
		})
	}
}
