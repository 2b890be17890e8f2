package erasure_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/erasure"
	"tributary/pipeline/events"
	"tributary/pipeline/export"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
)

// While workers run, nothing of an erased session is left in any stream: not in the live generation, not in a replay, no
// dead letter, title, object or archived state. All other events stay as they are, their readers go on, and a replay makes
// them again.
func TestNothingIsLeftOfAnErasedSession(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 2})
	d.start()
	id, marker := doomed("one")
	d.publish(id, marker) // the first records of the raw stream
	pipelinetest.Publish(t, d.js, pipelinetest.Workload(5, 6, 120)...)
	if _, err := replay.Start(t.Context(), d.js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	d.caughtUp("v1", "b")
	pipelinetest.Publish(t, d.js, record(id.Session, marker+" end")) // the last event of all readers
	d.caughtUp("v1", "b")
	d.title(id, "title "+marker)
	d.summarized(id)
	d.archived("v1", id)
	dir := t.TempDir()
	exporting := export.Config{Dir: dir, Generation: "v1", Format: export.JSONL, Logger: slog.New(slog.DiscardHandler)}
	if _, err := export.Run(deadline(t), d.js, exporting); err != nil {
		t.Fatal(err)
	}
	read := newReader(t, d)
	read.await("end of the session", func(seen map[string]int) bool { return seen[marker+" end"] == 1 })
	positions, err := erasure.Positions(t.Context(), d.js, "v1", id)
	if err != nil {
		t.Fatal(err)
	}
	held, err := export.FilesOf(t.Context(), exporting, id.Source, positions)
	if err != nil || len(held) != 1 {
		t.Fatalf("%d files of the export have events of the session: %v, %v", len(held), held, err)
	}
	before := map[string]map[string]string{"v1": d.others("v1", id), "b": d.others("b", id)}
	counts, err := erasure.Count(t.Context(), d.js, []events.SessionID{id})
	if err != nil {
		t.Fatal(err)
	}
	if c := counts[0]; c.Records != 6 || c.Events != 10 || c.DeadLetters != 2 || c.Objects != 1 || c.Titles != 2 || c.Summaries < 2 || c.States < 2 {
		t.Errorf("found before: %+v", c)
	}

	results := d.erase(id)
	d.requireGone(id, marker)
	if r := results[0].Removed; r.Records != 6 || r.Events != 10 || r.DeadLetters != 2 || r.Objects != 1 || r.Titles != 2 {
		t.Errorf("removed: %+v", r)
	}
	for name, events := range before {
		if diff := cmp.Diff(events, d.others(name, id)); diff != "" {
			t.Errorf("events of other sessions in %s (-before +after):\n%s", name, diff)
		}
	}

	// Everybody goes on, also a worker that had the session in memory, and one that starts.
	pipelinetest.Publish(t, d.js, pipelinetest.Workload(6, 4, 40)...)
	pipelinetest.Publish(t, d.js, record("last", "the last one"))
	d.exact("v1", "b")
	d.stop()
	d.start()
	if _, err := replay.Start(t.Context(), d.js, replay.Request{Name: "c"}); err != nil {
		t.Fatalf("a replay after the first records were erased: %v", err)
	}
	d.exact("v1", "b", "c")
	d.requireNoneExpired()
	d.requireGone(id, marker)
	read.await("last event", func(seen map[string]int) bool { return seen["the last one"] == 1 })
	read.requireOnce(t)
	result, err := export.Run(deadline(t), d.js, exporting)
	if err != nil || result.Removed > 0 || result.Events == 0 {
		t.Errorf("the export went on with %+v, %v", result, err)
	}
	if n := strings.Count(files(t, dir), marker+" end"); n == 0 {
		t.Error("the export has lost rows, which are not the broker's")
	}

	log, err := erasure.Log(t.Context(), d.js)
	if err != nil || len(log) != 1 || log[0].ID() != id || log[0].By != "ada@example" || log[0].Ended.IsZero() || log[0].Removed.Records != 6 || log[0].Removed.Events != 10 {
		t.Errorf("log: %+v, %v", log, err)
	}
}

// reader is a subscription that counts the texts of events.
type reader struct {
	tb   testing.TB
	mu   sync.Mutex
	seen map[string]int // by the text, and by the id of the event
	back int
}

func newReader(tb testing.TB, d *deployment) *reader {
	tb.Helper()
	r := &reader{tb: tb, seen: make(map[string]int)}
	sub, err := subscribe.New(d.dial(), subscribe.Config{
		Name: "counts", Change: subscribe.Continue, Poll: 20 * time.Millisecond, Backoff: time.Millisecond,
		GenerationChanged: func(context.Context, subscribe.GenerationChanged) error { return nil },
		WentBack: func(context.Context, subscribe.WentBack) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.back++
			return nil
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx := context.WithoutCancel(tb.Context())
	go func() {
		ended <- sub.Run(ctx, func(_ context.Context, e subscribe.Event) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[string(e.Source)+" "+e.SessionID+" "+e.EventID]++
			if e.Text != nil {
				r.seen[*e.Text]++
			}
			return nil
		})
	}()
	tb.Cleanup(func() {
		sub.Drain()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	return r
}

// await waits until a condition about what was seen is true.
func (r *reader) await(what string, condition func(map[string]int) bool) {
	r.tb.Helper()
	(&deployment{tb: r.tb}).await(what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return condition(maps.Clone(r.seen))
	})
}

// requireOnce fails the test if an event was passed twice, or the stream went back for the subscription.
func (r *reader) requireOnce(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for event, n := range r.seen {
		if strings.HasPrefix(event, string(envelopes.ClaudeCode)+" ") && n != 1 {
			t.Errorf("event %s was passed %d times", event, n)
		}
	}
	if r.back > 0 {
		t.Errorf("the stream went back %d times", r.back)
	}
}

// An erasure that is killed at any of its requests, and run again, is whole, while workers run and records arrive.
func TestKilledErasuresAreFinished(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one erasure after the other: the race detector sees nothing new in that")
	}
	const deployments = 2 // at once: most of the time is a wait for workers
	for first := 1; first <= deployments; first++ {
		t.Run(fmt.Sprint("from request ", first), func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 2})
			d.start()
			pipelinetest.Publish(t, d.js, pipelinetest.Workload(7, 4, 40)...)
			at, more := first, true
			for ; more; at += deployments {
				id, marker := doomed(fmt.Sprint("at-", at, "-"))
				before := d.lasts()
				d.publish(id, marker)
				d.caughtUp("v1")
				d.title(id, marker)
				d.summarized(id)
				if more = d.killed(at, at%2 == 0, id); more {
					pipelinetest.Publish(t, d.js, record("other", fmt.Sprint("text ", at)))
					d.erase(id)
				}
				d.requireGoneBehind(before, id, marker)
				log, err := erasure.Log(t.Context(), d.js)
				if err != nil || slices.ContainsFunc(log, func(e erasure.Entry) bool { return e.Ended.IsZero() }) {
					t.Fatalf("killed at request %d, and run again: not finished: %+v, %v", at, log, err)
				}
				d.requireNoneExpired()
			}
			if at < 20 {
				t.Errorf("an erasure has only %d requests", at)
			}
			d.exact("v1")
			d.requireGone(doomed("at-")) // the beginning of the ids and markers of all rounds
			d.requireNoneExpired()
		})
	}
}

// Records of an erased session that arrive later yield nothing: in workers that had the session in memory, in workers that
// start later, and in a replay. The same command removes them.
func TestErasureStands(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 2})
	d.start()
	id, marker := doomed("late")
	pipelinetest.Publish(t, d.js, record("other", "before"))
	d.publish(id, marker)
	d.caughtUp("v1")
	d.erase(id)
	d.publish(id, marker) // shipped again, with other message ids
	pipelinetest.Publish(t, d.js, record("other", "between"))
	d.caughtUp("v1")
	d.stop()
	pipelinetest.Publish(t, d.js, record(id.Session, marker+" more"))
	d.start()
	if _, err := replay.Start(t.Context(), d.js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	d.caughtUp("v1", "b")
	counts, err := erasure.Count(t.Context(), d.js, []events.SessionID{id})
	if err != nil {
		t.Fatal(err)
	}
	if want := (streams.ErasureCounts{Records: 6, Objects: 1}); counts[0] != want {
		t.Errorf("left of the session: %+v, want %+v", counts[0], want)
	}
	d.requireNoneExpired()
	d.erase(id)
	d.requireGone(id, marker)
	pipelinetest.Publish(t, d.js, record("other", "after"))
	d.exact("v1", "b")
	d.requireNoneExpired()
	if log, err := erasure.Log(t.Context(), d.js); err != nil || len(log) != 1 || log[0].Removed.Records != 11 {
		t.Errorf("log: %+v, %v", log, err)
	}
}

// Records that were erased before a generation read them do not count as expired, nor do those that were erased before a
// generation was made. Records that expire are still found.
func TestErasedRecordsDidNotExpire(t *testing.T) {
	t.Parallel()
	for _, cells := range []int{1, 2} {
		t.Run(fmt.Sprint("cells=", cells), func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 4, Cells: cells})
			var ids []events.SessionID
			for i := range 5 { // no worker runs
				id, marker := doomed(fmt.Sprint(i, "-"))
				ids = append(ids, id)
				d.publish(id, marker)
				pipelinetest.Publish(t, d.js, pipelinetest.Workload(uint64(i), 3, 20)...)
			}
			if _, err := replay.Start(t.Context(), d.js, replay.Request{Name: "b"}); err != nil {
				t.Fatal(err)
			}
			// Two commands at the same time.
			ctx := deadline(t)
			var both sync.WaitGroup
			for range 2 {
				js := d.dial()
				both.Go(func() {
					if _, err := patiently(ctx, js, erasure.Request{Sessions: ids[:4], By: "one of two"}); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			d.erase(ids[4])
			d.start()
			if _, err := replay.Start(t.Context(), d.js, replay.Request{Name: "c"}); err != nil {
				t.Fatal(err)
			}
			d.exact("v1", "b", "c")
			d.requireNoneExpired()
			for _, id := range ids {
				d.requireGone(id, strings.Replace(id.Session, "doomed", "marker", 1))
			}
			d.stop()
			pipelinetest.Publish(t, d.js, record("lost", "never read"))
			raw, err := d.js.Stream(t.Context(), d.top.Layout().RawStream(envelopes.Partition(envelopes.ClaudeCode, "lost", 4)))
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			list, err := replay.ReadExpired(deadline(t), d.js)
			if err != nil || len(list) != 3 {
				t.Fatalf("expired: %+v, %v", list, err)
			}
			for _, e := range list {
				if e.Records != 1 {
					t.Errorf("%d records of %s expired, want 1", e.Records, e.Generation)
				}
			}
		})
	}
}

// While records of the session and of others arrive, and workers are killed and start, an erasure removes what it can, and
// the others are exact.
func TestErasureWhileRecordsArrive(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 2})
	d.start()
	id, marker := doomed("busy")
	d.publish(id, marker)
	d.caughtUp("v1")
	ctx := deadline(t)
	erased, js := make(chan error, 1), d.dial()
	go func() {
		_, err := patiently(ctx, js, erasure.Request{Sessions: []events.SessionID{id}})
		erased <- err
	}()
	for i, done := 0, false; !done; i++ {
		var list []core.Record
		for s := range 8 {
			list = append(list, record(fmt.Sprint("s", s), fmt.Sprint("text ", i, " of ", s)))
		}
		pipelinetest.Publish(t, d.js, append(list, record(id.Session, fmt.Sprint(marker, " ", i)))...)
		if i%8 == 7 {
			d.stop()
			d.start()
		}
		select {
		case err := <-erased:
			if done = true; err != nil {
				t.Error(err)
			}
		default:
		}
	}
	d.caughtUp("v1")
	if counts, err := erasure.Count(t.Context(), d.js, []events.SessionID{id}); err != nil || counts[0].Sum() != counts[0].Records {
		t.Errorf("left of the session: %+v, %v", counts, err)
	}
	d.erase(id)
	d.requireGone(id, marker)
	d.exact("v1")
	d.requireNoneExpired()
}

// An object that a record of another session names stays. Nothing is erased while a generation is being started.
func TestErasureKeepsWhatIsOfOthers(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 2})
	d.start()
	id, marker := doomed("shared")
	same := record(id.Session, strings.Repeat("the same ", 1<<20))
	other := same
	other.Session = "other"
	pipelinetest.Publish(t, d.js, same, other, record(id.Session, marker))
	d.caughtUp("v1")
	if r := d.erase(id)[0]; r.Kept != 1 || r.Removed.Objects != 0 {
		t.Errorf("the result is %+v, want an object that is kept", r)
	}
	d.requireGone(id, marker)
	d.exact("v1")
	kv, err := d.js.KeyValue(t.Context(), streams.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), streams.GenerationPrefix+"half", `{"revision":1,"state":"starting"}`); err != nil {
		t.Fatal(err)
	}
	if _, err := erasure.Run(t.Context(), d.js, erasure.Request{Sessions: []events.SessionID{id}}); !errors.Is(err, streams.ErrStarting) || !strings.Contains(err.Error(), "tributary replay start half") {
		t.Errorf("while a generation is being started: %v", err)
	}
}

// A worker of an earlier version would make events of late records, and drop the erasure from its checkpoints. While one
// runs, nothing is erased.
func TestErasureWaitsForTheUpdateOfWorkers(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 2})
	id, marker := doomed("early")
	d.publish(id, marker)
	kv, err := d.js.KeyValue(t.Context(), streams.WorkersBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), streams.WorkerKey("v1", "old-1"), `{"name":"old","revision":1,"partitions":[0,1]}`); err != nil {
		t.Fatal(err)
	}
	_, err = erasure.Run(t.Context(), d.js, erasure.Request{Sessions: []events.SessionID{id}})
	if !errors.Is(err, erasure.ErrOldWorker) || !strings.Contains(err.Error(), "old of generation v1") {
		t.Errorf("while a worker of an earlier version runs: %v", err)
	}
	if counts, err := erasure.Count(t.Context(), d.js, []events.SessionID{id}); err != nil || counts[0].Records != 5 {
		t.Errorf("left of the session: %+v, %v", counts, err)
	}
	if _, err := d.js.Stream(t.Context(), streams.ErasuresStream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the log of erasures: %v", err)
	}
}

// A log that was removed begins behind the erasures that count, so that new ones count, too. A log with fewer entries is
// refused: its next entries would not count.
func TestErasureAfterTheLogWasLost(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 1})
	d.start()
	one, first := doomed("one")
	two, second := doomed("two")
	d.publish(one, first)
	d.publish(two, second)
	d.caughtUp("v1")
	d.erase(one)
	if err := d.js.DeleteStream(t.Context(), streams.ErasuresStream); err != nil {
		t.Fatal(err)
	}
	d.erase(two)
	d.publish(two, second)
	d.caughtUp("v1")
	counts, err := erasure.Count(t.Context(), d.js, []events.SessionID{two})
	if want := (streams.ErasureCounts{Records: 5, Objects: 1}); err != nil || counts[0] != want {
		t.Errorf("left of the session: %+v, %v, want %+v", counts, err, want)
	}
	if err := d.js.DeleteStream(t.Context(), streams.ErasuresStream); err != nil {
		t.Fatal(err)
	}
	if err := streams.ProvisionErasures(t.Context(), d.js, 1); err != nil {
		t.Fatal(err)
	}
	_, err = erasure.Run(t.Context(), d.js, erasure.Request{Sessions: []events.SessionID{two}})
	if err == nil || !strings.Contains(err.Error(), "nats stream rm "+streams.ErasuresStream) {
		t.Errorf("with a log that lacks entries: %v", err)
	}
}

// A command that waits until a generation has done every record does not wait for records that are erased meanwhile.
func TestErasedRecordsAreNotAwaited(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, streams.Topology{Generation: "v1", Partitions: 1}) // no worker runs
	id, marker := doomed("unread")
	d.publish(id, marker)
	reads, err := d.js.Conn().SubscribeSync("$JS.API.STREAM.MSG.GET.RAW")
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	ctx, js := deadline(t), d.dial()
	go func() { waited <- replay.CatchUp(ctx, js, d.top) }()
	for range 2 * len(envelopes.RawFilters(0)) { // the command has read the last records, and has begun to read them again
		if _, err := reads.NextMsgWithContext(ctx); err != nil {
			t.Fatal(err)
		}
	}
	d.erase(id)
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// On three servers, an erasure while one of them is away is whole when it is back: nothing comes back with it.
func TestErasureWithoutOneOfThreeServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three servers")
	}
	top := streams.Topology{Generation: "v1", Partitions: 2, Replicas: 3}
	cluster := pipelinetest.StartCluster(t, 3, 0)
	d := &deployment{tb: t, dial: cluster.JetStream, top: top, js: cluster.Provision(top)}
	d.start()
	id, marker := doomed("everywhere")
	d.publish(id, marker)
	pipelinetest.Publish(t, d.js, pipelinetest.Workload(8, 4, 40)...)
	d.caughtUp("v1")
	d.summarized(id)
	cluster.Settle(d.js)
	away := cluster.Nodes[1]
	away.Kill()
	cluster.AwaitWithout(away, pipelinetest.Connect(t, cluster.URLWithout(away)))
	d.erase(id)
	cluster.Start(away)
	cluster.Settle(d.js)
	d.publish(id, marker)
	pipelinetest.Publish(t, d.js, record("other", "after"))
	d.caughtUp("v1")
	d.stop()
	d.start()
	d.erase(id)
	d.requireGone(id, marker)
	d.exact("v1")
	d.requireNoneExpired()
}
