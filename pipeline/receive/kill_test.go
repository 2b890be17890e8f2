package receive_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/receive"
)

// receiverProgram is a receiver as a process that a test can kill.
const receiverProgram = "receiver"

type receiverArguments struct{ Broker, Listen string }

func runReceiver(ctx context.Context, arguments []byte, ready func()) error {
	var a receiverArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return err
	}
	nc, err := nats.Connect(a.Broker, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	r, err := receive.New(js, receive.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.Listen)
	if err != nil {
		return err
	}
	ready()
	return r.Serve(ctx, nil, time.Second, l)
}
