package ship_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/embedded"
	"tributary/pipeline/ship"
	"tributary/pipeline/streams"
)

// A server and a Ship of one log in one process.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 records of 1 session shipped, 0 refused
	// the raw stream has 3 messages: the records and the end of the session
}

func example(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "tributary")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log := filepath.Join(dir, "session.jsonl")
	err = os.WriteFile(log, []byte(`{"type":"user","uuid":"u1","sessionId":"s1","timestamp":"2026-03-01T09:00:00Z","message":{"role":"user","content":"why is the sky blue?"}}
{"type":"assistant","uuid":"u2","sessionId":"s1","timestamp":"2026-03-01T09:00:02Z","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"because of Rayleigh scattering"}]}}
`), 0o600)
	if err != nil {
		return err
	}

	srv, err := embedded.Start(embedded.Config{StoreDir: filepath.Join(dir, "broker")})
	if err != nil {
		return err
	}
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := streams.Provision(ctx, js, streams.DefaultTopology()); err != nil {
		return err
	}

	s, err := ship.New(nc, ship.Config{
		Paths:   []string{log},                      // or Roots: ship.Roots(home, os.Getenv), for all logs of the machine
		Offsets: filepath.Join(dir, "offsets.json"), // the next run continues where this one ends
		Once:    true,                               // without it, Run follows the logs until ctx ends
	})
	if err != nil {
		return err
	}
	if err := s.Run(ctx); err != nil {
		return err
	}
	sum := s.Summary()
	fmt.Printf("%d records of %d session shipped, %d refused\n", sum.Records, sum.Sessions, len(sum.Refusals))
	for _, r := range sum.Refusals {
		fmt.Println(r.Error()) // names the file, the line and the cure
	}

	raw, err := js.Stream(ctx, streams.RawStream)
	if err != nil {
		return err
	}
	fmt.Printf("the raw stream has %d messages: the records and the end of the session\n", raw.CachedInfo().State.Msgs)
	return nil
}
