package ship_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/ship"
)

// histories are logs with a past: what happens to files on machines with agents, one log of one session.
type histories struct {
	*edge
	source   envelopes.Source
	machines []*machine
	number   int
	seen     map[int]bool // numbers of the prompts that a visit has seen
}

// machine has its own copy of the log, and its own state of ship.
type machine struct {
	dir     string
	content []byte
	offsets [][]byte // each state of ship so far; the last one is in use
}

func newHistories(tb testing.TB, source envelopes.Source, machines int) *histories {
	tb.Helper()
	h := &histories{edge: newEdge(tb), source: source, seen: map[int]bool{}}
	h.forgetMessageIDs()
	for range machines {
		h.machines = append(h.machines, &machine{dir: tb.TempDir()})
	}
	for _, m := range h.machines {
		m.content = h.first()
	}
	return h
}

// forgetMessageIDs makes the broker forget message ids as soon as it may.
func (h *histories) forgetMessageIDs() {
	h.t.Helper()
	s, err := h.js.Stream(h.t.Context(), pipeline.RawStream)
	if err != nil {
		h.t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Duplicates = 100 * time.Millisecond // the least that the server accepts
	if _, err := h.js.UpdateStream(h.t.Context(), c); err != nil {
		h.t.Fatal(err)
	}
}

// first returns the first line of the log.
func (h *histories) first() []byte {
	if h.source == envelopes.Codex {
		return []byte(`{"timestamp":"2026-03-01T10:00:00.000Z","type":"session_meta","payload":{"id":"0199a213-81c0-7800-8aa1-bbab2a035a53","timestamp":"2026-03-01T10:00:00.000Z","cwd":"/home/ada/garden","originator":"codex_cli_rs","cli_version":"0.42.0"}}` + "\n")
	}
	return []byte(`{"type":"mode","mode":"normal","sessionId":"one"}` + "\n")
}

// record returns a new prompt. All have the same length, so that different records lie at the same places.
func (h *histories) record() []byte {
	h.number++
	if h.source == envelopes.Codex {
		return fmt.Appendf(nil, `{"timestamp":"2026-03-01T10:00:01.000Z","type":"event_msg","payload":{"type":"user_message","message":"bed %06d","kind":"plain"}}`+"\n", h.number)
	}
	return fmt.Appendf(nil, `{"type":"user","uuid":"u-%06d","sessionId":"one","timestamp":"2026-03-01T10:00:00.000Z","message":{"role":"user","content":"bed %06d"}}`+"\n", h.number, h.number)
}

func (h *histories) write(m *machine, records int) {
	for range records {
		m.content = append(m.content, h.record()...)
	}
}

// rewind takes back the last records of a log.
func (m *machine) rewind(records int) {
	for range records {
		if i := bytes.LastIndexByte(m.content[:len(m.content)-1], '\n'); i > 0 {
			m.content = m.content[:i+1]
		}
	}
}

// ship ships the log of a machine once.
func (h *histories) ship(m *machine, change ...func(*ship.Config)) {
	h.t.Helper()
	folder := filepath.Join(m.dir, "logs", "2026")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "rollout-one.jsonl"), m.content, 0o644); err != nil {
		h.t.Fatal(err)
	}
	state := filepath.Join(m.dir, "offsets.json")
	h.once(append([]func(*ship.Config){func(c *ship.Config) {
		c.Roots = []ship.Root{{Source: h.source, Dir: filepath.Join(m.dir, "logs"), Suffixes: []string{".jsonl"}}}
		c.Offsets = state
	}}, change...)...)
	saved, err := os.ReadFile(state)
	if err != nil {
		h.t.Fatal(err)
	}
	m.offsets = append(m.offsets, saved)
	for _, n := range h.numbers(string(m.content)) {
		h.seen[n] = true
	}
}

// putBack makes an earlier state of ship the one in use; none for -1.
func (m *machine) putBack(tb testing.TB, state int) {
	tb.Helper()
	path := filepath.Join(m.dir, "offsets.json")
	err := os.Remove(path)
	if state >= 0 {
		err = os.WriteFile(path, m.offsets[state], 0o600)
	}
	if err != nil && !os.IsNotExist(err) {
		tb.Fatal(err)
	}
}

// numbers returns the numbers of the prompts in a text.
func (h *histories) numbers(text string) (numbers []int) {
	for _, part := range strings.Split(text, `"bed `)[1:] {
		var n int
		if _, err := fmt.Sscanf(part, "%06d", &n); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// work runs a stage on a generation until everything is done, and compares what it has stored with the records that were
// written: each is one prompt.
func (h *histories) work(generation string) {
	h.t.Helper()
	top := pipeline.Topology{Generation: generation, Partitions: 4}
	if err := pipeline.Provision(h.t.Context(), h.js, top); err != nil {
		h.t.Fatal(err)
	}
	stop := h.start(top)
	pipelinetest.Expectation{Topology: top}.RequireExact(h.t, h.js)
	stop()
	h.requireOnce(generation)
}

// start starts a stage, which the caller stops.
func (h *histories) start(top pipeline.Topology) (stop func()) {
	h.t.Helper()
	stage, err := pipeline.New(h.js, pipeline.Config{Topology: top, Heartbeat: 50 * time.Millisecond})
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

// requireOnce compares the prompts of a generation with those that were shipped.
func (h *histories) requireOnce(generation string) {
	h.t.Helper()
	count := map[int]int{}
	for e, err := range pipeline.Events(h.t.Context(), h.js, generation, pipeline.EventsQuery{}) {
		if err != nil {
			h.t.Fatal(err)
		}
		if e.EventType == envelopes.UserMessage {
			for _, n := range h.numbers(`"` + *e.Text) {
				count[n]++
			}
		}
	}
	for n := range h.number {
		switch have := count[n+1]; {
		case h.seen[n+1] && have == 0:
			h.t.Errorf("%s: prompt %d is lost", generation, n+1)
		case have > 1:
			h.t.Errorf("%s: prompt %d is there %d times", generation, n+1, have)
		case !h.seen[n+1] && have > 0:
			h.t.Errorf("%s: prompt %d was never shipped", generation, n+1)
		}
	}
}

// rewrites returns the sessions that the status names, because their files had other records at the same places.
func (h *histories) rewrites() (all []pipeline.SessionRewrites) {
	h.t.Helper()
	s, err := pipeline.ReadStatus(h.t.Context(), h.js, pipeline.Topology{Generation: "v1", Partitions: 4})
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
			m := h.machines[0]
			h.write(m, 20)
			h.ship(m)
			m.rewind(10)
			h.write(m, 15)
			m.putBack(h.t, -1)
			h.ship(m)
		}},
		"a session goes on on two machines": {2, 13, func(h *histories) {
			one, two := h.machines[0], h.machines[1]
			h.write(one, 10)
			h.ship(one)
			two.content = slices.Clone(one.content)
			h.write(one, 10)
			h.ship(one)
			h.write(two, 7)
			h.ship(two)
			h.write(one, 3)
			h.ship(one)
			h.write(two, 12)
			h.ship(two)
		}},
		"the log is cut to half and nothing is added": {1, 0, func(h *histories) {
			m := h.machines[0]
			h.write(m, 40)
			h.ship(m)
			m.rewind(20)
			h.ship(m)
		}},
		"the state is lost after the log was cut": {1, 0, func(h *histories) {
			m := h.machines[0]
			h.write(m, 40)
			h.ship(m)
			m.rewind(20)
			h.ship(m)
			m.putBack(h.t, -1)
			h.ship(m)
		}},
		"a backup of the log is restored, and restored back": {1, 5, func(h *histories) {
			m := h.machines[0]
			h.write(m, 20)
			h.ship(m)
			backup := slices.Clone(m.content)
			h.write(m, 20)
			h.ship(m)
			last := slices.Clone(m.content)
			m.content = backup
			h.write(m, 5)
			h.ship(m)
			m.content = last
			h.ship(m)
			h.write(m, 5)
			h.ship(m)
		}},
		"the state of ship is older than the log": {1, 5, func(h *histories) {
			m := h.machines[0]
			h.write(m, 10)
			h.ship(m)
			h.write(m, 10)
			h.ship(m)
			m.rewind(5)
			h.write(m, 8)
			h.ship(m)
			m.putBack(h.t, 0)
			h.ship(m)
		}},
		"everything is shipped again": {1, 10, func(h *histories) {
			m := h.machines[0]
			h.write(m, 30)
			h.ship(m)
			m.rewind(10)
			h.write(m, 10)
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
				backups := [][]byte{h.first()}
				for range 40 {
					m := h.machines[random.IntN(2)]
					switch random.IntN(10) {
					case 0:
						m.rewind(random.IntN(20))
					case 1: // a backup, its own or that of the other machine
						m.content = slices.Clone(backups[random.IntN(len(backups))])
					case 2:
						m.content = m.content[:len(h.first())]
					case 3:
						m.putBack(t, random.IntN(len(m.offsets)+1)-1)
					case 4:
						backups = append(backups, slices.Clone(m.content))
					default:
						h.write(m, random.IntN(12))
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
				if len(h.seen) < 40 {
					t.Errorf("the seed draws only %d records", len(h.seen))
				}
			})
		}
	}
}

// A record with a position that is far too large, which no agent has written, harms no other record.
func TestForgedPositionHarmsItselfAlone(t *testing.T) {
	t.Parallel()
	h := newHistories(t, envelopes.ClaudeCode, 1)
	m := h.machines[0]
	h.write(m, 10)
	h.ship(m)
	forged := h.records()[0]
	forged.Origin.Position, forged.Origin.Previous = 1<<60, 0
	forged.Data = bytes.TrimSpace(h.record())
	h.seen[h.number] = true
	pipelinetest.Publish(t, h.js, forged.Record)
	h.write(m, 10)
	h.ship(m)
	h.work("v1")
	h.work("v2")
}

// records returns the records of the raw stream without the ends.
func (h *histories) records() []stored { return records(h.all()) }

// What had expired from the raw stream when a log is shipped again is taken for duplicates, which the status says; what is new
// is an event.
func TestRepeatsOfExpiredRecordsAreDuplicatesAndCounted(t *testing.T) {
	t.Parallel()
	for _, keep := range []uint64{0, 8} {
		t.Run(fmt.Sprintf("keep=%d", keep), func(t *testing.T) {
			t.Parallel()
			h := newHistories(t, envelopes.Codex, 1)
			m := h.machines[0]
			h.write(m, 20)
			h.ship(m)
			h.work("v1")
			s, err := h.js.Stream(t.Context(), pipeline.RawStream)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Purge(t.Context(), jetstream.WithPurgeKeep(keep)); err != nil {
				t.Fatal(err)
			}
			m.putBack(t, -1)
			h.write(m, 5)
			h.ship(m)
			top := pipeline.Topology{Generation: "v1", Partitions: 4}
			stop := h.start(top)
			if err := pipeline.CatchUp(t.Context(), h.js, top); err != nil {
				t.Fatal(err)
			}
			stop()
			h.requireOnce("v1")
			// All that the stream had are the first line and 20 records, and an end.
			want := pipeline.SessionRewrites{Source: envelopes.Codex, Files: 1, Undecided: 21 - int(max(keep, 1)-1)}
			got := h.rewrites()
			if len(got) != 1 || got[0].Undecided != want.Undecided || got[0].Rewritten != 0 {
				t.Errorf("the status has %+v, want %+v", got, want)
			}
		})
	}
}
