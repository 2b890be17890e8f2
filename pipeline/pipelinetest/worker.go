package pipelinetest

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// workerProgram is the program of a worker.
const workerProgram = "worker"

// Worker configures a worker that runs beside others in a [Process].
type Worker struct {
	URL          string
	Generation   string
	Partitions   int
	Cells        int // 0 is 1
	Name         string
	Unfenced     bool   // every commit succeeds, so the worker does not notice that it was overtaken
	SessionBytes int    // 0 for the default
	ClaimBytes   int64  // 0 for the default
	ArchiveAfter int64  // nanoseconds; 0 for never
	Frugal       bool   // collects garbage early, so that its memory is what it needs
	Forgetful    bool   // takes records at passed places for duplicates, whatever their bytes are
	Blind        bool   // cannot read the limits of the account
	Binary       string `json:"-"` // test binary of another version to run; empty for this one
}

// StartWorker starts a worker like [StartProcess]. [Process.Stop] drains it.
func StartWorker(tb testing.TB, w Worker) *Process {
	tb.Helper()
	return startProcess(tb, w.Binary, workerProgram, w)
}

func runWorker(ctx context.Context, arguments []byte, ready func()) error {
	var w Worker
	if err := json.Unmarshal(arguments, &w); err != nil {
		return err
	}
	options := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1),
	}
	switch {
	case w.Unfenced:
		options = append(options, nats.SetCustomDialer(without(jetstream.ExpectedLastSubjSeqHeader)))
	case w.Blind:
		options = append(options, nats.SetCustomDialer(without(jetstream.DefaultAPIPrefix+"INFO")))
	}
	if w.Frugal {
		debug.SetGCPercent(10)
	}
	var normalize func(*core.Session, core.Record) (core.Result, error)
	if w.Forgetful {
		normalize = func(s *core.Session, r core.Record) (core.Result, error) {
			r.Earlier = core.Earlier{}
			return normalizers.Normalize(s, r)
		}
	}
	return RunDrained(ctx, w.URL, ready, func(js jetstream.JetStream) (Drainable, error) {
		drained, drain := context.WithCancel(context.WithoutCancel(ctx))
		return &patient{js: js, drained: drained, drain: drain, config: worker.Config{
			Topology:     streams.Topology{Generation: w.Generation, Partitions: w.Partitions, Cells: w.Cells},
			Worker:       w.Name,
			Normalize:    normalize,
			Member:       w.Name,
			Heartbeat:    400 * time.Millisecond,
			SessionBytes: w.SessionBytes,
			ClaimBytes:   w.ClaimBytes,
			ArchiveAfter: time.Duration(w.ArchiveAfter),
			Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}}, nil
	}, options...)
}

// patient is a stage that waits for an absent broker when it starts, like the command.
type patient struct {
	js      jetstream.JetStream
	config  worker.Config
	drained context.Context
	drain   context.CancelFunc
}

// Run is [worker.Stage.Run].
func (p *patient) Run(ctx context.Context) error {
	for {
		stage, err := worker.New(p.js, p.config)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(p.drained, stage.Drain) //nolint:contextcheck // Drain may come at any time, before or after Run
		err = stage.Run(ctx)
		stop()
		if !broker.Unavailable(err) {
			return err
		}
		p.config.Logger.WarnContext(ctx, "the worker begins again", slog.Any("error", err))
	}
}

// Drain is [worker.Stage.Drain].
func (p *patient) Drain() { p.drain() }

// Drainable runs until it is drained, like a [worker.Stage].
type Drainable interface {
	Run(ctx context.Context) error
	Drain()
}

// RunDrained is the body of a [Program]: it connects to the server at url, runs what create returns, and drains that
// when ctx ends.
func RunDrained(ctx context.Context, url string, ready func(), create func(jetstream.JetStream) (Drainable, error), options ...nats.Option) error {
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	d, err := create(js)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, d.Drain)()
	ready()
	return d.Run(context.WithoutCancel(ctx))
}

// without makes connections to a server that does not know a header or a subject: it renames it, so that the server
// ignores it. Without the header of the expected checkpoint, a server has no fence.
type without string

// Dial is [net.Dialer.Dial].
func (w without) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	return connWithout{c, string(w)}, err
}

type connWithout struct {
	net.Conn

	name string
}

// Write always gets whole names, because the client writes headers and subjects at once.
func (c connWithout) Write(p []byte) (int, error) {
	return c.Conn.Write(bytes.ReplaceAll(p, []byte(c.name), []byte("X"+c.name[1:])))
}
