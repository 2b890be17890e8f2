package worker_test

import (
	"errors"
	"fmt"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// cellOf returns the cell of a session.
func cellOf(id events.SessionID, top streams.Topology) int {
	return streams.Layout{Cells: top.Cells}.Cell(envelopes.Partition(id.Source, id.Session, top.Partitions))
}

// TestEventsAreFoundByIDAndSequence finds every event of sessions that are interleaved, in two cells and both modes of CloudEvents,
// and beside events that cannot be read.
func TestEventsAreFoundByIDAndSequence(t *testing.T) {
	t.Parallel()
	for _, mode := range []envelopes.Mode{envelopes.Binary, envelopes.Structured} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			top := streams.Topology{Generation: "v1", Partitions: 4, Cells: 2, Settings: streams.Settings{CloudEvents: mode}}
			js := pipelinetest.NewServer(t).Provision(top)
			pipelinetest.Publish(t, js, pipelinetest.Workload(5, 4, 60)...)
			hostile := events.SessionID{Source: envelopes.ClaudeCode, Session: "../a%2f\n*.>"}
			for n := range 3 {
				pipelinetest.Publish(t, js, core.Record{
					Source: hostile.Source, Session: hostile.Session,
					Data: fmt.Appendf(nil, `{"type":"user","uuid":"100%%\n é/%d","message":{"role":"user","content":"hi"}}`, n),
				})
			}
			start(t, js, worker.Config{Topology: top})
			if err := replay.CatchUp(t.Context(), js, top); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				subject := envelopes.EventSubject(envelopes.CellName("v1", cellOf(hostile, top)), &envelopes.AgentEventV1{Source: hostile.Source, SessionID: hostile.Session, EventType: envelopes.Log})
				if _, err := js.Publish(t.Context(), subject, []byte("no event")); err != nil {
					t.Fatal(err)
				}
			}
			unread := 0
			last, count := map[events.SessionID]uint64{}, 0
			for want, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
				if err != nil && want.Position > 0 {
					unread++
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				id := events.SessionID{Source: want.Source, Session: want.SessionID}
				last[id] = want.Sequence
				count++
				for by, find := range map[string]func() (events.Event, error){
					"id":       func() (events.Event, error) { return events.FindEvent(t.Context(), js, "v1", id, want.EventID) },
					"sequence": func() (events.Event, error) { return events.EventAt(t.Context(), js, "v1", id, want.Sequence) },
				} {
					got, err := find()
					if err != nil || got.EventID != want.EventID || got.Position != want.Position || got.Cell != want.Cell || got.Sequence != want.Sequence {
						t.Errorf("by its %s: event %d of cell %d is event %d of cell %d: %v", by, want.Position, want.Cell, got.Position, got.Cell, err)
					}
				}
			}
			if unread != 20 || len(last) != 5 || count < 60 || last[hostile] < 3 {
				t.Errorf("%d events of %d sessions, %d of one, %d that cannot be read", count, len(last), last[hostile], unread)
			}
			for id, sequence := range last {
				if e, err := events.EventAt(t.Context(), js, "v1", id, sequence+1); !errors.Is(err, events.ErrNoEvent) {
					t.Errorf("behind the last event: event %d, %v", e.Position, err)
				}
				if e, err := events.FindEvent(t.Context(), js, "v1", id, "another"); !errors.Is(err, events.ErrNoEvent) {
					t.Errorf("an unknown id: event %d, %v", e.Position, err)
				}
			}
		})
	}
}
