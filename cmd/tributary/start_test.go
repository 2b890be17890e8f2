package main

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

var startRounds = flag.Int("start.rounds", 1, "first starts on an empty cluster in TestWorkersStartTogetherOnAnEmptyCluster")

// The workers start before the cluster does, so they find it away, then electing, then empty.
func TestWorkersStartTogetherOnAnEmptyCluster(t *testing.T) {
	t.Parallel()
	for round := range *startRounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			c := pipelinetest.NewCluster(t, 3, 0)
			home := t.TempDir()
			replicated := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_REPLICAS=3") }
			var workers []*process
			for i := range 3 {
				workers = append(workers, startWith(t, replicated, filepath.Join(home, strconv.Itoa(i)), c.URL(), "run"))
			}
			for _, w := range workers {
				w.awaitLogged("waiting for the broker")
			}
			c.Start(c.Nodes...)
			for _, w := range workers {
				w.awaitLoggedWithin("worker is running", 4*patience)
			}
			js := c.JetStream()
			c.Settle(js)
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			if err := awaitStored(ctx, js, streams.EventsStream("v1"), "checkpoints.v1.*", 16); err != nil {
				t.Fatal(err)
			}
			for i, w := range workers {
				if !w.running() {
					t.Errorf("worker %d has ended:\n%s", i, w.stderr.String())
				}
			}
		})
	}
}

// A bucket that was made just now may have no leader yet: a worker waits for it, but not with a name that is wrong.
func TestStartWaitsForALeader(t *testing.T) {
	t.Parallel()
	if err := fmt.Errorf("create partitions: %w", jetstream.ErrNoStreamResponse); !willPass(err) {
		t.Errorf("not tried again: %v", err)
	}
	if err := jetstream.ErrInvalidStreamName; willPass(err) {
		t.Errorf("tried again: %v", err)
	}
}

func TestWorkerWithoutABrokerGivesUpInTime(t *testing.T) {
	t.Parallel()
	limited := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TRIBUTARY_START_TIMEOUT=1ms") }
	code, out := ended(startWith(t, limited, t.TempDir(), "nats://127.0.0.1:1", "run"))
	if code != 1 || !strings.Contains(out, "no broker at nats://127.0.0.1:1") || !strings.Contains(out, "TRIBUTARY_START_TIMEOUT") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
