package ship_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/embedded"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/records"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

// patience bounds every wait of a test.
const patience = 2 * time.Minute

// prompt returns a user message of Claude Code.
func prompt(session string, n int) string {
	return fmt.Sprintf(`{"type":"user","uuid":"%s-%d","sessionId":"%s","timestamp":"2026-03-01T10:%02d:%02d.000Z","cwd":"/home/ada/garden","message":{"role":"user","content":"water bed %d"}}`,
		session, n, session, n/60%60, n%60, n)
}

// prompts returns the user messages from first to last of a session.
func prompts(session string, first, last int) []string {
	var records []string
	for n := first; n <= last; n++ {
		records = append(records, prompt(session, n))
	}
	return records
}

// lines returns records as the content of a log.
func lines(records ...string) string { return strings.Join(records, "\n") + "\n" }

// edge is a machine with logs, and the broker that they are shipped to.
type edge struct {
	t       testing.TB
	server  *pipelinetest.Server
	js      jetstream.JetStream
	root    string // of Claude Code
	offsets string
}

func newEdge(tb testing.TB, options ...func(*embedded.Config)) *edge {
	tb.Helper()
	server := pipelinetest.NewServer(tb, options...)
	dir := tb.TempDir()
	e := &edge{
		t: tb, server: server, js: server.Provision(streams.Topology{Generation: "v1", Partitions: 4}),
		root: filepath.Join(dir, "projects"), offsets: filepath.Join(dir, "state", "offsets.json"),
	}
	e.mkdir("garden")
	return e
}

// config follows the logs of Claude Code, with short intervals.
func (e *edge) config() ship.Config {
	return ship.Config{
		Roots:   []ship.Root{{Source: envelopes.ClaudeCode, Dir: e.root, Suffixes: []string{".jsonl"}}},
		Offsets: e.offsets,
		Idle:    time.Hour,
		Rescan:  100 * time.Millisecond,
	}
}

func (e *edge) path(name string) string { return filepath.Join(e.root, filepath.FromSlash(name)) }

func (e *edge) mkdir(name string) {
	e.t.Helper()
	if err := os.MkdirAll(e.path(name), 0o755); err != nil {
		e.t.Fatal(err)
	}
}

// write replaces the content of a file, which keeps its inode if it exists.
func (e *edge) write(name, content string) {
	e.t.Helper()
	if err := os.WriteFile(e.path(name), []byte(content), 0o644); err != nil {
		e.t.Fatal(err)
	}
}

// append appends to a file in one write.
func (e *edge) append(name, content string) {
	e.t.Helper()
	f, err := os.OpenFile(e.path(name), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		e.t.Fatal(err)
	}
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Close()); err != nil {
		e.t.Fatal(err)
	}
}

func (e *edge) rename(from, to string) {
	e.t.Helper()
	if err := os.Rename(e.path(from), e.path(to)); err != nil {
		e.t.Fatal(err)
	}
}

// aged sets the last write of a file to a day ago.
func (e *edge) aged(name string) {
	e.t.Helper()
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(e.path(name), yesterday, yesterday); err != nil {
		e.t.Fatal(err)
	}
}

// once ships all logs and returns the summary.
func (e *edge) once(change ...func(*ship.Config)) ship.Summary {
	e.t.Helper()
	c := e.config()
	c.Once = true
	for _, f := range change {
		f(&c)
	}
	s, err := ship.New(e.js.Conn(), c)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Run(ctx); err != nil {
		e.t.Fatalf("ship once: %v", err)
	}
	return s.Summary()
}

// following is a Ship that runs beside the test.
type following struct {
	t    testing.TB
	ship *ship.Ship
	stop func() // returns when the Ship has ended

	mu      sync.Mutex
	latest  ship.Summary
	changed chan struct{} // closed with each new summary
}

// follow starts to follow the logs, until the test ends or stop is called.
func (e *edge) follow(change ...func(*ship.Config)) *following {
	e.t.Helper()
	return e.followBy(e.js.Conn(), change...)
}

func (e *edge) followBy(nc *nats.Conn, change ...func(*ship.Config)) *following {
	e.t.Helper()
	f := &following{t: e.t, changed: make(chan struct{})}
	c := e.config()
	c.Progress = func(s ship.Summary) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.latest = s
		close(f.changed)
		f.changed = make(chan struct{})
	}
	for _, change := range change {
		change(&c)
	}
	s, err := ship.New(nc, c)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	f.ship = s
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			e.t.Errorf("ship: %v", err)
		}
	})
	e.t.Cleanup(f.stop)
	return f
}

// until waits for a summary that satisfies ok.
func (f *following) until(what string, ok func(ship.Summary) bool) {
	f.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		f.mu.Lock()
		latest, changed := f.latest, f.changed
		f.mu.Unlock()
		if ok(latest) {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			f.t.Fatalf("timed out waiting until %s: %+v", what, latest)
		}
	}
}

// tap reads the raw stream from its start, as it grows.
type tap struct {
	t      testing.TB
	msgs   jetstream.MessagesContext
	claims *claims.Store
}

func (e *edge) tap() *tap {
	e.t.Helper()
	return tapOf(e.t, e.js)
}

func tapOf(tb testing.TB, js jetstream.JetStream) *tap {
	tb.Helper()
	c, err := js.OrderedConsumer(tb.Context(), streams.RawStream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	msgs, err := c.Messages()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(msgs.Stop)
	return &tap{tb, msgs, claims.NewStore(js)}
}

// next waits for the next n records and returns them.
func (p *tap) next(n int) []stored {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var got []stored
	for len(got) < n {
		m, err := p.msgs.Next(jetstream.NextContext(ctx))
		if err != nil {
			p.t.Fatalf("read raw stream: %v after %q", err, brief(got))
		}
		meta, err := m.Metadata()
		if err != nil {
			p.t.Fatal(err)
		}
		raw := &nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}
		r, claim, err := records.Read(raw, meta.Sequence.Stream, meta.Timestamp)
		if claim != (claims.Claim{}) && err == nil {
			r.Data, err = p.claims.Get(ctx, claim)
		}
		if err != nil {
			p.t.Fatalf("message %d of the raw stream is not a record: %v", meta.Sequence.Stream, err)
		}
		got = append(got, stored{r, m.Headers()})
	}
	return got
}

// expect waits for records and compares their data. "end of <session>" stands for the end of
// a session.
func (p *tap) expect(want ...string) []stored {
	p.t.Helper()
	got := p.next(len(want))
	if diff := cmp.Diff(want, brief(got)); diff != "" {
		p.t.Fatalf("raw stream (-want +got):\n%s", diff)
	}
	return got
}

// stored is a record in the raw stream.
type stored struct {
	core.Record
	header nats.Header
}

// brief returns the texts by which records are compared.
func brief(records []stored) []string {
	var b []string
	for _, r := range records {
		if r.Origin.End {
			b = append(b, "end of "+r.Session)
		} else {
			b = append(b, string(r.Data))
		}
	}
	return b
}

// all returns all records and ends of the raw stream.
func (e *edge) all() []stored {
	e.t.Helper()
	return e.tap().next(e.count())
}

// count returns the number of messages in the raw stream.
func (e *edge) count() int {
	e.t.Helper()
	s, err := e.js.Stream(context.Background(), streams.RawStream)
	if err != nil {
		e.t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// wantStored compares all of the raw stream, as expect does.
func (e *edge) wantStored(want ...string) []stored {
	e.t.Helper()
	got := e.all()
	if diff := cmp.Diff(want, brief(got)); diff != "" {
		e.t.Fatalf("raw stream (-want +got):\n%s", diff)
	}
	return got
}

// records returns all without the ends.
func recordsOf(all []stored) []stored {
	var rs []stored
	for _, r := range all {
		if !r.Origin.End {
			rs = append(rs, r)
		}
	}
	return rs
}
