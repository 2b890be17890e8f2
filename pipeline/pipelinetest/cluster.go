package pipelinetest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
)

// NewCluster starts nodes that are one JetStream cluster, makes it hold t with a replica on
// each, and returns a connection to each. All end with the test. What one node has
// acknowledged the others get a little later: a client of another one sees it.
func NewCluster(tb testing.TB, nodes int, t pipeline.Topology) []jetstream.JetStream {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	routes := freeAddresses(tb, nodes)
	servers := make([]*server.Server, nodes)
	for i := range servers {
		port, err := strconv.Atoi(routes[i].Port())
		if err != nil {
			tb.Fatal(err)
		}
		servers[i], err = server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("node-%d", i),
			Host:       "127.0.0.1",
			Port:       server.RANDOM_PORT,
			Cluster:    server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port},
			Routes:     routes,
			JetStream:  true,
			StoreDir:   tb.TempDir(),
			MaxPayload: 1 << 20,
			NoSigs:     true,
			NoLog:      true,
		})
		if err != nil {
			tb.Fatalf("start node: %v", err)
		}
		servers[i].Start()
		tb.Cleanup(func() {
			servers[i].Shutdown()
			servers[i].WaitForShutdown()
		})
	}
	connections := make([]jetstream.JetStream, nodes)
	for i, srv := range servers {
		if !srv.ReadyForConnections(30 * time.Second) {
			tb.Fatal("a node takes no connections")
		}
		connections[i] = Connect(tb, srv.ClientURL())
	}
	t.Replicas = nodes
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second) // without a leader there is no answer
		err := pipeline.Provision(attempt, connections[0], t)
		done()
		if err == nil {
			return connections
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			tb.Fatalf("provision cluster: %v", err)
		}
	}
}

// freeAddresses finds addresses that nobody listens on: every node of a cluster is told
// those of all of them before it starts.
func freeAddresses(tb testing.TB, count int) []*url.URL {
	tb.Helper()
	urls := make([]*url.URL, count)
	for i := range urls {
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatalf("listen: %v", err)
		}
		defer func() { _ = l.Close() }() // not before all are found
		urls[i] = &url.URL{Scheme: "nats", Host: l.Addr().String()}
	}
	return urls
}
