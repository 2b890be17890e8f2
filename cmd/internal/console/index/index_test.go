package index_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/console/index"
	"tributary/cmd/internal/figures"
	"tributary/envelopes"
	"tributary/pipeline/events"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

func TestMain(m *testing.M) {
	if code, is := pipelinetest.RunProgram(nil); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	os.Exit(m.Run())
}

// patience bounds the wait for what must happen.
const patience = time.Minute

// deployment is a server with a generation whose sessions are kept.
type deployment struct {
	*pipelinetest.Server

	t  *testing.T
	js jetstream.JetStream
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	server := pipelinetest.NewServer(t)
	b := &deployment{server, t, server.Provision(streams.Topology{Generation: "v1", Partitions: 2})}
	k, err := summaries.New(b.js, summaries.Config{Every: time.Millisecond, Beat: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	b.start(k)
	return b
}

// start runs something until the end of the test, or until stop.
func (b *deployment) start(d pipelinetest.Drainable) (stop func()) {
	b.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.WithoutCancel(b.t.Context())) }()
	stop = func() {
		d.Drain()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		ended <- nil
	}
	b.t.Cleanup(stop)
	return stop
}

// add stores the records of a workload in a generation.
func (b *deployment) add(generation string, seed uint64, sessions, records int) {
	b.t.Helper()
	if records > 0 {
		pipelinetest.Publish(b.t, b.js, pipelinetest.Workload(seed, sessions, records)...)
	}
	top := streams.Topology{Generation: generation, Partitions: 2}
	stage, err := worker.New(b.js, worker.Config{Topology: top})
	if err != nil {
		b.t.Fatal(err)
	}
	stop := b.start(stage)
	if err := replay.CatchUp(b.t.Context(), b.js, top); err != nil {
		b.t.Fatal(err)
	}
	stop()
}

// index returns an index of the deployment.
func (b *deployment) index(cfg index.Config) *index.Index {
	b.t.Helper()
	cfg.Pricing, cfg.Logger = figures.BuiltinPricing(), slog.New(slog.DiscardHandler)
	x := index.New(b.js, cfg)
	b.t.Cleanup(x.Close)
	return x
}

// records returns the records of a generation, by session.
func (b *deployment) records(generation string, now time.Time) map[events.SessionID]sessions.Summary {
	b.t.Helper()
	v, err := summaries.Open(b.t.Context(), b.js, generation, func(err error) { b.t.Error(err) })
	if err != nil {
		b.t.Fatal(err)
	}
	all := map[events.SessionID]sessions.Summary{}
	err = v.Each(b.t.Context(), "", func(r *summaries.Record) error {
		all[events.SessionID{Source: r.Source, Session: r.Session}] = r.At(now)
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// await asks a query until the answer is wanted.
func await(t *testing.T, what string, x *index.Index, q index.Query, wanted func(*index.List) bool) *index.List {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		l, err := x.List(q, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if wanted(l) {
			return l
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("%s: not yet: %d sessions, %+v", what, l.Matches, l.Status)
		}
	}
}

func complete(l *index.List) bool { return !l.Filling }

// TestListShowsTheRecords compares each session of the list with its record, and each filter and order with a plain one.
func TestListShowsTheRecords(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.add("v1", 1, 40, 700)
	x := b.index(index.Config{})
	await(t, "all sessions", x, index.Query{}, complete)
	now := time.Now()
	l, err := x.List(index.Query{}, now)
	if err != nil {
		t.Fatal(err)
	}
	all := b.records("v1", now)
	if l.Matches != len(all) || len(l.Sessions) != len(all) || len(all) != 40 || l.Generation != "v1" || l.Left != 0 {
		t.Fatalf("%d sessions, of %d: %+v", len(l.Sessions), l.Matches, l.Status)
	}
	pricing := figures.BuiltinPricing()
	for _, s := range l.Sessions {
		r := all[s.SessionID]
		models := map[string]*sessions.Billed{}
		var main sessions.ModelUse
		for i, m := range r.Models {
			if models[m.Model] = (&sessions.Billed{Usage: m.Usage(), Large: m.Large}); i == 0 || m.Total > main.Total {
				main = m
			}
		}
		cost := pricing.Cost(models)
		cost.USD = cost.Rounded()
		want := index.Session{
			SessionID: s.SessionID, Title: r.Title, TitleSource: r.TitleSource, Project: r.ProjectName(), IsRoot: r.Project != nil,
			Repository: r.Repository, Branch: r.Branch, Host: r.Host, User: r.User, Model: main.Model, Activity: r.Activity,
			First: r.FirstSeen, Last: r.LastSeen, Active: time.Duration(r.ActiveMS) * time.Millisecond,
			Tokens: r.Usage.Total, Events: r.Events, Prompts: r.Prompts, Calls: r.Calls, Failures: r.Failures, Errors: r.Errors,
			Cost: cost, Change: s.Change,
		}
		if diff := gocmp.Diff(want, s); diff != "" {
			t.Errorf("session %s (-record +list):\n%s", s.Session, diff)
		}
	}
	compareOrders(t, x, l.Sessions, now)
	compareFilters(t, x, l.Sessions, now)
}

// compareOrders compares pages of each order with the whole list in a plain one.
func compareOrders(t *testing.T, x *index.Index, all []index.Session, now time.Time) {
	t.Helper()
	numbers := map[string]func(s *index.Session) float64{
		"last": func(s *index.Session) float64 { return float64(s.Last.UnixMilli()) }, "first": func(s *index.Session) float64 { return float64(s.First.UnixMilli()) },
		"tokens": func(s *index.Session) float64 { return float64(s.Tokens) }, "cost": func(s *index.Session) float64 { return s.Cost.USD },
		"active": func(s *index.Session) float64 { return s.Active.Seconds() }, "calls": func(s *index.Session) float64 { return float64(s.Calls) },
		"failures": func(s *index.Session) float64 { return float64(s.Failures) }, "errors": func(s *index.Session) float64 { return float64(s.Errors) },
		"events": func(s *index.Session) float64 { return float64(s.Events) }, "prompts": func(s *index.Session) float64 { return float64(s.Prompts) },
		"state": func(s *index.Session) float64 {
			return float64(slices.Index([]sessions.Phase{
				sessions.PhaseNone, sessions.PhaseEnded, sessions.PhaseEndedInTool, sessions.PhaseWorking, sessions.PhaseInTool,
				sessions.PhasePrompt, sessions.PhaseFailed, sessions.PhasePermission,
			}, s.Phase))
		},
	}
	texts := map[string]func(s *index.Session) string{
		"title": func(s *index.Session) string { return s.Title }, "project": func(s *index.Session) string { return s.Project },
		"repo": func(s *index.Session) string { return s.Repository }, "branch": func(s *index.Session) string { return s.Branch },
		"host": func(s *index.Session) string { return s.Host }, "user": func(s *index.Session) string { return s.User },
		"source": func(s *index.Session) string { return string(s.Source) }, "model": func(s *index.Session) string { return s.Model },
	}
	for _, name := range index.Orders() {
		for _, reverse := range []bool{false, true} {
			sorted := slices.SortedFunc(slices.Values(all), func(a, b index.Session) int {
				var c int
				if of := texts[name]; of != nil {
					if c = cmp.Compare(strings.ToLower(of(&a)), strings.ToLower(of(&b))); of(&a) == "" || of(&b) == "" {
						c = cmp.Compare(len(of(&b)), len(of(&a)))
					}
				} else {
					c = cmp.Compare(numbers[name](&b), numbers[name](&a))
				}
				if reverse {
					c = -c
				}
				return cmp.Or(c, cmp.Compare(a.Source, b.Source), cmp.Compare(a.Session, b.Session))
			})
			for skip := 0; skip < len(all); skip += 15 {
				l, err := x.List(index.Query{Sort: name, Reverse: reverse, Skip: skip, Limit: 15}, now)
				if err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(sorted[skip:min(skip+15, len(sorted))], l.Sessions); diff != "" {
					t.Errorf("order %s, reverse %t, from %d (-want +got):\n%s", name, reverse, skip, diff)
				}
			}
		}
	}
}

// compareFilters compares what filters select with a plain selection.
func compareFilters(t *testing.T, x *index.Index, all []index.Session, now time.Time) {
	t.Helper()
	one := all[len(all)/2]
	for name, c := range map[string]struct {
		filter index.Filter
		is     func(s *index.Session) bool
	}{
		"from":           {index.Filter{From: one.Last}, func(s *index.Session) bool { return !s.Last.Before(one.Last) }},
		"to":             {index.Filter{To: one.Last}, func(s *index.Session) bool { return s.Last.Before(one.Last) }},
		"source":         {index.Filter{Source: envelopes.Codex}, func(s *index.Session) bool { return s.Source == envelopes.Codex }},
		"project":        {index.Filter{Project: one.Project}, func(s *index.Session) bool { return s.Project == one.Project }},
		"branch":         {index.Filter{Branch: one.Branch}, func(s *index.Session) bool { return one.Branch == "" || s.Branch == one.Branch }},
		"host":           {index.Filter{Host: "no such host"}, func(*index.Session) bool { return false }},
		"model":          {index.Filter{Model: one.Model}, func(s *index.Session) bool { return strings.Contains(s.Model, one.Model) }},
		"state":          {index.Filter{State: one.Phase.Word()}, func(s *index.Session) bool { return s.Phase == one.Phase }},
		"state, as JSON": {index.Filter{State: "idle"}, func(s *index.Session) bool { return s.State == sessions.Idle }},
		"title": {index.Filter{Titled: index.TitleContains(strings.ToUpper(one.Title))}, func(s *index.Session) bool {
			return strings.Contains(strings.ToLower(s.Title), strings.ToLower(one.Title))
		}},
	} {
		l, err := x.List(index.Query{Filter: c.filter, Limit: 3}, now)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for i := range all {
			if c.is(&all[i]) {
				want++
			}
		}
		if l.Matches != want || len(l.Sessions) != min(3, want) {
			t.Errorf("filter %s: %d sessions, want %d", name, l.Matches, want)
		}
		for i := range l.Sessions {
			if !c.is(&l.Sessions[i]) {
				t.Errorf("filter %s selects %+v", name, l.Sessions[i])
			}
		}
	}
}

// TestListFollowsRecordsTitlesAndPins has sessions that go on, that are new, and that get titles and pins.
func TestListFollowsRecordsTitlesAndPins(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.add("v1", 1, 10, 100)
	service, err := titles.New(b.js, titles.Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := b.index(index.Config{})
	before := await(t, "the first sessions", x, index.Query{}, complete)
	last := before.Sessions[len(before.Sessions)-1]
	key := titles.Key{Source: last.Source, SessionID: last.Session}
	if _, err := service.SetTitle(t.Context(), key, "Another title"); err != nil {
		t.Fatal(err)
	}
	if _, err := service.SetPinned(t.Context(), key, true, titles.IfMatch(1)); err != nil {
		t.Fatal(err)
	}
	pinned := func(l *index.List) bool {
		s := l.Sessions[0]
		return s.SessionID == last.SessionID && s.Pinned && s.Title == "Another title" && s.Version == 2 && string(s.TitleSource) == string(titles.SourceManual)
	}
	await(t, "a title and a pin", x, index.Query{Limit: 1}, pinned)
	await(t, "a title that is searched", x, index.Query{Filter: index.Filter{Titled: index.TitleContains("ANOTHER")}}, func(l *index.List) bool { return l.Matches == 1 })
	b.add("v1", 2, 10, 100)
	after := await(t, "new sessions", x, index.Query{}, func(l *index.List) bool { return l.Matches == 20 })
	if after.Epoch != before.Epoch {
		t.Error("the list is made again, although nothing but new records came")
	}
	shown, others, status, err := x.Changed(index.Filter{}, []events.SessionID{last.SessionID, {Source: "codex", Session: "unknown"}}, before.Change, time.Now())
	if err != nil || len(shown) != 1 || !shown[0].Pinned || others != 10 || status.Change <= before.Change {
		t.Errorf("%d sessions and %d others have changed: %+v, %v", len(shown), others, status, err)
	}
	x.Close()
	again := b.index(index.Config{})
	await(t, "titles of before", again, index.Query{Limit: 1}, func(l *index.List) bool { return complete(l) && pinned(l) })
	if _, err := x.List(index.Query{}, time.Now()); err == nil {
		t.Error("an index that is closed answers")
	}
}

// TestListFollowsTheLiveGeneration promotes, rolls back and drops while the list is followed. Another index shows one
// generation alone.
func TestListFollowsTheLiveGeneration(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.add("v1", 1, 10, 100)
	x, fixed := b.index(index.Config{}), b.index(index.Config{Generation: "v1"})
	await(t, "the sessions of v1", x, index.Query{}, complete)
	await(t, "the sessions of v1", fixed, index.Query{}, complete)
	if _, err := replay.Start(t.Context(), b.js, replay.Request{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	b.add("b", 2, 5, 50)
	if _, err := replay.Promote(t.Context(), b.js, "b", true); err != nil {
		t.Fatal(err)
	}
	of := func(generation string, sessions int) func(*index.List) bool {
		return func(l *index.List) bool {
			return complete(l) && !l.Again && l.Generation == generation && l.Matches == sessions
		}
	}
	await(t, "the sessions of b", x, index.Query{}, of("b", 15))
	if _, _, err := replay.RollBack(t.Context(), b.js); err != nil {
		t.Fatal(err)
	}
	await(t, "the sessions of v1 again", x, index.Query{}, of("v1", 10))
	if err := replay.Drop(t.Context(), b.js, "b"); err != nil {
		t.Fatal(err)
	}
	b.add("v1", 3, 0, 0) // what b alone has so far
	await(t, "the sessions that came meanwhile", x, index.Query{}, of("v1", 15))
	await(t, "those of the named generation", fixed, index.Query{}, of("v1", 15))
}

// TestListIsMadeAgainAfterTheStreamWentBack puts the events back to an older copy: sessions that came since are gone.
func TestListIsMadeAgainAfterTheStreamWentBack(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.add("v1", 1, 10, 100)
	saved := b.CopyStore()
	x := b.index(index.Config{Look: 20 * time.Millisecond})
	before := await(t, "the first sessions", x, index.Query{}, complete)
	b.add("v1", 2, 10, 100)
	await(t, "new sessions", x, index.Query{}, func(l *index.List) bool { return l.Matches == 20 })
	saved.PutBack(streams.EventsStream("v1"))
	after := await(t, "the sessions of before", x, index.Query{}, func(l *index.List) bool {
		return complete(l) && !l.Again && l.Matches == 10 && l.Problem == nil && l.Stored.IsZero()
	})
	if after.Epoch == before.Epoch || len(b.records("v1", time.Now())) != 10 {
		t.Errorf("%+v", after.Status)
	}
}

// TestListIsMadeAgainWithTheRecords removes the records: whoever keeps them makes them again, and a session that is not
// among them is gone.
func TestListIsMadeAgainWithTheRecords(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.add("v1", 1, 10, 100)
	x := b.index(index.Config{Look: 20 * time.Millisecond})
	before := await(t, "all sessions", x, index.Query{}, complete)
	stream, err := b.js.Stream(t.Context(), streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	gone := before.Sessions[0].SessionID
	filter := envelopes.EventFilter("v1", gone.Source, gone.Session, "")
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(filter)); err != nil {
		t.Fatal(err)
	}
	if err := b.js.DeleteStream(t.Context(), streams.SummariesStream("v1")); err != nil {
		t.Fatal(err)
	}
	await(t, "one session less", x, index.Query{}, func(l *index.List) bool { return complete(l) && l.Epoch != before.Epoch && l.Matches == 9 })
}

// TestListIsBounded keeps the newest sessions, and the pinned one.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.add("v1", 1, 100, 1500)
	all := await(t, "all sessions", b.index(index.Config{}), index.Query{}, complete)
	service, err := titles.New(b.js, titles.Config{})
	if err != nil {
		t.Fatal(err)
	}
	oldest := all.Sessions[len(all.Sessions)-1]
	if _, err := service.SetPinned(t.Context(), titles.Key{Source: oldest.Source, SessionID: oldest.Session}, true); err != nil {
		t.Fatal(err)
	}
	x := b.index(index.Config{Limit: 32})
	l := await(t, "the newest sessions", x, index.Query{}, complete)
	// A session that goes on meanwhile may be counted twice among those that are left out.
	if l.Matches+l.Left < len(all.Sessions) || l.Matches != 32 || l.Sessions[0].SessionID != oldest.SessionID || l.Bytes <= 0 || l.Bytes >= all.Bytes {
		t.Errorf("%d sessions: %+v", l.Matches, l.Status)
	}
	for _, s := range l.Sessions[1:] {
		if s.Last.Before(all.Sessions[len(l.Sessions)].Last) {
			t.Errorf("%s is older than those that are left out", s.Session)
		}
	}
}

// TestMemoryIsGivenBack asks once: some time later nothing is in memory any more, and another question makes the list again.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newDeployment(t)
	b.add("v1", 1, 10, 100)
	x := b.index(index.Config{Idle: 200 * time.Millisecond})
	if !x.Dropped() {
		t.Error("something is in memory before the first question")
	}
	first := await(t, "all sessions", x, index.Query{}, complete)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	end := time.After(patience)
	for !x.Dropped() {
		select {
		case <-poll.C:
		case <-end:
			t.Fatal("the list is still in memory")
		}
	}
	again := await(t, "all sessions again", x, index.Query{}, complete)
	if again.Epoch <= first.Epoch || again.Matches != first.Matches {
		t.Errorf("%+v after %+v", again.Status, first.Status)
	}
}

// TestListWithoutWorker has no records: the events are summed up, the list says when, and the records are followed as soon as a
// worker keeps them.
func TestListWithoutWorker(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	b := &deployment{server, t, server.Provision(streams.Topology{Generation: "v1", Partitions: 2})}
	b.add("v1", 1, 10, 100)
	x := b.index(index.Config{Look: 20 * time.Millisecond})
	l := await(t, "all sessions", x, index.Query{}, complete)
	if l.Matches != 10 || l.Stored.IsZero() {
		t.Errorf("%d sessions: %+v", l.Matches, l.Status)
	}
	b.add("v1", 2, 10, 100)
	await(t, "what came since", x, index.Query{}, func(l *index.List) bool { return l.Matches == 20 })
	k, err := summaries.New(b.js, summaries.Config{Every: time.Millisecond, Beat: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	b.start(k)
	await(t, "records that are kept", x, index.Query{}, func(l *index.List) bool { return complete(l) && l.Stored.IsZero() && l.Matches == 20 })
}

// TestNoStream says why there is no list.
func TestNoStream(t *testing.T) {
	t.Parallel()
	server := pipelinetest.NewServer(t)
	b := &deployment{server, t, server.Provision(streams.Topology{Generation: "v1", Partitions: 2})}
	x := b.index(index.Config{Generation: "unknown"})
	l := await(t, "a problem", x, index.Query{}, func(l *index.List) bool { return l.Problem != nil })
	if !l.Filling || l.Matches != 0 || !strings.Contains(fmt.Sprint(l.Problem), "EVENTS_unknown") {
		t.Errorf("%+v", l.Status)
	}
}
