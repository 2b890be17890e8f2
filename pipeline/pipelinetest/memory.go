package pipelinetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
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

// LimitMemory has the kernel end a process that takes more than limit bytes of memory from now on. It needs the right
// to make a cgroup, and logs why there is no limit without it.
func LimitMemory(tb testing.TB, pid int, limit int64) {
	tb.Helper()
	parent, file := "/sys/fs/cgroup", "memory.max"
	v1 := filepath.Join(parent, "memory")
	if _, err := os.Stat(v1); err == nil {
		parent, file = v1, "memory.limit_in_bytes"
	}
	group := filepath.Join(parent, fmt.Sprintf("tributary-test-%d", pid))
	err := os.Mkdir(group, 0o700)
	if err == nil {
		tb.Cleanup(func() {
			_ = join(parent, pid) // fails if the process has ended
			if err := os.Remove(group); err != nil {
				tb.Error(err)
			}
		})
		err = errors.Join(os.WriteFile(filepath.Join(group, file), strconv.AppendInt(nil, limit, 10), 0o600), join(group, pid))
	}
	if err != nil {
		tb.Log("the kernel does not limit the memory of the process: ", err)
	}
}

// join moves a process to a cgroup.
func join(group string, pid int) error {
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)
}

// WatchHeap watches the heap of this process, in which garbage is collected as in programs meanwhile. The returned
// function ends that and returns the bytes in use before and at the peak.
func WatchHeap(tb testing.TB) func() (before, peak uint64) {
	tb.Helper()
	percent := debug.SetGCPercent(100)
	tb.Cleanup(func() { debug.SetGCPercent(percent) })
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
