package normalizers_test

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// BenchmarkLongFile folds one file as it comes from a disk, and reports the most memory
// that was in use on the way: it does not grow with the file.
//
//	go test ./normalizers -run '^$' -bench BenchmarkLongFile -benchtime 1x
func BenchmarkLongFile(b *testing.B) {
	kinds := map[string]bool{"user-prompt": true, "user": true}
	for _, l := range benchLines {
		if !kinds[l.kind] {
			continue
		}
		for _, lines := range []int{10_000, 1_000_000} {
			b.Run(fmt.Sprintf("source=%s/lines=%d", l.source, lines), func(b *testing.B) {
				for b.Loop() {
					var read int64
					peak := newPeak()
					framer := normalizers.NewFramer(normalizers.File{Source: l.source, Name: "long.jsonl", Session: "s"})
					s := normalizers.NewSession(l.source, "s")
					var part bytes.Buffer
					for i := range lines {
						line := strings.ReplaceAll(l.line, "{id}", strconv.Itoa(i))
						part.WriteString(strings.ReplaceAll(line, "{text}", strings.Repeat("word ", 40)))
						part.WriteByte('\n')
						if part.Len() < 256<<10 && i < lines-1 {
							continue
						}
						read += int64(part.Len())
						_, _ = framer.Write(part.Bytes()) // never fails by contract
						part.Reset()
						for r, ok := framer.Next(); ok; r, ok = framer.Next() {
							if _, err := normalizers.Normalize(s, r.Record); err != nil {
								b.Fatal(err)
							}
						}
						peak.look()
					}
					b.SetBytes(read)
					b.ReportMetric(float64(peak.most), "peak-bytes")
				}
			})
		}
	}
}

// BenchmarkLongSession folds a record into a session that remembers as much as it may: ids,
// API calls, and calls of tools without a result.
//
//	go test ./normalizers -run '^$' -bench BenchmarkLongSession -benchmem -count 6
func BenchmarkLongSession(b *testing.B) {
	s := normalizers.NewSession(envelopes.ClaudeCode, "s")
	n := 0
	fold := func() {
		n++
		line := fmt.Appendf(nil, `{"type":"assistant","uuid":"u%[1]d","sessionId":"s","timestamp":"2026-03-01T09:00:00Z","message":{"id":"m%[1]d","role":"assistant","model":"claude-test-1","usage":{"input_tokens":10,"output_tokens":%[1]d,"cache_read_input_tokens":20000},"content":[{"type":"tool_use","id":"t%[1]d","name":"Bash","input":{"command":"go test ./... -run Test%[1]d -count 1"}}]}}`, n)
		if _, err := normalizers.Normalize(s, core.Record{Source: envelopes.ClaudeCode, Session: "s", Data: line}); err != nil {
			b.Fatal(err)
		}
	}
	for range 5000 {
		fold()
	}
	b.ReportAllocs()
	for b.Loop() {
		fold()
	}
}

// BenchmarkEndlessLine frames one line that is far longer than a record may be: it is
// dropped as it comes.
//
//	go test ./normalizers -run '^$' -bench BenchmarkEndlessLine -benchtime 1x
func BenchmarkEndlessLine(b *testing.B) {
	part := bytes.Repeat([]byte("x"), 1<<20)
	for b.Loop() {
		peak := newPeak()
		framer := normalizers.NewFramer(normalizers.File{Source: "claude_code", Name: "long.jsonl", Session: "s"})
		_, _ = framer.Write([]byte(`{"type":"user","message":"`))
		for range 1 << 10 {
			_, _ = framer.Write(part)
			peak.look()
		}
		framer.Close()
		if r, ok := framer.Next(); !ok || r.Err == nil {
			b.Fatal("the line was not refused")
		}
		b.SetBytes(int64(len(part)) << 10)
		b.ReportMetric(float64(peak.most), "peak-bytes")
	}
}

// peak is the most memory that objects took, beside what was in use at its start.
type peak struct {
	sample []metrics.Sample
	before uint64
	most   uint64
}

func newPeak() *peak {
	p := &peak{sample: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}}
	runtime.GC()
	p.before = p.now()
	return p
}

func (p *peak) now() uint64 {
	metrics.Read(p.sample)
	return p.sample[0].Value.Uint64()
}

func (p *peak) look() {
	if now := p.now(); now > p.before {
		p.most = max(p.most, now-p.before)
	}
}
