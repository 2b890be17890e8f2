package export_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/prices"
	"tributary/pipeline/streams"
)

// workload is a server with the events of generated records. It returns the number of events.
func workload(b *testing.B) (js jetstream.JetStream, events int) {
	b.Helper()
	js = pipelinetest.NewServer(b).Provision(streams.Topology{Generation: "v1", Partitions: 1})
	sessions := map[string]*core.Session{}
	var messages []*nats.Msg
	for i, r := range pipelinetest.Workload(1, 500, 50_000) {
		s := sessions[r.Session]
		if s == nil {
			s = normalizers.NewSession(r.Source, r.Session)
			sessions[r.Session] = s
		}
		result, err := normalizers.Normalize(s, r)
		if err != nil {
			continue // it has records that cannot be read
		}
		for _, emitted := range result.Events {
			e := emitted.Event
			header, data, err := envelopes.EncodeEvent(&e, envelopes.Provenance{Generation: "v1", RawStream: "RAW", RawSequence: uint64(i + 1)}, envelopes.Binary)
			if err != nil {
				b.Fatal(err)
			}
			messages = append(messages, &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: header, Data: data})
		}
	}
	pipelinetest.PublishMessages(b.Context(), b, js, messages...)
	return js, len(messages)
}

// BenchmarkExport exports to a folder, and to a bucket in this process. MB are those of the events stream.
//
//	go test ./pipeline/export -run '^$' -bench Export -benchtime 3x -count 6
func BenchmarkExport(b *testing.B) {
	js, events := workload(b)
	s, err := js.Stream(b.Context(), streams.EventsStream("v1"))
	if err != nil {
		b.Fatal(err)
	}
	size := int64(s.CachedInfo().State.Bytes)
	for _, format := range export.Formats {
		for _, to := range []string{"folder", "bucket"} {
			b.Run("format="+string(format)+"/to="+to, func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					cfg := export.Config{Dir: b.TempDir(), Generation: "v1", Format: format, Logger: quiet}
					if to == "bucket" {
						cfg.Bucket = inBucket(pipelinetest.NewObjectStore(b)).Bucket
					}
					if r, err := export.Run(b.Context(), js, cfg); err != nil || r.Events != events {
						b.Fatalf("%+v, %v, want %d events", r, err, events)
					}
				}
				b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkQuestions asks the questions of questions.sql, whose times are the metrics.
//
//	go test ./pipeline/export -run '^$' -bench Questions -benchtime 10x
func BenchmarkQuestions(b *testing.B) {
	js, events := workload(b)
	dir := b.TempDir()
	if _, err := export.Run(b.Context(), js, export.Config{Dir: filepath.Join(dir, "events"), Generation: "v1", Format: export.Parquet, Prices: prices.Builtin().CSV(), Logger: quiet}); err != nil {
		b.Fatal(err)
	}
	list := questions(b)
	ask(b, dir, list) // installs DuckDB
	total := map[string]int{}
	for b.Loop() {
		for name, a := range ask(b, dir, list) {
			total[name] += a.MS
		}
	}
	for _, q := range list {
		if !q.Script {
			b.ReportMetric(float64(total[q.Name])/float64(b.N), strings.ReplaceAll(q.Name, " ", "-")+"-ms")
		}
	}
	b.ReportMetric(float64(events), "events")
	b.ReportMetric(0, "ns/op") // is mostly the start of Node
}
