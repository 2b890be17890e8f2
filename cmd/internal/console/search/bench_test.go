package search_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/console/search"
	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/normalizerstest"
	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
)

var megabytes = flag.Int("megabytes", 32, "events of BenchmarkSearch")

// BenchmarkSearch searches a stream of events for words that are frequent, rare, and missing, from the newest event to the
// oldest, and reports when the first hit has come. The server is in this process, and its client connected as that of
// tributary up, or by a socket, as that of tributary console, without filters and then with those that a keeper makes. With
// 1 GB:
//
//	go test ./cmd/internal/console/search -run '^$' -bench Search -megabytes 1000 -benchtime 1x -timeout 1h
func BenchmarkSearch(b *testing.B) {
	srv := pipelinetest.NewServer(b)
	socket := srv.Provision(streams.Topology{Generation: "v1", Partitions: 4})
	stored := fill(b, socket, *megabytes<<20)
	for _, filters := range []string{"missing", "made"} {
		if filters == "made" {
			b.Run("filters=made/keeper", func(b *testing.B) { keep(b, socket) })
		}
		for _, c := range []struct{ name, text string }{
			{"frequent", "the"}, {"rare", "elephantish"}, {"oldest", "mammothly"}, {"missing", "unicorn"}, {"missing-native", "einhörnchen"}, {"in-raw-alone", "parentUuid"},
		} {
			b.Run("filters="+filters+"/connection=up/word="+c.name, func(b *testing.B) { benchmark(b, srv.JetStream(nats.InProcessServer(srv)), c.text) })
			b.Run("filters="+filters+"/connection=socket/word="+c.name, func(b *testing.B) { benchmark(b, socket, c.text) })
		}
	}
	b.Logf("%d MB of events in %d messages", stored.bytes>>20, stored.events)
}

// keep keeps the records of sessions until the newest events alone have no filter.
func keep(b *testing.B, js jetstream.JetStream) {
	b.Helper()
	k, err := summaries.New(js, summaries.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- k.Run(context.WithoutCancel(b.Context())) }()
	for behind := uint64(1 << 62); behind > 4096; {
		v, err := summaries.Open(b.Context(), js, "v1", func(err error) { b.Error(err) })
		if err != nil {
			b.Fatal(err)
		}
		last, err := streams.LastPositions(b.Context(), js, "v1")
		if err != nil {
			b.Fatal(err)
		}
		list, err := v.Filters(b.Context(), 0, 0, 1)
		if err != nil {
			b.Fatal(err)
		}
		if len(list) > 0 {
			behind = last.In(0) - list[0].Span.Last
		}
		if err := broker.Pause(b.Context(), 100*time.Millisecond); err != nil {
			b.Fatal(err)
		}
	}
	k.Drain()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// benchmark searches for a text.
func benchmark(b *testing.B, js jetstream.JetStream, text string) {
	b.Helper()
	terms, err := search.Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	var first time.Duration
	hits := 0
	for b.Loop() {
		began, found := time.Now(), false
		s := search.Search{Terms: terms, Hits: 50}
		coverage, err := s.Run(b.Context(), js, "v1", func(*search.Hit) error {
			if hits++; !found {
				first, found = first+time.Since(began), true
			}
			return nil
		}, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(coverage.Bytes)/time.Since(began).Seconds()/1e6, "MB/s")
	}
	b.ReportMetric(first.Seconds()/float64(b.N), "s-first-hit")
	b.ReportMetric(float64(hits)/float64(b.N), "hits")
}

type filled struct{ bytes, events int }

// fill stores events until they have a size: those of the logs in TRIBUTARY_CORPUS, over and over, else made ones. The first
// one has a word that no other has, and every ten-thousandth another word.
func fill(b *testing.B, js jetstream.JetStream, size int) (f filled) {
	b.Helper()
	var list []*nats.Msg
	first := false
	for e := range sequence(b) {
		switch text := valueOf(e.Text); {
		case !first && e.EventType == envelopes.AssistantMessage:
			e.Text, first = new(text+" mammothly"), true
		case f.events%10_000 == 9_000:
			e.Text = new(text + " elephantish")
		}
		header, data, err := envelopes.EncodeEvent(e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: uint64(f.events + 1)}, envelopes.Binary)
		if err != nil {
			b.Fatal(err)
		}
		f.bytes += len(data)
		f.events++
		list = append(list, &nats.Msg{Subject: envelopes.EventSubject("v1", e), Header: header, Data: data})
		if len(list) == 1000 || f.bytes >= size {
			pipelinetest.PublishMessages(b.Context(), b, js, list...)
			list = nil
		}
		if f.bytes >= size {
			break
		}
	}
	return f
}

// sequence returns events without an end.
func sequence(b *testing.B) iter.Seq[*envelopes.AgentEventV1] {
	b.Helper()
	if corpus := os.Getenv("TRIBUTARY_CORPUS"); corpus != "" {
		return eventsOf(b, corpus)
	}
	return madeEvents
}

// eventsOf returns the events of the logs in a folder, over and over, each time of other sessions.
func eventsOf(b *testing.B, folder string) iter.Seq[*envelopes.AgentEventV1] {
	b.Helper()
	var all []envelopes.AgentEventV1
	if err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, step := range normalizerstest.Fold(normalizers.Normalize, normalizerstest.Frame(normalizerstest.FileNamed("", path), data)) {
			for _, e := range step.Result.Events {
				all = append(all, e.Event)
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return func(yield func(*envelopes.AgentEventV1) bool) {
		for round := 0; ; round++ {
			for _, e := range all {
				if e.SessionID = fmt.Sprint(e.SessionID, "-", round); !yield(&e) {
					return
				}
			}
		}
	}
}

// madeEvents yields events of a hundred sessions, each with a text and a raw record that repeats it.
func madeEvents(yield func(*envelopes.AgentEventV1) bool) {
	r := rand.New(rand.NewPCG(3, 4))
	words := strings.Fields("the stream of events runs from a source to a consumer, and \"nothing\" on its way\nis lost or doubled, says Zoë")
	for n := 1; ; n++ {
		var text strings.Builder
		for range r.IntN(400) {
			text.WriteString(words[r.IntN(len(words))] + " ")
		}
		raw, _ := jsontext.AppendQuote([]byte(`{"parentUuid":null,"type":"assistant","message":{"content":[{"type":"text","text":`), text.String()) // it is UTF-8
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: envelopes.ClaudeCode, SessionID: fmt.Sprint("session-", r.IntN(100)), ProjectHash: strings.Repeat("0", 64),
			EventID: fmt.Sprint("event-", n), TS: "2026-03-09T10:00:00Z", EventType: envelopes.AssistantMessage, Role: new(envelopes.RoleAssistant),
			Channel: new(envelopes.ChannelChat), Text: new(text.String()), Sequence: uint64(n),
			Raw: jsontext.Value(append(raw, "}]}}"...)),
		}
		if !yield(&e) {
			return
		}
	}
}

func valueOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
