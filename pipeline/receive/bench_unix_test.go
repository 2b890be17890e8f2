//go:build unix

package receive_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tributary/pipeline/receive"
)

// BenchmarkLogs is what log records of 2 KiB cost from eight clients, from request to acknowledgement, with the broker in
// the process, which syncs every batch. Its CPU has that of clients and broker, too:
//
//	go test -run='^$' -bench=Logs -count=6 ./pipeline/receive
func BenchmarkLogs(b *testing.B) {
	const clients = 8
	for _, records := range []int{1, 10, 500} {
		b.Run(fmt.Sprintf("records=%d/size=2k", records), func(b *testing.B) {
			e := start(b, receive.Config{})
			e.client.Transport.(*http.Transport).MaxIdleConnsPerHost = clients //nolint:forcetypeassert // of listen
			bodies := make([]string, records)
			for i := range bodies {
				bodies[i] = strings.Repeat("w", 2<<10)
			}
			var next, stored atomic.Int64
			before := processor(b)
			began := time.Now()
			for b.Loop() {
				var sending sync.WaitGroup
				for range clients {
					sending.Go(func() {
						request := logsOf("claude-code", fmt.Sprint("session ", next.Add(1)), bodies...)
						if answer, text := e.post("/v1/logs", protobufOf(b, request), "Content-Type", "application/x-protobuf"); answer.StatusCode != http.StatusOK {
							b.Errorf("%s: %s", answer.Status, text)
						}
						stored.Add(int64(records))
					})
				}
				sending.Wait()
			}
			seconds := time.Since(began).Seconds()
			b.ReportMetric(float64(stored.Load())/seconds, "records/s")
			b.ReportMetric(float64((processor(b)-before).Microseconds())/float64(stored.Load()), "cpu-µs/record")
		})
	}
}

// processor returns the time that this process has had a processor.
func processor(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
