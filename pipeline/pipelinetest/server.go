// Package pipelinetest is for tests of the pipeline what net/http/httptest is for HTTP.
//
// Start with [NewServer], a JetStream server in this process, and [Expectation], the oracle:
// it computes what a generation should hold and compares it with what a stage has stored.
// [Cluster] and [Process] are servers and workers in processes of their own, which a test
// can kill; [Proxy] breaks the connections between them; [Workload] makes records, and
// [Publish] and [Ship] store them.
//
// A test of a stage:
//
//	top := pipeline.Topology{Generation: "v1", Partitions: 4}
//	js := pipelinetest.NewServer(t).Provision(top)
//	pipelinetest.Publish(t, js, pipelinetest.Workload(1, 20, 1000)...)
//	stage, err := pipeline.New(js, pipeline.Config{Topology: top})
//	...
//	go stage.Run(ctx)
//	pipelinetest.Expectation{Topology: top}.RequireExact(t, js)
//
// The invariant: the oracle shares nothing with the stage but the reading of a record, of
// the object that it names, and the normalizer.
package pipelinetest

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"tributary/pipeline/embedded"
	"tributary/pipeline/streams"
)

// Server is a JetStream server in this process with its own store: the server that the command embeds, with messages
// of up to 8 MiB. In benchmarks it syncs every commit. In tests it does not, because tests end processes but no
// machines; so they do not depend on the speed of a disk.
type Server struct {
	tb  testing.TB
	url string
	cfg embedded.Config

	mu  sync.Mutex
	srv *server.Server
}

// NewServer starts a server that ends with the test. Options change its configuration.
func NewServer(tb testing.TB, options ...func(*embedded.Config)) *Server {
	tb.Helper()
	s := &Server{tb: tb, cfg: embedded.Config{StoreDir: tb.TempDir(), Listen: "127.0.0.1:0"}}
	if _, measured := tb.(*testing.B); !measured {
		s.cfg.SyncInterval = time.Minute
	}
	for _, o := range options {
		o(&s.cfg)
	}
	s.Start()
	tb.Cleanup(s.Stop)
	return s
}

// StartConfigured starts a server with a configuration file, which ends with the test.
func StartConfigured(tb testing.TB, file string) *server.Server {
	tb.Helper()
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	options.NoLog, options.NoSigs = true, true
	srv, err := server.NewServer(options)
	if err != nil {
		tb.Fatal(err)
	}
	srv.Start()
	tb.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(time.Minute) {
		tb.Fatal("the server accepts no connections")
	}
	return srv
}

// Parallel runs three tests at a time per processor, unless the flag -parallel is set: most tests wait for
// heartbeats. It has garbage collected less often than in programs, but not in benchmarks: the servers of tests are
// small, and a sixth of the processor time was garbage collection. A TestMain calls it before it runs the tests.
func Parallel() {
	_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))) // the flag exists
	if !measures() {
		debug.SetGCPercent(200)
	}
}

// measures reports whether benchmarks run.
func measures() bool {
	return slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.bench") })
}

// Configure is [Parallel], with temporary files in memory, unless TMPDIR is set or the system has no room: they need
// not outlive a crash of the system. Benchmarks keep the disk.
func Configure() {
	Parallel()
	if folder := MemoryFolder(); folder != "" && !measures() && os.Getenv("TMPDIR") == "" { //nolint:forbidigo // read by all who make temporary files
		_ = os.Setenv("TMPDIR", folder) // fails for no such name
	}
}

// SkipShort skips a test with -short, as for the race detector: one that takes long, and whose goroutines other tests
// have, too.
func SkipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("takes long")
	}
}

// Start starts the server again after [Server.Stop], with the same store and port.
func (s *Server) Start() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	// Another process may use the port for a moment.
	ctx, cancel := context.WithTimeout(s.tb.Context(), 30*time.Second)
	defer cancel()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		srv, err := embedded.Start(s.cfg)
		if err == nil {
			s.srv, s.url, s.cfg.Listen = srv, srv.ClientURL(), srv.Addr().String()
			return
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			s.tb.Fatalf("start server: %v", err)
		}
	}
}

// Stop ends the server. Its clients lose their connections at once.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil {
		return
	}
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	s.srv = nil
}

// Restart is [Server.Stop] and [Server.Start].
func (s *Server) Restart() {
	s.tb.Helper()
	s.Stop()
	s.Start()
}

// URL returns the address for clients. Restarts do not change it.
func (s *Server) URL() string { return s.url }

// InProcessConn returns a connection without a socket, for the option [nats.InProcessServer].
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv.InProcessConn()
}

// JetStream connects to the server. The connection reconnects by itself within milliseconds
// and closes with the test.
func (s *Server) JetStream(options ...nats.Option) jetstream.JetStream {
	s.tb.Helper()
	return Connect(s.tb, s.url, options...)
}

// Connect is [Server.JetStream] for any address, such as that of a [Proxy].
func Connect(tb testing.TB, url string, options ...nats.Option) jetstream.JetStream {
	tb.Helper()
	options = append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(10 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
	}, options...)
	nc, err := nats.Connect(url, options...)
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	tb.Cleanup(nc.Close)
	// An answer can take seconds on a busy machine; a test fails for what the answer says.
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		tb.Fatalf("jetstream: %v", err)
	}
	return js
}

// AsPrograms returns a client on the connection of js that waits for answers only as long as programs do: for a test
// in which answers are lost.
func AsPrograms(tb testing.TB, js jetstream.JetStream) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(js.Conn())
	if err != nil {
		tb.Fatalf("jetstream: %v", err)
	}
	return js
}

// Provision connects and provisions t.
func (s *Server) Provision(t streams.Topology) jetstream.JetStream {
	s.tb.Helper()
	js := s.JetStream()
	if err := streams.Provision(s.tb.Context(), js, t); err != nil {
		s.tb.Fatalf("provision: %v", err)
	}
	return js
}

// ServerLeaks returns the goroutines that an embedded nats-server may leave behind, for a check of goroutines after the
// tests: it has no way to stop them.
func ServerLeaks() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{
		goleak.IgnoreTopFunction(server + ".(*msgBlock).flushLoop"), // it was stopped while it stored a message
		// It was stopped while it opened a stream.
		goleak.IgnoreTopFunction(server + ".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(server + "/ats.Register.func1"),
	}
}

// StreamNames returns the names of all streams, in their order.
func StreamNames(tb testing.TB, js jetstream.JetStream) []string {
	tb.Helper()
	lister := js.StreamNames(tb.Context())
	var names []string
	for name := range lister.Name() {
		names = append(names, name)
	}
	if err := lister.Err(); err != nil {
		tb.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// AwaitNoConsumers waits until a stream has no consumer. It fails the test after 30 seconds, before the server removes
// forgotten consumers of readers by itself.
func AwaitNoConsumers(tb testing.TB, js jetstream.JetStream, stream string) {
	tb.Helper()
	end := time.After(30 * time.Second)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		s, err := js.Stream(tb.Context(), stream)
		if err != nil {
			tb.Fatal(err)
		}
		n := s.CachedInfo().State.Consumers
		if n == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-end:
			tb.Fatalf("%d consumers of stream %s are left", n, stream)
		}
	}
}

// StoreCopy is a copy of the streams of a [Server] at one moment, like a snapshot of the disk.
type StoreCopy struct {
	server *Server
	dir    string
}

// CopyStore copies the streams. It restarts the server.
func (s *Server) CopyStore() *StoreCopy {
	s.tb.Helper()
	c := &StoreCopy{server: s, dir: filepath.Join(s.tb.TempDir(), "streams")}
	s.Stop()
	if err := copyFolder(c.dir, s.streams()); err != nil {
		s.tb.Fatalf("copy the store: %v", err)
	}
	s.Start()
	return c
}

// copyFolder copies a folder without what is removed meanwhile: timers of a stopped server still remove batches that
// were not committed.
func copyFolder(to, from string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		var data []byte
		if err == nil && !entry.IsDir() {
			data, err = os.ReadFile(name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		copied := filepath.Join(to, strings.TrimPrefix(name, from))
		if entry.IsDir() {
			return os.MkdirAll(copied, 0o700)
		}
		return os.WriteFile(copied, data, 0o600)
	})
}

// PutBack restores streams from the copy. It restarts the server; to clients the streams seem to have gone back in
// time.
func (c *StoreCopy) PutBack(streams ...string) {
	s := c.server
	s.tb.Helper()
	s.Stop()
	for _, name := range streams {
		dir := filepath.Join(s.streams(), name)
		err := os.RemoveAll(dir)
		if err == nil {
			err = os.CopyFS(dir, os.DirFS(filepath.Join(c.dir, name)))
		}
		if err != nil {
			s.tb.Fatalf("put stream %s back: %v", name, err)
		}
	}
	s.Start()
}

// streams is the folder in which the server keeps its streams, one folder each.
func (s *Server) streams() string { return filepath.Join(s.cfg.StoreDir, "jetstream", "$G", "streams") }
