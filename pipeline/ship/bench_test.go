package ship_test

import (
	"fmt"
	"strings"
	"testing"
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
