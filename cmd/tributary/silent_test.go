package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestErrorsNameTheRequestThatIsNotAnswered runs commands at a server on which the requests to
// JetStream arrive and are never answered.
func TestErrorsNameTheRequestThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(func() {
		broker.Shutdown()
		broker.WaitForShutdown()
	})
	nc, err := nats.Connect(broker.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("$JS.API.>", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"tail --once", "doctor", "dlq ls", "claims ls", "run"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			impatient := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_START_TIMEOUT=1ms") }
			p := startWith(t, impatient, t.TempDir(), broker.ClientURL(), strings.Fields(command)...)
			if code := p.wait(); code != exitFailure {
				t.Errorf("exit code %d\n%s", code, &p.stderr)
			}
			if message := p.logged("tributary: "); strings.HasSuffix(strings.TrimSpace(message), "context deadline exceeded") || !strings.Contains(message, "within") {
				t.Errorf("the error is %q", message)
			}
		})
	}
}
