package worker_test

import (
	"cmp"
	"context"
	"flag"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

var faultsSoak = flag.Duration("faults.soak", 0, "how long TestFaultsSoak runs; 30m has 10,000 sessions, 1,000 faults and half a million records")

// TestFaultsSoak breaks things again and again for a long time, while records arrive all the time, and compares what
// is stored at the end. It logs its progress each minute. With -faults.nodes and -faults.cells it runs on
// several servers and cells:
//
//	go test ./pipeline/worker -v -run TestFaultsSoak -faults.soak 30m -timeout 2h
func TestFaultsSoak(t *testing.T) {
	t.Parallel()
	if *faultsSoak == 0 {
		t.Skip("runs with -faults.soak")
	}
	scaled := func(n int) int { return max(20, int(float64(n)*faultsSoak.Minutes()/30)) }
	plan := faultPlan{
		nodes: max(*faultsNodes, 1), cells: *faultsCells, seed: cmp.Or(*faultsSeed, rand.Uint64N(1<<32)),
		records: scaled(500_000), sessions: scaled(10_000), rewind: 500, large: true,
	}
	tally := newTally()
	t.Cleanup(func() { t.Log(tally) })
	s := &soak{faultRun: startFaultRun(t, plan, tally), length: *faultsSoak, faults: scaled(1000)}
	s.strikeFirst()
	s.began = time.Now()
	s.run()
}

// slowFault is how long a fault lasts that the soak logs: while it lasts, there is no other one.
const slowFault = 15 * time.Second

// soak is a run of faults that are spread over a time, as the records are.
type soak struct {
	*faultRun

	began  time.Time
	length time.Duration
	faults int

	mu     sync.Mutex // guards the tally
	struck chan fault // oldest fault whose recovery is not measured yet
}

// fault is a fault that has ended.
type fault struct {
	kind string
	at   time.Time
}

// soakKinds returns the kinds of faults that are drawn: those that pass at once most of the time, so that a
// thousand fit, and those that start a server again least, because it reads its whole store, which has a
// gigabyte at the end. The disks are not filled, because the store of a soak has no limit.
func soakKinds(nodes int) (often, seldom, restarts []string) {
	often = []string{workerKilled, workerKilled, commitCut, producerDied, consumersDeleted}
	if nodes > 1 {
		often = append(often, leadersAsked)
	}
	restarts = []string{serverKilled, serversRolled, majorityKilled, nodeRolledBack, eventsWentBack}
	left := slices.Concat(often, restarts, compared, []string{diskFull, oneDiskFull})
	kinds := faultKinds(nodes)
	seldom = slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return slices.Contains(left, kind) })
	restarts = slices.DeleteFunc(restarts, func(kind string) bool { return !slices.Contains(kinds, kind) })
	return often, seldom, restarts
}

// strikeFirst makes the faults that need everything to be done before them and compared with what was sent after them: later
// in the soak each would take minutes. The others follow over what they leave.
func (s *soak) strikeFirst() {
	s.t.Helper()
	for _, kind := range compared {
		if !slices.Contains(faultKinds(s.plan.nodes), kind) {
			continue
		}
		s.producer.grant(200)
		s.awaitSome()
		s.strikeAmid(kind)
		s.recover(kind, time.Now())
		s.tally.faults[kind]++
		if err := cmp.Or(s.compare().Err(), s.compareSent()); err != nil {
			s.t.Fatalf("after the fault %q: %v", kind, err)
		}
	}
}

// compared are the kinds of faults of [soak.strikeFirst].
var compared = []string{recordsExpired, streamsWentBack}

func (s *soak) run() {
	s.t.Helper()
	s.struck = make(chan fault, 1)
	ctx, cancel := context.WithCancel(s.t.Context())
	var background sync.WaitGroup
	background.Go(func() { s.grantAll(ctx) })
	background.Go(s.measure)
	last := s.strikeAll()
	s.struck <- last
	close(s.struck)
	s.until(s.began.Add(s.length))
	cancel()
	background.Wait()
	s.producer.grant(s.plan.records + s.plan.sessions)
	s.producer.wait()
	s.recover(last.kind, time.Now())
	s.t.Logf("compares after %v", time.Since(s.began).Round(time.Second))
	report := s.compare()
	if err := report.Err(); err != nil {
		s.t.Error(err)
	}
	s.count(report)
	if err := s.compareSent(); err != nil {
		s.t.Error(err)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	s.t.Logf("compared after %v, with %d MiB of memory", time.Since(s.began).Round(time.Second), memory.Sys>>20)
	for _, w := range s.workers {
		s.drained(w)
	}
}

// until waits for a moment.
func (s *soak) until(moment time.Time) {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	<-timer.C
}

// strikeAll makes the faults, each at its time or as soon as the one before has ended, and returns
// the last one. A fault that met nothing, such as a cut without a commit, does not count.
func (s *soak) strikeAll() (last fault) {
	s.t.Helper()
	often, seldom, restarts := soakKinds(s.plan.nodes)
	for made := 0; made < s.faults; {
		s.until(s.began.Add(s.length * time.Duration(made) / time.Duration(s.faults)))
		kinds := often
		switch n := s.random.IntN(40); {
		case n == 0:
			kinds = restarts
		case n <= 5:
			kinds = seldom
		}
		kind := kinds[s.random.IntN(len(kinds))]
		begin := time.Now()
		if !s.strikeAmid(kind) {
			continue
		}
		if took := time.Since(begin); took > slowFault {
			s.t.Logf("%v: the fault %q took %v", time.Since(s.began).Round(time.Second), kind, took.Round(time.Second))
		}
		made++
		last = fault{kind, time.Now()}
		s.mu.Lock()
		s.tally.faults[kind]++
		s.mu.Unlock()
		select {
		case s.struck <- last:
		default:
		}
	}
	return last
}

// measure measures how long it takes after a fault until everything is done that was stored when it
// ended, whatever further faults there are meanwhile.
func (s *soak) measure() {
	for f := range s.struck {
		ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
		err := replay.CatchUp(ctx, s.js, s.top)
		cancel()
		if err != nil {
			s.t.Errorf("after the fault %q: %v", f.kind, err)
		}
		took := time.Since(f.at)
		s.mu.Lock()
		s.tally.recovered(f.kind, took)
		s.mu.Unlock()
	}
}

// grantAll grants the producer its records as the time passes, and logs the progress each minute.
func (s *soak) grantAll(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	for {
		select {
		case <-tick.C:
			due := int(float64(s.producer.total) * time.Since(s.began).Seconds() / s.length.Seconds())
			if granted, _, _ := s.producer.now(); due > granted {
				s.producer.grant(due - granted)
			}
		case <-minute.C:
			_, shipped, _ := s.producer.now()
			lag := s.lag(ctx)
			s.mu.Lock()
			faults := 0
			for _, n := range s.tally.faults {
				faults += n
			}
			s.t.Logf("%v: %d records shipped, %s not done, %d faults of %d, longest recovery %v",
				time.Since(s.began).Round(time.Second), shipped, lag, faults, s.faults, s.tally.recovery.Round(time.Millisecond))
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// lag returns how many records are not done, or why that is not known.
func (s *soak) lag(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p, err := replay.ReadProgress(ctx, s.js, streams.Generation{Name: s.top.Generation})
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return strconv.FormatUint(p.Total-p.Done, 10)
}
