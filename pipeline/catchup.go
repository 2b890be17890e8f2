package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// CatchUp waits until the generation of t has stored the results of every record that the
// raw stream holds now. It reads nothing but the checkpoints, so any worker anywhere may do
// the work. It keeps waiting while the broker is unavailable.
func CatchUp(ctx context.Context, js jetstream.JetStream, t Topology) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	var goal map[string]uint64 // raw sequence by subject of the checkpoint
	for {
		var err error
		if goal == nil {
			goal, err = lastRecords(ctx, js, t)
		}
		if err == nil {
			err = reached(ctx, js, t, goal)
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, errBehind) && !unavailable(err) {
			return fmt.Errorf("catch up: %w", err)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("catch up: %w: %w", context.Cause(ctx), err)
		}
	}
}

// lastRecords returns the raw sequence of the last record of each partition, by the subject
// of the partition's checkpoint.
func lastRecords(ctx context.Context, js jetstream.JetStream, t Topology) (map[string]uint64, error) {
	g, err := readGeneration(ctx, js, t.Generation)
	if err != nil {
		return nil, err
	}
	goal := make(map[string]uint64)
	for p := range t.Partitions {
		for _, filter := range g.Part.filters(p) {
			m, err := leaderGet(ctx, js, RawStream, getRequest{LastBySubject: filter})
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if m.Sequence < g.Part.Sequence {
				continue
			}
			subject := envelopes.CheckpointSubject(t.Generation, p)
			goal[subject] = max(goal[subject], m.Sequence)
		}
	}
	return goal, nil
}

var errBehind = errors.New("not all records are done")

// reached returns [errBehind] while a checkpoint is behind its goal.
func reached(ctx context.Context, js jetstream.JetStream, t Topology, goal map[string]uint64) error {
	if len(goal) == 0 {
		return nil
	}
	subjects := make([]string, 0, len(goal))
	for s := range goal {
		subjects = append(subjects, s)
	}
	stored, err := lastMessages(ctx, js, EventsStream(t.Generation), subjects)
	if err != nil {
		return err
	}
	for s, sequence := range goal {
		m, ok := stored[s]
		if !ok {
			return fmt.Errorf("%w at %s", errNoCheckpoint, s)
		}
		c, err := decodeCheckpoint(m.Data, s)
		if err != nil {
			return err
		}
		if c.Raw < sequence {
			return fmt.Errorf("%w: %s is at %d of %d", errBehind, s, c.Raw, sequence)
		}
	}
	return nil
}

// unavailable reports whether an error means that the broker is unavailable for a while.
func unavailable(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &api) && api.Code == http.StatusServiceUnavailable
}
