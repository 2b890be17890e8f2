package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
)

// Cluster is one JetStream server or several, each a process of its own that can be
// killed, with a store that stays. Every commit is synced before it is acknowledged.
type Cluster struct {
	tb    testing.TB
	Nodes []*Node
}

// Node is a server of a [Cluster].
type Node struct {
	*Process

	tb     testing.TB
	config nodeConfig
}

// nodeProgram is the program that a node runs.
const nodeProgram = "pipelinetest.node"

// nodeConfig are the arguments of a node.
type nodeConfig struct {
	Name     string   `json:"name"`
	StoreDir string   `json:"store_dir"`
	Port     int      `json:"port"`
	Route    int      `json:"route"`     // port for the other nodes; 0 for a server alone
	Routes   []string `json:"routes"`    // of all nodes
	MaxStore int64    `json:"max_store"` // bytes of all streams; 0 for what the disk has
}

// StartCluster starts nodes servers, with routes between them on the loopback when they
// are several, and returns when they serve JetStream. They end with the test. maxStore
// limits what the streams on each may hold; 0 for what the disk has.
func StartCluster(tb testing.TB, nodes int, maxStore int64) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	ports := freePorts(tb, 2*nodes)
	var routes []string
	if nodes > 1 {
		for i := range nodes {
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[2*i+1]))
		}
	}
	for i := range nodes {
		cfg := nodeConfig{Name: fmt.Sprintf("n%d", i), StoreDir: tb.TempDir(), Port: ports[2*i], Routes: routes, MaxStore: maxStore}
		if nodes > 1 {
			cfg.Route = ports[2*i+1]
		}
		c.Nodes = append(c.Nodes, &Node{tb: tb, config: cfg})
	}
	return c.start()
}

// StartClusterOn is [StartCluster] for one server that keeps its streams in dir.
func StartClusterOn(tb testing.TB, dir string) *Cluster {
	tb.Helper()
	cfg := nodeConfig{Name: "n0", StoreDir: dir, Port: freePorts(tb, 1)[0]}
	c := &Cluster{tb: tb, Nodes: []*Node{{tb: tb, config: cfg}}}
	return c.start()
}

// start starts all nodes.
func (c *Cluster) start() *Cluster {
	c.tb.Helper()
	for _, n := range c.Nodes {
		n.launch()
	}
	for _, n := range c.Nodes {
		n.AwaitReady()
	}
	return c
}

// freePorts finds ports of the loopback that nobody uses. They lie below those that
// systems give to clients, so that each is still free when its node starts again.
func freePorts(tb testing.TB, count int) []int {
	tb.Helper()
	var ports []int
	for tries := 0; len(ports) < count; tries++ {
		port := 20_000 + rand.IntN(12_000)
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			if tries > 1000 {
				tb.Fatalf("no free port: %v", err)
			}
			continue
		}
		_ = l.Close()
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// URL is where clients connect: all nodes, with commas. It stays the same over restarts.
func (c *Cluster) URL() string {
	urls := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		urls[i] = n.URL()
	}
	return strings.Join(urls, ",")
}

// JetStream connects to the cluster, as [Server.JetStream] does.
func (c *Cluster) JetStream(options ...nats.Option) jetstream.JetStream {
	c.tb.Helper()
	return Connect(c.tb, c.URL(), options...)
}

// Provision connects and makes the cluster hold t, as soon as it has a leader and all its
// nodes.
func (c *Cluster) Provision(t pipeline.Topology) jetstream.JetStream {
	c.tb.Helper()
	js := c.JetStream()
	c.Try("provision", func(ctx context.Context) error { return pipeline.Provision(ctx, js, t) })
	return js
}

// Settle waits until every stream has a leader and all its replicas are up to date, so
// that another node can be lost.
func (c *Cluster) Settle(js jetstream.JetStream) {
	c.tb.Helper()
	c.Try("settle", func(ctx context.Context) error {
		names := js.StreamNames(ctx)
		for name := range names.Name() {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			info := s.CachedInfo()
			if info.Cluster == nil || info.Config.Replicas <= 1 {
				continue
			}
			if info.Cluster.Leader == "" || len(info.Cluster.Replicas) != info.Config.Replicas-1 {
				return fmt.Errorf("stream %s is without a leader", name)
			}
			for _, r := range info.Cluster.Replicas {
				if !r.Current || r.Offline {
					return fmt.Errorf("stream %s: replica %s is behind", name, r.Name)
				}
			}
		}
		return names.Err()
	})
}

// Try tries again until do succeeds, for what a cluster that lacks a leader refuses.
func (c *Cluster) Try(what string, do func(context.Context) error) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	var last error // that says more than that there was no answer
	for {
		try, stop := context.WithTimeout(ctx, 5*time.Second)
		err := do(try)
		stop()
		if err == nil {
			return
		}
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			c.tb.Fatalf("%s: %v", what, last)
		}
	}
}

// URL is where clients connect. It stays the same over restarts.
func (n *Node) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.config.Port) }

// launch starts the process of the node.
func (n *Node) launch() {
	n.tb.Helper()
	n.Process = StartProcess(n.tb, nodeProgram, n.config)
}

// Start starts a node again that was stopped or killed, on the same store and ports, and
// returns when it takes connections.
func (n *Node) Start() {
	n.tb.Helper()
	n.launch()
	n.AwaitReady()
}

// Restart ends the node well and starts it again.
func (n *Node) Restart() {
	n.tb.Helper()
	n.Stop()
	n.Start()
}

// StreamDir is where a stream lies. Its files are whole only while the node is stopped.
func (n *Node) StreamDir(stream string) string {
	return filepath.Join(n.config.StoreDir, "jetstream", "$G", "streams", stream)
}

// runNode is the [Program] of a node.
func runNode(ctx context.Context, arguments []byte, ready func()) error {
	var cfg nodeConfig
	if err := json.Unmarshal(arguments, &cfg); err != nil {
		return fmt.Errorf("arguments of a node: %w", err)
	}
	opts := &server.Options{
		ServerName: cfg.Name,
		Host:       "127.0.0.1",
		Port:       cfg.Port,
		JetStream:  true,
		StoreDir:   cfg.StoreDir,
		SyncAlways: true,
		MaxPayload: pipeline.MaxPayload,
		NoSigs:     true,
	}
	opts.JetStreamMaxStore = cfg.MaxStore
	if cfg.Route != 0 {
		opts.Cluster = server.ClusterOpts{Name: "faults", Host: "127.0.0.1", Port: cfg.Route, NoAdvertise: true}
		opts.Routes = server.RoutesFromStr(strings.Join(cfg.Routes, ","))
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.SetLoggerV2(stderrLog{}, false, false, false)
	srv.Start()
	for !srv.ReadyForConnections(time.Second) || !srv.JetStreamEnabled() {
		if ctx.Err() != nil {
			return errors.New("the server did not start")
		}
	}
	ready()
	<-ctx.Done()
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}

// stderrLog writes what goes wrong in a server to standard error, and ends the process
// when the server cannot start.
type stderrLog struct{}

func (stderrLog) Noticef(string, ...any) {}
func (stderrLog) Debugf(string, ...any)  {}
func (stderrLog) Tracef(string, ...any)  {}

func (stderrLog) Warnf(format string, v ...any) { fmt.Fprintf(os.Stderr, "WRN "+format+"\n", v...) }

func (stderrLog) Errorf(format string, v ...any) { fmt.Fprintf(os.Stderr, "ERR "+format+"\n", v...) }

func (stderrLog) Fatalf(format string, v ...any) {
	fmt.Fprintf(os.Stderr, "FTL "+format+"\n", v...)
	os.Exit(1) //nolint:forbidigo // of a process that is only this server
}
