package search_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/console/search"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// start runs the stage over a workload.
func start(t *testing.T, top streams.Topology, seed uint64, sessions, records int) jetstream.JetStream {
	t.Helper()
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(seed, sessions, records)...)
	stage, err := worker.New(js, worker.Config{Topology: top})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stage.Run(context.WithoutCancel(t.Context())) }()
	if err := replay.CatchUp(t.Context(), js, top); err != nil {
		t.Fatal(err)
	}
	stage.Drain()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return js
}

// find runs a search to its end.
func find(t *testing.T, js jetstream.JetStream, s search.Search) ([]*search.Hit, *search.Coverage) {
	t.Helper()
	var hits []*search.Hit
	coverage, err := s.Run(t.Context(), js, "v1", func(h *search.Hit) error {
		hits = append(hits, h)
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return hits, coverage
}

func parse(t *testing.T, text string) search.Terms {
	t.Helper()
	terms, err := search.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

// place names an event.
func place(cell int, position uint64) string { return fmt.Sprintf("%d:%06d", cell, position) }

// placesOf returns where hits are, and checks that they have their order.
func placesOf(t *testing.T, hits []*search.Hit) []string {
	t.Helper()
	var places []string
	for i, h := range hits {
		if i > 0 && h.Stored.After(hits[i-1].Stored) {
			t.Errorf("hit %d is newer than the one before", i)
		}
		if len(h.Snippets) == 0 {
			t.Errorf("hit %d has no snippet", i)
		}
		places = append(places, place(h.Cell, h.Position))
	}
	slices.Sort(places)
	return places
}

// everyEvent reads every event.
func everyEvent(t *testing.T, js jetstream.JetStream) (list []events.Event) {
	t.Helper()
	for e, err := range events.Read(t.Context(), js, "v1", events.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// all returns the places of the events of a list that match every expression.
func all(list []events.Event, selects func(*events.Event) bool, expressions ...string) []string {
	var matchers []*regexp.Regexp
	for _, x := range expressions {
		matchers = append(matchers, regexp.MustCompile(x))
	}
	var places []string
	for _, e := range list {
		if !slices.Contains(search.DefaultTypes, e.EventType) || selects != nil && !selects(&e) || e.Text == nil {
			continue
		}
		if !slices.ContainsFunc(matchers, func(x *regexp.Regexp) bool { return !x.MatchString(*e.Text) }) {
			places = append(places, place(e.Cell, e.Position))
		}
	}
	slices.Sort(places)
	return places
}

// TestSearchFindsWhatReadingEveryEventFinds compares searches of every kind with a reading of every event, at once and in
// pages that go on from each other.
func TestSearchFindsWhatReadingEveryEventFinds(t *testing.T) {
	t.Parallel()
	for _, cells := range []int{1, 3} {
		t.Run(fmt.Sprint("cells=", cells), func(t *testing.T) {
			t.Parallel()
			js := start(t, streams.Topology{Generation: "v1", Partitions: 6, Cells: cells}, 7, 20, 2000)
			const filterBytes = 256 << 10
			var middle time.Time
			var before streams.Positions
			for e, err := range events.Outlines(t.Context(), js, "v1", events.Query{Last: 1000}) {
				if err != nil {
					t.Fatal(err)
				}
				middle, before = e.Stored, before.With(e.Cell, e.Position)
				break
			}
			isPrompt := func(e *events.Event) bool { return e.EventType == envelopes.UserMessage }
			wanted, covered := map[string][]string{}, map[string]*search.Coverage{} // without filters
			cases := map[string]struct {
				search      search.Search
				selects     func(*events.Event) bool
				expressions []string
			}{
				"a word":         {search.Search{Terms: parse(t, "CONSUMER")}, nil, []string{"(?i)consumer"}},
				"two words":      {search.Search{Terms: parse(t, "zoë lost")}, nil, []string{"(?i)zoë", "(?i)lost"}},
				"a phrase":       {search.Search{Terms: parse(t, `"lost or TOLD"`)}, nil, []string{"(?i)lost or told"}},
				"nothing":        {search.Search{Terms: parse(t, "elephant")}, nil, []string{"elephant"}},
				"nothing since":  {search.Search{Terms: parse(t, "elephant"), Stored: middle}, nil, []string{"elephant"}},
				"nothing before": {search.Search{Terms: parse(t, "elephant"), Before: before}, nil, []string{"elephant"}},
				"another case":   {search.Search{Terms: parse(t, "ZOË")}, nil, []string{"(?i)zoë"}},
				"one type":       {search.Search{Terms: parse(t, "stream"), Types: []envelopes.EventType{envelopes.UserMessage}}, isPrompt, []string{"stream"}},
				"a tool": {search.Search{Terms: parse(t, "stream"), Tool: "bash"}, func(e *events.Event) bool {
					return e.ToolName != nil && *e.ToolName == "Bash"
				}, []string{"stream"}},
				"some events": {search.Search{Terms: parse(t, "stream"), Match: isPrompt}, isPrompt, []string{"stream"}},
				"since":       {search.Search{Terms: parse(t, "stream"), Stored: middle}, func(e *events.Event) bool { return !e.Stored.Before(middle) }, []string{"stream"}},
			}
			list := everyEvent(t, js)
			for name, c := range cases {
				want := all(list, c.selects, c.expressions...)
				if !strings.HasPrefix(name, "nothing") && len(want) < 5 {
					t.Fatalf("%s: the workload has %d events", name, len(want))
				}
				s := c.search
				s.Hits = 1 << 20
				hits, coverage := find(t, js, s)
				if diff := cmp.Diff(want, placesOf(t, hits)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
				wanted[name], covered[name] = want, coverage
				if coverage.Stop != "" || coverage.Next != nil || coverage.Left != 0 || coverage.Unreadable != 0 {
					t.Errorf("%s: %+v", name, coverage)
				}
				s.Hits = 1 + len(want)/3
				var paged []string
				for {
					hits, coverage = find(t, js, s)
					paged = append(paged, placesOf(t, hits)...)
					if coverage.Next == nil {
						break
					}
					if coverage.Stop != search.ByHits || len(hits) != s.Hits {
						t.Fatalf("%s: %d hits, %+v", name, len(hits), coverage)
					}
					s.Before = coverage.Next
				}
				slices.Sort(paged)
				if diff := cmp.Diff(want, paged); diff != "" {
					t.Errorf("%s, in pages (-want +got):\n%s", name, diff)
				}
			}
			startKeeper(t, js, filterBytes)
			awaitFilters(t, js, filterBytes)
			for name, c := range cases {
				s := c.search
				s.Hits = 1 << 20
				hits, same := find(t, js, s)
				if diff := cmp.Diff(wanted[name], placesOf(t, hits)); diff != "" {
					t.Errorf("%s, with filters (-want +got):\n%s", name, diff)
				}
				coverage := covered[name]
				if same.Oldest.After(coverage.Oldest) || same.Newest.Before(coverage.Newest) {
					t.Errorf("%s: with filters from %v to %v, without from %v to %v", name, same.Oldest, same.Newest, coverage.Oldest, coverage.Newest)
				}
				same.Oldest, same.Newest = coverage.Oldest, coverage.Newest // the last message of the stream may be no event
				if diff := cmp.Diff(coverage, same); diff != "" {
					t.Errorf("%s, coverage with filters (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// TestASearchOutOfTimeSaysWhatIsLeft has no time: everything is left, and a search that goes on from there has it.
func TestASearchOutOfTimeSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	js := start(t, streams.Topology{Generation: "v1", Partitions: 2}, 8, 5, 300)
	s := search.Search{Terms: parse(t, "stream"), Hits: 1 << 20, Time: 1}
	hits, coverage := find(t, js, s)
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	state := stream.CachedInfo().State
	if len(hits) > 0 || coverage.Stop != search.ByTime || coverage.Left != state.LastSeq-state.FirstSeq+1 || coverage.Next.In(0) != state.LastSeq+1 {
		t.Fatalf("%d hits, %+v, and the stream has %+v", len(hits), coverage, state)
	}
	s.Time, s.Before = 0, coverage.Next
	hits, coverage = find(t, js, s)
	if diff := cmp.Diff(all(everyEvent(t, js), nil, "stream"), placesOf(t, hits)); diff != "" || coverage.Stop != "" {
		t.Errorf("%+v (-want +got):\n%s", coverage, diff)
	}
}

// TestASearchEndsWithItsRequest cancels a search at its first hit: it leaves no consumer that it reads with.
func TestASearchEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	js := start(t, streams.Topology{Generation: "v1", Partitions: 2}, 9, 5, 2000)
	ctx, cancel := context.WithCancel(t.Context())
	s := search.Search{Terms: parse(t, "stream"), Hits: 1 << 20}
	_, err := s.Run(ctx, js, "v1", func(*search.Hit) error {
		cancel()
		return nil
	}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the search has ended with %v", err)
	}
	pipelinetest.AwaitNoConsumers(t, js, streams.EventsStream("v1"))
}

// TestEventsThatCannotBeReadAreCounted stores what is no event beside one whose text is cut.
func TestEventsThatCannotBeReadAreCounted(t *testing.T) {
	t.Parallel()
	js := start(t, streams.Topology{Generation: "v1", Partitions: 1}, 10, 1, 10)
	publish := func(text string, truncated bool) {
		t.Helper()
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: envelopes.Codex, SessionID: "one", ProjectHash: strings.Repeat("0", 64), EventID: "e" + strconv.Itoa(len(text)),
			TS: "2026-03-09T10:00:00Z", EventType: envelopes.UserMessage, Role: new(envelopes.RoleUser), Text: &text, Sequence: 1, TextTruncated: truncated,
		}
		header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: 1}, envelopes.Structured)
		if err != nil {
			t.Fatal(err)
		}
		if truncated {
			data, err = e.AppendJSON(nil)
			header = map[string][]string{"ce-specversion": {"1.0"}}
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "events.v1.codex.one.user_message", Header: header, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	publish("an elephant in a document", false)
	publish(strings.Repeat("the begin of an elephant ", 5000), true)
	broken := &nats.Msg{Subject: "events.v1.codex.one.user_message", Header: nats.Header{"ce-specversion": {"1.0"}}, Data: []byte(`{"text":"an elephant`)}
	if _, err := js.PublishMsg(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	hits, coverage := find(t, js, search.Search{Terms: parse(t, "elephant"), Hits: 10})
	if len(hits) != 2 || coverage.Unreadable != 1 || coverage.Cut != 1 {
		t.Errorf("%d hits, %+v", len(hits), coverage)
	}
}

// TestARareWordIsFoundInBodies searches for a word that only the oldest event has. The broker then sends the events without
// their headers, unless some were removed or the user has no right to that: the search has the same hit and covers the
// same events as one for a word that every event has, for which it reads the headers, too.
func TestARareWordIsFoundInBodies(t *testing.T) {
	t.Parallel()
	const count = 4000
	for name, c := range map[string]struct {
		removed bool
		user    string
		limits  string // of the server
	}{
		"all events":         {},
		"one connection":     {limits: "max_connections: 1"},
		"removed events":     {removed: true},
		"no right to bodies": {user: "reader"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := filepath.Join(t.TempDir(), "nats.conf")
			if err := os.WriteFile(config, []byte(`
				listen: 127.0.0.1:-1
				`+c.limits+`
				jetstream { store_dir: "`+t.TempDir()+`" }
				no_auth_user: all
				authorization { users: [
					{ user: all, password: all }
					{ user: reader, password: reader, permissions: { publish: { deny: "$JS.API.DIRECT.GET.EVENTS_v1" } } }
				] }`), 0o600); err != nil {
				t.Fatal(err)
			}
			server := pipelinetest.StartConfigured(t, config)
			js := pipelinetest.Connect(t, server.ClientURL())
			if err := streams.Provision(t.Context(), js, streams.Topology{Generation: "v1", Partitions: 1}); err != nil {
				t.Fatal(err)
			}
			pipelinetest.PublishMessages(t.Context(), t, js, bodies(t, count)...)
			stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
			if err != nil {
				t.Fatal(err)
			}
			if c.removed {
				for _, at := range []uint64{1000, 3000, 3001} {
					if err := stream.DeleteMsg(t.Context(), at); err != nil {
						t.Fatal(err)
					}
				}
			}
			middle, err := stream.GetMsg(t.Context(), 2000)
			if err != nil {
				t.Fatal(err)
			}
			asked, err := js.Conn().SubscribeSync("$JS.API.DIRECT.GET." + streams.EventsStream("v1"))
			if err != nil {
				t.Fatal(err)
			}
			if c.user != "" {
				js = pipelinetest.Connect(t, server.ClientURL(), nats.UserInfo(c.user, c.user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
			}
			for _, since := range []time.Time{{}, middle.Time} {
				before, _, _ := asked.Pending()
				_, read := find(t, js, search.Search{Terms: parse(t, "event"), Hits: 2 * count, Stored: since})
				if n, _, _ := asked.Pending(); n > before {
					t.Errorf("a search for a frequent word has asked for bodies %d times", n-before)
				}
				for word, want := range map[string][]uint64{"mammoth": {2}, "quagga": {3}, "zebu": {4}, "okapi": {5}, "unicorn": nil} {
					if !since.IsZero() {
						want = nil
					}
					hits, coverage := find(t, js, search.Search{Terms: parse(t, word), Hits: 10, Stored: since})
					var at []uint64
					for _, h := range slices.Backward(hits) {
						at = append(at, h.Position)
					}
					if diff := cmp.Diff(want, at); diff != "" {
						t.Errorf("%s (-want +got):\n%s", word, diff)
					}
					if diff := cmp.Diff(read, coverage); diff != "" {
						t.Errorf("coverage of %s (-want +got):\n%s", word, diff)
					}
				}
			}
			if n, _, _ := asked.Pending(); (n > 0) != (c.user == "") {
				t.Errorf("the searches for rare words have asked for bodies %d times", n)
			}
		})
	}
}

func TestASearchClosesItsConnection(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	js := server.Provision(streams.Topology{Generation: "v1", Partitions: 1})
	pipelinetest.PublishMessages(t.Context(), t, js, bodies(t, 1000)...)
	opened, closed := make(chan struct{}, 10), make(chan struct{}, 10)
	js = server.JetStream(
		nats.ConnectHandler(func(*nats.Conn) { opened <- struct{}{} }),
		nats.ClosedHandler(func(*nats.Conn) { closed <- struct{}{} }),
	)
	find(t, js, search.Search{Terms: parse(t, "unicorn"), Hits: 10})
	for range 2 { // that of the test and another one
		<-opened
	}
	<-closed
}

// bodies returns events: all have the word event, the first one mammoth, the second one quagga with an escape, the third
// one zebu as a document in base64, and the fourth one okapi behind its raw record.
func bodies(t *testing.T, count int) (list []*nats.Msg) {
	t.Helper()
	for n := range count {
		text, mode := "an event", envelopes.Binary
		switch n {
		case 0:
			text += " with a Mammoth"
		case 1:
			text += " with a quagga"
		case 2:
			text, mode = text+" with a zebu", envelopes.Structured
		}
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: envelopes.Codex, SessionID: "one", ProjectHash: strings.Repeat("0", 64), EventID: strconv.Itoa(n),
			TS: "2026-03-09T10:00:00Z", EventType: envelopes.UserMessage, Role: new(envelopes.RoleUser), Text: &text, Sequence: uint64(n + 1),
			Raw: jsontext.Value(`{"unicorn":true}`), // is not searched
		}
		if n == 3 {
			e.EventType, e.Role, e.ToolOutput = envelopes.ToolResult, new(envelopes.RoleTool), &envelopes.ToolOutput{Stdout: new("an okapi")}
		}
		if n%7 == 6 {
			e.EventType, e.Role = envelopes.Meta, nil // is not searched either
		}
		header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: uint64(n + 1)}, mode)
		if err != nil {
			t.Fatal(err)
		}
		if before, event, is := bytes.Cut(data, []byte(`"data":`)); is {
			data = fmt.Appendf(before, `"data_base64":%q}`, base64.StdEncoding.EncodeToString(event[:len(event)-1]))
		}
		data = bytes.Replace(data, []byte("quagga"), []byte(`qu\u0061gga`), 1)
		list = append(list, &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: header, Data: data})
	}
	return list
}
