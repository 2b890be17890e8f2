package streams

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// SubscribersBucket is the key-value bucket with the progress of subscriptions, written by package subscribe.
const SubscribersBucket = "TRIBUTARY_SUBSCRIBERS"

func provisionSubscribers(ctx context.Context, js jetstream.JetStream, t Topology) error {
	return provisionKeyValue(ctx, js, t, jetstream.KeyValueConfig{
		Bucket:      SubscribersBucket,
		Description: "Progress of the subscriptions of Tributary.",
	})
}

// Cuts returns the last raw record of each partition of a retired generation, and the partitions without a cut. While
// there are such partitions, the generation may go on.
func Cuts(ctx context.Context, js jetstream.JetStream, generation string) (raw []uint64, missing []int, err error) {
	list, err := CheckpointsOf(ctx, js, generation)
	for p, c := range list {
		if c.Cut == "" {
			missing = append(missing, p)
		}
		raw = append(raw, c.Raw)
	}
	return raw, missing, err
}

// CheckpointsOf reads the checkpoints of all partitions of a generation from the leaders of its streams. It needs
// only the rights of a reader of events.
func CheckpointsOf(ctx context.Context, js jetstream.JetStream, generation string) ([]Checkpoint, error) {
	t, err := StoredTopology(ctx, js, generation)
	if err != nil {
		return nil, err
	}
	list := make([]Checkpoint, t.Partitions)
	for p := range list {
		if list[p], _, err = ReadCheckpoint(ctx, js, t.cellName(p), p); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// CutsCure says why a generation that is not live has partitions without a cut, and what to do. It needs the right to
// read single messages of the bucket.
func CutsCure(ctx context.Context, js jetstream.JetStream, generation string) (string, error) {
	c, err := readCutover(ctx, js)
	if err != nil {
		return "", err
	}
	if c.Involves(generation) {
		return c.Interrupted(), nil
	}
	live, err := LiveGeneration(ctx, js)
	if err != nil {
		return "", err
	}
	g, err := ReadGeneration(ctx, js, generation)
	switch {
	case err != nil:
		return "", err
	case g.State == StateDropping:
		return "its drop was interrupted, or is under way: finish it with tributary replay drop " + generation, nil
	case g.Replay && g.Replaces == live:
		return "its rollback was interrupted: finish it with tributary replay rollback " + live, nil
	case g.Replay:
		return fmt.Sprintf("its replay was resumed: make it live with tributary replay promote %s, or subscribe to %s under another subscription name", generation, live), nil
	}
	return "its retirement was interrupted: finish it with tributary replay promote " + live, nil
}
