package main

import (
	stdcmp "cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"tributary/normalizers/core"
	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// sentEvents returns the sessions and ids of the events that records yield, sorted.
func sentEvents(tb testing.TB, records []core.Record) (list []string) {
	tb.Helper()
	for _, e := range pipelinetest.EventsOf(tb, records) {
		list = append(list, e.SessionID+" "+e.EventID)
	}
	slices.Sort(list)
	return list
}

// TestFaultsOfTheStreamAreRepairedInExports puts the events stream back to copies of random moments, while a worker works, and while an export runs,
// is stopped or is killed by SIGKILL anywhere. In the end the files have each event that was sent exactly once.
func TestFaultsOfTheStreamAreRepairedInExports(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	seed := stdcmp.Or(*killSeed, rand.Uint64())
	t.Logf("repeat it with -kill.seed=%d", seed)
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		exportThroughRollbacks(t, seed, export.JSONL, folderPlace(t))
	})
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		exportThroughRollbacks(t, seed+1, export.Parquet, bucketPlace(t))
	})
}

// until waits until a process has done something. It fails when the process ends before, and logs what the process does
// instead where it waits in vain.
func until(t *testing.T, p *process, what string, done func() bool) {
	t.Helper()
	limit, look := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for !done() {
		select {
		case <-look.C:
		case <-limit:
			p.endWithStacks()
			t.Fatalf("it waits in vain for %s\n%s", what, &p.stderr)
		}
		if !p.running() {
			t.Fatalf("the process has ended before %s\n%s", what, &p.stderr)
		}
	}
}

func exportThroughRollbacks(t *testing.T, seed uint64, format export.Format, place exportPlace) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 3))
	server := pipelinetest.NewServer(t)
	top := streams.DefaultTopology()
	js := server.Provision(top)
	home := t.TempDir()
	records := pipelinetest.Workload(seed, 9, 1200)
	worker := start(t, home, server.URL(), "run")
	begin := func(more ...string) *process {
		t.Helper()
		return startWith(t, place.setup, home, server.URL(), append([]string{"export", "--out", place.out, "--format", string(format), "--span-bytes", "20000"}, more...)...)
	}
	caughtUp := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		if err := replay.CatchUp(ctx, js, top); err != nil {
			t.Fatalf("%v: %s", err, &worker.stderr)
		}
	}
	said := false // that files were replaced
	finish := func() {
		t.Helper()
		code, out := ended(begin())
		if code != 0 {
			t.Fatalf("export: exit code %d\n%s", code, out)
		}
		said = said || strings.Contains(out, "the events stream went back in time")
	}
	// killThem kills exports as soon as they have changed the files.
	killThem := func(times int) {
		t.Helper()
		for range times {
			before, look := place.names(), time.NewTicker(lookEvery)
			p := begin()
			for p.running() && slices.Equal(before, place.names()) {
				<-look.C
			}
			look.Stop()
			p.kill()
			said = said || strings.Contains(p.stderr.String(), "the events stream went back in time")
		}
	}
	const rounds = 3
	for n := range rounds {
		part := records[n*len(records)/rounds : (n+1)*len(records)/rounds]
		cut := 1 + random.IntN(len(part)-1)
		pipelinetest.Publish(t, js, part[:cut]...)
		caughtUp()
		if random.IntN(2) == 0 {
			finish()
		}
		saved := server.CopyStore()
		mode := (n + int(seed%rounds)) % rounds
		var follower *process
		if mode == 1 {
			follower = begin("--follow", "--every", "20ms")
		}
		pipelinetest.Publish(t, js, part[cut:]...)
		caughtUp()
		all := len(sentEvents(t, records[:(n+1)*len(records)/rounds]))
		if mode == 1 {
			rows := map[string]int{} // of the files that were read: a file never changes
			until(t, follower, "the files with all events", func() bool {
				sum := 0
				for _, name := range unreplaced(place.names()) {
					if _, ok := rows[name]; !ok {
						rows[name] = len(place.lines(t, format, name))
					}
					sum += rows[name]
				}
				return sum == all
			})
		} else {
			finish()
		}
		switch mode {
		case 0: // no export runs meanwhile
			saved.PutBack(streams.EventsStream("v1"))
			caughtUp()
		case 1: // one runs
			saved.PutBack(streams.EventsStream("v1"))
			caughtUp()
			if all > len(sentEvents(t, records[:n*len(records)/rounds+cut])) { // else the copy has all events
				until(t, follower, "the loss to be found", func() bool { return strings.Contains(follower.stderr.String(), "the events stream went back in time") })
				said = true
			}
			follower.signal(syscall.SIGINT)
		case 2: // some are killed while they repair the files
			saved.PutBack(streams.EventsStream("v1"))
			caughtUp()
			killThem(4)
		}
		finish()
	}
	if !said {
		t.Error("no export says that the events stream went back in time")
	}
	worker.signal(syscall.SIGTERM)
	var got []string
	for _, line := range place.rows(t, format) {
		var row struct {
			Session string `json:"session_id"`
			Event   string `json:"event_id"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		got = append(got, row.Session+" "+row.Event)
	}
	slices.Sort(got)
	if diff := cmp.Diff(sentEvents(t, records), got); diff != "" {
		t.Errorf("events (-sent +exported):\n%.3000s", diff)
	}
}
