package normalizers_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/normalizerstest"
)

// A file that is sent again, however late, changes nothing: the session knows how far it has read
// each file.
func TestResentFileChangesNothing(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, g := range normalizerstest.Goldens(t, s) {
				t.Run(g.Name, func(t *testing.T) {
					t.Parallel()
					records := normalizerstest.Frame(g.File(s.Source), g.Raw)
					sessions := make(map[string]*core.Session)
					var first []normalizerstest.Step
					for _, r := range records {
						first = append(first, normalizerstest.FoldOne(normalizers.Normalize, sessions, r))
					}
					for key, state := range sessions {
						decoded, err := normalizers.DecodeSession(state.Encode())
						if err != nil {
							t.Fatal(err)
						}
						sessions[key] = decoded
					}
					for i, r := range records {
						if r.Record.Origin.End {
							continue
						}
						before := sessions[r.Record.Session].Encode()
						st := normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
						if len(st.Result.Events) > 0 || st.Result.Gap || st.Failed() && !first[i].Failed() {
							t.Errorf("line %d again: %s", r.Line, normalizerstest.Outcomes(st, false))
						}
						if !bytes.Equal(before, sessions[r.Record.Session].Encode()) {
							t.Errorf("line %d again changes the state", r.Line)
						}
					}
				})
			}
		})
	}
}

// After every record the session is what it was at a mark and its change since, and it goes on
// from these in the same way.
func TestChangesGiveTheState(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, g := range normalizerstest.Goldens(t, s) {
				sessions, marks := make(map[string]*core.Session), make(map[string][]byte)
				for i, r := range normalizerstest.Frame(g.File(s.Source), g.Raw) {
					key := r.Record.Session
					if state := sessions[key]; state != nil && (marks[key] == nil || i%9 == 0) {
						state.Mark()
						marks[key] = state.Encode()
					}
					normalizerstest.FoldOne(normalizers.Normalize, sessions, r)
					change := sessions[key].EncodeChange()
					if marks[key] == nil {
						continue
					}
					decoded, err := normalizers.DecodeChanged(marks[key], change)
					if err != nil {
						t.Fatalf("%s line %d: %v", g.Name, r.Line, err)
					}
					if !bytes.Equal(sessions[key].Encode(), decoded.Encode()) {
						t.Fatalf("%s line %d: the session differs", g.Name, r.Line)
					}
					if i%5 == 0 {
						sessions[key] = decoded
					}
				}
			}
		})
	}
}

// The first record after a missing one reports a gap, and no other does.
func TestMissingRecordIsAGap(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		t.Run("source="+string(s.Source), func(t *testing.T) {
			t.Parallel()
			for _, g := range normalizerstest.Goldens(t, s) {
				t.Run(g.Name, func(t *testing.T) {
					t.Parallel()
					records := normalizerstest.Frame(g.File(s.Source), g.Raw)
					whole := normalizerstest.Fold(normalizers.Normalize, records)
					for lost := range records {
						if records[lost].Record.Origin.End || whole[lost].Failed() {
							continue
						}
						kept := append(append([]normalizers.Framed(nil), records[:lost]...), records[lost+1:]...)
						expected := true // until the next record of the session that can be read
						for i, st := range normalizerstest.Fold(normalizers.Normalize, kept) {
							if i < lost || st.Record.Session != records[lost].Record.Session || st.Record.Origin.End || st.Failed() {
								if st.Result.Gap {
									t.Errorf("without line %d: a gap at line %d", records[lost].Line, st.Line)
								}
								continue
							}
							if st.Result.Gap != expected {
								t.Errorf("without line %d: gap at line %d: %t", records[lost].Line, st.Line, st.Result.Gap)
							}
							expected = false
						}
					}
				})
			}
		})
	}
}

// A record that fails after its first events leaves nothing behind, also where the memory of the
// session is full.
func TestFailedRecordLeavesTheSessionUnchanged(t *testing.T) {
	t.Parallel()
	const remembered = 4096
	thoughts := func(n int) []byte {
		blocks := strings.TrimSuffix(strings.Repeat(`{"type":"thinking","thinking":"x"},`, n), ",")
		return []byte(`{"type":"assistant","uuid":"late","cwd":"/late","permissionMode":"late","message":{"id":"late","model":"late","role":"assistant","usage":{"input_tokens":5,"output_tokens":5},"content":[` + blocks + `]}}`)
	}
	tooMany := thoughts(core.MaxEvents + 1)
	for _, before := range []int{0, 3, remembered - 1, remembered, remembered + 1000} {
		t.Run(fmt.Sprintf("after %d events", before), func(t *testing.T) {
			t.Parallel()
			s := normalizers.NewSession(envelopes.ClaudeCode, "s")
			normalize := func(data []byte) (core.Result, error) {
				return normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Stored: normalizerstest.Modified, Data: data})
			}
			for i := range before {
				line := fmt.Appendf(nil, `{"type":"assistant","uuid":"u%d","message":{"id":"m%d","role":"assistant","content":"x","usage":{"input_tokens":1}}}`, i, i)
				if _, err := normalize(line); err != nil {
					t.Fatal(err)
				}
			}
			state := s.Encode()
			for range 2 {
				if _, err := normalize(tooMany); !errors.Is(err, core.ErrTooManyEvents) {
					t.Fatalf("%v, want %v", err, core.ErrTooManyEvents)
				}
				if !bytes.Equal(state, s.Encode()) {
					t.Fatal("the state has changed")
				}
			}
			result, err := normalize(thoughts(3))
			if err != nil || len(result.Events) != 3 || result.Events[0].Event.Sequence != uint64(before+1) {
				t.Fatalf("%v, %d events", err, len(result.Events))
			}
			// What was remembered before is remembered still, and in its order.
			decoded, err := normalizers.DecodeSession(state)
			if err != nil {
				t.Fatal(err)
			}
			again, err := normalizers.Normalize(decoded, core.Record{Source: envelopes.ClaudeCode, Session: "s", Stored: normalizerstest.Modified, Data: thoughts(3)})
			if err != nil || normalizerstest.Outcomes(normalizerstest.Step{Result: result}, false) != normalizerstest.Outcomes(normalizerstest.Step{Result: again}, false) || !bytes.Equal(s.Encode(), decoded.Encode()) {
				t.Error("it goes on otherwise than from the state before")
			}
		})
	}
}

// The record of a prompt that the queue has emitted is its duplicate within the next 64 records;
// later it is another prompt (README.md, Speech).
func TestQueuedPromptMatchesItsRecordWithin64Records(t *testing.T) {
	t.Parallel()
	const within = 64
	for _, after := range []int{1, within, within + 1} {
		s := normalizers.NewSession(envelopes.ClaudeCode, "s")
		normalize := func(data string) core.Result {
			result, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Stored: normalizerstest.Modified, Data: []byte(data)})
			if err != nil {
				t.Fatal(err)
			}
			return result
		}
		normalize(`{"type":"queue-operation","operation":"enqueue","content":"words"}`)
		if len(normalize(`{"type":"queue-operation","operation":"remove"}`).Events) != 1 {
			t.Fatal("the remove emits nothing")
		}
		for range after - 1 {
			normalize(`{"type":"progress"}`)
		}
		result := normalize(`{"type":"user","uuid":"u","message":{"role":"user","content":" words\n"}}`)
		if dropped := result.Skip == core.SkipMirror; dropped != (after <= within) {
			t.Errorf("%d records later: skip %q, %d events", after, result.Skip, len(result.Events))
		}
	}
}

// A record without a time gets the last time of its session, else the one that its producer
// stated, else the time at which it was stored (README.md, Time).
func TestRecordWithoutATimeGetsAFallback(t *testing.T) {
	t.Parallel()
	const mode, timed = `{"type":"mode","mode":"%d"}`, `{"type":"mode","mode":"%d","timestamp":"2026-03-01T09:00:00.5Z"}`
	came := time.Date(2026, 2, 2, 2, 2, 2, 20_000_000, time.FixedZone("", 3600))
	for name, c := range map[string]struct {
		before string
		came   time.Time
		want   string
	}{
		"of its session":   {timed, came, "2026-03-01T09:00:00.5Z"},
		"that came with":   {"", came, "2026-02-02T01:02:02.02Z"},
		"when it was kept": {"", time.Time{}, "2026-01-02T03:04:05Z"},
	} {
		s := normalizers.NewSession(envelopes.ClaudeCode, "s")
		var got string
		for i, line := range []string{c.before, mode} {
			if line == "" {
				continue
			}
			result, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Stored: normalizerstest.Modified, Origin: core.Origin{Time: c.came}, Data: fmt.Appendf(nil, line, i)})
			if err != nil || len(result.Events) != 1 {
				t.Fatal(err)
			}
			got = result.Events[0].Event.TS
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
