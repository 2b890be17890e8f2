package titles_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/titles"
)

var (
	writersFlag  = flag.Int("writers", 70, "writers of TestConcurrentWritersLoseNoUpdate; 1000, with -sessions 100, is its full size")
	sessionsFlag = flag.Int("sessions", 7, "sessions that they write to")
)

func renamesByTwoProcessesAreSerialized(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session(t, "s1")
	for range 2 {
		pipelinetest.StartProcess(t, replicaProgram, processConfig{URL: f.server.URL()}).AwaitReady()
	}
	nc := f.js.Conn()
	awaitServices(t, nc, 2)
	const clients, renames = 5, 50
	versions := make([]uint64, renames)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := client; i < renames; i += clients {
				body, code := f.request(t, "set_title", fmt.Sprintf(`{"source":"claude_code","session_id":"s1","title":"Title %d"}`, i))
				var answer struct {
					Applied bool   `json:"applied"`
					Version uint64 `json:"title_version"`
				}
				if err := json.Unmarshal([]byte(body), &answer); err != nil || !answer.Applied {
					t.Errorf("answer %s, code %s", body, code)
				}
				versions[i] = answer.Version
			}
		})
	}
	all.Wait()
	seen := map[uint64]bool{}
	for _, v := range versions {
		seen[v] = true
	}
	if len(seen) != renames {
		t.Errorf("%d distinct versions, want %d", len(seen), renames)
	}
	requireVersions(t, changes(t, f.js), renames)
	if r := f.get(t, titles.Key{Source: "claude_code", SessionID: "s1"}); r.TitleVersion != renames || r.MetadataVersion != renames {
		t.Errorf("record %+v", r)
	}
	for _, s := range services(t, nc, 2) {
		if e := s.endpoint(t, "set_title"); e.Requests == 0 || e.Data.Answered != e.Requests {
			t.Errorf("a process has answered %d of %d requests", e.Data.Answered, e.Requests)
		}
	}
}

// serviceStats is an answer to nats micro stats.
type serviceStats struct {
	Name      string `json:"name"`
	Endpoints []endpointStats
}

type endpointStats struct {
	Name     string       `json:"name"`
	Subject  string       `json:"subject"`
	Requests int64        `json:"num_requests"`
	Data     titles.Stats `json:"data"`
}

func (s serviceStats) endpoint(tb testing.TB, name string) endpointStats {
	tb.Helper()
	for _, e := range s.Endpoints {
		if e.Name == name {
			return e
		}
	}
	tb.Fatalf("no endpoint %s", name)
	return endpointStats{}
}

// services returns the statistics of a number of processes.
func services(tb testing.TB, nc *nats.Conn, count int) []serviceStats {
	tb.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest("$SRV.STATS."+titles.ServiceName, inbox, nil); err != nil {
		tb.Fatal(err)
	}
	all := make([]serviceStats, count)
	for i := range all {
		m, err := sub.NextMsgWithContext(deadline(tb))
		if err != nil {
			tb.Fatal(err)
		}
		if err := json.Unmarshal(m.Data, &all[i], json.MatchCaseInsensitiveNames(true)); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

// A process is killed at each step of a rename, and the rename is done again.
func killStoresBothOnce(t *testing.T) {
	t.Parallel()
	for held, stored := range map[string]bool{"between": false, "after": true} {
		t.Run(held, func(t *testing.T) {
			f := newFixture(t)
			k := f.session(t, "s1")
			cfg := processConfig{URL: f.server.URL(), Key: k, Title: "Mine", Held: held}
			p := pipelinetest.StartProcess(t, renameProgram, cfg)
			p.AwaitReady() // the record is sent; "after": the change, too
			if stored {
				poll(t, "commit", func() bool { return lastSequence(t, f.js) == 2 })
			}
			p.Kill()
			if r := f.get(t, k); (r.Title == "Mine") != stored || (len(changes(t, f.js)) == 1) != stored {
				t.Errorf("record %+v, %d changes", r, len(changes(t, f.js)))
			}
			w := watching(t, f.js, 0)
			if stored {
				w.expect(t, titles.Snapshot)
			}
			w.expect(t, titles.Synced)
			cfg.Held = ""
			p = pipelinetest.StartProcess(t, renameProgram, cfg)
			if code := p.AwaitEnd(); code != 0 {
				t.Fatalf("exit code %d:\n%s", code, p.Output())
			}
			if got := afterPrefix(t, p.Output(), "applied "); got != strconv.FormatBool(!stored) {
				t.Errorf("applied is %s", got)
			}
			if r := f.get(t, k); r.Title != "Mine" || r.TitleVersion != 1 {
				t.Errorf("record %+v", r)
			}
			requireVersions(t, changes(t, f.js), 1)
			if !stored {
				w.expect(t, titles.Changed)
			}
		})
	}
}

// The answer to a rename is lost, and another writer renames the session before the call looks for the outcome.
func TestLostAnswerIsFoundOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	g := newGate()
	g.after, g.lose = true, true
	s := newService(t, f.server.JetStream(nats.SetCustomDialer(g)))
	type result struct {
		change *titles.Change
		err    error
	}
	renamed := make(chan result, 1)
	go func() {
		c, err := s.SetTitle(deadline(t), k, "A")
		renamed <- result{c, err}
	}()
	<-g.held
	poll(t, "commit", func() bool { return lastSequence(t, f.js) == 2 })
	if _, err := f.SetTitle(t.Context(), k, "B"); err != nil {
		t.Fatal(err)
	}
	close(g.release)
	r, stored := <-renamed, changes(t, f.js)
	requireVersions(t, stored, 2)
	if r.err != nil || r.change == nil || r.change.ID != stored[0].ID || r.change.Sequence != stored[0].Sequence {
		t.Errorf("returned %+v, %v", r.change, r.err)
	}
	if title := f.get(t, k).Title; title != "B" || s.Conflicts() != 0 {
		t.Errorf("title %q, %d conflicts", title, s.Conflicts())
	}
}

// The connection is cut at random bytes: the outcome of many batches is unknown to the writers.
func TestLostAcknowledgementsApplyEachCallOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.session(t, "s1")
	const writers, calls = 3, 15
	ctx := deadline(t)
	applied := make(chan *titles.Change, writers*calls)
	finished := make(chan struct{})
	var all, cutter sync.WaitGroup
	proxy := pipelinetest.NewProxy(t, f.server)
	for w := range writers {
		s := newService(t, pipelinetest.Connect(t, proxy.URL()))
		all.Go(func() {
			for i := range calls {
				c, err := s.SetTitle(ctx, k, fmt.Sprintf("Title %d of %d", i, w))
				if err != nil || c == nil {
					t.Errorf("%+v, %v", c, err)
					continue
				}
				applied <- c
			}
		})
	}
	cuts := 0
	cutter.Go(func() {
		for {
			select {
			case <-finished:
				return
			case <-time.After(time.Duration(20+rand.IntN(100)) * time.Millisecond):
				proxy.Break()
				proxy.Mend()
				cuts++
			}
		}
	})
	all.Wait()
	close(finished)
	cutter.Wait()
	close(applied)
	stored := changes(t, f.js)
	requireVersions(t, stored, writers*calls)
	count := 0
	for c := range applied {
		if s := stored[c.TitleVersion-1]; s.ID != c.ID || s.Title != c.Title || s.Sequence != c.Sequence {
			t.Errorf("stored %+v, returned %+v", s, c)
		}
		count++
	}
	t.Logf("%d calls, %d cuts", count, cuts)
}

// Writers of three services rename and pin sessions at once, twelve at a time. Each session ends with as many
// versions as changes were returned, and its changes lead from one to the next. A slow disk may hold up an answer for so
// long that the outcome is unknown: then there is a version, or none.
func TestConcurrentWritersLoseNoUpdate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := make([]titles.Key, *sessionsFlag)
	for i := range keys {
		keys[i] = f.session(t, fmt.Sprintf("session %d", i))
	}
	replicas := []*titles.Service{f.Service, newService(t, f.server.JetStream()), newService(t, f.server.JetStream())}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // they wait for each other
	defer cancel()
	applied, unknown := make([]atomic.Uint64, len(keys)), make([]atomic.Uint64, len(keys))
	count := func(i int, c *titles.Change, err error) {
		switch {
		case c != nil:
			applied[i].Add(1)
		case err != nil && strings.Contains(err.Error(), "the outcome is unknown"):
			unknown[i].Add(1)
		case err != nil:
			t.Error(err)
		}
	}
	var all errgroup.Group
	all.SetLimit(12)
	for w := range *writersFlag {
		all.Go(func() error {
			i := w % len(keys)
			s := replicas[w%len(replicas)]
			c, err := s.SetTitle(ctx, keys[i], fmt.Sprintf("Title of writer %d", w))
			if c == nil && err == nil {
				t.Errorf("the title of writer %d changed nothing", w)
			}
			count(i, c, err)
			c, err = s.SetPinned(ctx, keys[i], w%2 == 0)
			count(i, c, err)
			return nil
		})
	}
	_ = all.Wait() // no function of it fails
	versions := map[string]uint64{}
	titled := map[string]uint64{}
	for _, c := range changes(t, f.js) {
		if versions[c.SessionID]++; c.MetadataVersion != versions[c.SessionID] {
			t.Fatalf("change %+v is number %d of its session", c, versions[c.SessionID])
		}
		if c.Type == titles.TitleUpdated {
			titled[c.SessionID]++
		}
	}
	for i, k := range keys {
		r, n := f.get(t, k), versions[k.SessionID]
		if least := applied[i].Load(); r.MetadataVersion != n || n < least || n > least+unknown[i].Load() || r.TitleVersion != titled[k.SessionID] {
			t.Errorf("record %+v, %d changes are stored, %d were returned, and the outcome of %d is unknown", r, n, least, unknown[i].Load())
		}
	}
}

// BenchmarkConcurrentWriters reports the writes of a second, and the conflicts of a write.
//
//	go test ./pipeline/sessions/titles -run xxx -bench ConcurrentWriters -benchtime 2000x
func BenchmarkConcurrentWriters(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			f := newFixture(b)
			keys := make([]titles.Key, 100)
			for i := range keys {
				keys[i] = f.session(b, strconv.Itoa(i))
			}
			services := []*titles.Service{f.Service}
			for len(services) < replicas {
				services = append(services, newService(b, f.server.JetStream()))
			}
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
			defer cancel()
			var number atomic.Int64
			b.SetParallelism(500) // times GOMAXPROCS
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := int(number.Add(1))
					if _, err := services[i%replicas].SetTitle(ctx, keys[rand.IntN(len(keys))], strconv.Itoa(i)); err != nil {
						b.Error(err)
					}
				}
			})
			conflicts := int64(0)
			for _, s := range services {
				conflicts += s.Conflicts()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
			b.ReportMetric(float64(conflicts)/float64(b.N), "conflicts/write")
		})
	}
}
