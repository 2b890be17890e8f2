package titles_test

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
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker"
)

// A server, a session, its title, and a watcher that sees the title and a later pin.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// session_title_updated: Fix the parser, version 1
	// snapshot: Fix the parser
	// synced at 2
	// change 4: pinned true
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
	return titleAndPin(ctx, nc)
}

func titleAndPin(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := streams.Provision(ctx, js, topology); err != nil {
		return err
	}
	k := titles.Key{Source: envelopes.ClaudeCode, SessionID: "s1"}
	if err := normalizeOne(ctx, js, k); err != nil {
		return err
	}
	service, err := titles.New(js, titles.Config{})
	if err != nil {
		return err
	}
	c, err := service.SetTitle(ctx, k, " Fix the parser ")
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s, version %d\n", c.Type, c.Title, c.TitleVersion)
	for u, err := range titles.Watch(ctx, js, 0) {
		if err != nil {
			return err
		}
		switch u.Kind {
		case titles.Snapshot:
			fmt.Println("snapshot:", u.Session.Title)
		case titles.Synced:
			fmt.Println("synced at", u.Cursor)
			if _, err := service.SetPinned(ctx, k, true); err != nil {
				return err
			}
		case titles.Changed:
			fmt.Printf("change %d: pinned %v\n", u.Cursor, u.Change.Pinned)
			return nil
		case titles.Reset:
			fmt.Println("reset")
		}
	}
	return ctx.Err()
}

// normalizeOne makes an event of a session: a worker turns its first record into one.
func normalizeOne(ctx context.Context, js jetstream.JetStream, k titles.Key) error {
	record := core.Record{Source: k.Source, Session: k.SessionID, Data: []byte(`{"type":"user","uuid":"u1","sessionId":"s1","message":{"role":"user","content":"Fix the parser"}}`)}
	if _, err := js.PublishMsg(ctx, records.Message(record)); err != nil {
		return err
	}
	stage, err := worker.New(js, worker.Config{Topology: topology})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- stage.Run(ctx) }()
	err = replay.CatchUp(ctx, js, topology)
	stage.Drain()
	if failed := <-done; failed != nil {
		return failed
	}
	return err
}
