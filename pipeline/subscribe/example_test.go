package subscribe_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/embedded"
	"tributary/pipeline/records"
	"tributary/pipeline/replay"
	"tributary/pipeline/runner"
	"tributary/pipeline/streams"
	"tributary/pipeline/subscribe"
	"tributary/pipeline/worker"
)

// consume passes the events of the broker to handle until ctx ends. Call it again to go on: an
// event is passed again unless handle succeeded for it.
func consume(ctx context.Context, js jetstream.JetStream, handle subscribe.Handler, discard func() error) error {
	s, err := subscribe.New(js, subscribe.Config{
		Name: "my-consumer",
		// Another generation is live: all its events follow.
		GenerationChanged: func(context.Context, subscribe.GenerationChanged) error { return discard() },
	})
	if err != nil {
		return err
	}
	return s.Run(ctx, handle)
}

// A subscription passes the events of the live generation; when another one becomes live, it begins
// again with the first event of that one.
func ExampleSubscription_Run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	js, end, err := broker(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	changed, promoted := false, make(chan error, 1)
	handle := func(_ context.Context, e subscribe.Event) error {
		fmt.Printf("%s %d: %s\n", e.Provenance.Generation, e.Sequence, *e.Text)
		switch {
		case e.Sequence == 2 && !changed:
			go func() { promoted <- promote(context.WithoutCancel(ctx), js, "b") }()
		case e.Sequence == 2:
			if err := <-promoted; err != nil {
				fmt.Println(err)
			}
			cancel()
		}
		return nil
	}
	discard := func() error {
		fmt.Println("another generation")
		changed = true
		return nil
	}
	_ = consume(ctx, js, handle, discard) // it ends with ctx
	// Output:
	// v1 1: why is the sky blue?
	// v1 2: because of Rayleigh scattering
	// another generation
	// b 1: why is the sky blue?
	// b 2: because of Rayleigh scattering
}

// A batch is handled as a whole, here a sum over it.
func ExampleSubscription_RunBatches() {
	ctx := context.Background()
	js, end, err := broker(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	s, err := subscribe.New(js, subscribe.Config{Name: "sums", Generation: "v1", Type: envelopes.AssistantMessage})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = s.RunBatches(ctx, func(_ context.Context, events []subscribe.Event) error {
		for _, e := range events {
			fmt.Println(e.Key(), *e.TokensOutput)
		}
		s.Drain()
		return nil
	})
	fmt.Println(err)
	// Output:
	// claude_code/s1/u2 4
	// <nil>
}

// broker starts a server and a worker, and stores two records.
func broker(ctx context.Context) (js jetstream.JetStream, end func(), err error) {
	dir, err := os.MkdirTemp("", "tributary")
	if err != nil {
		return nil, nil, err
	}
	srv, err := embedded.Start(embedded.Config{StoreDir: dir})
	if err != nil {
		return nil, nil, err
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return nil, nil, err
	}
	if js, err = jetstream.New(nc); err != nil {
		return nil, nil, err
	}
	topology := streams.DefaultTopology()
	if err := streams.Provision(ctx, js, topology); err != nil {
		return nil, nil, err
	}
	topology.Generation = ""
	worker := runner.New(js, worker.Config{Topology: topology, Worker: "w", Member: "w"})
	done := make(chan error, 1)
	go func() { done <- worker.Run(context.WithoutCancel(ctx)) }()
	for _, line := range []string{
		`{"type":"user","uuid":"u1","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"why is the sky blue?"}}`,
		`{"type":"assistant","uuid":"u2","timestamp":"2026-03-01T09:00:02Z","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"because of Rayleigh scattering"}],"usage":{"input_tokens":9,"output_tokens":4}}}`,
	} {
		m := records.Message(core.Record{Source: envelopes.ClaudeCode, Session: "s1", Data: []byte(line)})
		if _, err := js.PublishMsg(ctx, m); err != nil {
			return nil, nil, err
		}
	}
	return js, func() {
		worker.Drain()
		if err := <-done; err != nil {
			fmt.Println(err)
		}
		nc.Close()
		srv.Shutdown()
		srv.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}, nil
}

// promote builds a generation and makes it the live one.
func promote(ctx context.Context, js jetstream.JetStream, name string) error {
	if _, err := replay.Start(ctx, js, replay.Request{Name: name}); err != nil {
		return err
	}
	_, err := replay.Promote(ctx, js, name, true)
	return err
}
