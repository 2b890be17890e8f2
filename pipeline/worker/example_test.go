package worker_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/embedded"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// A server, a stage and a consumer of events in one process.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 user_message: why is the sky blue?
	// 2 assistant_message: because of Rayleigh scattering
}

func example(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "tributary")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	srv, err := embedded.Start(embedded.Config{StoreDir: dir})
	if err != nil {
		return err
	}
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}

	topology := streams.DefaultTopology()
	if err := streams.Provision(ctx, js, topology); err != nil {
		return err
	}
	stage, err := worker.New(js, worker.Config{Topology: topology})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- stage.Run(ctx) }()

	for _, line := range []string{
		`{"type":"user","uuid":"u1","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"why is the sky blue?"}}`,
		`{"type":"assistant","uuid":"u2","timestamp":"2026-03-01T09:00:02Z","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"because of Rayleigh scattering"}]}}`,
	} {
		m := records.Message(core.Record{Source: envelopes.ClaudeCode, Session: "s1", Data: []byte(line)})
		if _, err := js.PublishMsg(ctx, m); err != nil {
			return err
		}
	}
	if err := replay.CatchUp(ctx, js, topology); err != nil {
		return err
	}
	for e, err := range events.Read(ctx, js, topology.Generation, events.Query{Session: "s1"}) {
		if err != nil {
			return err
		}
		fmt.Printf("%d %s: %s\n", e.Sequence, e.EventType, *e.Text)
	}
	stage.Drain()
	return <-done
}
