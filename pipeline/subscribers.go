package pipeline

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// SubscribersBucket is the key-value bucket of the progress of subscriptions. Package subscribe
// describes and writes it.
const SubscribersBucket = "TRIBUTARY_SUBSCRIBERS"

func provisionSubscribers(ctx context.Context, js jetstream.JetStream, t Topology) error {
	return provisionKeyValue(ctx, js, t, jetstream.KeyValueConfig{
		Bucket:      SubscribersBucket,
		Description: "Progress of the subscriptions of Tributary.",
	})
}

// Cuts returns up to which raw record each partition of a retired generation goes. ok is false
// while a partition has no cut yet.
func Cuts(ctx context.Context, js jetstream.JetStream, generation string) (raw []uint64, ok bool, err error) {
	t, err := storedTopology(ctx, js, generation)
	if err != nil {
		return nil, false, err
	}
	for p := range t.Partitions {
		c, _, err := readCheckpoint(ctx, js, t.cellName(p), p)
		if err != nil || c.Cut == "" {
			return nil, false, err
		}
		raw = append(raw, c.Raw)
	}
	return raw, true, nil
}
