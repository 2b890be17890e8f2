package index_test

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/console"
	"tributary/cmd/internal/console/index"
	"tributary/cmd/internal/figures"
	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

var manySessions = flag.Int("sessions", 100_000, "sessions of BenchmarkSessions100000")

// BenchmarkSessions100000 measures the list of 100,000 sessions: how long it takes to be made, what a session takes in memory,
// and how long a page of 50 takes in each order, and with filters. The records are made by the fold of the product and are in the
// real stream.
//
//	go test ./cmd/internal/console/index -run '^$' -bench Sessions100000 -benchtime 20x
func BenchmarkSessions100000(b *testing.B) {
	server := pipelinetest.StartCluster(b, 1, 0) // a process of its own, so that its memory does not count
	js := server.Provision(streams.Topology{Generation: "v1", Partitions: 1})
	storeSessions(b, js, *manySessions)
	x := index.New(js, index.Config{Pricing: figures.BuiltinPricing(), Logger: slog.New(slog.DiscardHandler)})
	defer x.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	x.Await(b.Context())
	made := time.Since(began)
	l, err := x.List(index.Query{Limit: 50}, time.Now())
	if err != nil || l.Filling || l.Matches != *manySessions {
		b.Fatalf("%+v, %v", l, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Run("made", func(b *testing.B) {
		b.ReportMetric(made.Seconds(), "s")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(*manySessions), "heap-B/session")
		b.ReportMetric(float64(l.Bytes)/float64(*manySessions), "stated-B/session")
		b.ReportMetric(0, "ns/op")
	})
	page := func(name string, q index.Query) {
		b.Run(name, func(b *testing.B) {
			q.Limit = 50
			for b.Loop() {
				if l, err := x.List(q, time.Now()); err != nil || len(l.Sessions) == 0 {
					b.Fatalf("%+v, %v", l, err)
				}
			}
		})
	}
	for _, order := range index.Orders() {
		page("sort="+order, index.Query{Sort: order})
		page("sort="+order+",reverse", index.Query{Sort: order, Reverse: true})
	}
	page("sort=title,from=90000", index.Query{Sort: "title", Skip: *manySessions * 9 / 10})
	for name, f := range map[string]index.Filter{
		"title": {Titled: index.TitleContains("PARSER 99")}, "state": {State: "waiting"}, "model": {Model: "sonnet"}, "project": {Project: "project-7"},
		"repo": {Repository: "github.com/example/repository-7"}, "source": {Source: envelopes.ClaudeCode}, "from": {From: time.Now().Add(-24 * time.Hour)},
	} {
		page("filter="+name, index.Query{Filter: f})
	}
	x.Close()
	benchmarkPages(b, js)
}

// benchmarkPages measures whole pages of the console: the list as HTML, and what a page that is open asks every second.
func benchmarkPages(b *testing.B, js jetstream.JetStream) {
	b.Helper()
	c, err := console.New(console.Config{JetStream: js, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	get := func(query string) string {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://localhost/sessions"+query, http.NoBody))
		if w.Code != http.StatusOK {
			b.Fatalf("status %d: %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	first := time.Now()
	get("")
	b.Logf("the page that begins the list came after %v", time.Since(first))
	for strings.Contains(get(""), "The list is being made") {
	}
	for _, query := range []string{"", "?sort=title", "?sort=repo&reverse=1", "?sort=title&after=50000", "?title=parser+99", "?state=waiting&sort=cost", "?limit=200"} {
		b.Run("page="+query, func(b *testing.B) {
			for b.Loop() {
				get(query)
			}
		})
	}
}

// storeSessions stores the records of sessions of three events each, as a keeper stores them.
func storeSessions(b *testing.B, js jetstream.JetStream, n int) {
	b.Helper()
	k, err := summaries.New(js, summaries.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- k.Run(b.Context()) }()
	defer func() {
		k.Drain()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	awaitKept(b, js, 0)
	random := rand.New(rand.NewPCG(1, 2))
	var batch []*nats.Msg
	publish := func() {
		if _, err := broker.PublishBatch(b.Context(), js.Conn(), batch); err != nil {
			b.Fatal(err)
		}
		batch = nil
	}
	for i := range n {
		for _, e := range sessionEvents(random, i) {
			header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: streams.RawStream, RawSequence: uint64(i)}, envelopes.Binary)
			if err != nil {
				b.Fatal(err)
			}
			batch = append(batch, &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: nats.Header(header), Data: data})
		}
		if len(batch) >= 900 {
			publish()
		}
	}
	if len(batch) > 0 {
		publish()
	}
	awaitKept(b, js, n)
}

// sessionEvents returns a prompt, a call and an answer of a session.
func sessionEvents(random *rand.Rand, i int) []envelopes.AgentEventV1 {
	began := time.Now().Add(-time.Duration(random.IntN(90*24*60)) * time.Minute)
	id := fmt.Sprintf("%08x-0000-4000-8000-%012d", random.Uint32(), i)
	event := func(n int, t envelopes.EventType, role envelopes.Role, text string) envelopes.AgentEventV1 {
		return envelopes.AgentEventV1{
			Source: envelopes.Sources[i%3], SessionID: id, EventID: strconv.Itoa(n), Sequence: uint64(n), EventType: t, Role: new(role), Text: new(text),
			TS:          began.Add(time.Duration(n*random.IntN(60)) * time.Second).UTC().Format(time.RFC3339),
			ProjectRoot: new(fmt.Sprintf("/home/user-%d/project-%d", i%50, i%200)), ProjectHash: "hash",
			Edge: &envelopes.Edge{Host: fmt.Sprintf("host-%d", i%50), User: fmt.Sprintf("user-%d", i%50)},
			VCS:  &envelopes.VCS{Repository: fmt.Sprintf("github.com/example/repository-%d", i%200), Branch: fmt.Sprintf("fix/%d", i)},
		}
	}
	prompt := event(1, envelopes.UserMessage, envelopes.RoleUser, fmt.Sprintf("Fix the parser %d of the ledger, with a test.", i))
	call := event(2, envelopes.ToolCall, envelopes.RoleAssistant, "")
	call.ToolName, call.ToolCallID, call.ToolStatus = new("Bash"), new("call"), new(envelopes.StatusInProgress)
	list := []envelopes.AgentEventV1{prompt, call}
	if i%5 > 0 {
		answer := event(3, envelopes.AssistantMessage, envelopes.RoleAssistant, "Done.")
		answer.Model = new([]string{"claude-sonnet-4-5-20250929", "claude-opus-4-5-20251101", "gpt-5-mini"}[i%3])
		answer.Usage = &envelopes.Usage{Input: int64(random.IntN(50_000)), CacheRead: int64(random.IntN(900_000)), Output: int64(random.IntN(9_000))}
		list = append(list, answer)
	}
	return list
}

// awaitKept waits until the records have so many sessions and every event.
func awaitKept(b *testing.B, js jetstream.JetStream, sessions int) {
	b.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		v, err := summaries.Open(b.Context(), js, "v1", func(err error) { b.Error(err) })
		if err != nil {
			b.Fatal(err)
		}
		status, err := v.Status(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if status.Kept && status.Behind == 0 && (sessions == 0 || status.Position.In(0) > 0) {
			return
		}
		select {
		case <-poll.C:
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		}
	}
}
