package search_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/console/search"
	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

var megabytes = flag.Int("megabytes", 32, "events of BenchmarkSearch")

// BenchmarkSearch searches a stream of events for words that are frequent, rare, and missing, from the newest event to the
// oldest, and reports when the first hit has come. The server is in this process, too. With 1 GB:
//
//	go test ./cmd/internal/console/search -run '^$' -bench Search -megabytes 1000 -benchtime 1x -timeout 1h
func BenchmarkSearch(b *testing.B) {
	js := pipelinetest.NewServer(b).Provision(streams.Topology{Generation: "v1", Partitions: 4})
	stored := fill(b, js, *megabytes<<20)
	for _, c := range []struct{ name, text string }{
		{"frequent", "stream"}, {"rare", "elephant"}, {"oldest", "mammoth"}, {"missing", "unicorn"}, {"missing-native", "einhörnchen"}, {"in-raw-alone", "parentUuid"},
	} {
		b.Run("word="+c.name, func(b *testing.B) {
			terms, err := search.Parse(c.text)
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
		})
	}
	b.Logf("%d MB of events in %d messages", stored.bytes>>20, stored.events)
}

type filled struct{ bytes, events int }

// fill stores events of one session in a hundred, as large as those of real logs: a text, and a raw record that repeats it.
func fill(b *testing.B, js jetstream.JetStream, size int) (f filled) {
	b.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	words := strings.Fields("the stream of events runs from a source to a consumer, and \"nothing\" on its way\nis lost or told twice, said Zoë")
	var list []*nats.Msg
	for ; f.bytes < size; f.events++ {
		var text strings.Builder
		for range r.IntN(400) {
			text.WriteString(words[r.IntN(len(words))] + " ")
		}
		switch {
		case f.events == 0:
			text.WriteString("mammoth")
		case f.events%10_000 == 9_000:
			text.WriteString("elephant")
		}
		e := envelopes.AgentEventV1{
			SchemaVersion: envelopes.SchemaVersion, Source: envelopes.ClaudeCode, SessionID: fmt.Sprint("session-", r.IntN(100)), ProjectHash: strings.Repeat("0", 64),
			EventID: fmt.Sprint("event-", f.events), TS: "2026-03-09T10:00:00Z", EventType: envelopes.AssistantMessage, Role: new(envelopes.RoleAssistant),
			Channel: new(envelopes.ChannelChat), Text: new(text.String()), Sequence: uint64(f.events + 1),
		}
		raw, err := jsontext.AppendQuote([]byte(`{"parentUuid":null,"type":"assistant","message":{"content":[{"type":"text","text":`), text.String())
		if err != nil {
			b.Fatal(err)
		}
		e.Raw = jsontext.Value(append(raw, "}]}}"...))
		header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: uint64(f.events + 1)}, envelopes.Binary)
		if err != nil {
			b.Fatal(err)
		}
		f.bytes += len(data)
		list = append(list, &nats.Msg{Subject: "events.v1.claude_code." + e.SessionID + ".assistant_message", Header: header, Data: data})
		if len(list) == 1000 || f.bytes >= size {
			pipelinetest.PublishMessages(b.Context(), b, js, list...)
			list = nil
		}
	}
	return f
}
