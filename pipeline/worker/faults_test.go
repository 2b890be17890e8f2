package worker_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

var (
	faultsSeed  = flag.Uint64("faults.seed", 0, "first seed of TestFaults; 0 for a random one")
	faultsLong  = flag.Bool("faults.long", false, "run TestFaults for many seeds, on one node and on three")
	faultsCells = flag.Int("faults.cells", 1, "how many cells TestFaults runs with")
	faultsSeeds = flag.Int("faults.seeds", 20, "how many seeds TestFaults runs with -faults.long")
	faultsOld   = flag.String("faults.old", "", "test binary of this package at another version, by go test -c, whose workers TestFaults and TestFaultsSoak mix in")
	faultsOnly  = flag.String("faults.only", "", "a part of the names of the faults that TestFaults draws alone")
	faultsNodes = flag.Int("faults.nodes", 0, "on how many nodes TestFaults and TestFaultsSoak run; 0 for one, and with -faults.long also on three")
)

// TestFaults breaks workers, servers, connections, producers and disks at random moments,
// drawn from a seed, while records arrive. After each kind of fault, and after some in a row,
// it compares what is stored with the fold of what was shipped: every event once, in order,
// and every state. With an odd seed the workers move all states to archives meanwhile.
//
// With -faults.cells it runs on as many cells. With -faults.long it runs many seeds, on one node and on three:
//
//	go test ./pipeline/worker -v -run TestFaults -faults.long -timeout 4h
func TestFaults(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*faultsSeed, rand.Uint64N(1<<32))
	if !*faultsLong {
		tally := newTally()
		t.Cleanup(func() { t.Log(tally) })
		nodes := max(*faultsNodes, 1)
		faulty(t, faultPlan{nodes: nodes, cells: *faultsCells, seed: seed, records: 1500, kinds: faultKinds(nodes)}, tally)
		return
	}
	total := newTally()
	t.Cleanup(func() { t.Logf("all runs: %v", total) })
	on := []int{1, 3}
	if *faultsNodes > 0 {
		on = []int{*faultsNodes}
	}
	for i := range *faultsSeeds {
		for _, nodes := range on {
			plan := faultPlan{nodes: nodes, cells: *faultsCells, seed: seed + uint64(i), records: 3000, kinds: faultKinds(nodes), more: 4}
			t.Run(fmt.Sprintf("replicas=%d/seed=%d", nodes, plan.seed), func(t *testing.T) {
				t.Parallel()
				tally := newTally()
				t.Cleanup(func() {
					if t.Failed() {
						tally.failed++
					}
					t.Log(tally)
					total.add(tally)
				})
				faulty(t, plan, tally)
			})
		}
	}
}

// tally counts the faults of runs and the results of their comparisons.
type tally struct {
	runs, failed, shipped, records, events int // runs that are complete; records with those that were shipped again
	comparisons                            int
	missing, doubled, outOfOrder, states   int
	torn                                   int // batches of which the server had stored a part
	archived                               int // sessions in archives, over all comparisons
	changed                                int // sessions of which a change is stored, over all comparisons
	kept                                   int // states that killed servers have not removed, over all comparisons
	faults                                 map[string]int
	recovery                               time.Duration // the longest from the end of a fault until everything was done that was shipped by then
	slowest                                string        // the kind of that fault

	mu sync.Mutex // in add
}

// recovered notes how long the recovery from a fault took.
func (a *tally) recovered(kind string, took time.Duration) {
	if took > a.recovery {
		a.recovery, a.slowest = took, kind
	}
}

func newTally() *tally { return &tally{faults: make(map[string]int)} }

func (a *tally) add(b *tally) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs += b.runs
	a.failed += b.failed
	a.shipped += b.shipped
	a.records += b.records
	a.events += b.events
	a.comparisons += b.comparisons
	a.missing += b.missing
	a.doubled += b.doubled
	a.outOfOrder += b.outOfOrder
	a.states += b.states
	a.torn += b.torn
	a.archived += b.archived
	a.changed += b.changed
	a.kept += b.kept
	for kind, n := range b.faults {
		a.faults[kind] += n
	}
	a.recovered(b.slowest, b.recovery)
}

func (a *tally) String() string {
	var b strings.Builder
	faults := 0
	for _, n := range a.faults {
		faults += n
	}
	fmt.Fprintf(&b, "%d runs, %d failed, %d records (%d in the raw stream), %d events, %d faults, %d comparisons; missing %d, doubled %d, out of order %d, wrong states %d; %d torn batches, %d states with a change, %d in archives, %d that killed servers kept",
		a.runs, a.failed, a.shipped, a.records, a.events, faults, a.comparisons, a.missing, a.doubled, a.outOfOrder, a.states, a.torn, a.changed, a.archived, a.kept)
	fmt.Fprintf(&b, "\n\tlongest recovery %v, from: %s", a.recovery.Round(time.Millisecond), a.slowest)
	for _, kind := range slices.Sorted(maps.Keys(a.faults)) {
		fmt.Fprintf(&b, "\n\t%4d %s", a.faults[kind], kind)
	}
	return b.String()
}

// The kinds of faults.
const (
	consumersDeleted = "consumers on the raw and events streams deleted"
	heartbeatsPurged = "bucket of the heartbeats purged"

	workerKilled    = "worker killed"
	workerZombie    = "worker paused until others had its partitions, and resumed"
	workersScaled   = "workers scaled 1 -> 4 -> 2"
	serverKilled    = "server killed and started again"
	serversRolled   = "servers restarted in turn"
	majorityKilled  = "two of three servers killed at once and started again"
	serverCutOff    = "server cut off from the others until they led without it"
	packetsDropped  = "packets of a worker dropped until others had its partitions"
	commitCut       = "commit or its acknowledgement cut or delayed"
	producerDied    = "producer died and shipped everything again under other ids"
	diskFull        = "disks full for a while"
	oneDiskFull     = "disk of one server of three full for a while"
	rawTailLost     = "tail of the raw stream lost"
	leadersAsked    = "leaders of all raw and events streams asked to step down at once"
	nodeRolledBack  = "store of one server of three put back to an older copy"
	recordsExpired  = "records left the raw stream while workers were away, and were sent again"
	eventsWentBack  = "events streams put back to a copy while workers ran"
	streamsWentBack = "raw and events streams put back to one moment, and logs shipped again"
	accountFull     = "account at its limit of storage, which was raised"
	streamFull      = "raw or events streams at a limit of bytes, which was taken back"
	partitionCount  = 8
	maxStore        = 96 << 20 // so that a disk can be filled
)

// faultKinds returns the kinds that are drawn. The loss of raw records ends a run, because no
// generation survives it.
func faultKinds(nodes int) []string {
	kinds := []string{
		workerKilled, workerZombie, workersScaled, serverKilled, serversRolled, packetsDropped, commitCut, producerDied, diskFull,
		consumersDeleted, heartbeatsPurged, recordsExpired, eventsWentBack, streamsWentBack, accountFull, streamFull,
	}
	if nodes > 1 {
		kinds = append(kinds, majorityKilled, serverCutOff, oneDiskFull, leadersAsked, nodeRolledBack)
	}
	return slices.DeleteFunc(kinds, func(kind string) bool { return !strings.Contains(kind, *faultsOnly) })
}

// faultPlan is the plan of a run.
type faultPlan struct {
	nodes     int
	cells     int
	seed      uint64
	records   int
	kinds     []string // each once, in random order, with a comparison after it
	more      int      // number of further ones, in a row
	sessions  int      // 0 for some
	rewind    int      // records that the producer ships again in another life; 0 for all
	large     bool     // the disks are not filled
	unfenced  bool
	forgetful bool
}

// archiveAfter is how long states stay under their own subjects, in nanoseconds: with an odd seed a
// millisecond, so that they move all the time.
func (p faultPlan) archiveAfter() int64 { return int64(p.seed % 2 * uint64(time.Millisecond)) }

// faultRun is a run of faults.
type faultRun struct {
	t        *testing.T
	plan     faultPlan
	random   *rand.Rand
	tally    *tally
	top      streams.Topology
	cluster  *pipelinetest.Cluster
	js       jetstream.JetStream
	proxy    *pipelinetest.Proxy
	producer *producer
	edges    *edges
	departed pipelinetest.Departed
	gaps     bool             // records of logs are lost for good
	killed   bool             // servers were killed
	expired  int              // records that were not read
	arrived  atomic.Int64     // events that workers have sent, stored or not
	workers  []*workerProcess // the first one is connected through the proxy
	started  int              // number of workers that were started
	all      []*workerProcess // also those that have ended
}

// worker is a worker in a process of its own.
type workerProcess struct {
	*pipelinetest.Process

	name, url string
}

// startFaultRun starts servers, two workers and a producer.
func startFaultRun(t *testing.T, plan faultPlan, tally *tally) *faultRun {
	t.Helper()
	t.Logf("to repeat this run: -faults.seed=%d", plan.seed)
	store := int64(maxStore)
	if plan.large {
		store = 0
	}
	r := &faultRun{
		t: t, plan: plan, tally: tally,
		random:  rand.New(rand.NewPCG(plan.seed, 1)),
		top:     streams.Topology{Generation: "v1", Partitions: partitionCount, Cells: plan.cells, Replicas: plan.nodes},
		cluster: pipelinetest.StartCluster(t, plan.nodes, store),
	}
	r.js = r.cluster.Provision(r.top)
	sub, err := r.js.Conn().Subscribe("events.>", func(*nats.Msg) { r.arrived.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	r.proxy = pipelinetest.NewProxy(t, r.cluster.Nodes[0])
	r.producer = newProducer(t, r.cluster, plan)
	r.edges = newEdges(r)
	r.workers = []*workerProcess{r.start(r.proxy.URL()), r.start(r.cluster.URL())}
	r.awaitShared()
	return r
}

// faulty runs a plan.
func faulty(t *testing.T, plan faultPlan, tally *tally) {
	t.Helper()
	r := startFaultRun(t, plan, tally)
	kinds := slices.Clone(plan.kinds)
	r.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for range plan.more {
		kinds = append(kinds, plan.kinds[r.random.IntN(len(plan.kinds))])
	}
	for i, kind := range kinds {
		r.producer.grant(2 * plan.records / 3 / (len(kinds) + 1)) // some faults grant more
		r.awaitSome()
		began := time.Now()
		if r.strikeAmid(kind) {
			tally.faults[kind]++
		}
		struck := time.Now()
		t.Logf("%s: %v", kind, struck.Sub(began).Round(time.Millisecond))
		if i < len(plan.kinds) || i == len(kinds)-1 {
			r.recover(kind, struck)
			if err := r.compare().Err(); err != nil {
				r.dump()
				t.Fatalf("after the fault %q: %v", kind, err)
			}
			if err := r.compareSent(); err != nil {
				t.Fatalf("after the fault %q: %v", kind, err)
			}
		}
	}
	r.producer.grant(plan.records)
	report := r.compare()
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.compareSent(); err != nil {
		t.Fatal(err)
	}
	r.count(report)
	if plan.archiveAfter() > 0 && tally.archived == 0 {
		t.Error("nothing was moved to archives")
	}
	r.edges.requireLogged()
	r.acknowledge()
	r.loseRawTail()
	tally.faults[rawTailLost]++
	for _, w := range r.workers {
		r.drained(w)
	}
}

// recover waits until every granted record is done after a fault that ended at struck, and until
// nothing is left of the fault in the status.
func (r *faultRun) recover(kind string, struck time.Time) {
	r.t.Helper()
	r.catchUp()
	r.tally.recovered(kind, time.Since(struck))
	status := r.status()
	for slices.ContainsFunc(status.Partitions, func(p replay.PartitionStatus) bool { return p.Lag != 0 }) {
		r.catchUp() // a ship that was killed has sent what the server stores only now
		status = r.status()
	}
	r.edges.requireSaid(status)
	r.requireExpired()
	for _, p := range status.Partitions {
		if p.Fault != "" || p.GapSessions != 0 && !r.gaps {
			r.t.Errorf("after the fault %q the status of partition %d is %+v", kind, p.Partition, p)
		}
	}
}

func (r *faultRun) status() replay.Status {
	r.t.Helper()
	status, err := replay.ReadStatus(r.t.Context(), r.js, r.top)
	if err != nil {
		r.t.Fatal(err)
	}
	return status
}

// catchUp waits until every granted record is done.
func (r *faultRun) catchUp() {
	r.t.Helper()
	r.producer.wait()
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	defer cancel()
	if err := replay.CatchUp(ctx, r.js, r.top); err != nil {
		r.dump()
		r.t.Fatal(err)
	}
}

// expectation returns what the generation should hold.
func (r *faultRun) expectation() pipelinetest.Expectation {
	return pipelinetest.Expectation{Topology: r.top, Departed: &r.departed, Killed: r.killed}
}

// compare waits until every granted record is done, and compares.
func (r *faultRun) compare() *pipelinetest.Report {
	r.t.Helper()
	r.catchUp()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Hour)
	defer cancel()
	report, err := r.expectation().Compare(ctx, r.js)
	if err != nil {
		r.t.Fatal(err)
	}
	r.tally.comparisons++
	r.tally.missing += report.Missing
	r.tally.doubled += report.Doubled
	r.tally.outOfOrder += report.OutOfOrder
	r.tally.states += report.States
	r.tally.archived += report.Archived
	r.tally.changed += report.Changed
	r.tally.kept += report.Kept
	return report
}

// compareSent compares the events with what was sent.
func (r *faultRun) compareSent() error {
	d, err := r.producer.sent.Compare(r.t.Context(), r.js, r.top.Generation)
	r.tally.missing += len(d.Lost)
	r.tally.doubled += len(d.Doubled)
	for _, key := range slices.Concat(d.Lost, d.Doubled) {
		r.edges.explain(key)
	}
	return errors.Join(err, d.Err())
}

// strikeAmid makes a fault while the histories of logs go on, unless it has them go on by itself.
func (r *faultRun) strikeAmid(kind string) bool {
	r.t.Helper()
	if kind == recordsExpired || kind == eventsWentBack || kind == streamsWentBack {
		return r.strike(kind)
	}
	return r.edges.while(6, func() bool { return r.strike(kind) })
}

// count counts a complete run.
func (r *faultRun) count(last *pipelinetest.Report) {
	r.tally.runs++
	r.tally.shipped += r.producer.total
	r.tally.records += last.Records
	r.tally.events += last.Events
	for _, w := range r.all {
		r.tally.torn += strings.Count(w.Output(), tornMessage)
	}
}

// TestFaultsAreFound is the control: the same run, with workers that are paused and resumed,
// against a server without a fence stores events twice and out of order, and the comparison
// finds them.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*faultsSeed, rand.Uint64N(1<<32))
	tally := newTally()
	r := startFaultRun(t, faultPlan{nodes: 1, seed: seed, records: 1500, unfenced: true}, tally)
	for range 3 {
		r.producer.grant(400)
		r.awaitSome()
		r.zombie()
		tally.faults[workerZombie]++
	}
	r.producer.grant(1500)
	r.producer.wait()
	// The last message of a zombie may be an old checkpoint, which only a worker that acquires
	// the partition reads.
	for _, w := range r.workers {
		w.Kill()
	}
	r.workers = []*workerProcess{r.start(r.cluster.URL())}
	report := r.compare()
	r.count(report)
	t.Log(tally)
	if report.Doubled == 0 || report.OutOfOrder == 0 || report.Err() == nil {
		t.Errorf("no fence, and yet events are not both doubled and out of order: %+v", report)
	}
}

// TestLostHistoriesAreFound is the control of the comparison with what was sent: workers that take every record at a place
// that was passed for a duplicate lose some, of which the fold by their rules says nothing.
func TestLostHistoriesAreFound(t *testing.T) {
	t.Parallel()
	r := startFaultRun(t, faultPlan{nodes: 1, seed: cmp.Or(*faultsSeed, 1), records: 100, forgetful: true}, newTally())
	r.producer.grant(100)
	if err := r.edges.draw(40); err != nil {
		t.Fatal(err)
	}
	r.catchUp()
	d, err := r.producer.sent.Compare(t.Context(), r.js, r.top.Generation)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Lost) == 0 || len(d.Doubled)+len(d.Foreign) > 0 {
		t.Errorf("some records are taken for duplicates, and the difference is %+v", d)
	}
}

// The disk of a server, a real one of a few megabytes, fills up under the stage. The server
// gives up its streams; when it starts again with room, the stage goes on.
func TestFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	disk := pipelinetest.SmallDisk(t, "48")
	cluster := pipelinetest.StartClusterOn(t, disk)
	top := topology(4)
	js := cluster.Provision(top)
	records := pipelinetest.Workload(31, 40, 2000)
	pipelinetest.Publish(t, js, records[:1000]...)
	s := start(t, js, member(top, "w"))
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)

	release := pipelinetest.FillDisk(t, disk)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shipped := make(chan error, 1)
	go func() { shipped <- pipelinetest.Ship(ctx, js, "full", 0, records[1000:1800]...) }()
	cluster.Nodes[0].AwaitOutput("no space left on device")
	release()
	cluster.Stop()
	cluster.Start(cluster.Nodes...)
	if err := <-shipped; err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, records[1800:]...)
	x.RequireExact(t, js)
	s.stop(t)
}
