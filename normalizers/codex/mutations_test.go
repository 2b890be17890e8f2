package codex_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tributary/normalizers/codex/codextest"
	"tributary/normalizers/normalizerstest"
)

// Of a rollout that is cut, resumed or forked, the events bill what the rollout itself bills, at
// whatever record that happens.

// maxMutations is how many of the records of a rollout it is mutated at, evenly spread, beside
// those at which a turn or a review begins or ends.
const maxMutations = 24

// rollout is a rollout whose records are mutated.
type rollout struct {
	records [][]byte
	meta    members // of its session
}

// newRollout reads a rollout; false for one whose first record is no session_meta.
func newRollout(data []byte) (r rollout, ok bool) {
	for _, l := range normalizerstest.ReadLines(data) {
		r.records = append(r.records, l.Data)
	}
	var first struct {
		Type    string  `json:"type"`
		Payload members `json:"payload"`
	}
	if len(r.records) == 0 || json.Unmarshal(r.records[0], &first) != nil || first.Type != "session_meta" {
		return r, false
	}
	r.meta = first.Payload
	return r, true
}

// boundaries are the records in front of which the rollout is mutated.
func (r rollout) boundaries() []int {
	var out []int
	for i, record := range r.records {
		even := i*maxMutations/len(r.records) != (i+1)*maxMutations/len(r.records)
		for _, of := range []string{"task_started", "task_complete", "turn_aborted", "entered_review_mode", "exited_review_mode"} {
			even = even || bytes.Contains(record[:min(len(record), 120)], []byte(`"`+of+`"`))
		}
		if i > 0 && even {
			out = append(out, i)
		}
	}
	return out
}

// sums returns the tokens of the events of a log, which are those that the independent reader
// finds.
func sums(t *testing.T, records ...[]byte) normalizerstest.Figures {
	t.Helper()
	return codextest.Suite.Billed(t, "rollout.jsonl", records...)
}

// copied is a record in the rollout of a fork. It has the time of the fork, and its turn an id: by both
// the normalizer recognizes a copy.
func copied(record []byte, at string) []byte {
	var e members
	if json.Unmarshal(record, &e) != nil {
		return record
	}
	e["timestamp"] = at
	if p, ok := e["payload"].(members); ok && e["type"] == "turn_context" && p["turn_id"] == nil {
		p["turn_id"] = oldTurn
	}
	out, err := json.Marshal(e)
	if err != nil {
		panic(err) // of a test
	}
	return out
}

// forkAt is the rollout of a fork that begins with the first n records, at the time of the fork,
// and goes on with the others.
func (r rollout) forkAt(n int) [][]byte {
	const (
		fork, turn = "01ffffff-0000-7000-8000-00000000000b", "01ffffff-1000-7000-8000-000000000001"
		at         = "2027-01-01T00:00:00.000Z"
	)
	out := [][]byte{envelope(at, "session_meta", members{"id": fork, "forked_from_id": r.meta["id"], "cli_version": r.meta["cli_version"]})}
	for _, record := range r.records[:n] {
		out = append(out, copied(record, at))
	}
	out = append(out, notice(at, "task_started", members{"turn_id": turn}), envelope(at, "turn_context", members{"turn_id": turn}))
	return append(out, r.records[n:]...)
}

// check holds the mutations of the rollout at a record to its sum.
func (r rollout) check(t *testing.T, n int, whole normalizerstest.Figures) {
	t.Helper()
	front := sums(t, r.records[:n]...)

	again := r.records[:1] // a resumption states the session and the last count again
	for _, record := range r.records[:n] {
		if bytes.Contains(record, []byte(`"token_count"`)) {
			again = [][]byte{r.records[0], record}
		}
	}
	if got := sums(t, slices.Concat(r.records[:n], again, r.records[n:])...); got != whole {
		t.Errorf("resumed at record %d: %+v, want %+v", n+1, got, whole)
	}

	both := sums(t, r.forkAt(n)...)
	if both.Add(front); both != whole {
		t.Errorf("forked at record %d: together %+v, want %+v", n+1, both, whole)
	}
}

func (r rollout) checkAll(t *testing.T) {
	t.Helper()
	whole := sums(t, r.records...)
	if whole.Total == 0 {
		t.Fatal("the rollout bills nothing")
	}
	for _, n := range r.boundaries() {
		if r.check(t, n, whole); t.Failed() {
			return
		}
	}
	if got := sums(t, slices.Concat(r.records, r.records)...); got != whole {
		t.Errorf("written twice: %+v, want %+v", got, whole)
	}
}

func TestMutatedRolloutsKeepTheSums(t *testing.T) {
	t.Parallel()
	for _, g := range normalizerstest.Goldens(t, codextest.Suite) {
		switch g.Name {
		case "review_tokens", "approval_review", "subagent_alone", "compaction", "ordinal":
			t.Run(g.Name, func(t *testing.T) {
				t.Parallel()
				r, ok := newRollout(g.Raw)
				if !ok {
					t.Fatal("it does not begin with a session_meta")
				}
				r.checkAll(t)
			})
		}
	}
}

func TestCorpusMutatedRolloutsKeepTheSums(t *testing.T) {
	t.Parallel()
	for _, f := range normalizerstest.Corpus(t, codextest.Suite) {
		if r, ok := newRollout(f.Data); ok && strings.HasPrefix(f.Name, normalizerstest.Fresh) {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				r.checkAll(t)
			})
		}
	}
}

// A log of several sessions with equal first counts bills each of them once, in all copies of the log together.
func TestCopiesOfALogOfSeveralSessionsAreBilledOnce(t *testing.T) {
	t.Parallel()
	const at = "2026-03-01T10:00:00.000Z"
	meta := func(id string) []byte {
		return envelope(at, "session_meta", members{"id": id, "cli_version": "0.142.0"})
	}
	count := tokenCount(at, usageOf(100, 10), usageOf(100, 10))
	log := [][]byte{meta("01ffffff-0000-7000-8000-00000000000c"), count, meta("01ffffff-0000-7000-8000-00000000000d"), count}
	once := sums(t, log...)
	if once.Total != 220 {
		t.Errorf("the log bills %+v, want 220 tokens", once)
	}
	if got := sums(t, slices.Concat(log, log, log)...); got != once {
		t.Errorf("three copies of it bill %+v, want %+v", got, once)
	}
}
