package streams

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Goal returns the raw sequence of the last record of each partition.
func (t Topology) Goal(ctx context.Context, js jetstream.JetStream) ([]uint64, error) {
	g, err := ReadGeneration(ctx, js, t.Generation)
	if err != nil {
		return nil, err
	}
	g.Layout = t.Layout()
	return LastRecords(ctx, js, g, t.Partitions)
}
