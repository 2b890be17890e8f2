package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// CatchUp waits until the generation of t has stored the results of every record that the
// raw stream holds now. It reads nothing but the checkpoints, so any worker anywhere may do
// the work. It keeps waiting while the broker is unavailable.
func CatchUp(ctx context.Context, js jetstream.JetStream, t Topology) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	var goal []uint64 // raw sequence by partition
	var behind error  // what was seen last
	for {
		var err error
		if goal == nil {
			goal, err = t.goal(ctx, js)
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
		if !errors.Is(err, errBehind) && !Unavailable(err) {
			return fmt.Errorf("catch up: %w", err)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("catch up: the workers have not processed all records: %w: %w", behind, context.Cause(ctx))
		}
	}
}

// lastRecords returns the raw sequence of the last record of each partition of a generation;
// 0 for a partition without one.
func lastRecords(ctx context.Context, js jetstream.JetStream, g Generation, partitions int) ([]uint64, error) {
	last := make([]uint64, partitions)
	for p := range last {
		for _, filter := range g.Part.filters(p) {
			m, err := leaderGet(ctx, js, g.layout.rawStream(p), getRequest{LastBySubject: filter})
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if m.Sequence >= g.Part.Sequence {
				last[p] = max(last[p], m.Sequence)
			}
		}
	}
	return last, nil
}

var errBehind = errors.New("not all records are done")

// goal returns the raw sequence of the last record of each partition.
func (t Topology) goal(ctx context.Context, js jetstream.JetStream) ([]uint64, error) {
	g, err := readGeneration(ctx, js, t.Generation)
	if err != nil {
		return nil, err
	}
	g.layout = t.layout()
	return lastRecords(ctx, js, g, t.Partitions)
}

// reached returns [errBehind] while a checkpoint is behind its goal.
func reached(ctx context.Context, js jetstream.JetStream, t Topology, goal []uint64) error {
	checkpoints, err := readCheckpoints(ctx, js, t.Generation, t.layout())
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

// Unavailable reports whether an error means that the broker is unavailable for a while: it does
// not answer, or has no leader for what was asked.
func Unavailable(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &api) && (api.Code == http.StatusServiceUnavailable || api.ErrorCode == errCodeNoPeers)
}

// errCodeNoPeers is the server's error that not enough servers of a cluster are there yet for the
// replicas of a stream (JSClusterNoPeersErr).
const errCodeNoPeers jetstream.ErrorCode = 10005
