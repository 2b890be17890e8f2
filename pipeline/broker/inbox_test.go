package broker_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"tributary/pipeline/broker"
	"tributary/pipeline/pipelinetest"
)

// An inbox keeps every answer, in order, until it is asked for, and a wait ends with its context and with the connection.
func TestInboxKeepsAnswersInOrder(t *testing.T) {
	t.Parallel()
	nc := pipelinetest.NewServer(t).JetStream().Conn()
	inbox, err := broker.OpenInbox(nc)
	if err != nil {
		t.Fatal(err)
	}
	defer inbox.Close()
	const answers = 10_000
	for i := range answers {
		if err := nc.Publish(inbox.Subject, []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil { // all have arrived, and none is taken yet
		t.Fatal(err)
	}
	for i := range answers {
		m, err := inbox.Next(t.Context())
		if err != nil || string(m.Data) != strconv.Itoa(i) {
			t.Fatalf("answer %d: %v, %v", i, m, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if m, err := inbox.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v, %v", m, err)
	}
	nc.Close()
	if m, err := inbox.Next(t.Context()); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %v, %v", m, err)
	}
}
