package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// limitedAccount is a server on which the streams belong to an account with a limit of storage.
type limitedAccount struct {
	tb   testing.TB
	dir  string
	file string
	srv  *server.Server
	js   jetstream.JetStream
}

// newLimitedAccount starts a server whose account may store so many bytes; below 0 any number.
func newLimitedAccount(tb testing.TB, limit int64) *limitedAccount {
	tb.Helper()
	a := &limitedAccount{tb: tb, dir: tb.TempDir(), file: filepath.Join(tb.TempDir(), "nats.conf")}
	a.write(limit)
	a.srv = pipelinetest.StartConfigured(tb, a.file)
	a.js = pipelinetest.Connect(tb, a.srv.ClientURL())
	return a
}

func (a *limitedAccount) write(limit int64) {
	a.tb.Helper()
	conf := fmt.Sprintf(`
listen: "127.0.0.1:-1"
max_payload: 8MB
jetstream: { store_dir: %q, max_file_store: 10GB }
no_auth_user: worker
accounts: { A: { jetstream: { max_file: %d, max_mem: 0 }, users: [
  { user: worker, password: worker }
  { user: blind, password: blind, permissions: { publish: { deny: "$JS.API.INFO" } } }
] } }
`, a.dir, limit)
	if err := os.WriteFile(a.file, []byte(conf), 0o600); err != nil {
		a.tb.Fatal(err)
	}
}

// limit sets what the account may store, as an operator does with a reload.
func (a *limitedAccount) limit(bytes int64) {
	a.tb.Helper()
	a.write(bytes)
	if err := a.srv.Reload(); err != nil {
		a.tb.Fatal(err)
	}
}

// restart ends the server and starts it again from what it has stored.
func (a *limitedAccount) restart() {
	a.tb.Helper()
	a.srv.Shutdown()
	a.srv.WaitForShutdown()
	a.srv = pipelinetest.StartConfigured(a.tb, a.file)
	a.js = pipelinetest.Connect(a.tb, a.srv.ClientURL())
}

// asking returns a connection of a worker that may ask for the limits of the account, or not.
func (a *limitedAccount) asking(may bool) jetstream.JetStream {
	a.tb.Helper()
	if may {
		return pipelinetest.Connect(a.tb, a.srv.ClientURL())
	}
	return pipelinetest.Connect(a.tb, a.srv.ClientURL(), nats.UserInfo("blind", "blind"))
}

// used returns what the account stores.
func (a *limitedAccount) used() int64 {
	a.tb.Helper()
	info, err := a.js.AccountInfo(a.tb.Context())
	if err != nil {
		a.tb.Fatal(err)
	}
	return int64(info.Store) //nolint:gosec // less than 10 GB
}

// lines is a log that a test waits for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

// String returns everything that was logged.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) count(text string) int { return strings.Count(l.String(), text) }

// await waits until the log has a text more than n times.
func (l *lines) await(tb testing.TB, text string, n int) {
	tb.Helper()
	l.awaitOr(tb, n, nil, text)
}

// awaitOr waits until the log has the texts more than n times together, or done is closed.
func (l *lines) awaitOr(tb testing.TB, n int, done <-chan struct{}, texts ...string) {
	tb.Helper()
	limit := deadline(tb).Done()
	count := func() (all int) {
		for _, text := range texts {
			all += l.count(text)
		}
		return all
	}
	for count() <= n {
		select {
		case <-l.more:
		case <-done:
			return
		case <-limit:
			tb.Fatalf("the log never says %q: %s", texts, l)
		}
	}
}

const (
	tornMessage = "broker stored a part of a batch"
	noAnswer    = "no answer of the broker to a batch" // as the server gives none when it tears one
	overLimit   = "resource limits exceeded"           // between two batches
)

// A limit of the account that is reached within a batch has the server store a part of it.
func TestTornBatchesAreMended(t *testing.T) {
	t.Parallel()
	top := topology(2)
	a := newLimitedAccount(t, -1)
	if err := streams.Provision(t.Context(), a.js, top); err != nil {
		t.Fatal(err)
	}
	records := pipelinetest.Workload(7, 300, 900) // states are as large as events: a tear is among either
	pipelinetest.Publish(t, a.js, records...)
	log := newLines()
	a.limit(a.used() + 40<<10)
	s := start(t, a.asking(false), worker.Config{Topology: top, Logger: log.logger()})
	for i, room := range []int64{90 << 10, 250 << 10, 30 << 10, 140 << 10} {
		log.awaitOr(t, i, nil, noAnswer, overLimit)
		a.limit(a.used() + room)
	}
	log.awaitOr(t, 4, nil, noAnswer, overLimit)
	a.limit(-1)
	raw, err := a.js.Stream(t.Context(), streams.RawStream)
	if err != nil {
		t.Fatal(err)
	}
	if n := raw.CachedInfo().State.Msgs; n != uint64(len(records)) {
		t.Fatalf("the raw stream has %d of %d records", n, len(records))
	}
	pipelinetest.Expectation{Topology: top}.RequireExact(t, a.js)
	s.stop(t)
	if n := log.count(tornMessage); n == 0 || n == log.count("complete_sessions=0") {
		t.Logf("%d torn batches, %d without a state", n, log.count("complete_sessions=0")) // their sizes differ
	}
}

// Batches that are torn at any place, and torn again at an earlier or a later one when they are stored again, are mended.
// How records fall into batches is a matter of time: where everything fits in spite of a limit, nothing is torn.
func TestBatchesThatAreTornTwiceAreMended(t *testing.T) {
	t.Parallel()
	places := int64(4)
	switch {
	case *faultsLong:
		places = 40
	case testing.Short():
		places = 2 // the race detector sees nothing new in many
	}
	records := pipelinetest.Workload(9, 120, 150)
	run := func(t *testing.T, tears ...int64) (size int64, torn int) {
		t.Helper()
		top := topology(1)
		a := newLimitedAccount(t, -1)
		if err := streams.Provision(t.Context(), a.js, top); err != nil {
			t.Fatal(err)
		}
		pipelinetest.Publish(t, a.js, records...)
		before, log := a.used(), newLines()
		if len(tears) > 0 {
			a.limit(before + tears[0])
		}
		s := start(t, a.asking(false), worker.Config{Topology: top, Logger: log.logger()})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = replay.CatchUp(deadline(t), a.js, top) // the comparison finds what is not done
		}()
		for i := range tears {
			log.awaitOr(t, i, done, noAnswer, overLimit)
			if i+1 < len(tears) {
				a.limit(a.used() + tears[i+1])
			}
		}
		if len(tears) > 0 { // the server answers nothing while it reloads, and a worker that starts ends by that
			a.limit(-1)
		}
		<-done
		pipelinetest.Expectation{Topology: top}.RequireExact(t, a.js)
		s.stop(t)
		return a.used() - before, log.count(tornMessage)
	}
	size, _ := run(t)
	var torn atomic.Int64
	t.Cleanup(func() {
		if torn.Load() == 0 {
			t.Error("no batch was torn")
		}
	})
	for k := range places {
		t.Run(strconv.FormatInt(k, 10), func(t *testing.T) {
			t.Parallel()
			_, n := run(t, size*(2*k+1)/(2*places), size*(2*(places-k)-1)/(4*places))
			torn.Add(int64(n))
		})
	}
}

// A worker that may ask for the limits of the account sends no batch that does not fit, says so, and goes on
// when there is room again.
func TestFullAccountIsAwaited(t *testing.T) {
	t.Parallel()
	top := topology(2)
	a := newLimitedAccount(t, -1)
	if err := streams.Provision(t.Context(), a.js, top); err != nil {
		t.Fatal(err)
	}
	records := pipelinetest.Workload(8, 30, 600)
	pipelinetest.Publish(t, a.js, records...)
	log := newLines()
	a.limit(a.used() + 40<<10)
	s := start(t, a.asking(true), worker.Config{Topology: top, Logger: log.logger()})
	log.await(t, "the storage of the account is full", 0)
	waiting := deadline(t)
	for ready := error(nil); ready == nil || !strings.Contains(ready.Error(), "the storage of the account is full"); ready = s.Ready() {
		if waiting.Err() != nil {
			t.Fatalf("readiness says %v", ready)
		}
		runtime.Gosched() // a partition is owned for a moment between two attempts
	}
	a.limit(-1)
	if r := (pipelinetest.Expectation{Topology: top}).RequireExact(t, a.js); r.Events < len(records) {
		t.Errorf("%d records yielded %d events", len(records), r.Events)
	}
	s.stop(t)
	if n := log.count(tornMessage); n > 0 {
		t.Errorf("%d batches were torn", n)
	}
}

// A state that a torn batch has stored has replaced the one before it, so its session is complete: its events stay,
// and its records are skipped, also by the worker that comes later.
func TestTornBatchWithStatesIsMended(t *testing.T) {
	pipelinetest.SkipShort(t)
	t.Parallel()
	top := topology(1)
	records := pipelinetest.Workload(9, 120, 150)
	size := int64(0)
	for _, limited := range []bool{false, true} {
		a := newLimitedAccount(t, -1)
		if err := streams.Provision(t.Context(), a.js, top); err != nil {
			t.Fatal(err)
		}
		pipelinetest.Publish(t, a.js, records...)
		before := a.used()
		log := newLines()
		if limited {
			a.limit(before + size*24/25) // the states of a batch are its end
		}
		s := start(t, a.asking(false), worker.Config{Topology: top, Logger: log.logger()})
		if limited {
			log.await(t, noAnswer, 0)
			s.kill()
			a.limit(-1)
			s = start(t, a.js, worker.Config{Topology: top, Logger: log.logger()})
			log.await(t, tornMessage, 0)
			if log.count("complete_sessions=0") > 0 {
				t.Errorf("the torn batch had no state: %s", log.text.String())
			}
		}
		pipelinetest.Expectation{Topology: top}.RequireExact(t, a.js)
		size = a.used() - before
		s.stop(t)
	}
}

// eventOf returns a message at the subject of an event.
func eventOf(session string) *nats.Msg {
	e := envelopes.AgentEventV1{Source: envelopes.Codex, SessionID: session, EventType: envelopes.UserMessage}
	return &nats.Msg{Subject: envelopes.EventSubject("v1", &e), Header: nats.Header{}}
}

// newest returns a message that replaces what its subject had.
func newest(subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}, Data: []byte("1")}
}

// Partitions that share a torn batch are mended one by one. The first one to go on replaces its begin and its states,
// and what it has kept of the batch is none of the others' business.
func TestTornBatchIsMendedByPartition(t *testing.T) {
	t.Parallel()
	ctx, top := t.Context(), topology(2)
	a := newLimitedAccount(t, -1)
	if err := streams.Provision(ctx, a.js, top); err != nil {
		t.Fatal(err)
	}
	var sessions [2]string // of each partition
	for i := 0; slices.Contains(sessions[:], ""); i++ {
		id := fmt.Sprintf("session-%d", i)
		sessions[envelopes.Partition(envelopes.Codex, id, 2)] = id
	}
	begin := func(p int) *nats.Msg {
		return newest(envelopes.BeginSubject(envelopes.CheckpointSubject("v1", p)))
	}
	state := newest(envelopes.StateSubject("v1", 1, envelopes.Codex, sessions[1]))
	letter := &nats.Msg{Subject: envelopes.DeadLetterSubject("v1", 1, envelopes.Codex, sessions[1]), Header: nats.Header{}}
	// What the server has stored of the batch ends before the checkpoints.
	last, err := broker.PublishBatch(ctx, a.js.Conn(), []*nats.Msg{begin(0), eventOf(sessions[0]), begin(1), eventOf(sessions[1]), letter, state})
	if err != nil {
		t.Fatal(err)
	}
	// Partition 1 has gone on: its next batch has taken the place of its begin and of the state, and is whole.
	checkpoint, sequence, err := streams.ReadCheckpoint(ctx, a.js, "v1", 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := worker.MessageOf(checkpoint, "v1", 1, sequence)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := broker.PublishBatch(ctx, a.js.Conn(), []*nats.Msg{begin(1), newest(state.Subject), m}); err != nil {
		t.Fatal(err)
	}
	log := newLines()
	s := start(t, a.js, worker.Config{Topology: top, Logger: log.logger()})
	log.await(t, tornMessage, 0)
	s.stop(t)
	stream, err := a.js.Stream(ctx, streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.GetMsg(ctx, last-4); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("the event without a state: %v, want %v", err, jetstream.ErrMsgNotFound)
	}
	for _, kept := range []uint64{last - 2, last - 1} {
		if _, err := stream.GetMsg(ctx, kept); err != nil {
			t.Errorf("message %d of the partition that has gone on: %v", kept, err)
		}
	}
}

// A server that starts again goes on with a batch that it has torn, and leaves out what a limit still refuses: the
// checkpoint of the batch is stored, and an event before it is not.
func TestBatchWithoutSomeOfItsMessagesIsRefused(t *testing.T) {
	t.Parallel()
	ctx, top := t.Context(), topology(1)
	a := newLimitedAccount(t, -1)
	if err := streams.Provision(ctx, a.js, top); err != nil {
		t.Fatal(err)
	}
	checkpoint, sequence, err := streams.ReadCheckpoint(ctx, a.js, "v1", 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := worker.MessageOf(checkpoint, "v1", 0, sequence)
	if err != nil {
		t.Fatal(err)
	}
	large, second := eventOf("session"), eventOf("session")
	large.Data = make([]byte, 20<<10) // one has room, and two have not
	second.Data = large.Data
	a.limit(a.used() + 30<<10)
	begin := newest(envelopes.BeginSubject(envelopes.CheckpointSubject("v1", 0)))
	batch := []*nats.Msg{begin, large, second, newest(envelopes.StateSubject("v1", 0, envelopes.Codex, "session")), m}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if ack, err := broker.PublishBatch(short, a.js.Conn(), batch); err == nil {
		t.Fatalf("the server has stored the batch at %d", ack)
	}
	a.restart()
	if _, now, err := streams.ReadCheckpoint(ctx, a.js, "v1", 0); err != nil || now == sequence {
		t.Fatalf("the server has not gone on with the batch: the checkpoint is message %d, %v", now, err)
	}
	a.limit(-1)
	const want = "the server left out messages of a batch before the checkpoint"
	if err := start(t, a.js, worker.Config{Topology: top}).wait(t); !errors.Is(err, streams.ErrState) || !strings.Contains(err.Error(), want) {
		t.Errorf("the worker ends with %v, want %q", err, want)
	}
}

// commit stores messages of partition 0 with its checkpoint, as another worker does that has it.
func (a *limitedAccount) commit(messages ...*nats.Msg) error {
	ctx := a.tb.Context()
	c, sequence, err := streams.ReadCheckpoint(ctx, a.js, "v1", 0)
	if err != nil {
		return err
	}
	c.Owner, c.Since = "another", 0
	c.Epoch++
	m, err := worker.MessageOf(c, "v1", 0, sequence)
	if err == nil {
		_, err = broker.PublishBatch(ctx, a.js.Conn(), append(messages, m))
	}
	return err
}

// A batch whose messages another owner replaces while it is looked at is whole.
func TestBatchThatIsReplacedMeanwhileIsWhole(t *testing.T) {
	t.Parallel()
	top := topology(1)
	a := newLimitedAccount(t, -1)
	if err := streams.Provision(t.Context(), a.js, top); err != nil {
		t.Fatal(err)
	}
	begin := envelopes.BeginSubject(envelopes.CheckpointSubject("v1", 0))
	if err := a.commit(newest(begin)); err != nil {
		t.Fatal(err)
	}
	replaced := make(chan error, 1)
	dialer := &meanwhile{what: `"next_by_subj":">"`, do: func() { replaced <- a.commit(newest(begin)) }}
	s := start(t, pipelinetest.Connect(t, a.srv.ClientURL(), nats.SetCustomDialer(dialer)), worker.Config{Topology: top})
	if err := <-replaced; err != nil {
		t.Fatal(err)
	}
	ready(t, s)
	s.stop(t)
}

// meanwhile is a dialer of connections that call do once, before they send what.
type meanwhile struct {
	what string
	do   func()
	once sync.Once
}

func (d *meanwhile) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return &interrupted{c, d}, err
}

type interrupted struct {
	net.Conn

	*meanwhile
}

func (c *interrupted) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.what)) {
		c.once.Do(c.do)
	}
	return c.Conn.Write(b)
}

// A worker that is overtaken while it reads a torn batch no longer finds the states that the other one has replaced, and
// removes nothing.
func TestOvertakenWorkerMendsNothing(t *testing.T) {
	t.Parallel()
	ctx, top := t.Context(), topology(1)
	a := newLimitedAccount(t, -1)
	if err := streams.Provision(ctx, a.js, top); err != nil {
		t.Fatal(err)
	}
	begin := newest(envelopes.BeginSubject(envelopes.CheckpointSubject("v1", 0)))
	state := newest(envelopes.StateSubject("v1", 0, envelopes.Codex, "session"))
	last, err := broker.PublishBatch(ctx, a.js.Conn(), []*nats.Msg{begin, eventOf("session"), state})
	if err != nil {
		t.Fatal(err)
	}
	overtaken := make(chan error, 1)
	dialer := &meanwhile{what: fmt.Sprintf(`"seq":%d,"next_by_subj":">"`, last), do: func() {
		overtaken <- a.commit(newest(begin.Subject), newest(state.Subject))
	}}
	s := start(t, pipelinetest.Connect(t, a.srv.ClientURL(), nats.SetCustomDialer(dialer)), worker.Config{Topology: top})
	if err := <-overtaken; err != nil {
		t.Fatal(err)
	}
	ready(t, s)
	s.stop(t)
	stream, err := a.js.Stream(ctx, streams.EventsStream("v1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.GetMsg(ctx, last-1); err != nil {
		t.Errorf("the event of the session that the other worker has kept: %v", err)
	}
}
