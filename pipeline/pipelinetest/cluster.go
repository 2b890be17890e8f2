package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/embedded"
	"tributary/pipeline/streams"
)

// Cluster is one JetStream server or several. Each is a process that a test can kill or cut off from the others; its
// store survives. A single server syncs every commit before it acknowledges it.
type Cluster struct {
	tb    testing.TB
	Nodes []*Node
}

// Node is a server of a [Cluster].
type Node struct {
	*Process

	tb     testing.TB
	config nodeConfig
	routes []*Proxy // to each of the others
}

// nodeProgram is the program that a node runs.
const nodeProgram = "pipelinetest.node"

// nodeConfig has the arguments of a node.
type nodeConfig struct {
	Name     string   `json:"name"`
	StoreDir string   `json:"store_dir"`
	Port     int      `json:"port"`
	Route    int      `json:"route"`     // port for the other nodes; 0 for a single server
	Routes   []string `json:"routes"`    // to the other nodes
	MaxStore int64    `json:"max_store"` // bytes of all streams; 0 for the free space of the disk
}

// StartCluster starts the servers of [NewCluster] and returns when they serve JetStream.
func StartCluster(tb testing.TB, nodes int, maxStore int64) *Cluster {
	tb.Helper()
	c := NewCluster(tb, nodes, maxStore)
	c.Start(c.Nodes...)
	return c
}

// NewCluster returns servers that do not run yet, with routes between them on the loopback. They end with the test.
// maxStore bounds the bytes of the streams on each server; 0 for the free space of the disk.
func NewCluster(tb testing.TB, nodes int, maxStore int64) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	ports := freePorts(tb, 2*nodes)
	for i := range nodes {
		c.Nodes = append(c.Nodes, &Node{tb: tb, config: nodeConfig{
			Name: fmt.Sprintf("n%d", i), StoreDir: tb.TempDir(), Port: ports[2*i], MaxStore: maxStore,
		}})
	}
	if nodes > 1 {
		for i, n := range c.Nodes {
			n.config.Route = ports[2*i+1]
		}
		c.connect()
	}
	return c
}

// connect puts a proxy into each direction between two nodes.
func (c *Cluster) connect() {
	for _, from := range c.Nodes {
		for _, to := range c.Nodes {
			if from == to {
				continue
			}
			route := newProxy(c.tb, fmt.Sprintf("127.0.0.1:%d", to.config.Route))
			from.config.Routes = append(from.config.Routes, route.URL())
			from.routes, to.routes = append(from.routes, route), append(to.routes, route)
		}
	}
}

// StartClusterOn is [StartCluster] for one server that keeps its streams in dir.
func StartClusterOn(tb testing.TB, dir string) *Cluster {
	tb.Helper()
	cfg := nodeConfig{Name: "n0", StoreDir: dir, Port: freePorts(tb, 1)[0]}
	c := &Cluster{tb: tb, Nodes: []*Node{{tb: tb, config: cfg}}}
	c.Start(c.Nodes...)
	return c
}

// Start starts nodes, for the first time or again, with the same stores and ports. It returns when they are healthy,
// which needs a majority of all nodes.
func (c *Cluster) Start(nodes ...*Node) {
	c.tb.Helper()
	for _, n := range nodes {
		n.launch()
	}
	for _, n := range nodes {
		n.AwaitReady()
	}
}

// Stop shuts all nodes down.
func (c *Cluster) Stop() {
	c.tb.Helper()
	for _, n := range c.Nodes {
		n.Stop()
	}
}

// Ports below the ephemeral ones, so that no client takes the port of a stopped node. Each process tries ports from
// its own start, so that no other test takes them either.
const (
	lowestPort = 20_000
	portCount  = 12_000
)

var (
	firstPort  = rand.IntN(portCount)
	triedPorts atomic.Int64
)

// freePorts finds unused ports of the loopback that stay free until their nodes start again.
func freePorts(tb testing.TB, count int) []int {
	tb.Helper()
	var ports []int
	for tries := 0; len(ports) < count; tries++ {
		port := lowestPort + (firstPort+int(triedPorts.Add(1)))%portCount
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			if tries > portCount {
				tb.Fatalf("no free port: %v", err)
			}
			continue
		}
		_ = l.Close()
		ports = append(ports, port)
	}
	return ports
}

// URL returns the addresses of all nodes for clients, separated by commas. Restarts do not change them.
func (c *Cluster) URL() string { return urls(c.Nodes) }

// URLWithout is [Cluster.URL] without node n.
func (c *Cluster) URLWithout(n *Node) string {
	return urls(slices.DeleteFunc(slices.Clone(c.Nodes), func(of *Node) bool { return of == n }))
}

// urls returns the addresses of nodes, separated by commas.
func urls(nodes []*Node) string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = n.URL()
	}
	return strings.Join(list, ",")
}

// JetStream connects to the cluster, as [Server.JetStream] does.
func (c *Cluster) JetStream(options ...nats.Option) jetstream.JetStream {
	c.tb.Helper()
	return Connect(c.tb, c.URL(), options...)
}

// Provision connects and provisions t, once the cluster has a leader and all nodes.
func (c *Cluster) Provision(t streams.Topology) jetstream.JetStream {
	c.tb.Helper()
	js := c.JetStream()
	c.Try("provision", func(ctx context.Context) error { return streams.Provision(ctx, js, t) })
	return js
}

// Settle waits until every stream has a leader and all its replicas are current, so that
// another node can be lost.
func (c *Cluster) Settle(js jetstream.JetStream) {
	c.tb.Helper()
	c.await("settle", js, func(_ string, replicas []*jetstream.PeerInfo) error {
		for _, r := range replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("replica %s is behind", r.Name)
			}
		}
		return nil
	})
}

// AwaitWithout waits until every stream has a leader other than n, a failed node. js should not be connected to n.
func (c *Cluster) AwaitWithout(n *Node, js jetstream.JetStream) {
	c.tb.Helper()
	c.await("go on without "+n.Name(), js, func(leader string, _ []*jetstream.PeerInfo) error {
		if leader == n.Name() {
			return errors.New("it leads")
		}
		return nil
	})
}

// await waits until every replicated stream has a leader, and wanted returns nil for it.
func (c *Cluster) await(what string, js jetstream.JetStream, wanted func(leader string, replicas []*jetstream.PeerInfo) error) {
	c.tb.Helper()
	c.Try(what, func(ctx context.Context) error {
		names := js.StreamNames(ctx)
		for name := range names.Name() {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return fmt.Errorf("stream %s: %w", name, err)
			}
			info := s.CachedInfo()
			if info.Cluster == nil || info.Config.Replicas <= 1 {
				continue
			}
			if info.Cluster.Leader == "" || len(info.Cluster.Replicas) != info.Config.Replicas-1 {
				return fmt.Errorf("stream %s is without a leader", name)
			}
			if err := wanted(info.Cluster.Leader, info.Cluster.Replicas); err != nil {
				return fmt.Errorf("stream %s: %w", name, err)
			}
		}
		return names.Err()
	})
}

// Try calls do until it succeeds, because a cluster without a leader refuses requests. If it never succeeds, the test
// fails with the stacks of all nodes.
func (c *Cluster) Try(what string, do func(context.Context) error) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	var last error // other than a timeout
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
			for _, n := range c.Nodes {
				if n.running() {
					n.signal(syscall.SIGQUIT) // the stacks of all goroutines
					n.AwaitEnd()
				}
				c.tb.Logf("%s:\n%s", n.Name(), n.Output())
			}
			c.tb.Fatalf("%s: %v", what, last)
		}
	}
}

// URL returns the address for clients. Restarts do not change it.
func (n *Node) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.config.Port) }

// launch starts the process of the node.
func (n *Node) launch() {
	n.tb.Helper()
	n.Process = StartProcess(n.tb, nodeProgram, n.config)
}

// CutOff breaks the routes between the node and all others until [Node.Reconnect]. Its
// clients stay connected.
func (n *Node) CutOff() {
	for _, r := range n.routes {
		r.Break()
	}
}

// Reconnect restores the routes of a node that was cut off.
func (n *Node) Reconnect() {
	for _, r := range n.routes {
		r.Mend()
	}
}

// Name returns the name of the server, which is also its tag for the placement of streams.
func (n *Node) Name() string { return n.config.Name }

// NodeCopy is a copy of streams of a [Node] at one moment, with the Raft logs of replicated ones.
type NodeCopy struct {
	node *Node
	dirs map[string]string // copies by folder
}

// CopyStreams copies streams of a stopped node.
func (n *Node) CopyStreams(streams ...*jetstream.StreamInfo) *NodeCopy {
	n.tb.Helper()
	c := &NodeCopy{node: n, dirs: make(map[string]string)}
	for _, s := range streams {
		for _, dir := range n.streamDirs(s) {
			c.dirs[dir] = filepath.Join(n.tb.TempDir(), "copy")
			if err := os.CopyFS(c.dirs[dir], os.DirFS(dir)); err != nil {
				n.tb.Fatalf("copy %s: %v", dir, err)
			}
		}
	}
	return c
}

// PutBack restores the streams from the copy, while the node is stopped. It removes the copy, because a store may be
// large.
func (c *NodeCopy) PutBack() {
	c.node.tb.Helper()
	for dir, copied := range c.dirs {
		err := os.RemoveAll(dir)
		if err == nil {
			err = os.Rename(copied, dir)
		}
		if err != nil {
			c.node.tb.Fatalf("put %s back: %v", dir, err)
		}
	}
}

// RemoveStreams removes streams of a stopped node, which then gets them from the others.
func (n *Node) RemoveStreams(streams ...*jetstream.StreamInfo) {
	n.tb.Helper()
	for _, s := range streams {
		for _, dir := range n.streamDirs(s) {
			if err := os.RemoveAll(dir); err != nil {
				n.tb.Fatal(err)
			}
		}
	}
}

// streamDirs returns the folder of a stream and, if it is replicated, the folder of its Raft log.
func (n *Node) streamDirs(s *jetstream.StreamInfo) []string {
	root := filepath.Join(n.config.StoreDir, "jetstream")
	dirs := []string{filepath.Join(root, "$G", "streams", s.Config.Name)}
	if s.Cluster != nil && s.Cluster.RaftGroup != "" {
		dirs = append(dirs, filepath.Join(root, "$SYS", "_js_", s.Cluster.RaftGroup))
	}
	return dirs
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
		// A killed process has left to the kernel what it acknowledged, so SyncAlways is not needed.
		// In a cluster, nodes with it would also damage compressed streams: a replica that starts
		// truncates its last block (server.prepareForWALReplay), and then at times compresses it
		// while it still writes to it (2.15.2, the goroutine in fileStore.newMsgBlockForWrite).
		MaxPayload: embedded.MaxPayload,
		NoSigs:     true,
	}
	opts.JetStreamMaxStore = cfg.MaxStore
	opts.Tags.Add(cfg.Name)
	if cfg.Route != 0 {
		opts.Cluster = server.ClusterOpts{
			Name: "faults", Host: "127.0.0.1", Port: cfg.Route, NoAdvertise: true,
			Advertise: "127.0.0.1:1", // nothing listens there: nodes reach each other only by their routes
		}
		opts.Routes = server.RoutesFromStr(strings.Join(cfg.Routes, ","))
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.SetLoggerV2(stderrLog{}, false, false, false)
	srv.Start()
	limits := make(chan os.Signal, 1)
	signal.Notify(limits, syscall.SIGHUP)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for srv.Healthz(nil).StatusCode != http.StatusOK { // like an operator before stopping the next node
		select {
		case <-look.C:
		case <-ctx.Done():
			return errors.New("the server did not start")
		}
	}
	if err := limitAccount(srv, cfg.StoreDir); err != nil {
		return err
	}
	ready()
	for {
		select {
		case <-limits:
			if err := limitAccount(srv, cfg.StoreDir); err != nil {
				return err
			}
		case <-ctx.Done():
			srv.Shutdown()
			srv.WaitForShutdown()
			return nil
		}
	}
}

// limitFile has what the account may store, in the folder of a node.
const limitFile = "account.limit"

// limitedLine is what a node writes after it has set the limit from its file.
const limitedLine = "the account may store"

// LimitAccount sets how many bytes the account may store, unlimited below 0, like a reload of the configuration. It
// applies to running nodes and to those that start later.
func (c *Cluster) LimitAccount(bytes int64) {
	c.tb.Helper()
	for _, n := range c.Nodes {
		if err := os.WriteFile(filepath.Join(n.config.StoreDir, limitFile), strconv.AppendInt(nil, bytes, 10), 0o600); err != nil {
			c.tb.Fatal(err)
		}
		if n.running() {
			n.signal(syscall.SIGHUP)
			n.AwaitOutput(fmt.Sprintf("%s %d\n", limitedLine, bytes))
		}
	}
}

// limitAccount sets the account limit from the file of a node, if there is one.
func limitAccount(srv *server.Server, dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, limitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return err
	}
	limits := server.JetStreamAccountLimits{
		MaxStore: n, MaxMemory: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
	if err := srv.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
		return fmt.Errorf("limit the account: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%s %d\n", limitedLine, n)
	return nil
}

// stderrLog writes the warnings and errors of a server to standard error, and ends the process if the server cannot
// start.
type stderrLog struct{}

func (stderrLog) Noticef(string, ...any) {}
func (stderrLog) Debugf(string, ...any)  {}
func (stderrLog) Tracef(string, ...any)  {}

func (stderrLog) Warnf(format string, v ...any) { fmt.Fprintf(os.Stderr, "WRN "+format+"\n", v...) }

func (stderrLog) Errorf(format string, v ...any) { fmt.Fprintf(os.Stderr, "ERR "+format+"\n", v...) }

func (stderrLog) Fatalf(format string, v ...any) {
	fmt.Fprintf(os.Stderr, "FTL "+format+"\n", v...)
	os.Exit(1) //nolint:forbidigo // the process is nothing but this server
}
