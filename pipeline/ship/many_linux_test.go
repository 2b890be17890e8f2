package ship_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"tributary/pipeline/ship"
)

var manyFiles = flag.Int("files", 100_000, "logs of BenchmarkManyFiles")

// usage is what this process has used of the machine.
type usage struct {
	cpu     time.Duration
	written int64 // bytes
	at      time.Time
}

func used(tb testing.TB) usage {
	tb.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		tb.Fatal(err)
	}
	io, err := os.ReadFile("/proc/self/io")
	if err != nil {
		tb.Fatal(err)
	}
	u := usage{cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano()), at: time.Now()}
	for line := range strings.Lines(string(io)) {
		_, _ = fmt.Sscanf(line, "wchar: %d", &u.written)
	}
	return u
}

// report reports what was used since.
func (u usage) report(b *testing.B, phase string) {
	b.Helper()
	now := used(b)
	seconds := now.at.Sub(u.at).Seconds()
	b.ReportMetric(100*(now.cpu-u.cpu).Seconds()/seconds, phase+"-cpu%")
	b.ReportMetric(float64(now.written-u.written)/seconds, phase+"-written-B/s")
}

// BenchmarkManyFiles is what a machine with many logs costs when all are shipped: its start,
// half a minute of silence, and half a minute in which one log grows each second. The embedded
// broker is in the figures.
//
//	go test -run='^$' -bench=ManyFiles -benchtime=1x ./pipeline/ship
func BenchmarkManyFiles(b *testing.B) {
	e := newEdge(b)
	for n := range *manyFiles {
		dir := fmt.Sprintf("project-%d", n%1000)
		if n < 1000 {
			e.mkdir(dir)
		}
		id := fmt.Sprintf("s%d", n)
		e.write(dir+"/"+id+".jsonl", lines(prompt(id, 1)))
	}
	c := e.config()
	c.Once, c.Parallel = true, 512
	first, err := ship.New(e.js.Conn(), c)
	if err != nil {
		b.Fatal(err)
	}
	if err := first.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(e.offsets)
	if err != nil {
		b.Fatal(err)
	}
	const span = 30 * time.Second
	for b.Loop() {
		began := time.Now()
		f := e.follow(func(c *ship.Config) { c.Rescan = 0 })
		f.until("all logs were visited", func(s ship.Summary) bool { return s.Files == *manyFiles && s.Backfill.Over })
		b.ReportMetric(time.Since(began).Seconds(), "start-s")
		<-time.After(span / 3) // notifications are set up
		idle := used(b)
		<-time.After(span)
		idle.report(b, "idle")
		busy := used(b)
		for n := range int(span / time.Second) {
			e.append("project-7/s7.jsonl", lines(prompt("s7", 2+n)))
			<-time.After(time.Second)
		}
		busy.report(b, "busy")
		f.stop()
		b.ReportMetric(float64(info.Size()), "offsets-B")
	}
}
