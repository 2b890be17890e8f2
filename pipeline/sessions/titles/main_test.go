package titles_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

func TestMain(m *testing.M) {
	programs := map[string]pipelinetest.Program{
		replicaProgram: runReplica,
		renameProgram:  runRename,
		watcherProgram: runWatcher,
	}
	if code, is := pipelinetest.RunProgram(programs); is {
		os.Exit(code)
	}
	pipelinetest.Configure()
	goleak.VerifyTestMain(m, pipelinetest.ServerLeaks()...)
}

var topology = streams.Topology{Generation: "v1", Partitions: 2}

// fixture is a server with a service.
type fixture struct {
	*titles.Service
	server *pipelinetest.Server
	js     jetstream.JetStream
}

func newFixture(tb testing.TB, options ...func(*embedded.Config)) *fixture {
	tb.Helper()
	f := &fixture{server: pipelinetest.NewServer(tb, options...)}
	f.js = f.server.Provision(topology)
	f.Service = newService(tb, f.js)
	return f
}

func newService(tb testing.TB, js jetstream.JetStream) *titles.Service {
	tb.Helper()
	s, err := titles.New(js, titles.Config{ChangesMaxAge: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// session is the key of a session that has an event.
func (f *fixture) session(tb testing.TB, id string) titles.Key {
	tb.Helper()
	k := titles.Key{Source: envelopes.ClaudeCode, SessionID: id}
	addEvent(tb, f.js, k)
	return k
}

// addEvent stores an event of a session.
func addEvent(tb testing.TB, js jetstream.JetStream, k titles.Key) {
	tb.Helper()
	e := envelopes.AgentEventV1{Source: k.Source, SessionID: k.SessionID, EventType: envelopes.UserMessage}
	if _, err := js.Publish(tb.Context(), envelopes.EventSubject("v1", &e), []byte("{}")); err != nil {
		tb.Fatal(err)
	}
}

// put stores a record as it is, without a change.
func (f *fixture) put(tb testing.TB, r titles.Session) {
	tb.Helper()
	data, err := json.Marshal(&r)
	if err != nil {
		tb.Fatal(err)
	}
	m := nats.NewMsg("sessions." + string(r.Source) + "." + envelopes.Token(r.SessionID) + ".metadata")
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	m.Data = data
	if _, err := f.js.PublishMsg(tb.Context(), m); err != nil {
		tb.Fatal(err)
	}
}

// waitingService returns a service whose calls wait between reading and storing until they are released; waits has an
// item for each of the first calls that wait.
func (f *fixture) waitingService(tb testing.TB, calls int) (s *titles.Service, waits <-chan struct{}, release func()) {
	tb.Helper()
	waiting, released := make(chan struct{}, calls), make(chan struct{})
	var count atomic.Int64
	s, err := titles.New(f.js, titles.Config{Now: func() time.Time {
		if int(count.Add(1)) <= calls {
			waiting <- struct{}{}
			<-released
		}
		return time.Now()
	}})
	if err != nil {
		tb.Fatal(err)
	}
	release = sync.OnceFunc(func() { close(released) })
	tb.Cleanup(release)
	return s, waiting, release
}

// await waits until as many calls wait as the channel has room for.
func await(tb testing.TB, waits <-chan struct{}) {
	tb.Helper()
	ctx := deadline(tb)
	for range cap(waits) {
		select {
		case <-waits:
		case <-ctx.Done():
			tb.Fatal(context.Cause(ctx))
		}
	}
}

// get reads the record of a session.
func (f *fixture) get(tb testing.TB, k titles.Key) titles.Session {
	tb.Helper()
	r, err := f.Get(tb.Context(), k)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// changes are the changes that the stream has, in its order.
func changes(tb testing.TB, js jetstream.JetStream) []*titles.Change {
	tb.Helper()
	var all []*titles.Change
	for from := uint64(1); ; {
		m, err := broker.NextStored(tb.Context(), js, streams.SessionsStream, "sessions.*.*.changes", from)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return all
		}
		if err != nil {
			tb.Fatal(err)
		}
		c, err := titles.DecodeChange(m)
		if err != nil {
			tb.Fatal(err)
		}
		all, from = append(all, c), m.Sequence+1
	}
}

// lastSequence is the last sequence of the stream.
func lastSequence(tb testing.TB, js jetstream.JetStream) uint64 {
	tb.Helper()
	s, err := js.Stream(tb.Context(), streams.SessionsStream)
	if err != nil {
		tb.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

// deadline returns a context for what must happen soon.
func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), 3*time.Minute, errors.New("the test waits in vain"))
	tb.Cleanup(cancel)
	return ctx
}

// poll repeats done until it returns true.
func poll(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for ctx := deadline(tb); !done(); {
		select {
		case <-look.C:
		case <-ctx.Done():
			tb.Fatal(what + " does not happen")
		}
	}
}

// serving runs a service as a micro service until the test ends, or drain.
func serving(tb testing.TB, s *titles.Service, nc *nats.Conn) (drain func()) {
	tb.Helper()
	result := make(chan error, 1)
	go func() { result <- s.Serve(context.WithoutCancel(tb.Context())) }()
	drain = sync.OnceFunc(func() {
		s.Drain()
		if err := <-result; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(drain)
	awaitServices(tb, nc, 1)
	return drain
}

// awaitServices waits until a number of processes answer requests.
func awaitServices(tb testing.TB, nc *nats.Conn, count int) {
	tb.Helper()
	poll(tb, "serving", func() bool {
		inbox := nc.NewInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil {
			tb.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := nc.PublishRequest("$SRV.INFO."+titles.ServiceName, inbox, nil); err != nil {
			tb.Fatal(err)
		}
		ready := 0
		for ready < count {
			m, err := sub.NextMsg(time.Second)
			var info struct {
				Endpoints []struct{} `json:"endpoints"`
			}
			if err != nil || json.Unmarshal(m.Data, &info) != nil {
				return false
			}
			if len(info.Endpoints) == 5 {
				ready++
			}
		}
		return true
	})
}

// gate is a connection to the server that stops at the last message of an atomic batch.
type gate struct {
	held    chan struct{} // closed when it has stopped
	release chan struct{} // closed by the test to go on
	once    sync.Once
	first   bool // sends what is before the last message
	after   bool // sends the last message, too, and receives nothing any more
	lose    bool // loses the connection with what it would have received
}

func newGate() *gate { return &gate{held: make(chan struct{}), release: make(chan struct{})} }

// Dial implements nats.CustomDialer.
func (g *gate) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return &gatedConn{Conn: c, gate: g}, err
}

type gatedConn struct {
	net.Conn
	*gate

	stopped atomic.Bool
}

func (c *gatedConn) Write(b []byte) (int, error) {
	before, _, found := bytes.Cut(b, []byte("Nats-Batch-Commit"))
	if !found {
		return c.Conn.Write(b)
	}
	sent := 0
	c.once.Do(func() {
		c.stopped.Store(c.after)
		switch {
		case c.after:
			sent = len(b)
		case c.first:
			sent = bytes.LastIndex(before, []byte("HPUB "))
		}
		if c.after {
			close(c.held) // before the acknowledgement can arrive
		}
		_, _ = c.Conn.Write(b[:sent])
		if !c.after {
			close(c.held)
		}
		<-c.release
	})
	n, err := c.Conn.Write(b[sent:])
	return sent + n, err
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.stopped.Load() {
		if <-c.release; c.lose {
			return 0, io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// The programs of processes.
const (
	replicaProgram = "titles.replica"
	renameProgram  = "titles.rename"
	watcherProgram = "titles.watcher"
)

// processConfig is the arguments of a process.
type processConfig struct {
	URL   string     `json:"url"`
	Key   titles.Key `json:"key"`
	Title string     `json:"title"`
	Held  string     `json:"held"`  // "between", "after": where a rename stops for ever
	Until string     `json:"until"` // the title at which a watcher ends
	From  uint64     `json:"from"`
}

func connectProcess(arguments []byte, options ...nats.Option) (cfg processConfig, js jetstream.JetStream, err error) {
	if err := json.Unmarshal(arguments, &cfg); err != nil {
		return cfg, nil, err
	}
	nc, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		return cfg, nil, err
	}
	js, err = jetstream.New(nc)
	return cfg, js, err
}

// runReplica answers requests.
func runReplica(ctx context.Context, arguments []byte, ready func()) error {
	_, js, err := connectProcess(arguments)
	if err != nil {
		return err
	}
	s, err := titles.New(js, titles.Config{})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, s.Drain)
	ready()
	return s.Serve(context.WithoutCancel(ctx))
}

// runRename sets a title. It stops on the way when it is configured so.
func runRename(ctx context.Context, arguments []byte, ready func()) error {
	var cfg processConfig
	if err := json.Unmarshal(arguments, &cfg); err != nil {
		return err
	}
	var options []nats.Option
	if cfg.Held != "" {
		g := newGate()
		g.first, g.after = true, cfg.Held == "after"
		options = append(options, nats.SetCustomDialer(g))
		go func() {
			<-g.held
			ready()
		}()
	}
	_, js, err := connectProcess(arguments, options...)
	if err != nil {
		return err
	}
	s, err := titles.New(js, titles.Config{})
	if err != nil {
		return err
	}
	c, err := s.SetTitle(ctx, cfg.Key, cfg.Title)
	if err != nil {
		return err
	}
	fmt.Printf("applied %v\n", c != nil)
	return nil
}

// watched is what a watcher has seen of a session.
type watched struct {
	Snapshot uint64   `json:"snapshot"` // title version of the record in the snapshot
	Changes  []uint64 `json:"changes"`  // title versions of the changes
	Title    string   `json:"title"`
}

// runWatcher watches until a session has a title, and prints what it has seen.
func runWatcher(ctx context.Context, arguments []byte, ready func()) error {
	cfg, js, err := connectProcess(arguments)
	if err != nil {
		return err
	}
	var seen watched
	for u, err := range titles.Watch(ctx, js, cfg.From) {
		switch {
		case err != nil:
			return err
		case u.Kind == titles.Snapshot && u.Session.Key() == cfg.Key:
			seen.Snapshot, seen.Title = u.Session.TitleVersion, u.Session.Title
		case u.Kind == titles.Synced:
			ready()
		case u.Kind == titles.Changed && u.Change.SessionID == cfg.Key.SessionID:
			seen.Changes, seen.Title = append(seen.Changes, u.Change.TitleVersion), u.Change.Title
		}
		if u.Kind != titles.Snapshot && seen.Title == cfg.Until {
			break
		}
	}
	data, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	fmt.Printf("seen %s\n", data)
	return nil
}
