package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// answers returns records of a session, each an answer of the model that another record follows.
func answers(session string, from, n int) (records []core.Record) {
	for i := range n {
		line := fmt.Sprintf(`{"type":"assistant","uuid":"%[1]s-%[2]d","sessionId":%[1]q,"timestamp":"2026-01-01T00:00:00Z",`+
			`"message":{"id":"m%[2]d","role":"assistant","content":[{"type":"tool_use","id":"t%[2]d","name":"Bash","input":{"command":"ls %[2]d"}}],`+
			`"usage":{"input_tokens":1,"output_tokens":2}}}`, session, from+i)
		records = append(records, core.Record{Source: envelopes.ClaudeCode, Session: session, Data: []byte(line)})
	}
	return records
}

// Of a long session a commit stores what has changed of its state, and now and then the whole; of a
// short one it stores the whole. Workers that take over in between go on from there.
func TestOfALongStateOnlyTheChangeIsStored(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	x := pipelinetest.Expectation{Topology: top}
	state := envelopes.StateSubject("v1", 0, envelopes.ClaudeCode, "long")
	var wholes []uint64
	bytes, commits, changes := 0, 0, 0
	note := func() {
		whole := stored(t, js, state)[0]
		if !slices.Contains(wholes, whole.Sequence) {
			wholes = append(wholes, whole.Sequence)
			bytes += len(whole.Data)
		} else if change := stored(t, js, envelopes.ChangeSubject(state)); len(change) == 1 {
			changes++
			bytes += len(change[0].Data)
		}
		commits++
	}
	for part := range 4 {
		s := start(t, js, worker.Config{Topology: top})
		for i := range 20 {
			pipelinetest.Publish(t, js, answers("long", 200*part+10*i, 10)...)
			if err := replay.CatchUp(t.Context(), js, top); err != nil {
				t.Fatal(err)
			}
			note()
		}
		pipelinetest.Publish(t, js, answers("short", part, 1)...)
		if r := x.RequireExact(t, js); r.Changed > 1 {
			t.Errorf("%d of 2 sessions have a change", r.Changed)
		}
		s.stop(t)
	}
	whole := len(stored(t, js, state)[0].Data)
	if len(wholes) < 4 || changes < commits/2 || bytes > commits*whole/4 {
		t.Errorf("%d commits stored %d wholes and %d changes of the state: %d bytes; the last whole has %d", commits, len(wholes), changes, bytes, whole)
	}
	if n := countSubjects(t, js, "states.>"); n != 2 {
		t.Errorf("%d states of 2 sessions", n)
	}
}

// A change without the whole that it names costs the session alone: its records become dead letters.
func TestChangeWithoutItsWholeIsADamagedState(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	state := envelopes.StateSubject("v1", 0, envelopes.ClaudeCode, "long")
	for i := 0; len(stored(t, js, envelopes.ChangeSubject(state))) == 0; i++ {
		s := start(t, js, worker.Config{Topology: top})
		pipelinetest.Publish(t, js, answers("long", 40*i, 40)...)
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
		s.stop(t)
	}
	pipelinetest.Publish(t, js, answers("other", 0, 1)...)
	if err := worker.RemoveMessages(t.Context(), js, streams.EventsStream("v1"), stored(t, js, state)); err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, answers("long", 5000, 2)...)
	s := start(t, js, worker.Config{Topology: top})
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	found := letters(t, js, events.DeadLettersQuery{Reason: "state"})
	for _, l := range found {
		if l.Session != "long" || !strings.Contains(l.Error, "replay into a new generation") {
			t.Errorf("dead letter of session %s: %s", l.Session, l.Error)
		}
	}
	if len(found) != 2 {
		t.Errorf("%d dead letters, want 2", len(found))
	}
	if n := len(stored(t, js, envelopes.StateSubject("v1", 0, envelopes.ClaudeCode, "other"))); n != 1 {
		t.Errorf("%d states of the other session", n)
	}
}

// A server that is killed between a state and its rollup keeps the one before it, too. Both leave: the older one
// is not taken for the state of the session.
func TestStatesWithoutTheirRollupLeaveTogether(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(2)
	js := pipelinetest.NewServer(t).Provision(top)
	const sessions = 12
	part := func(n int) (records []core.Record) {
		for i := range sessions {
			records = append(records, answers(fmt.Sprintf("s%d", i), n, 1)...)
		}
		return records
	}
	runArchiving(t, js, worker.Config{Topology: top}, sessions, part(0)...)
	before := stored(t, js, "states.>")
	runArchiving(t, js, worker.Config{Topology: top}, sessions, part(1)...)
	for _, m := range slices.Concat(before, stored(t, js, "states.>")) {
		if _, err := js.Publish(t.Context(), m.Subject, m.Data); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, js, archiving(top))
	awaitStates(t, js, 0)
	s.stop(t)
	runArchiving(t, js, worker.Config{Topology: top}, sessions, part(2)...)
}
