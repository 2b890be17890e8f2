package ship_test

import (
	"fmt"
	"strings"
	"testing"

	"tributary/pipeline/redact"
	"tributary/pipeline/ship"
)

// BenchmarkBackfill is what a first start costs on a machine with many old logs, from
// file to acknowledgement, to a broker that syncs every batch:
//
//	go test -run='^$' -bench=Backfill -count=6 ./pipeline/ship
func BenchmarkBackfill(b *testing.B) {
	for _, c := range []struct {
		name               string
		files, each, bytes int
	}{
		{"files=8/records=4000/size=2k", 8, 4000, 2 << 10},
		{"files=2000/records=10/size=2k", 2000, 10, 2 << 10},
		{"files=4/records=200/size=200k", 4, 200, 200 << 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			var records, size int64
			for b.Loop() {
				b.StopTimer()
				e := newEdge(b)
				padding := strings.Repeat("w", c.bytes-len(prompt("s0", 1)))
				for n := range c.files {
					id := fmt.Sprintf("s%d", n)
					var content strings.Builder
					for i := range c.each {
						content.WriteString(strings.Replace(prompt(id, i), "water", padding, 1) + "\n")
					}
					e.write("garden/"+id+".jsonl", content.String())
				}
				b.StartTimer()
				got := e.once()
				b.StopTimer()
				if got.Records != c.files*c.each {
					b.Fatalf("shipped %+v", got)
				}
				records += int64(got.Records)
				size += got.Bytes
				e.server.Stop()
				b.StartTimer()
			}
			seconds := b.Elapsed().Seconds()
			b.ReportMetric(float64(records)/seconds, "records/s")
			b.ReportMetric(float64(size)/seconds/1e6, "MB/s")
		})
	}
}

// BenchmarkRestart is what a start costs when everything is shipped already.
//
//	go test -run='^$' -bench=Restart -count=6 ./pipeline/ship
func BenchmarkRestart(b *testing.B) {
	e := newEdge(b)
	const files = 3000
	for n := range files {
		id := fmt.Sprintf("s%d", n)
		e.write("garden/"+id+".jsonl", lines(prompts(id, 1, 3)...))
	}
	e.once()
	for b.Loop() {
		if got := e.once(); got.Records != 0 || got.Files != files {
			b.Fatalf("shipped %+v", got)
		}
	}
}

// BenchmarkRedaction is what redaction costs a backfill, from file to acknowledgement, with
// source code as the output of tools: a few names of keys and tokens, no secrets.
//
//	go test -run='^$' -bench=Redaction -count=6 ./pipeline/ship
func BenchmarkRedaction(b *testing.B) {
	code := strings.Repeat(`for i, line := range lines {\n\t\tif strings.TrimSpace(line) == \"\" {\n\t\t\tcontinue // nothing to count\n\t\t}\n\t\tcount[line]++\n\t}\n`, 13) +
		`func (s *Server) handle(w http.ResponseWriter, r *http.Request) {\n\ttoken := r.Header.Get(\"Authorization\") // key of the api\n`
	for _, mode := range []redact.Mode{redact.Full, redact.Secrets, redact.MetadataOnly} {
		b.Run("mode="+string(mode), func(b *testing.B) {
			var size int64
			for b.Loop() {
				b.StopTimer()
				e := newEdge(b)
				for n := range 8 {
					id := fmt.Sprintf("s%d", n)
					var content strings.Builder
					for i := range 4000 {
						content.WriteString(strings.Replace(prompt(id, i), "water", code, 1) + "\n")
					}
					e.write("garden/"+id+".jsonl", content.String())
					size += int64(content.Len())
				}
				r := redactor(b, mode)
				b.StartTimer()
				got := e.once(func(c *ship.Config) { c.Redactor = r })
				b.StopTimer()
				if got.Records != 8*4000 {
					b.Fatalf("shipped %+v", got)
				}
				e.server.Stop()
				b.StartTimer()
			}
			b.ReportMetric(float64(size)/b.Elapsed().Seconds()/1e6, "MB/s")
		})
	}
}
