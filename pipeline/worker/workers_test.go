package worker_test

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"tributary/normalizers/core"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// Every partition has one worker, none has more than its part, all that see the same workers
// agree, and few partitions change hands when a worker comes or goes.
func TestAssignmentIsCompleteFairAndStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 64).Draw(t, "partitions")
		workers := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,4}`), 1, 8, rapid.ID[string]).Draw(t, "workers")
		slices.Sort(workers)
		owners := func(workers []string) []string {
			owner := make([]string, partitions)
			share := (partitions + len(workers) - 1) / len(workers)
			for id, mine := range streams.Assignment(partitions, workers) {
				if len(mine) > share || !slices.IsSorted(mine) {
					t.Fatalf("%s has %v of %d partitions, %d workers", id, mine, partitions, len(workers))
				}
				for _, p := range mine {
					if owner[p] != "" {
						t.Fatalf("partition %d belongs to %s and %s", p, owner[p], id)
					}
					owner[p] = id
				}
			}
			if i := slices.Index(owner, ""); i >= 0 {
				t.Fatalf("no worker has partition %d", i)
			}
			return owner
		}
		before := owners(workers)
		if again := owners(slices.Clone(workers)); !slices.Equal(before, again) {
			t.Fatal("two views of the same workers differ")
		}
		if len(workers) == 1 {
			return
		}
		i := rapid.IntRange(0, len(workers)-1).Draw(t, "gone")
		gone := workers[i]
		after := owners(slices.Delete(slices.Clone(workers), i, i+1))
		for p := range before {
			if before[p] != gone && after[p] != before[p] && len(workers) == 2 {
				t.Fatalf("partition %d was moved from %s, which stayed", p, before[p])
			}
		}
	})
}

// settled waits until these workers work on all partitions of a topology, each on so many.
// The heartbeats of other workers do not count.
func settled(t *testing.T, js jetstream.JetStream, top streams.Topology, want map[string]int) {
	t.Helper()
	ctx := deadline(t)
	kv, err := js.KeyValue(ctx, streams.WorkersBucket)
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := kv.WatchAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watcher.Stop() }()
	for {
		workers, err := streams.Workers(ctx, js, top.Generation)
		if err != nil {
			t.Fatal(err)
		}
		have := make(map[string]int)
		owned := make(map[int]bool)
		for _, w := range workers {
			if _, ok := want[w.ID]; ok {
				have[w.ID] = len(w.Partitions)
				for _, p := range w.Partitions {
					owned[p] = true
				}
			}
		}
		if maps.Equal(have, want) && len(owned) == top.Partitions {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the workers have %v partitions, want %v", have, want)
		case <-watcher.Updates():
		}
	}
}

// awaitHeartbeats waits until workers have sent so many heartbeats.
func awaitHeartbeats(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	ctx := deadline(t)
	kv, err := js.KeyValue(ctx, streams.WorkersBucket)
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := kv.WatchAll(ctx, jetstream.UpdatesOnly())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watcher.Stop() }()
	for range n {
		select {
		case <-watcher.Updates():
		case <-ctx.Done():
			t.Fatal("the workers send no heartbeats")
		}
	}
}

// member returns the configuration of a worker beside others.
func member(top streams.Topology, name string) worker.Config {
	return worker.Config{Topology: top, Worker: name, Member: name}
}

// Workers that come and go divide the partitions while records arrive.
func TestWorkersDivideThePartitions(t *testing.T) {
	t.Parallel()
	top := topology(8)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	records := pipelinetest.Workload(21, 40, 600)
	feed := func(n int) {
		for some := range slices.Chunk(records[:n], 25) {
			pipelinetest.Publish(t, js, some...)
		}
		records = records[n:]
	}
	workers := []*running{start(t, js, member(top, "w0"))}
	settled(t, js, top, map[string]int{"w0": 8})
	feed(100)
	for i := 1; i < 4; i++ {
		workers = append(workers, start(t, server.JetStream(), member(top, fmt.Sprintf("w%d", i))))
		feed(50)
	}
	settled(t, js, top, map[string]int{"w0": 2, "w1": 2, "w2": 2, "w3": 2})
	feed(100)
	for _, w := range workers[2:] {
		w.stop(t)
		feed(50)
	}
	settled(t, js, top, map[string]int{"w0": 4, "w1": 4})
	feed(len(records))
	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	for _, w := range workers[:2] {
		ready(t, w)
		w.stop(t)
	}
	if left, err := streams.Workers(t.Context(), js, top.Generation); err != nil || len(left) != 0 {
		t.Errorf("%d workers have not left, %v", len(left), err)
	}
}

// Another worker soon owns the partitions of one that dies.
func TestPartitionsOfADeadWorkerAreTakenOver(t *testing.T) {
	t.Parallel()
	top := topology(6)
	server := pipelinetest.NewServer(t)
	js := server.Provision(top)
	heir := start(t, js, member(top, "heir"))
	records := pipelinetest.Workload(22, 30, 900)
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		var calls atomic.Int64
		mortal := fmt.Sprintf("mortal%d", round)
		w := startCrashing(t, server.JetStream(), member(top, mortal), func(core.Record) bool { return calls.Add(1) == 30 })
		settled(t, js, top, map[string]int{"heir": 3, mortal: 3})
		pipelinetest.Publish(t, js, records[:225]...)
		records = records[225:]
		_ = w.wait(t)
		pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
	}
	if err := heir.Ready(); err != nil {
		t.Error(err)
	}
	heir.stop(t)
}
