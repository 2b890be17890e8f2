package summaries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// candidate is a keeper that may take over the records of a generation.
type candidate struct {
	store

	keeper  *Keeper
	log     *slog.Logger
	rebuild bool // begin anew, ignoring what is stored

	seen  uint64    // sequence of another keeper's checkpoint
	since time.Time // when that was first seen
}

// acquire takes the records over by storing the checkpoint under a new owner; after that no commit of an older owner
// can succeed. The result is nil while another keeper works on them.
func (c *candidate) acquire(ctx context.Context) (*leader, error) {
	if err := c.provision(ctx); err != nil {
		return nil, err
	}
	events, err := c.events(ctx)
	if err != nil {
		return nil, err
	}
	last, stored, err := c.readCheckpoint(ctx)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return c.begin(ctx, events)
	case errors.Is(err, errDamaged):
		c.rebuild = true
	case err != nil:
		return nil, err
	case last.Revision > sessions.Revision:
		return nil, fmt.Errorf("%w: update this worker", errNewer)
	case last.Owner != "" && last.Owner != c.keeper.owner && !c.silent(stored.Sequence):
		return nil, nil //nolint:nilnil // neither work nor an error
	}
	fits := false
	if !c.rebuild {
		if fits, err = c.fits(ctx, &last, events); err != nil {
			return nil, err
		}
	}
	if !fits {
		return c.begin(ctx, events)
	}
	last.Owner = c.keeper.owner
	last.Epoch++
	return c.take(ctx, last, stored.Sequence)
}

// silent reports whether another keeper's checkpoint has not changed for too long, by this keeper's clock.
func (c *candidate) silent(sequence uint64) bool {
	if sequence != c.seen {
		c.seen, c.since = sequence, time.Now()
	}
	return time.Since(c.since) >= silentBeats*c.keeper.config.Beat
}

// begin removes all records and takes them over from the beginning of the events. Another keeper that worked on them
// loses its checkpoint, and can store nothing more.
func (c *candidate) begin(ctx context.Context, events *jetstream.StreamInfo) (*leader, error) {
	stream, err := c.js.Stream(ctx, c.stream())
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", c.stream(), err)
	}
	if stream.CachedInfo().State.Msgs > 0 {
		if err := stream.Purge(ctx); err != nil {
			return nil, fmt.Errorf("empty stream %s: %w", c.stream(), err)
		}
	}
	c.rebuild = false
	begun, err := streams.LastPositions(ctx, c.js, c.generation)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", streams.EventsStream(c.generation), err)
	}
	first := checkpoint{Stream: events.Created, Revision: sessions.Revision, Owner: c.keeper.owner, Epoch: 1, Begun: time.Now().UTC()}
	l, err := c.take(ctx, first, 0)
	if l != nil {
		l.begun = begun
	}
	return l, err
}

// take stores a checkpoint in place of the one at sequence replaces, 0 for none. The result is nil if another keeper
// was faster.
func (c *candidate) take(ctx context.Context, next checkpoint, replaces uint64) (*leader, error) {
	m, err := c.checkpointMessage(&next, replaces)
	if err != nil {
		return nil, err
	}
	sequence, err := broker.PublishBatch(ctx, c.js.Conn(), []*nats.Msg{m})
	switch {
	case broker.Fenced(err):
		return nil, nil //nolint:nilnil // neither work nor an error
	case err != nil:
		return nil, fmt.Errorf("take over the records of %s: %w", c.stream(), err)
	}
	l := newLeader(c, next, sequence)
	if err := l.readErased(ctx); err != nil {
		return nil, err
	}
	c.log.DebugContext(ctx, "keeps the records of sessions", slog.Any("position", next.Position))
	return l, nil
}
