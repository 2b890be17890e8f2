package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// clockTicks is the unit of the CPU times in /proc: Linux counts 100 a second on every architecture that Go supports.
const clockTicks = 100

// usageOf reads what a process has used. rusage would not do for the peak of memory: it includes the memory of the
// parent.
func usageOf(pid int) usage {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var u usage
	var user, system, kib int64
	if len(fields) > 13 {
		n, _ := fmt.Sscan(string(fields[11])+" "+string(fields[12]), &user, &system)
		u.cpu, u.known = float64(user+system)/clockTicks, n == 2
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	_, _ = fmt.Sscan(rest, &kib) // none for a process that has ended
	u.peak = kib << 10
	return u
}
