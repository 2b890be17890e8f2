package pipelinetest_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// The comparison with what was sent finds a record that is lost, one that is doubled, and one that nobody has sent.
func TestSentFindsDifferences(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	js := pipelinetest.NewServer(t).Provision(top)
	var sent pipelinetest.Sent
	records := pipelinetest.Workload(1, 3, 30)
	for _, r := range records {
		sent.Must(r.Session, r.Data)
	}
	pipelinetest.Publish(t, js, records...)
	s, err := worker.New(js, worker.Config{Topology: top})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	s.Drain()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	require := func(lost, doubled, foreign int) {
		t.Helper()
		d, err := sent.Compare(t.Context(), js, "v1")
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Lost) != lost || len(d.Doubled) != doubled || len(d.Foreign) != foreign || (d.Err() == nil) != (lost+doubled+foreign == 0) {
			t.Errorf("%+v, want %d lost, %d doubled and %d foreign", d, lost, doubled, foreign)
		}
	}
	require(0, 0, 0)
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	var event *nats.Msg
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{Last: 30}) {
		if err != nil {
			t.Fatal(err)
		}
		if pipelinetest.KeyOf(e.SessionID, e.Raw) == "" {
			continue
		}
		m, err := stream.GetMsg(t.Context(), e.Position)
		if err != nil {
			t.Fatal(err)
		}
		event = &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		for name := range event.Header {
			if strings.HasPrefix(name, "Nats-") {
				event.Header.Del(name)
			}
		}
		if err := stream.DeleteMsg(t.Context(), m.Sequence); err != nil {
			t.Fatal(err)
		}
		break
	}
	require(1, 0, 0)
	for range 2 {
		if _, err := js.PublishMsg(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	require(0, 1, 0)
	sent = pipelinetest.Sent{}
	for _, r := range records[1:] {
		sent.Must(r.Session, r.Data)
	}
	require(0, 1, 1)
}
