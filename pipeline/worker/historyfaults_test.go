package worker_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
	"tributary/pipeline/replay"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

// What happens to files, clocks of retention and limits while workers and servers fail. The oracle is what was sent.

// edges are machines on which agents write logs with histories, which are shipped again and again.
type edges struct {
	r        *faultRun
	random   *rand.Rand
	redactor *redact.Redactor
	logs     []*pipelinetest.Log
	sessions int
}

// newEdges starts with a log of an agent with ids in its records, and one of an agent without.
func newEdges(r *faultRun) *edges {
	r.t.Helper()
	redactor, err := redact.New(redact.Config{Mode: redact.Secrets, Key: redact.Key("a key of tests, long enough for it")})
	if err != nil {
		r.t.Fatal(err)
	}
	e := &edges{r: r, random: rand.New(rand.NewPCG(r.plan.seed, 2)), redactor: redactor}
	e.begin()
	return e
}

// begin begins new sessions: what happens to the logs of those before is over.
func (e *edges) begin() {
	e.r.t.Helper()
	words := keywords(e.r)
	e.logs = nil
	for _, source := range []envelopes.Source{envelopes.ClaudeCode, envelopes.Codex} {
		e.sessions++
		l := pipelinetest.NewLog(e.r.t, source, fmt.Sprintf("%08x-0000-7000-8000-%012d", e.r.plan.seed, e.sessions), 2)
		l.Sent = &e.r.producer.sent
		l.Flood = func() string {
			return strings.Repeat(words[e.random.IntN(len(words))]+` = "c2VjcmV0IHRleHQ" `, 1+e.random.IntN(200))
		}
		e.logs = append(e.logs, l)
	}
}

// keywords returns the keywords of all rules.
func keywords(r *faultRun) (words []string) {
	r.t.Helper()
	rules, err := os.ReadFile(filepath.Join("..", "redact", "gitleaks.toml"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, list := range regexp.MustCompile(`(?s)\nkeywords = \[(.*?)\]`).FindAllSubmatch(rules, -1) {
		for _, word := range regexp.MustCompile(`"([^"\\]+)"`).FindAllSubmatch(list[1], -1) {
			words = append(words, string(word[1]))
		}
	}
	if len(words) < 100 {
		r.t.Fatalf("the rules have only the keywords %q", words)
	}
	return words
}

// draw has so many things happen to the logs, which are shipped now and then, some of them by a ship that is killed.
func (e *edges) draw(steps int) error {
	for range steps {
		l := e.logs[e.random.IntN(len(e.logs))]
		m, err := l.Draw(e.random)
		if err != nil {
			return err
		}
		if e.random.IntN(2) > 0 {
			continue
		}
		if err := e.ship(l, m, e.random.IntN(6) == 0); err != nil {
			return err
		}
	}
	return nil
}

// ship ships a log once, and waits for the broker. Its connection is closed at a random moment where it is killed.
func (e *edges) ship(l *pipelinetest.Log, m *pipelinetest.Machine, killed bool) error {
	ctx, cancel := context.WithTimeout(e.r.t.Context(), 5*time.Minute)
	defer cancel()
	js := e.r.cluster.JetStream(nats.RetryOnFailedConnect(true))
	defer js.Conn().Close()
	if killed {
		defer time.AfterFunc(time.Duration(e.random.Int64N(int64(20*time.Millisecond))), js.Conn().Close).Stop()
	}
	err := l.Ship(ctx, js.Conn(), m, func(c *ship.Config) { c.Redactor = e.redactor })
	if err != nil && !(killed && js.Conn().IsClosed()) {
		return fmt.Errorf("ship the log of %s: %w", l.Session, err)
	}
	return nil
}

// shipAll ships the present content of all logs.
func (e *edges) shipAll() {
	e.r.t.Helper()
	for _, l := range e.logs {
		for _, m := range l.Machines {
			if err := e.ship(l, m, false); err != nil {
				e.r.t.Fatal(err)
			}
		}
	}
}

// while makes a fault while the histories of the logs go on.
func (e *edges) while(steps int, fault func() bool) bool {
	e.r.t.Helper()
	var going sync.WaitGroup
	going.Go(func() {
		if err := e.draw(steps); err != nil {
			e.r.t.Error(err)
		}
	})
	defer going.Wait()
	return fault()
}

// requireSaid fails the test unless the status names the records that lay at places which their sessions had passed.
func (e *edges) requireSaid(s replay.Status) {
	e.r.t.Helper()
	named, sessions := make(map[string]int), 0
	for _, p := range s.Partitions {
		sessions += p.RewrittenSessions
		for _, session := range p.Rewritten {
			named[session.Session] = session.Rewritten
		}
	}
	for _, l := range e.logs {
		if n := named[l.Session]; l.Passed > 0 && sessions == 0 || l.Passed >= 0 && n != l.Passed {
			e.r.t.Errorf("the status names %d rewritten records of %s, and %d lay at places that it had passed", n, l.Session, l.Passed)
		}
	}
}

// requireLogged fails the test unless some worker has logged that a file has other records than before, when one has.
func (e *edges) requireLogged() {
	e.r.t.Helper()
	passed := slices.ContainsFunc(e.logs, func(l *pipelinetest.Log) bool { return l.Passed > 0 })
	logged := slices.ContainsFunc(e.r.all, func(w *workerProcess) bool {
		return strings.Contains(w.Output(), "file has other records than before")
	})
	if passed && !logged {
		e.r.t.Error("no worker has logged that a file has other records than before at the same places")
	}
}

// expire lets records leave the raw streams while no worker is there, counts them, and sends them again.
func (r *faultRun) expire() {
	r.t.Helper()
	ctx := r.t.Context()
	r.catchUp()
	for _, w := range r.workers {
		w.Kill()
	}
	if err := r.departed.Keep(ctx, r.js, r.expectation()); err != nil {
		r.t.Fatal(err)
	}
	done := r.infos(r.rawStreams())
	r.producer.grant(60)
	r.producer.wait()
	lost, keys := 0, []string(nil)
	for cell, info := range r.infos(r.rawStreams()) {
		from, to := done[cell].State.LastSeq, info.State.LastSeq
		upTo := from + r.random.Uint64N(to-from+1)
		lost += int(upTo - from) //nolint:gosec // a few
		keys = append(keys, r.keysOf(cell, from+1, upTo)...)
		r.cluster.Try("remove records of "+info.Config.Name, func(ctx context.Context) error {
			s, err := r.js.Stream(ctx, info.Config.Name)
			if err != nil {
				return err
			}
			return s.Purge(ctx, jetstream.WithPurgeSequence(upTo+1))
		})
	}
	r.expired += lost
	r.requireExpired()
	for i, w := range r.workers {
		r.workers[i] = r.start(w.url)
	}
	r.catchUp()
	r.requireExpired()
	d, err := r.producer.sent.Compare(ctx, r.js, r.top.Generation)
	if err != nil {
		r.t.Fatal(err)
	}
	if slices.Sort(keys); !slices.Equal(d.Lost, keys) {
		r.t.Errorf("%d records expired unread, sent and without events are %d: %q, %q", len(keys), len(d.Lost), keys, d.Lost)
	}
	r.producer.die()
	r.edges.begin()
}

// find returns where a raw stream has a record.
func (r *faultRun) find(cell int, key string, last uint64) (places []string) {
	r.t.Helper()
	for m, record := range r.rawRecords(cell, 1, last) {
		if pipelinetest.KeyOf(record.Session, record.Data) == key {
			places = append(places, fmt.Sprintf("%s: message %d, stored %v, file %q, position %d behind %d",
				m.Subject, m.Sequence, m.Time.Format(time.TimeOnly), record.Origin.File, record.Origin.Position, record.Origin.Previous))
		}
	}
	return places
}

// rawRecords iterates over the records of a cell from one sequence to another.
func (r *faultRun) rawRecords(cell int, from, to uint64) iter.Seq2[*jetstream.RawStreamMsg, core.Record] {
	return func(yield func(*jetstream.RawStreamMsg, core.Record) bool) {
		for from <= to {
			m, err := broker.NextStored(r.t.Context(), r.js, streams.RawStreamOf(cell), ">", from)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return
			}
			if err != nil {
				r.t.Fatal(err)
			}
			from = m.Sequence + 1
			record, _, err := records.Read(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, m.Sequence, m.Time)
			if err == nil && m.Sequence <= to && !yield(m, record) {
				return
			}
		}
	}
}

// keysOf returns the keys of the records of a cell from one sequence to another.
func (r *faultRun) keysOf(cell int, from, to uint64) (keys []string) {
	r.t.Helper()
	for _, record := range r.rawRecords(cell, from, to) {
		if key := pipelinetest.KeyOf(record.Session, record.Data); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// acknowledge has the workers name the records that expired unread, and acknowledges them.
func (r *faultRun) acknowledge() {
	r.t.Helper()
	if r.expired == 0 {
		return
	}
	r.awaitLog("records that expired", func(w *workerProcess) bool { return strings.Contains(w.Output(), expiredLine) })
	if _, err := replay.AcknowledgeExpired(r.t.Context(), r.js); err != nil {
		r.t.Error(err)
	}
	r.expired = 0
	r.requireExpired()
}

// requireExpired fails the test unless the records are counted that expired unread and are not acknowledged.
func (r *faultRun) requireExpired() {
	r.t.Helper()
	list, err := replay.ReadExpired(r.t.Context(), r.js)
	if err != nil {
		r.t.Fatal(err)
	}
	open := uint64(0)
	for _, e := range list {
		open += e.Open()
	}
	if open != uint64(r.expired) { //nolint:gosec // a few
		r.t.Errorf("%d records expired unread, counted are %d: %+v", r.expired, open, list)
	}
}

// goBack puts streams on all servers back to what they were some records ago, while workers run.
func (r *faultRun) goBack(streams []string) {
	r.t.Helper()
	infos := r.infos(streams)
	r.killServers(r.cluster.Nodes...)
	var saved []*pipelinetest.NodeCopy
	for _, n := range r.cluster.Nodes {
		saved = append(saved, n.CopyStreams(infos...))
	}
	r.startAll()
	r.producer.grant(60)
	if err := r.edges.draw(4); err != nil {
		r.t.Fatal(err)
	}
	r.moment(2 * time.Second)
	r.killServers(r.cluster.Nodes...)
	for _, c := range saved {
		c.PutBack()
	}
	r.startAll()
}

// goBackTogether puts raw and events streams back to one moment. Producers send again what they still have.
func (r *faultRun) goBackTogether() {
	r.t.Helper()
	r.catchUp()
	r.goBack(slices.Concat(r.rawStreams(), r.eventsStreams()))
	r.gaps = true
	for _, l := range r.edges.logs {
		l.Passed = -1
	}
	r.producer.sent.Excuse(func(key string) bool {
		return !r.edges.has(key) || slices.ContainsFunc(r.edges.logs, func(l *pipelinetest.Log) bool { return l.Has(key) })
	})
	r.edges.shipAll()
	r.producer.die()
}

// has reports whether a record is of a log.
func (e *edges) has(key string) bool {
	return slices.ContainsFunc(e.logs, func(l *pipelinetest.Log) bool { return strings.HasPrefix(key, l.Session+" ") })
}

// fillAccount lets the account reach its limit while workers commit, some of which cannot ask for it, and raises it in steps.
func (r *faultRun) fillAccount() {
	r.t.Helper()
	for _, w := range r.workers {
		w.Pause()
	}
	r.producer.grant(60)
	r.producer.wait() // until there is work to commit
	for step := range 1 + r.random.IntN(3) {
		r.cluster.LimitAccount(r.stores() + r.random.Int64N(64<<10))
		before := make(map[*workerProcess]int)
		for _, w := range r.workers {
			before[w] = len(w.Output())
			if step == 0 {
				w.Resume()
			}
		}
		r.awaitLog("an account that is full", func(w *workerProcess) bool {
			text := w.Output()[before[w]:] // a heartbeat is refused even if there is nothing more to commit
			return strings.Contains(text, "the storage of the account is full") || strings.Contains(text, "partitions lost") ||
				strings.Contains(text, "resource limits exceeded for account")
		})
		limits, err := streams.ReadLimits(r.t.Context(), r.js, r.plan.nodes, nil)
		if err != nil || !slices.ContainsFunc(limits, func(l streams.Limit) bool { return l.Name == "storage of the account" && l.Used > l.Max/2 }) {
			r.t.Errorf("the limits of the account are %+v, %v", limits, err)
		}
	}
	r.cluster.LimitAccount(-1)
}

// stores returns how many bytes the account stores.
func (r *faultRun) stores() (n int64) {
	r.t.Helper()
	r.cluster.Try("ask for the account", func(ctx context.Context) error {
		info, err := r.js.AccountInfo(ctx)
		if err == nil {
			n = int64(info.Store) //nolint:gosec // less than the disk has
		}
		return err
	})
	return n
}

// fillStream gives raw streams or events streams a limit that they reach, and takes it back.
func (r *faultRun) fillStream() {
	r.t.Helper()
	names := r.rawStreams()
	if r.random.IntN(2) == 0 {
		names = r.eventsStreams()
	}
	limit := func(more int64) {
		for _, info := range r.infos(names) {
			c := info.Config
			c.Discard, c.MaxBytes = jetstream.DiscardNew, -1
			if more > 0 {
				c.MaxBytes = int64(info.State.Bytes) + more //nolint:gosec // less than the disk has
			}
			r.cluster.Try("limit "+c.Name, func(ctx context.Context) error {
				_, err := r.js.UpdateStream(ctx, c)
				return err
			})
		}
	}
	limit(1 + r.random.Int64N(32<<10))
	r.producer.grant(60)
	r.moment(3 * time.Second)
	limit(0)
}

// explain logs what has happened to the log of a record, and where the raw streams have it.
func (e *edges) explain(key string) {
	e.r.t.Helper()
	for _, l := range e.logs {
		if strings.HasPrefix(key, l.Session+" ") {
			e.r.t.Logf("%s:\n\t%s", key, strings.Join(l.Past, "\n\t"))
		}
	}
	for cell, info := range e.r.infos(e.r.rawStreams()) {
		for _, at := range e.r.find(cell, key, info.State.LastSeq) {
			e.r.t.Logf("%s is in %s", key, at)
		}
	}
}
