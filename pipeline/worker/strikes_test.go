package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// strike makes a fault, and reports whether it happened.
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
		r.killServers(n)
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
		r.killServers(killed...)
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
	case packetsDropped:
		r.proxy.Swallow()
		r.producer.grant(20)
		r.awaitOwners(r.workers[1:])
		r.proxy.Mend()
		r.producer.grant(20)
		r.awaitShared()
	case commitCut:
		return r.cut()
	case producerDied:
		r.producer.die()
	case diskFull:
		r.fillDisks()
	case oneDiskFull:
		r.fillDisk()
	case leadersAsked:
		r.askLeaders()
	case consumersDeleted:
		return r.deleteConsumers()
	case heartbeatsPurged:
		r.purgeHeartbeats()
	case nodeRolledBack:
		r.rollNodeBack()
	case recordsExpired:
		r.expire()
	case eventsWentBack:
		r.goBack(r.eventsStreams())
	case streamsWentBack:
		r.goBackTogether()
	case accountFull:
		r.fillAccount()
	case streamFull:
		r.fillStream()
	default:
		r.t.Fatalf("no fault %q", kind)
	}
	return true
}

// killServers kills servers.
func (r *faultRun) killServers(nodes ...*pipelinetest.Node) {
	r.t.Helper()
	r.killed = true
	for _, n := range nodes {
		n.Kill()
	}
}

// node returns a random node.
func (r *faultRun) node() *pipelinetest.Node {
	return r.cluster.Nodes[r.random.IntN(len(r.cluster.Nodes))]
}

// start starts a worker.
func (r *faultRun) start(url string) *workerProcess {
	r.t.Helper()
	r.started++
	w := &workerProcess{name: fmt.Sprintf("w%d", r.started), url: url}
	w.Process = pipelinetest.StartWorker(r.t, pipelinetest.Worker{
		URL: url, Generation: r.top.Generation, Partitions: r.top.Partitions, Cells: r.top.Cells, Name: w.name, Unfenced: r.plan.unfenced, Forgetful: r.plan.forgetful,
		ArchiveAfter: r.plan.archiveAfter(), Blind: r.started%2 == 0, Binary: r.binary(),
	})
	r.all = append(r.all, w)
	w.AwaitReady()
	return w
}

// binary returns the test binary of a worker: each third one is of another version where there is one.
func (r *faultRun) binary() string {
	if r.started%3 == 0 {
		return *faultsOld
	}
	return ""
}

// replace puts a worker into the place of one that has ended.
func (r *faultRun) replace(old, w *workerProcess) { r.workers[slices.Index(r.workers, old)] = w }

// drained drains a worker.
func (r *faultRun) drained(w *workerProcess) {
	r.t.Helper()
	if code := w.Stop(); code != 0 {
		r.t.Errorf("%s: exit code %d\n%s", w.name, code, w.Output())
	}
}

// scale starts or drains workers until there are n, and waits until each works on some
// partitions.
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
	r.awaitShared()
}

// awaitShared waits until the workers work on all partitions, each on some.
func (r *faultRun) awaitShared() { r.t.Helper(); r.awaitOwners(r.workers) }

// awaitOwners waits until the heartbeats of these workers list all partitions, each some.
func (r *faultRun) awaitOwners(workers []*workerProcess) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		owned := make(map[int]bool)
		idle := len(workers)
		all, err := streams.Workers(ctx, r.js, r.top.Generation)
		for _, w := range all {
			if len(w.Partitions) == 0 || !slices.ContainsFunc(workers, func(of *workerProcess) bool { return of.name == w.ID }) {
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
			r.dump()
			r.t.Fatalf("the workers do not work on all partitions: %+v, %v", all, err)
		}
	}
}

// zombie pauses a worker in the middle of its work until others have taken over, and resumes
// it with what it has in memory and in flight.
func (r *faultRun) zombie() {
	r.t.Helper()
	w := r.workers[r.random.IntN(len(r.workers))]
	w.Pause()
	r.producer.grant(20)
	r.awaitOwners(slices.DeleteFunc(slices.Clone(r.workers), func(of *workerProcess) bool { return of == w }))
	w.Resume()
	r.producer.grant(20)
	r.moment(500 * time.Millisecond)
}

// cut breaks a commit of the first worker at a random place.
func (r *faultRun) cut() bool {
	r.t.Helper()
	cuts := []pipelinetest.Cut{pipelinetest.BeforeCommit, pipelinetest.BeforeAck, pipelinetest.HoldCommit, pipelinetest.DelayAck}
	cut := cuts[r.random.IntN(len(cuts))]
	r.proxy.Arm(cut)
	r.producer.grant(60)
	if !r.awaitCut() && r.proxy.Disarm() {
		return false
	}
	if cut == pipelinetest.HoldCommit || cut == pipelinetest.DelayAck {
		r.moment(time.Second)
		r.proxy.Release()
	}
	return cut != pipelinetest.HoldCommit || r.awaitCut() // the late commit
}

// awaitCut waits for the proxy to make a cut; false when it does not.
func (r *faultRun) awaitCut() bool {
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case <-r.proxy.Done:
		return true
	case <-limit.C:
		return false
	}
}

// fillDisks fills all stores while the workers are paused in the middle of their work, and
// makes room when one of them has logged that it cannot commit.
func (r *faultRun) fillDisks() {
	r.t.Helper()
	for _, w := range r.workers {
		w.Pause()
	}
	r.producer.grant(40)
	r.producer.wait() // until there is work to commit
	for _, n := range r.cluster.Nodes {
		r.fill(n)
	}
	before := make(map[*workerProcess]int)
	for _, w := range r.workers {
		before[w] = len(w.Output())
		w.Resume()
	}
	r.awaitLog("a store that is full", func(w *workerProcess) bool {
		for line := range strings.Lines(w.Output()[before[w]:]) {
			// One of several servers that is full steps down and need not answer why.
			if strings.Contains(line, "partitions lost") && (r.plan.nodes > 1 || strings.Contains(line, storeFull)) {
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

// fillDisk fills the store of one of several servers. The others store what arrives; its own
// replicas are behind until it has room, and so is what is read through them.
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

// storeFull is in the error of a server that has no room for a message.
const storeFull = "insufficient resources"

// filler returns the name of the stream that fills a server.
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

// makeRoom removes what fill has stored.
func (r *faultRun) makeRoom(n *pipelinetest.Node) {
	r.t.Helper()
	r.cluster.Try("make room on "+n.Name(), func(ctx context.Context) error {
		if err := r.js.DeleteStream(ctx, filler(n)); !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		return nil // a previous try succeeded
	})
}

// loseRawTail restores the files of the raw stream, on all servers, to what they were some
// records ago, as a power failure does on brokers that do not sync. The partitions whose last
// record is gone stop, log it, and store nothing more; another generation is exact.
func (r *faultRun) loseRawTail() {
	r.t.Helper()
	ctx := r.t.Context()
	infos := r.infos(r.rawStreams())
	r.cluster.Stop()
	var saved []*pipelinetest.NodeCopy
	for _, n := range r.cluster.Nodes {
		saved = append(saved, n.CopyStreams(infos...))
	}
	r.startAll()
	x := r.expectation()
	pipelinetest.Publish(r.t, r.js, pipelinetest.Workload(r.plan.seed+1<<32, 200, 200)...) // for every partition
	x.RequireExact(r.t, r.js)
	before := r.stored()
	r.cluster.Stop()
	for _, c := range saved {
		c.PutBack()
	}
	r.startAll()

	status, err := replay.ReadStatus(ctx, r.js, r.top)
	if err != nil {
		r.t.Fatal(err)
	}
	stopped := 0
	for _, p := range status.Partitions {
		if p.Fault == "" {
			continue
		}
		if stopped++; !strings.HasPrefix(p.Fault, streams.ErrRawLost.Error()) {
			r.t.Errorf("partition %d: %s", p.Partition, p.Fault)
		}
		text := fmt.Sprintf("partition stopped\" partition=%d error=\"raw stream has lost its tail", p.Partition)
		r.awaitLog(text, func(w *workerProcess) bool { return strings.Contains(w.Output(), text) })
	}
	if stopped != r.top.Partitions {
		r.t.Errorf("%d partitions have lost records, want all %d", stopped, r.top.Partitions)
	}
	pipelinetest.Publish(r.t, r.js, pipelinetest.Workload(r.plan.seed+2<<32, 40, 600)...)
	for _, w := range r.workers {
		r.drained(w)
	}
	r.workers = []*workerProcess{r.start(r.cluster.URL())}
	r.awaitLog("of a worker that starts, that records are lost", func(w *workerProcess) bool { return strings.Contains(w.Output(), "raw stream has lost its tail") })
	if after := r.stored(); after != before {
		r.t.Errorf("%d events and dead letters were stored after the loss", int64(after)-int64(before))
	}

	next := r.top
	next.Generation = "v2"
	if err := streams.Provision(ctx, r.js, next); err != nil {
		r.t.Fatal(err)
	}
	r.top, r.departed = next, pipelinetest.Departed{}
	r.drained(r.workers[0])
	r.workers = []*workerProcess{r.start(r.cluster.URL())}
	r.expectation().RequireExact(r.t, r.js)
}

// startAll starts all servers again, and waits until they can be used.
func (r *faultRun) startAll() {
	r.t.Helper()
	r.cluster.Start(r.cluster.Nodes...)
	r.cluster.Settle(r.js)
}

// rawStreams and eventsStreams return the names of the streams of all cells.
func (r *faultRun) rawStreams() (names []string) {
	for c := range max(r.top.Cells, 1) {
		names = append(names, streams.RawStreamOf(c))
	}
	return names
}

func (r *faultRun) eventsStreams() (names []string) {
	for c := range max(r.top.Cells, 1) {
		names = append(names, streams.EventsStream(envelopes.CellName(r.top.Generation, c)))
	}
	return names
}

// infos returns what the broker says of streams.
func (r *faultRun) infos(names []string) (list []*jetstream.StreamInfo) {
	r.t.Helper()
	for _, name := range names {
		r.cluster.Try("read stream "+name, func(ctx context.Context) error {
			s, err := r.js.Stream(ctx, name)
			if err == nil {
				list = append(list, s.CachedInfo())
			}
			return err
		})
	}
	return list
}

// stored returns how many events and dead letters the generation has.
func (r *faultRun) stored() (n uint64) {
	r.t.Helper()
	for _, name := range r.eventsStreams() {
		for _, filter := range []string{"events.>", "deadletters.>"} {
			r.cluster.Try("count "+name, func(ctx context.Context) error {
				s, err := r.js.Stream(ctx, name)
				if err != nil {
					return err
				}
				info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
				if err != nil {
					return err
				}
				for _, some := range info.State.Subjects {
					n += some
				}
				return nil
			})
		}
	}
	return n
}

// dump logs the end of what workers and servers have written.
func (r *faultRun) dump() {
	r.t.Helper()
	for _, w := range r.workers {
		r.t.Logf("%s:\n%s", w.name, tail(w.Output()))
	}
	for _, n := range r.cluster.Nodes {
		r.t.Logf("%s:\n%s", n.Name(), tail(n.Output()))
	}
}

// tail returns the end of a text.
func tail(text string) string { return text[max(0, len(text)-16<<10):] }

// awaitLog waits until the log of a worker has what is looked for.
func (r *faultRun) awaitLog(what string, has func(*workerProcess) bool) {
	r.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	ctx := deadline(r.t)
	for !slices.ContainsFunc(r.workers, has) {
		select {
		case <-look.C:
		case <-ctx.Done():
			r.dump()
			r.t.Fatalf("no worker logs %s", what)
		}
	}
}

// awaitSome waits until a random number of events have been sent, but not for long.
func (r *faultRun) awaitSome() {
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

// moment waits for a random time.
func (r *faultRun) moment(most time.Duration) {
	limit := time.NewTimer(time.Duration(r.random.Int64N(int64(most))))
	defer limit.Stop()
	<-limit.C
}
