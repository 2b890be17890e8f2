package pipeline_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/pipeline"
	"tributary/pipeline/pipelinetest"
)

var (
	faultsSeed  = flag.Uint64("faults.seed", 0, "seed of TestFaults, the first of several; 0 for another one each time")
	faultsLong  = flag.Bool("faults.long", false, "run TestFaults for many seeds, on one node and on three")
	faultsSeeds = flag.Int("faults.seeds", 20, "how many seeds TestFaults runs with -faults.long")
)

// workerProgram is the program of a worker.
const workerProgram = "worker"

// workerArguments say how a worker runs.
type workerArguments struct {
	URL          string `json:"url"`
	Generation   string `json:"generation"`
	Partitions   int    `json:"partitions"`
	Name         string `json:"name"`
	Unfenced     bool   `json:"unfenced"`
	SessionBytes int    `json:"session_bytes"` // 0 for the default
	Frugal       bool   `json:"frugal"`        // collects garbage early: what it takes is what it needs
}

// runWorker is a worker that shares the partitions with others, until it is drained.
func runWorker(ctx context.Context, arguments []byte, ready func()) error {
	var a workerArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)}
	if a.Unfenced {
		options = append(options, nats.SetCustomDialer(fenceless{}))
	}
	nc, err := nats.Connect(a.URL, options...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if a.Frugal {
		debug.SetGCPercent(10)
	}
	if a.Frugal {
		debug.SetGCPercent(10)
	}
	stage, err := pipeline.New(js, pipeline.Config{
		Topology:     pipeline.Topology{Generation: a.Generation, Partitions: a.Partitions},
		Worker:       a.Name,
		Member:       a.Name,
		Heartbeat:    400 * time.Millisecond,
		SessionBytes: a.SessionBytes,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stage.Drain)
	ready()
	return stage.Run(context.WithoutCancel(ctx))
}

// fenceless makes connections to a server that knows no fence: the header with the
// sequence that a checkpoint expects gets another name on its way, which nobody reads. So
// every commit succeeds, and no worker learns that it was overtaken.
type fenceless struct{}

// Dial is that of [net.Dialer].
func (fenceless) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return fencelessConn{c}, err
}

type fencelessConn struct{ net.Conn }

// Write never meets a part of the name: the client hands over headers as a whole.
func (c fencelessConn) Write(p []byte) (int, error) {
	name := []byte(jetstream.ExpectedLastSubjSeqHeader)
	return c.Conn.Write(bytes.ReplaceAll(p, name, append([]byte("X"), name[1:]...)))
}

// TestFaults breaks workers, servers, connections, producers and disks at random moments,
// drawn from a seed, while records come, and compares what is stored in the end with the
// fold of what was shipped: every event once, in its order, and every state.
//
// With -faults.long it does so for many seeds, on one node and on three:
//
//	go test ./pipeline -v -run TestFaults -faults.long -timeout 4h
func TestFaults(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*faultsSeed, rand.Uint64N(1<<32))
	if !*faultsLong {
		tally := newTally()
		t.Cleanup(func() { t.Log(tally) })
		faulty(t, faultPlan{nodes: 1, seed: seed, records: 1500, kinds: faultKinds(1)}, tally)
		return
	}
	total := newTally()
	t.Cleanup(func() { t.Logf("all runs: %v", total) })
	for i := range *faultsSeeds {
		for _, nodes := range []int{1, 3} {
			plan := faultPlan{nodes: nodes, seed: seed + uint64(i), records: 3000, kinds: faultKinds(nodes), more: 3}
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

// tally counts what was done and what was found.
type tally struct {
	runs, failed, shipped, records, events int // runs that were compared; records with those that were shipped again
	missing, doubled, outOfOrder, states   int
	faults                                 map[string]int

	mu sync.Mutex // in add
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
	a.missing += b.missing
	a.doubled += b.doubled
	a.outOfOrder += b.outOfOrder
	a.states += b.states
	for kind, n := range b.faults {
		a.faults[kind] += n
	}
}

func (a *tally) String() string {
	var b strings.Builder
	faults := 0
	for _, n := range a.faults {
		faults += n
	}
	fmt.Fprintf(&b, "%d runs compared, %d failed, %d records (%d in the raw stream), %d events, %d faults; missing %d, doubled %d, out of order %d, wrong states %d",
		a.runs, a.failed, a.shipped, a.records, a.events, faults, a.missing, a.doubled, a.outOfOrder, a.states)
	for _, kind := range slices.Sorted(maps.Keys(a.faults)) {
		fmt.Fprintf(&b, "\n\t%4d %s", a.faults[kind], kind)
	}
	return b.String()
}

// The kinds of faults.
const (
	workerKilled   = "worker killed"
	workerZombie   = "worker stopped until others had its partitions, and let go on"
	workersScaled  = "workers scaled 1 -> 4 -> 2"
	serverKilled   = "server killed and started again"
	serversRolled  = "servers restarted in turn"
	majorityKilled = "two of three servers killed at once and started again"
	serverCutOff   = "server cut off from the others until they led without it"
	commitCut      = "commit or its acknowledgement cut or delayed"
	producerDied   = "producer died and shipped everything again under other ids"
	diskFull       = "disks full for a while"
	oneDiskFull    = "disk of one server of three full for a while"
	rawTailLost    = "tail of the raw stream lost"
	partitionCount = 8
	maxStore       = 96 << 20 // so that a disk can be filled
)

// faultKinds are those that are drawn; the loss of raw records comes at the end of a run,
// for no generation survives it.
func faultKinds(nodes int) []string {
	kinds := []string{workerKilled, workerZombie, workersScaled, serverKilled, serversRolled, commitCut, producerDied, diskFull}
	if nodes > 1 {
		kinds = append(kinds, majorityKilled, serverCutOff, oneDiskFull)
	}
	return kinds
}

// faultPlan says what happens in a run.
type faultPlan struct {
	nodes    int
	seed     uint64
	records  int
	kinds    []string // each once at least, in an order of chance
	more     int      // of them again
	unfenced bool
}

// faultRun is a run of faults.
type faultRun struct {
	t        *testing.T
	plan     faultPlan
	random   *rand.Rand
	tally    *tally
	top      pipeline.Topology
	cluster  *pipelinetest.Cluster
	js       jetstream.JetStream
	proxy    *pipelinetest.Proxy
	producer *producer
	arrived  atomic.Int64 // events that workers have sent, stored or not
	workers  []*worker    // the first one works through the proxy
	started  int          // workers, ever
}

// worker is one as a process.
type worker struct {
	*pipelinetest.Process

	name, url string
}

// startFaultRun starts servers, two workers and a producer.
func startFaultRun(t *testing.T, plan faultPlan, tally *tally) *faultRun {
	t.Helper()
	t.Logf("the same again: -faults.seed=%d", plan.seed)
	r := &faultRun{
		t: t, plan: plan, tally: tally,
		random:  rand.New(rand.NewPCG(plan.seed, 1)),
		top:     pipeline.Topology{Generation: "v1", Partitions: partitionCount, Replicas: plan.nodes},
		cluster: pipelinetest.StartCluster(t, plan.nodes, maxStore),
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
	r.workers = []*worker{r.start(r.proxy.URL()), r.start(r.cluster.URL())}
	r.shared()
	return r
}

// faulty is one run.
func faulty(t *testing.T, plan faultPlan, tally *tally) {
	t.Helper()
	r := startFaultRun(t, plan, tally)
	kinds := slices.Clone(plan.kinds)
	r.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for range plan.more {
		kinds = append(kinds, plan.kinds[r.random.IntN(len(plan.kinds))])
	}
	for _, kind := range kinds {
		r.producer.grant(2 * plan.records / 3 / (len(kinds) + 1)) // some faults let it ship more
		r.some()
		began := time.Now()
		if r.strike(kind) {
			tally.faults[kind]++
		}
		t.Logf("%s: %v", kind, time.Since(began).Round(time.Millisecond))
	}
	r.producer.grant(plan.records)
	r.producer.wait()
	report := r.compare()
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	if want := foldedEvents(t, r.producer.records); report.Events != want {
		t.Errorf("%d events are stored, the records that were shipped give %d", report.Events, want)
	}
	r.loseRawTail()
	tally.faults[rawTailLost]++
	for _, w := range r.workers {
		r.drained(w)
	}
}

// compare waits until all is done and compares.
func (r *faultRun) compare() *pipelinetest.Report {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	defer cancel()
	if err := pipeline.CatchUp(ctx, r.js, r.top); err != nil {
		for _, w := range r.workers {
			r.t.Logf("%s:\n%s", w.name, w.Output())
		}
		r.t.Fatal(err)
	}
	report, err := pipelinetest.Expectation{Topology: r.top}.Compare(ctx, r.js)
	if err != nil {
		r.t.Fatal(err)
	}
	r.tally.runs++
	r.tally.shipped += len(r.producer.records)
	r.tally.records += report.Records
	r.tally.events += report.Events
	r.tally.missing += report.Missing
	r.tally.doubled += report.Doubled
	r.tally.outOfOrder += report.OutOfOrder
	r.tally.states += report.States
	return report
}

// foldedEvents is how many events records give that come once and in their order.
func foldedEvents(t *testing.T, records []normalizers.Record) int {
	t.Helper()
	sessions := make(map[string]*normalizers.Session)
	events := 0
	for i, r := range records {
		if sessions[r.Session] == nil {
			sessions[r.Session] = normalizers.NewSession(r.Source, r.Session)
		}
		r.Sequence = uint64(i) + 1
		result, err := normalizers.Normalize(sessions[r.Session], r)
		if _, permanent := pipeline.Reason(err); err != nil && !permanent {
			t.Fatal(err)
		}
		events += len(result.Events)
	}
	return events
}

// strike makes a fault happen, and reports whether it did.
func (r *faultRun) strike(kind string) bool {
	r.t.Helper()
	switch kind {
	case workerKilled:
		w := r.workers[r.random.IntN(len(r.workers))]
		w.Kill()
		r.replace(w, r.start(w.url))
	case workerZombie:
		r.zombie()
	case workersScaled:
		for _, n := range []int{1, 4, 2} {
			r.scale(n)
		}
	case serverKilled:
		n := r.node()
		n.Kill()
		r.cluster.Start(n)
		r.cluster.Settle(r.js)
	case serversRolled:
		for _, n := range r.cluster.Nodes {
			n.Stop()
			r.cluster.Start(n)
			r.cluster.Settle(r.js)
		}
	case majorityKilled:
		left := r.node()
		killed := slices.DeleteFunc(slices.Clone(r.cluster.Nodes), func(n *pipelinetest.Node) bool { return n == left })
		for _, n := range killed {
			n.Kill()
		}
		r.producer.grant(20)
		r.moment(2 * time.Second)
		r.cluster.Start(killed...)
		r.cluster.Settle(r.js)
	case serverCutOff:
		n := r.node()
		n.CutOff()
		r.producer.grant(40)
		r.cluster.AwaitWithout(n, pipelinetest.Connect(r.t, r.cluster.URLWithout(n)))
		r.producer.grant(40)
		r.moment(2 * time.Second)
		n.Reconnect()
		r.cluster.Settle(r.js)
	case commitCut:
		return r.cut()
	case producerDied:
		r.producer.die()
	case diskFull:
		r.fillDisks()
	case oneDiskFull:
		r.fillDisk()
	default:
		r.t.Fatalf("no fault %q", kind)
	}
	return true
}

// node is one of chance.
func (r *faultRun) node() *pipelinetest.Node {
	return r.cluster.Nodes[r.random.IntN(len(r.cluster.Nodes))]
}

// start starts a worker.
func (r *faultRun) start(url string) *worker {
	r.t.Helper()
	r.started++
	w := &worker{name: fmt.Sprintf("w%d", r.started), url: url}
	w.Process = pipelinetest.StartProcess(r.t, workerProgram, workerArguments{
		URL: url, Generation: r.top.Generation, Partitions: r.top.Partitions, Name: w.name, Unfenced: r.plan.unfenced,
	})
	w.AwaitReady()
	return w
}

// replace puts a worker into the place of one that has ended.
func (r *faultRun) replace(old, w *worker) { r.workers[slices.Index(r.workers, old)] = w }

// drained ends a worker well.
func (r *faultRun) drained(w *worker) {
	r.t.Helper()
	if code := w.Stop(); code != 0 {
		r.t.Errorf("%s: exit code %d\n%s", w.name, code, w.Output())
	}
}

// scale makes the workers n, and waits until they share the work.
func (r *faultRun) scale(n int) {
	r.t.Helper()
	for len(r.workers) > n {
		last := len(r.workers) - 1
		r.drained(r.workers[last])
		r.workers = r.workers[:last]
	}
	for len(r.workers) < n {
		r.workers = append(r.workers, r.start(r.cluster.URL()))
	}
	r.shared()
}

// shared waits until the workers work on all partitions, each on some.
func (r *faultRun) shared() { r.t.Helper(); r.ownedBy(r.workers) }

// ownedBy waits until these workers, each with some, say that they work on all partitions.
func (r *faultRun) ownedBy(workers []*worker) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		owned := make(map[int]bool)
		idle := len(workers)
		all, err := pipeline.Workers(ctx, r.js, r.top.Generation)
		for _, w := range all {
			if len(w.Partitions) == 0 || !slices.ContainsFunc(workers, func(of *worker) bool { return of.name == w.ID }) {
				continue
			}
			idle--
			for _, p := range w.Partitions {
				owned[p] = true
			}
		}
		if err == nil && idle == 0 && len(owned) == r.top.Partitions {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			for _, w := range r.workers {
				r.t.Logf("%s:\n%s", w.name, w.Output())
			}
			r.t.Fatalf("the workers stay as they are: %+v, %v", all, err)
		}
	}
}

// zombie stops a worker in the middle of its work until others have taken over, and lets
// it go on with what it has in memory and on its way.
func (r *faultRun) zombie() {
	r.t.Helper()
	w := r.workers[r.random.IntN(len(r.workers))]
	w.Pause()
	r.producer.grant(20)
	r.ownedBy(slices.DeleteFunc(slices.Clone(r.workers), func(of *worker) bool { return of == w }))
	w.Resume()
	r.producer.grant(20)
	r.moment(500 * time.Millisecond)
}

// cut breaks a commit of the first worker at a place of chance.
func (r *faultRun) cut() bool {
	r.t.Helper()
	cuts := []pipelinetest.Cut{pipelinetest.BeforeCommit, pipelinetest.BeforeAck, pipelinetest.HoldCommit, pipelinetest.DelayAck}
	cut := cuts[r.random.IntN(len(cuts))]
	r.proxy.Arm(cut)
	r.producer.grant(60)
	if !r.made() && r.proxy.Disarm() {
		return false
	}
	if cut == pipelinetest.HoldCommit || cut == pipelinetest.DelayAck {
		r.moment(time.Second)
		r.proxy.Release()
	}
	return cut != pipelinetest.HoldCommit || r.made() // late
}

// made waits for the proxy to have cut.
func (r *faultRun) made() bool {
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case <-r.proxy.Done:
		return true
	case <-limit.C:
		return false
	}
}

// fillDisks lets the workers find all stores full in the middle of their work, and makes
// room when one of them has said that it could not commit.
func (r *faultRun) fillDisks() {
	r.t.Helper()
	for _, w := range r.workers {
		w.Pause()
	}
	r.producer.grant(40)
	r.producer.wait() // until there is work that must wait for room
	for _, n := range r.cluster.Nodes {
		r.fill(n)
	}
	said := make(map[*worker]int)
	for _, w := range r.workers {
		said[w] = len(w.Output())
		w.Resume()
	}
	r.told("a store that is full", func(w *worker) bool {
		for line := range strings.Lines(w.Output()[said[w]:]) {
			// Of several servers one that is full gives up its leads and need not say why.
			if strings.Contains(line, "partition is claimed again") && (r.plan.nodes > 1 || strings.Contains(line, storeFull)) {
				return true
			}
		}
		return false
	})
	for _, n := range r.cluster.Nodes {
		r.makeRoom(n)
	}
	r.cluster.Settle(r.js)
}

// fillDisk fills the store of one server of several. The others take what comes; what is
// read through the replicas of this one, which are behind, waits for room.
func (r *faultRun) fillDisk() {
	r.t.Helper()
	n := r.node()
	r.fill(n)
	r.producer.grant(40)
	r.producer.wait()
	r.moment(2 * time.Second)
	r.makeRoom(n)
	r.cluster.Settle(r.js)
}

// storeFull is what a server says that has no room for a message.
const storeFull = "insufficient resources"

// filler is the stream that fills a server.
func filler(n *pipelinetest.Node) string { return "FILLER_" + n.Name() }

// fill stores messages on a server until it has no room.
func (r *faultRun) fill(n *pipelinetest.Node) {
	r.t.Helper()
	name := filler(n)
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name}, Placement: &jetstream.Placement{Tags: []string{n.Name()}}}
	r.cluster.Try("make a stream on "+n.Name(), func(ctx context.Context) error {
		_, err := r.js.CreateStream(ctx, cfg)
		return err
	})
	r.cluster.Try("fill the store of "+n.Name(), func(ctx context.Context) error {
		_, err := r.js.Publish(ctx, name, make([]byte, 4<<20))
		if err == nil {
			return errors.New("there is room")
		}
		if api, ok := errors.AsType[*jetstream.APIError](err); ok && strings.Contains(api.Description, storeFull) {
			return nil
		}
		return err
	})
}

// makeRoom takes away what fill stored.
func (r *faultRun) makeRoom(n *pipelinetest.Node) {
	r.t.Helper()
	r.cluster.Try("make room on "+n.Name(), func(ctx context.Context) error {
		if err := r.js.DeleteStream(ctx, filler(n)); !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		return nil // a try before did it
	})
}

// loseRawTail puts the files of the raw stream, on all servers, back to what they were some
// records ago, as a power failure can on brokers that do not sync. The partitions whose
// last record is gone stop and say so, and store nothing more; another generation is whole.
func (r *faultRun) loseRawTail() {
	r.t.Helper()
	ctx := r.t.Context()
	raw, err := r.js.Stream(ctx, pipeline.RawStream)
	if err != nil {
		r.t.Fatal(err)
	}
	saved := make(map[string]string) // copies of directories
	r.cluster.Stop()
	for _, n := range r.cluster.Nodes {
		for _, dir := range n.StreamDirs(raw.CachedInfo()) {
			saved[dir] = filepath.Join(r.t.TempDir(), "saved")
			if err := os.CopyFS(saved[dir], os.DirFS(dir)); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.startAll()
	x := pipelinetest.Expectation{Topology: r.top}
	pipelinetest.Publish(r.t, r.js, pipelinetest.Workload(r.plan.seed+1<<32, 200, 200)...) // for every partition
	x.RequireExact(r.t, r.js)
	before := r.stored()
	r.cluster.Stop()
	for dir, copied := range saved {
		if err := os.RemoveAll(dir); err != nil {
			r.t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(copied)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.startAll()

	status, err := pipeline.ReadStatus(ctx, r.js, r.top)
	if err != nil {
		r.t.Fatal(err)
	}
	stopped := 0
	for _, p := range status.Partitions {
		if p.Problem == nil {
			continue
		}
		if stopped++; !errors.Is(p.Problem, pipeline.ErrRawLost) {
			r.t.Errorf("partition %d: %v", p.Partition, p.Problem)
		}
		text := fmt.Sprintf("partition stopped\" partition=%d error=\"raw stream has lost its tail", p.Partition)
		r.told(text, func(w *worker) bool { return strings.Contains(w.Output(), text) })
	}
	if stopped != r.top.Partitions {
		r.t.Errorf("%d partitions are told to have lost records, want all %d", stopped, r.top.Partitions)
	}
	for _, w := range r.workers { // nothing is left to be worked on
		w.AwaitEnd()
	}
	pipelinetest.Publish(r.t, r.js, pipelinetest.Workload(r.plan.seed+2<<32, 40, 600)...)
	r.workers = nil
	w := r.start(r.cluster.URL())
	w.AwaitEnd()
	if !strings.Contains(w.Output(), "raw stream has lost its tail") {
		r.t.Errorf("a worker that starts does not say that records are lost:\n%s", w.Output())
	}
	if after := r.stored(); after != before {
		r.t.Errorf("%d messages were stored after the loss", int64(after)-int64(before))
	}

	next := r.top
	next.Generation = "v2"
	if err := pipeline.Provision(ctx, r.js, next); err != nil {
		r.t.Fatal(err)
	}
	r.top = next
	r.workers = []*worker{r.start(r.cluster.URL())}
	pipelinetest.Expectation{Topology: next}.RequireExact(r.t, r.js)
}

// startAll starts all servers again, and waits until they can be used.
func (r *faultRun) startAll() {
	r.t.Helper()
	r.cluster.Start(r.cluster.Nodes...)
	r.cluster.Settle(r.js)
}

// stored is how many events and states there are of the generation.
func (r *faultRun) stored() uint64 {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), pipeline.EventsStream(r.top.Generation))
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// told waits until one of the workers has said something.
func (r *faultRun) told(what string, said func(*worker) bool) {
	r.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	ctx := deadline(r.t)
	for !slices.ContainsFunc(r.workers, said) {
		select {
		case <-look.C:
		case <-ctx.Done():
			for _, w := range r.workers {
				r.t.Logf("%s:\n%s", w.name, w.Output())
			}
			r.t.Fatalf("no worker tells of %s", what)
		}
	}
}

// some waits until a number of events of chance have been sent, but not for long.
func (r *faultRun) some() {
	goal := r.arrived.Load() + 1 + r.random.Int64N(100)
	limit := time.NewTimer(time.Duration(r.random.Int64N(int64(time.Second))))
	defer limit.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for r.arrived.Load() < goal {
		select {
		case <-look.C:
		case <-limit.C:
			return
		}
	}
}

// moment waits for a time of chance.
func (r *faultRun) moment(most time.Duration) {
	limit := time.NewTimer(time.Duration(r.random.Int64N(int64(most))))
	defer limit.Stop()
	<-limit.C
}

// producer ships records, as many as it is granted, in small batches.
type producer struct {
	t       *testing.T
	cluster *pipelinetest.Cluster
	records []normalizers.Record
	seed    uint64
	lives   int
	end     func() // ends the present life in the middle of what it does

	mu      sync.Mutex
	granted int
	shipped int           // in the present life
	changed chan struct{} // closed and made anew when one of them changes
}

func newProducer(t *testing.T, c *pipelinetest.Cluster, plan faultPlan) *producer {
	t.Helper()
	p := &producer{
		t: t, cluster: c, seed: plan.seed, changed: make(chan struct{}),
		records: pipelinetest.Workload(plan.seed, max(10, plan.records/50), plan.records),
	}
	p.live()
	t.Cleanup(func() { p.end() })
	return p
}

// live ships everything from the beginning, with ids of its own.
func (p *producer) live() {
	p.t.Helper()
	p.lives++
	random := rand.New(rand.NewPCG(p.seed, uint64(p.lives)))
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	js := p.cluster.JetStream()
	done := make(chan struct{})
	p.end = func() {
		js.Conn().Close() // with what is in its buffers
		cancel()
		<-done
	}
	ids := fmt.Sprintf("life%d", p.lives)
	p.set(func() { p.shipped = 0 })
	go func() {
		defer close(done)
		for {
			granted, shipped, changed := p.now()
			n := min(granted-shipped, 1+random.IntN(20))
			if n == 0 {
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					return
				}
			}
			if pipelinetest.Ship(ctx, js, ids, shipped, p.records[shipped:shipped+n]...) != nil {
				return
			}
			p.set(func() { p.shipped += n })
			pause := time.NewTimer(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return
			}
		}
	}()
}

func (p *producer) now() (granted, shipped int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.granted, p.shipped, p.changed
}

func (p *producer) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// grant lets it ship n records more, as far as there are.
func (p *producer) grant(n int) {
	p.set(func() { p.granted = min(p.granted+n, len(p.records)) })
}

// wait waits until all is shipped that was granted.
func (p *producer) wait() {
	p.t.Helper()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for {
		granted, shipped, changed := p.now()
		if granted == shipped {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			p.t.Fatalf("%d of %d records are shipped", shipped, granted)
		}
	}
}

// die ends it in the middle of what it does, and begins again with the first record: it
// has forgotten what it shipped, and the server does not know the new ids.
func (p *producer) die() {
	p.t.Helper()
	p.end()
	p.live()
}

// TestFaultsAreFound is the control: the same run of workers that are stopped and let go
// on, against a server that knows no fence, stores events twice and out of order, and the
// comparison says so.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*faultsSeed, rand.Uint64N(1<<32))
	tally := newTally()
	r := startFaultRun(t, faultPlan{nodes: 1, seed: seed, records: 1500, unfenced: true}, tally)
	for range 3 {
		r.producer.grant(400)
		r.some()
		r.zombie()
		tally.faults[workerZombie]++
	}
	r.producer.grant(1500)
	r.producer.wait()
	// What a zombie stored last may be an old checkpoint, which only who claims would see.
	for _, w := range r.workers {
		w.Kill()
	}
	r.workers = []*worker{r.start(r.cluster.URL())}
	report := r.compare()
	t.Log(tally)
	if report.Doubled == 0 || report.OutOfOrder == 0 || report.Err() == nil {
		t.Errorf("no fence, and yet events are not both doubled and out of order: %+v", report)
	}
}

// TestDiskFull fills the disk of a server under the stage: a real one of a few megabytes.
// The server gives up its streams; when it starts again with room, the stage goes on.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("no small disk can be made here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "umount", "-l", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	cluster := pipelinetest.StartClusterOn(t, disk)
	top := topology(4)
	js := cluster.Provision(top)
	records := pipelinetest.Workload(31, 40, 2000)
	pipelinetest.Publish(t, js, records[:1000]...)
	s := start(t, js, member(top, "w"))
	x := pipelinetest.Expectation{Topology: top}
	x.RequireExact(t, js)

	filler := filepath.Join(disk, "filler")
	if err := fill(filler); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shipped := make(chan error, 1)
	go func() { shipped <- pipelinetest.Ship(ctx, js, "full", 0, records[1000:1800]...) }()
	cluster.Nodes[0].AwaitOutput("no space left on device")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	cluster.Stop()
	cluster.Start(cluster.Nodes...)
	if err := <-shipped; err != nil {
		t.Fatal(err)
	}
	pipelinetest.Publish(t, js, records[1800:]...)
	x.RequireExact(t, js)
	s.stop(t)
}

// fill writes to a file until the disk has no room for it.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for {
		if _, err := f.Write(block); err != nil {
			break // it is full
		}
	}
	return f.Close()
}
