package worker_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// TestEventsAreSelected reads a stream of three sessions, of which two have ids with the same
// beginning, and one has a record that cannot be read.
func TestEventsAreSelected(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many records: the race detector sees nothing new in them")
	}
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	long := "abc/" + strings.Repeat("x", 130) // its token is a digest
	var records []core.Record
	for i := range 1500 { // more than the first window of the last events
		records = append(records, user([]string{"abc-1", "abc-2", "other", "ab"}[min(i%100, 3)], strconv.Itoa(i)))
	}
	records = append(records, core.Record{Source: envelopes.ClaudeCode, Session: "abc-1", Data: []byte(`{"type":oops}`)}, user(long, "long"))
	pipelinetest.Publish(t, js, records...)
	s := start(t, js, worker.Config{Topology: top})
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)

	var positions []uint64
	read := func(q events.Query) (list []string) {
		t.Helper()
		for e, err := range events.Read(deadline(t), js, "v1", q) {
			if q.Last == 0 && q.SessionPrefix == "" {
				positions = append(positions, e.Position)
			}
			switch {
			case err != nil:
				t.Fatal(err)
			case e.DeadLetter != nil:
				list = append(list, e.DeadLetter.Session+" "+e.DeadLetter.Reason)
			default:
				list = append(list, *e.Text)
			}
		}
		return list
	}
	all := read(events.Query{})
	if len(all) != 1501 {
		t.Fatalf("%d events", len(all))
	}
	of := func(i ...int) (list []string) {
		for n := range 1500 {
			if slices.Contains(i, min(n%100, 3)) {
				list = append(list, strconv.Itoa(n))
			}
		}
		return list
	}
	tens := func(e *events.Event) bool { return e.Text != nil && strings.HasSuffix(*e.Text, "00") }
	many := []events.SessionID{{Source: envelopes.ClaudeCode, Session: "other"}} // more types of sessions than the broker selects
	for n := range events.MaxSessions / 2 {
		many = append(many, events.SessionID{Source: envelopes.ClaudeCode, Session: "none-" + strconv.Itoa(n)})
	}
	for name, c := range map[string]struct {
		q    events.Query
		want []string
	}{
		"a session by its id":             {events.Query{SessionPrefix: "abc-1"}, of(0)},
		"an id that begins another id":    {events.Query{SessionPrefix: "ab"}, of(3)},
		"the beginning of two ids":        {events.Query{SessionPrefix: "abc-"}, of(0, 1)},
		"the beginning of another source": {events.Query{SessionPrefix: "abc-", Source: envelopes.Codex}, nil},
		"the beginning of no id":          {events.Query{SessionPrefix: "abd"}, nil},
		"a long id":                       {events.Query{SessionPrefix: long}, []string{"long"}},
		"the last":                        {events.Query{Last: 5}, all[1496:]},
		"the last of many":                {events.Query{Last: 1200}, all[301:]},
		"more than there are":             {events.Query{Last: 5000}, all},
		"the last of a session":           {events.Query{Last: 2, Session: "other"}, []string{"1302", "1402"}},
		"the last of those that match":    {events.Query{Last: 12, Match: tens}, of(0)[3:]},
		"the last of none":                {events.Query{Last: 20, Session: "none"}, nil},
		"the last after a position":       {events.Query{Last: 5000, After: streams.Positions{positions[1498]}}, all[1499:]},
		"dead letters in their place":     {events.Query{Last: 3, DeadLetters: true}, []string{"1499", "abc-1 malformed", "long"}},
		"a session's dead letters":        {events.Query{Last: 1, DeadLetters: true, SessionPrefix: "abc-1"}, []string{"abc-1 malformed"}},
		"several types":                   {events.Query{Last: 5, Types: []envelopes.EventType{envelopes.Log, envelopes.UserMessage}}, all[1496:]},
		"a type of which there is none":   {events.Query{Types: []envelopes.EventType{envelopes.Log}}, nil},
		"several types of many sessions":  {events.Query{Sessions: many, Types: []envelopes.EventType{envelopes.Log, envelopes.UserMessage}}, of(2)},
		"other types of many sessions":    {events.Query{Sessions: many, Types: []envelopes.EventType{envelopes.Log, envelopes.Meta}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, read(c.q)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEventsWaitForASession follows a session that begins later.
func TestEventsWaitForASession(t *testing.T) {
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	s := start(t, js, worker.Config{Topology: top})
	defer s.stop(t)
	pipelinetest.Publish(t, js, user("first", "one"))
	if err := replay.CatchUp(deadline(t), js, top); err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, user("second", "two"), user("late", "three"))
	for e, err := range events.Read(deadline(t), js, "v1", events.Query{SessionPrefix: "la", Last: 10, Follow: true}) {
		if err != nil || *e.Text != "three" {
			t.Errorf("event %d: %v, %v", e.Position, e.Text, err)
		}
		return
	}
	t.Error("the event of the session does not come")
}

// Events go on behind the last one when their consumer is deleted or the server restarts, and say
// so; a message that cannot be read is yielded as an error and ends nothing.
func TestEventsGoOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	top := topology(1)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	s := start(t, js, worker.Config{Topology: top})
	defer s.stop(t)
	pipelinetest.Publish(t, js, user("s", "one"))
	var interrupted []error
	q := events.Query{Follow: true, Interrupted: func(err error) { interrupted = append(interrupted, err) }}
	var read []string
	for e, err := range events.Read(deadline(t), js, "v1", q) {
		switch {
		case err != nil && e.Position == 0:
			t.Fatal(err)
		case err != nil:
			read = append(read, "unreadable")
			server.Restart()
			pipelinetest.Publish(t, server.JetStream(), user("s", "three"))
			continue
		}
		switch read = append(read, *e.Text); *e.Text {
		case "one":
			stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
			if err != nil {
				t.Fatal(err)
			}
			names := stream.ConsumerNames(t.Context())
			for name := range names.Name() {
				if err := stream.DeleteConsumer(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			pipelinetest.Publish(t, js, user("s", "two"))
		case "two":
			pipelinetest.PublishMessages(t.Context(), t, js, &nats.Msg{Subject: "events.v1.claude_code.s.user_message", Data: []byte("no event")})
		}
		if *e.Text == "three" {
			break
		}
	}
	if diff := cmp.Diff([]string{"one", "two", "unreadable", "three"}, read); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(interrupted) < 2 || !strings.Contains(interrupted[0].Error(), "Consumer Deleted") {
		t.Errorf("interruptions: %v", interrupted)
	}
}

// A reading of the events that are there ends although the last of them are removed meanwhile: the consumer
// has counted them.
func TestReadingEndsWhereEventsWereRemovedMeanwhile(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := topology(1)
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(81, 4, 2000)...)
	s := start(t, js, worker.Config{Topology: top})
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if read++; read == 1 {
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("events.>")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if read < 1 || read > 1000 {
		t.Errorf("%d events were read, want those that had arrived before the rest was removed", read)
	}
}
