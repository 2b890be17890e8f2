package streams

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// cut ends a generation that is no longer live: it stores the checkpoint of each uncut partition again, with the name
// of the live generation. After that no commit of the old one can succeed, and its checkpoints state its last raw
// records.
func (g *Generation) cut(ctx context.Context, js jetstream.JetStream, successor string) error {
	return g.setCuts(ctx, js, successor)
}

// Uncut allows work on a retired generation again.
func (g *Generation) Uncut(ctx context.Context, js jetstream.JetStream) error {
	return g.setCuts(ctx, js, "")
}

// setCuts sets or removes the cut of every partition, by the fence of the commit protocol.
func (g *Generation) setCuts(ctx context.Context, js jetstream.JetStream, cut string) error {
	t, err := StoredTopology(ctx, js, g.Name)
	if err != nil {
		return err
	}
	for p := range t.Partitions {
		for {
			c, sequence, err := ReadCheckpoint(ctx, js, t.cellName(p), p)
			if err != nil {
				return err
			}
			if (c.Cut == "") == (cut == "") {
				break
			}
			c.Cut, c.Owner, c.Tries = cut, "", 0
			c.Epoch++
			if _, err := c.Store(ctx, js, t.cellName(p), p, sequence); err != nil && !broker.Fenced(err) {
				return err
			}
		}
	}
	return nil
}
