package pipeline_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline"
)

// workerProgram is the program of a worker.
const workerProgram = "worker"

// workerArguments configure a worker.
type workerArguments struct {
	URL          string `json:"url"`
	Generation   string `json:"generation"`
	Partitions   int    `json:"partitions"`
	Cells        int    `json:"cells"`
	Name         string `json:"name"`
	Unfenced     bool   `json:"unfenced"`
	SessionBytes int    `json:"session_bytes"` // 0 for the default
	ClaimBytes   int64  `json:"claim_bytes"`   // 0 for the default
	Frugal       bool   `json:"frugal"`        // collects garbage early, so that its memory is what it needs
}

// runWorker runs a worker beside others until it is drained.
func runWorker(ctx context.Context, arguments []byte, ready func()) error {
	var a workerArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	options := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1),
	}
	if a.Unfenced {
		options = append(options, nats.SetCustomDialer(fenceless{}))
	}
	nc, err := nats.Connect(a.URL, options...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if a.Frugal {
		debug.SetGCPercent(10)
	}
	stage, err := pipeline.New(js, pipeline.Config{
		Topology:     pipeline.Topology{Generation: a.Generation, Partitions: a.Partitions, Cells: a.Cells},
		Worker:       a.Name,
		Member:       a.Name,
		Heartbeat:    400 * time.Millisecond,
		SessionBytes: a.SessionBytes,
		ClaimBytes:   a.ClaimBytes,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stage.Drain)
	ready()
	return stage.Run(context.WithoutCancel(ctx))
}

// fenceless makes connections to a server without a fence: it renames the header with the
// sequence that a checkpoint expects, so that the server ignores it. Every commit succeeds,
// and no worker notices that it was overtaken.
type fenceless struct{}

// Dial is that of [net.Dialer].
func (fenceless) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return fencelessConn{c}, err
}

type fencelessConn struct{ net.Conn }

// Write never gets a part of the name: the client writes headers as a whole.
func (c fencelessConn) Write(p []byte) (int, error) {
	name := []byte(jetstream.ExpectedLastSubjSeqHeader)
	return c.Conn.Write(bytes.ReplaceAll(p, name, append([]byte("X"), name[1:]...)))
}
