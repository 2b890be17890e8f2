package worker_test

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// everyEvent reads the events of a generation.
func everyEvent(tb testing.TB, js jetstream.JetStream, generation string, q events.Query) []events.Event {
	tb.Helper()
	var out []events.Event
	for e, err := range events.Read(tb.Context(), js, generation, q) {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// Events that refer to their records differ in raw alone from those that carry them, and their
// readers find the records in the raw stream, those of claim checks too, until they expire.
func TestReferencedRawIsFoundInTheRawStream(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one worker after the other: the race detector sees nothing new in that")
	}
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	sent := pipelinetest.Workload(90, 10, 300)
	pipelinetest.Publish(t, js, sent...)
	large := sized(1, 1, 20_000)[0]
	if _, err := claims.NewStore(js).Put(t.Context(), large.Data); err != nil {
		t.Fatal(err)
	}
	pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(large))
	s := start(t, js, worker.Config{Topology: top})
	x := pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	for _, mode := range []envelopes.Mode{envelopes.Binary, envelopes.Structured} {
		name := string(mode)
		settings := streams.Settings{Raw: streams.RawReferenced, CloudEvents: mode}
		build(t, js, top, replay.Request{Name: name, Settings: settings}, nil)
		replayed := of(top, name)
		replayed.Settings = settings
		pipelinetest.Expectation{Topology: replayed}.RequireExact(t, js)
		d := compare(t, js, "v1", name, replay.DiffQuery{})
		if d.Changed == 0 || d.Changed+d.Same != uint64(x.Events) || !maps.Equal(d.Fields, map[string]uint64{"raw": d.Changed}) {
			t.Errorf("diff to %s: %+v", name, d)
		}
		carried, loaded := everyEvent(t, js, "v1", events.Query{}), everyEvent(t, js, name, events.Query{Raw: true})
		for i, e := range everyEvent(t, js, name, events.Query{}) {
			if e.Raw != nil || e.Provenance.RawReference != (carried[i].Raw != nil) {
				t.Errorf("%s: event %s: %+v with raw %s", name, e.EventID, e.Provenance, e.Raw)
			}
			if diff := difference(carried[i].AgentEventV1, loaded[i].AgentEventV1); diff != "" {
				t.Errorf("%s: event %s (-carried +loaded):\n%s", name, e.EventID, diff)
			}
		}
	}
	last := everyEvent(t, js, "binary", events.Query{Session: large.Session})[0]
	if data, err := last.LoadRecord(t.Context(), js); err != nil || !bytes.Equal(data, large.Data) {
		t.Errorf("the record of a claim check: %d bytes, %v", len(data), err)
	}

	raw, err := js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Purge(t.Context(), jetstream.WithPurgeSequence(100)); err != nil {
		t.Fatal(err)
	}
	for _, e := range everyEvent(t, js, "binary", events.Query{Raw: true}) {
		if gone := e.Provenance.RawSequence < 100; e.Provenance.RawReference && (e.RecordGone != gone || e.Raw != nil == gone) {
			t.Errorf("record %d is gone: %t, raw %s", e.Provenance.RawSequence, e.RecordGone, e.Raw)
		}
	}
	last.SessionID = "another"
	if _, err := last.LoadRecord(t.Context(), js); !errors.Is(err, events.ErrRecordGone) {
		t.Errorf("a record of another session: %v", err)
	}
}
