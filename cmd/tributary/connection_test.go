package main

import (
	"context"
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"tributary/pipeline/pipelinetest"
)

var connectionLong = flag.Bool("connection.long", false, "run TestSilentConnectionIsGivenUpWithinHalfAMinute")

// A connection whose packets are dropped, and which nothing resets, is made anew.
func TestSilentConnectionIsGivenUpWithinHalfAMinute(t *testing.T) {
	if !*connectionLong {
		t.Skip("takes half a minute: -connection.long")
	}
	t.Parallel()
	proxy := pipelinetest.NewProxy(t, pipelinetest.NewServer(t))
	a := &app{config: &config{NATSURL: proxy.URL()}, log: slog.New(slog.DiscardHandler)}
	nc, err := a.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	status := nc.StatusChanged(nats.CONNECTED)
	proxy.Swallow()
	proxy.Mend() // for new connections
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second+5*time.Second)
	defer cancel()
	select {
	case <-status:
	case <-ctx.Done():
		t.Fatal("the connection is still the silent one")
	}
	if err := nc.Flush(); err != nil {
		t.Error(err)
	}
}
