package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// TestLogNamesEachChangeOfOwnership follows partitions from a first worker to a second one, back
// when that is killed, and through a restart of the broker: each is a line or two, not one for each
// partition.
func TestLogNamesEachChangeOfOwnership(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	home := t.TempDir()
	top := streams.DefaultTopology()
	js := server.Provision(top)
	first := start(t, home, server.URL(), "run")
	first.awaitLogged("partitions acquired")
	contains(t, first.logged("partitions acquired"), "epoch=1", "cause=start", "generation=v1")
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 1 && len(w[0].Partitions) == top.Partitions })
	first.awaitLogWithin("all partitions", patience, func(log string) bool { return len(acquiredIn(log)) == top.Partitions }) // in one line, unless one was slow
	second := start(t, home, server.URL(), "run")
	awaitWorkers(t, js, top, func(w []streams.Worker) bool { return len(w) == 2 && len(w[0].Partitions) == len(w[1].Partitions) })
	second.awaitLogged("cause=handover")
	first.awaitLogged("partitions handed over")
	contains(t, first.logged("partitions handed over"), `cause="assigned to another worker"`)
	contains(t, second.logged("cause=handover"), "partitions acquired", "from=")
	second.kill()
	first.awaitLogged("cause=takeover")
	server.Restart()
	first.awaitLogged("partitions recovered")
	contains(t, first.logged("partitions lost"), "epoch=", "cause=")
	contains(t, first.logged("partitions recovered"), "cause=recovery")
	if n := strings.Count(first.stderr.String(), "msg=\"partitions"); n > 16 {
		t.Errorf("%d lines for 16 partitions:\n%s", n, first.stderr.String())
	}
}

// acquiredIn returns the partitions of the lines about those that were acquired, such as 0-4 and 6.
func acquiredIn(log string) map[int]bool {
	acquired := make(map[int]bool)
	for _, list := range regexp.MustCompile(`"partitions acquired".* partitions="?([\d -]+)`).FindAllStringSubmatch(log, -1) {
		for part := range strings.FieldsSeq(list[1]) {
			var first, last int
			if n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n == 1 {
				last = first
			}
			for p := first; p <= last; p++ {
				acquired[p] = true
			}
		}
	}
	return acquired
}
