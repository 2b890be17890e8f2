package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// goalPolls is how many polls of the checkpoints come before the next look at the raw stream.
const goalPolls = 50

// CatchUp waits until the generation of t has stored the results of every record that is now in the raw stream, except
// records that leave the stream meanwhile. It only reads, so the workers may run anywhere. It keeps waiting while the
// broker is unavailable.
func CatchUp(ctx context.Context, js jetstream.JetStream, t streams.Topology) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	var goal []uint64 // raw sequence by partition
	var behind error  // last error seen
	for polls := 0; ; polls++ {
		var err error
		if goal == nil || polls%goalPolls == 0 {
			goal, err = lower(ctx, js, t, goal)
		}
		if err == nil {
			err = reached(ctx, js, t, goal)
		}
		if err == nil {
			return nil
		}
		if behind == nil || errors.Is(err, errBehind) {
			behind = err
		}
		if !errors.Is(err, errBehind) && !broker.Unavailable(err) {
			return fmt.Errorf("catch up: %w", err)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("catch up: the workers have not processed all records: %w: %w", behind, context.Cause(ctx))
		}
	}
}

// lower returns the goal of t, no part of it above the one before: the last records of a partition may be gone.
func lower(ctx context.Context, js jetstream.JetStream, t streams.Topology, before []uint64) ([]uint64, error) {
	goal, err := t.Goal(ctx, js)
	if err != nil {
		return before, err
	}
	for p := range before {
		goal[p] = min(goal[p], before[p])
	}
	return goal, nil
}

var errBehind = errors.New("not all records are done")

// reached returns [errBehind] while a checkpoint is behind its goal.
func reached(ctx context.Context, js jetstream.JetStream, t streams.Topology, goal []uint64) error {
	checkpoints, err := streams.ReadCheckpoints(ctx, js, t.Generation, t.Layout())
	if err != nil {
		return err
	}
	for p, c := range checkpoints {
		if c.Raw < goal[p] {
			return fmt.Errorf("%w: partition %d is at %d of %d", errBehind, p, c.Raw, goal[p])
		}
	}
	return nil
}
