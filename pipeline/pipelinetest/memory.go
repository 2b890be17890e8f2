package pipelinetest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// PeakMemory returns the peak resident memory of a process in bytes; 0 if it has ended, and on systems other than
// Linux. What a process reports about itself would include the memory of its parent.
func PeakMemory(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib)
	return kib << 10
}

// WatchHeap watches the heap of this process. The returned function ends that and returns the bytes in use before and
// at the peak.
func WatchHeap(tb testing.TB) func() (before, peak uint64) {
	tb.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, peak := m.HeapInuse, m.HeapInuse
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse)
			case <-stop:
				return
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); watch.Wait() })
	tb.Cleanup(end)
	return func() (uint64, uint64) { end(); return before, peak }
}
