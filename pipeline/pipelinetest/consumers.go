package pipelinetest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// AwaitNoConsumers waits until a stream has no consumer. It fails the test after 30 seconds, before the server removes
// forgotten consumers of readers by itself.
func AwaitNoConsumers(tb testing.TB, js jetstream.JetStream, stream string) {
	tb.Helper()
	end := time.After(30 * time.Second)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		s, err := js.Stream(tb.Context(), stream)
		if err != nil {
			tb.Fatal(err)
		}
		n := s.CachedInfo().State.Consumers
		if n == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-end:
			tb.Fatalf("%d consumers of stream %s are left", n, stream)
		}
	}
}
