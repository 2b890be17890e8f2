package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
	"tributary/pipeline/replay"
	"tributary/pipeline/worker"
)

// sentBy returns a record with its sender.
func sentBy(r core.Record, host string, labels ...string) core.Record {
	r.Origin.Edge = &envelopes.Edge{Host: host, User: "Zoë"}
	if len(labels) > 0 {
		r.Origin.Edge.Labels = map[string]string{"team": labels[0]}
	}
	return r
}

// senders returns the texts of the events of a generation, each with the host and the team of its sender.
func senders(tb testing.TB, js jetstream.JetStream, generation, session string) []string {
	tb.Helper()
	var out []string
	for e, err := range events.Read(tb.Context(), js, generation, events.Query{Session: session}) {
		if err != nil {
			tb.Fatal(err)
		}
		text := (*e.Text)[:min(len(*e.Text), 20)]
		if e.Edge != nil {
			text += fmt.Sprintf(" of %s at %s, %s", e.Edge.User, e.Edge.Host, e.Edge.Labels["team"])
		}
		out = append(out, text)
	}
	return out
}

// The events of a record have its sender and no other: of a session that goes on on another machine, of a large record, of
// one that a later record releases behind a restart of the worker, of a dead letter that is requeued, and in a replay. A
// record that states no sender has none.
func TestEventsHaveTheSenderOfTheirRecord(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pending := func(kind, text string) core.Record {
		return core.Record{Source: envelopes.Codex, Session: "c", Data: fmt.Appendf(nil,
			`{"timestamp":"2026-03-01T09:00:00Z","type":"event_msg","payload":{"type":%q,"message":%q}}`, kind, text)}
	}
	large := sentBy(user("s", "large "+strings.Repeat("x", 700<<10)), "three")
	if _, err := claims.NewStore(js).Put(t.Context(), large.Data); err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, sentBy(user("s", "first"), "one", "garden"), user("s", "old"), sentBy(user("s", "boom"), "two", "orchard"),
		sentBy(pending("agent_message", "waits"), "one"))
	pipelinetest.PublishMessages(t.Context(), t, js, records.ClaimMessage(large))
	x := pipelinetest.Expectation{Topology: top, Normalize: breaksUntil("boom", 3)}
	s := start(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
	x.RequireExact(t, js)
	s.stop(t)

	open := letters(t, js, events.DeadLettersQuery{})
	want := &envelopes.Edge{Host: "two", User: "Zoë", Labels: map[string]string{"team": "orchard"}}
	if len(open) != 1 || !cmp.Equal(open[0].Edge, want) {
		t.Fatalf("dead letters %+v", open)
	}
	if got := requeue(t, js, events.DeadLettersQuery{}); got[events.RequeuedNow] != 1 {
		t.Errorf("requeued: %v", got)
	}
	end := sentBy(core.Record{Source: envelopes.Codex, Session: "c", Origin: core.Origin{End: true}}, "two")
	pipelinetest.Publish(t, js, sentBy(user("s", "last"), "two"), end)
	w := work(t, js, worker.Config{Topology: top, Normalize: x.Normalize})
	caughtUp(t, js, top)
	x.RequireExact(t, js)
	startReplay(t, js, replay.Request{Name: "b"})
	caughtUp(t, js, of(top, "b"))
	w.stop(t)

	requeued := "boom of Zoë at two, orchard"
	all := []string{
		"first of Zoë at one, garden", "old", "large xxxxxxxxxxxxxx of Zoë at three, ", requeued, "last of Zoë at two, ",
	}
	if diff := cmp.Diff(all, senders(t, js, "v1", "s")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(all, senders(t, js, "b", "s")); diff != "" {
		t.Errorf("events of the replay (-want +got):\n%s", diff)
	}
	for _, generation := range []string{"v1", "b"} {
		if got := senders(t, js, generation, "c"); !slices.Contains(got, "waits of Zoë at one, ") {
			t.Errorf("the event that was released in %s is one of %q", generation, got)
		}
	}
}

// A generation that redacts lets the sender of a record through, in events and in dead letters: it is metadata.
func TestRedactionKeepsTheSender(t *testing.T) {
	t.Parallel()
	top := redacted(t, redactKey)
	js := pipelinetest.NewServer(t).Provision(top)
	broken := sentBy(core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: []byte("{")}, "one", "garden")
	pipelinetest.Publish(t, js, sentBy(user("s", "hello"), "one", "garden"), broken)
	s := start(t, js, worker.Config{Topology: top, Redact: redactWith(redactKey)})
	caughtUp(t, js, top)
	s.stop(t)
	if got := senders(t, js, "v1", "s"); !slices.Equal(got, []string{"hello of Zoë at one, garden"}) {
		t.Errorf("events %q", got)
	}
	found := letters(t, js, events.DeadLettersQuery{})
	if len(found) != 1 || !cmp.Equal(found[0].Edge, broken.Origin.Edge) || !found[0].Redacted {
		t.Errorf("dead letters of mode %s: %+v", redact.Secrets, found)
	}
}

// A message whose headers are beyond what the broker takes is refused, and the records around it are as if it had not
// been there.
func TestSenderOfAMegabyteIsRefusedByTheBroker(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, sentBy(user("s", "before"), "one"))
	for _, size := range []int{70 << 10, 1 << 20} {
		m := records.Message(user("s", "between"))
		m.Header[envelopes.HeaderHost] = []string{strings.Repeat("h", size)}
		if _, err := js.PublishMsg(t.Context(), m); err == nil {
			t.Errorf("a host of %d bytes is stored", size)
		}
	}
	pipelinetest.Publish(t, js, sentBy(user("s", "behind"), "one"))
	s := start(t, js, worker.Config{Topology: top})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	if got := senders(t, js, "v1", "s"); !slices.Equal(got, []string{"before of Zoë at one, ", "behind of Zoë at one, "}) {
		t.Errorf("events %q", got)
	}
}

// The link of a span to the creation of a record names the sender of that record.
func TestLinkToARecordNamesItsSender(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	tracer, spans := recording()
	r := sentBy(user("s", "hello"), "one")
	r.Origin.Traceparent = created
	pipelinetest.Publish(t, js, r)
	s := start(t, js, worker.Config{Topology: top, Tracer: tracer})
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.stop(t)
	found := spans("process raw")
	if len(found) != 1 || len(found[0].Links()) != 1 {
		t.Fatalf("%d spans", len(found))
	}
	got := map[string]string{}
	for _, a := range found[0].Links()[0].Attributes {
		got[string(a.Key)] = a.Value.String()
	}
	if got["host.name"] != "one" || got["user.name"] != "Zoë" {
		t.Errorf("attributes of the link %v", got)
	}
}
