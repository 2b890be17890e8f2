package summaries_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers/core"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// TestKeepersKilledAnywhereKeepEveryEventOnce kills keepers of several processes at random moments while events arrive.
// Their memory holds a part of the sessions, so most folds are loaded again and again.
func TestKeepersKilledAnywhereKeepEveryEventOnce(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := streams.Topology{Generation: "v1", Partitions: 4}
	js := server.Provision(top)
	arguments := keeperArguments{URL: server.URL(), Bytes: 64 << 10, Every: 5}
	keepers := startProcesses(t, 3, func(int) *pipelinetest.Process { return pipelinetest.StartProcess(t, "keeper", arguments) })
	for records := range slices.Chunk(pipelinetest.Workload(7, 60, 2400), 200) {
		pipelinetest.Publish(t, js, records...)
		keepers.killOne(func() { runStage(t, js, top) })
	}
	requireExact(t, js, "v1")
	keepers.stop(t)
}

// TestWorkersKilledAnywhereKeepEveryEventOnce kills workers, each with a stage that hands its events to a keeper.
func TestWorkersKilledAnywhereKeepEveryEventOnce(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := streams.Topology{Generation: "v1", Partitions: 4}
	js := server.Provision(top)
	workers := startProcesses(t, 2, func(n int) *pipelinetest.Process {
		return pipelinetest.StartProcess(t, "stage and keeper", workerArguments{server.URL(), fmt.Sprintf("w%d", n), top.Partitions})
	})
	for records := range slices.Chunk(pipelinetest.Workload(11, 60, 2400), 300) {
		workers.killOne(func() { pipelinetest.Publish(t, js, records...) })
		if err := replay.CatchUp(t.Context(), js, top); err != nil {
			t.Fatal(err)
		}
	}
	requireExact(t, js, "v1")
	workers.stop(t)
}

// processes run the same program; each that is killed is replaced.
type processes struct {
	random  *rand.Rand
	start   func(n int) *pipelinetest.Process // the nth
	started int
	running []*pipelinetest.Process
}

func startProcesses(t *testing.T, count int, start func(n int) *pipelinetest.Process) *processes {
	t.Helper()
	p := &processes{random: rand.New(rand.NewPCG(1, 2)), start: start}
	for range count {
		p.running = append(p.running, p.next())
	}
	return p
}

func (p *processes) next() *pipelinetest.Process {
	p.started++
	return p.start(p.started)
}

// killOne kills one of them at a random moment of what is done meanwhile, or after it.
func (p *processes) killOne(meanwhile func()) {
	victim := p.random.IntN(len(p.running))
	kill := time.AfterFunc(time.Duration(p.random.IntN(60))*time.Millisecond, p.running[victim].Kill)
	meanwhile()
	if kill.Stop() {
		p.running[victim].Kill()
	}
	p.running[victim] = p.next()
}

// stop drains all, and fails the test when that fails.
func (p *processes) stop(t *testing.T) {
	t.Helper()
	for _, one := range p.running {
		if code := one.Stop(); code != 0 {
			t.Errorf("exit code %d\n%s", code, one.Output())
		}
	}
}

// TestRecordsFollowEventsThatGoBack puts the events stream of a running worker back to an older copy: it stores other
// events at positions that its keeper knows already, or has the lost ones again at later positions.
func TestRecordsFollowEventsThatGoBack(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{2, 200} {
		for _, h := range []*events.Handover{nil, events.NewHandover()} {
			t.Run(fmt.Sprintf("lost=%d,handed=%t", lost, h != nil), func(t *testing.T) {
				t.Parallel()
				server := pipelinetest.NewServer(t)
				top := streams.Topology{Generation: "v1", Partitions: 16}
				js := pipelinetest.AsPrograms(t, server.Provision(top))
				w, err := newWorker(js, worker.Config{Topology: top, Handover: h}, config(1<<20, time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				startDrained(t, w)
				publish := func(records []core.Record) {
					t.Helper()
					pipelinetest.Publish(t, js, records...)
					if err := replay.CatchUp(t.Context(), js, top); err != nil {
						t.Fatal(err)
					}
					requireExact(t, js, "v1")
				}
				records := pipelinetest.Workload(12, 10, 600)
				publish(records[:300])
				saved := server.CopyStore()
				publish(records[300 : 300+lost])
				saved.PutBack(streams.EventsStream("v1"))
				publish(records[300+lost:])
			})
		}
	}
}

// TestRecordsFollowEventsThatWentBack is that with a keeper that starts when the events stream is as long again as it
// was, and has nothing at the position of the keeper. Messages that were removed stand for checkpoints and states of before.
func TestRecordsFollowEventsThatWentBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after, behind int }{
		"the lost events are behind the position":             {after: 200},
		"the lost events and others are at earlier positions": {before: 500, behind: 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pipelinetest.NewServer(t)
			top := streams.Topology{Generation: "v1", Partitions: 2}
			js := server.Provision(top)
			records := pipelinetest.Workload(13, 10, 340)
			add := func(records []core.Record) {
				t.Helper()
				pipelinetest.Publish(t, js, records...)
				runStage(t, js, top)
			}
			add(records[:300])
			saved := server.CopyStore()
			removed(t, js, c.before)
			add(records[300:302])
			stop := startKeeper(t, js, config(1<<20, time.Millisecond))
			requireExact(t, js, "v1")
			stop()
			saved.PutBack(streams.EventsStream("v1"))
			removed(t, js, c.after)
			add(records[302:])
			removed(t, js, c.behind)
			startKeeper(t, js, config(1<<20, time.Millisecond))
			requireExact(t, js, "v1")
		})
	}
}

// removed stores so many messages in the events stream, and removes them.
func removed(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	const subject = "deadletters.v1.0.claude_code.removed"
	pipelinetest.PublishMessages(t.Context(), t, js, slices.Repeat([]*nats.Msg{{Subject: subject}}, n)...)
	stream, err := js.Stream(t.Context(), streams.EventsStream("v1"))
	if err == nil {
		err = stream.Purge(t.Context(), jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestEventsOfBeforeArePickedUp has events, and a record of a foreign program, before any keeper runs. Afterwards the
// stream of records is removed, and the records are made again.
func TestEventsOfBeforeArePickedUp(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(3, 20, 400)...)
	runStage(t, js, top)
	if status, err := open(t, js, "v1").Status(t.Context()); err != nil || status.Kept || !status.Silent || status.Behind == 0 {
		t.Errorf("status before a keeper runs: %+v, %v", status, err)
	}
	want := folded(t, js, "v1")
	if diff := cmp.Diff(want, recordsOf(t, open(t, js, "v1"))); diff != "" {
		t.Errorf("without records (-fold +view):\n%s", diff)
	}
	stop := startKeeper(t, js, config(1<<20, time.Millisecond))
	requireExact(t, js, "v1")
	stop()
	if status, err := open(t, js, "v1").Status(t.Context()); err != nil || !status.Silent || status.Owner != "" {
		t.Errorf("status after the keeper was drained: %+v, %v", status, err)
	}
	// Events behind the records are in the view, and in the records once a keeper runs.
	pipelinetest.Publish(t, js, pipelinetest.Workload(4, 5, 100)...)
	runStage(t, js, top)
	if diff := cmp.Diff(folded(t, js, "v1"), recordsOf(t, open(t, js, "v1"))); diff != "" {
		t.Errorf("with records that are behind (-fold +view):\n%s", diff)
	}
	if err := js.DeleteStream(t.Context(), streams.SummariesStream("v1")); err != nil {
		t.Fatal(err)
	}
	startKeeper(t, js, config(1<<20, time.Millisecond))
	requireExact(t, js, "v1")
}

// TestRecordsThatAreWrongAreMadeAgain damages what is stored: filters, folds, the checkpoint, and the events themselves.
func TestRecordsThatAreWrongAreMadeAgain(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 1}
	js := pipelinetest.NewServer(t).Provision(top)
	records := pipelinetest.Workload(5, 4, 300)
	pipelinetest.Publish(t, js, records[:200]...)
	runStage(t, js, top)
	stop := startKeeper(t, js, config(1<<20, time.Millisecond))
	requireExact(t, js, "v1")
	stop()
	info, err := js.Stream(t.Context(), streams.SummariesStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	for n, damaged := range []string{"filters", "folds"} {
		state, err := info.Info(t.Context(), jetstream.WithSubjectFilter("summaries.v1."+damaged+".>"))
		if err != nil {
			t.Fatal(err)
		}
		if len(state.State.Subjects) == 0 {
			t.Fatalf("there are no %s", damaged)
		}
		for subject := range state.State.Subjects {
			if _, err := js.Publish(t.Context(), subject, []byte("damaged")); err != nil {
				t.Fatal(err)
			}
		}
		pipelinetest.Publish(t, js, records[200+50*n:250+50*n]...)
		runStage(t, js, top)
		stop = startKeeper(t, js, config(1<<20, time.Millisecond))
		requireExact(t, js, "v1")
		stop()
	}
	for _, wrong := range []string{"damaged", `{"position":1,"revision":0}`, `{"position":18446744073709551615,"revision":1}`} {
		if _, err := js.Publish(t.Context(), "summaries.v1.checkpoint", []byte(wrong)); err != nil {
			t.Fatal(err)
		}
		if status, err := open(t, js, "v1").Status(t.Context()); err != nil || status.Kept {
			t.Errorf("checkpoint %s: %+v, %v", wrong, status, err)
		}
		stop = startKeeper(t, js, config(1<<20, time.Millisecond))
		requireExact(t, js, "v1")
		stop()
	}
}

// TestEachGenerationHasItsRecords replays into a generation, whose records equal those of the first, and drops it.
func TestEachGenerationHasItsRecords(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 2}
	js := pipelinetest.NewServer(t).Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(6, 10, 200)...)
	runStage(t, js, top)
	startKeeper(t, js, config(1<<20, time.Millisecond))
	requireExact(t, js, "v1")
	if _, err := replay.Start(t.Context(), js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	again := top
	again.Generation = "b"
	runStage(t, js, again)
	requireExact(t, js, "b")
	if err := replay.Drop(t.Context(), js, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Stream(t.Context(), streams.SummariesStream("b")); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the records of a dropped generation: %v", err)
	}
}

// TestSilentKeepersAreReplaced kills a keeper that works alone: another one that waits takes over.
func TestSilentKeepersAreReplaced(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	top := streams.Topology{Generation: "v1", Partitions: 1}
	js := server.Provision(top)
	pipelinetest.Publish(t, js, pipelinetest.Workload(8, 3, 60)...)
	runStage(t, js, top)
	first := pipelinetest.StartProcess(t, "keeper", keeperArguments{URL: server.URL(), Every: 1})
	v := awaitKept(t, js, "v1")
	before, err := v.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Kill()
	startKeeper(t, js, config(1<<20, time.Millisecond))
	pipelinetest.Publish(t, js, pipelinetest.Workload(9, 3, 60)...)
	runStage(t, js, top)
	after, err := awaitKept(t, js, "v1").Status(t.Context())
	if err != nil || after.Owner == before.Owner || after.Owner == "" {
		t.Errorf("the records are kept by %q, before by %q: %v", after.Owner, before.Owner, err)
	}
	requireExact(t, js, "v1")
}

// The records of sessions of four cells are those of all events, also of another keeper that goes on.
func TestRecordsOfFourCells(t *testing.T) {
	t.Parallel()
	top := streams.Topology{Generation: "v1", Partitions: 8, Cells: 4}
	js := pipelinetest.NewServer(t).Provision(top)
	for seed := range uint64(2) {
		pipelinetest.Publish(t, js, pipelinetest.Workload(seed, 20, 150)...)
		runStage(t, js, top)
		stop := startKeeper(t, js, config(1, 10*time.Millisecond))
		requireExact(t, js, "v1")
		stop()
	}
	v := open(t, js, "v1")
	all := sessionsOf(t, js)
	steps, err := v.Steps(t.Context(), events.Query{}, func(*summaries.Record) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	seen := map[events.SessionID]bool{}
	for s, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
		seen[events.SessionID{Source: s.Source, Session: s.Session}] = true
	}
	if len(seen) != len(all) || len(all) == 0 {
		t.Errorf("steps of %d sessions, want %d", len(seen), len(all))
	}
}

func sessionsOf(t *testing.T, js jetstream.JetStream) []events.SessionID {
	t.Helper()
	found, err := events.FindSessions(t.Context(), js, "v1", events.Query{}, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
