package ship

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/ship/offsets"
	"tributary/pipeline/streams"
)

// guardEvery is the interval at which the raw stream is compared with what it acknowledged.
const guardEvery = 10 * time.Second

// errStreamChanged ends a pass over the logs: the raw stream was replaced, or has lost what it acknowledged. The next
// pass ships the lost records again.
var errStreamChanged = errors.New("the raw stream is no longer the one that acknowledged the records")

// guard compares the raw stream of a cell with what the stream acknowledged. It belongs to the publishing goroutine.
type guard struct {
	cell    int
	created time.Time // creation time of the stream, when the pass began
	nc      *nats.Conn
	js      jetstream.JetStream
	logger  *slog.Logger
	offsets *offsets.Store // nil for an input, which has none

	connections uint64    // number of connections at the last comparison
	compared    time.Time // time of the last comparison
	blind       bool      // this client may not read messages of the raw stream
	revived     bool      // a message was stored under another id; logged once
}

// stream returns the name of the stream.
func (g *guard) stream() string { return streams.RawStreamOf(g.cell) }

// finding is the result of a comparison.
type finding struct {
	state  streams.RawState
	newest uint64 // sequence of the last acknowledged message
	intact uint64 // up to this sequence the stream is as acknowledged
	lost   bool   // acknowledged messages behind intact are gone
}

// due reports whether a comparison is due: after each connection, because a broker that restarted may have lost
// messages, and at intervals, because another server of a cluster may have.
func (g *guard) due() bool {
	return g.offsets != nil && (g.nc.Stats().Reconnects != g.connections || time.Since(g.compared) >= guardEvery)
}

// check compares. It returns errStreamChanged when the stream was replaced, and calls lost when the stream lost
// acknowledged messages.
func (g *guard) check(ctx context.Context, lost func(finding) error) error {
	connections := g.nc.Stats().Reconnects
	found, err := g.compare(ctx)
	switch {
	case err != nil:
		return err
	case !found.state.Created.Equal(g.created):
		return errStreamChanged
	}
	if found.lost {
		if err := lost(found); err != nil {
			return err
		}
	}
	g.notePurge(ctx, found)
	g.connections, g.compared = connections, time.Now()
	return nil
}

// require is check while files are being shipped, when offsets cannot be taken back: a loss is errStreamChanged, too.
func (g *guard) require(ctx context.Context) error {
	if !g.due() {
		return nil
	}
	return g.check(ctx, func(finding) error { return errStreamChanged })
}

// compare compares the end of the stream with the newest checkpoint, and the messages at the checkpoints with those
// that are there now: a stream that was rolled back may have grown beyond its old end.
func (g *guard) compare(ctx context.Context) (finding, error) {
	state, err := g.state(ctx)
	if err != nil {
		return finding{}, err
	}
	acknowledged := g.offsets.Acknowledged(g.cell)
	f := finding{state: state, newest: acknowledged.Last()}
	f.lost = state.Last < f.newest
	for _, c := range slices.Backward(acknowledged) {
		if c.Seq > state.Last {
			continue
		}
		is, compared, err := g.verify(ctx, state, c)
		switch {
		case err != nil:
			return finding{}, err
		case is:
			f.intact = c.Seq
			return f, nil
		case compared:
			f.lost = true
		}
	}
	return f, nil
}

// verify reports whether the message at a checkpoint is the acknowledged one, and whether the two could be compared.
// If everything up to it was purged or has expired, they cannot be compared, and the message counts as the same. A
// message that was deleted alone cannot be compared either, but shows nothing about earlier ones.
func (g *guard) verify(ctx context.Context, state streams.RawState, c offsets.Checkpoint) (is, compared bool, err error) {
	switch {
	case c.Seq < state.First, g.blind:
		return true, false, nil
	case c.ID == "" && c.Time.IsZero():
		return false, false, nil
	}
	mark, err := g.mark(ctx, c.Seq)
	switch {
	case errors.Is(err, errMayNotRead):
		return true, false, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, false, nil
	case err != nil:
		return false, false, err
	}
	return c.Is(mark), true, nil
}

// errMayNotRead means that this client has no right to read messages of the raw stream.
var errMayNotRead = errors.New("messages of the raw stream may not be read")

// mark reads what identifies the message at a sequence. Without the right to do so, it returns errMayNotRead and logs
// that once.
func (g *guard) mark(ctx context.Context, seq uint64) (streams.RawMark, error) {
	if g.blind {
		return streams.RawMark{}, errMayNotRead
	}
	mark, err := streams.ReadRawMark(ctx, g.js, g.cell, seq)
	if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) || !g.forbidden("STREAM.MSG.GET") {
		return mark, err
	}
	g.blind = true
	g.logger.WarnContext(ctx, "the broker does not let this edge read its own messages: it cannot notice a raw stream that was rolled back and has grown since",
		"right", jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+g.stream())
	return streams.RawMark{}, errMayNotRead
}

// forbidden reports whether the broker rejected a request for lack of rights. The broker reports that only as an
// error of the connection.
func (g *guard) forbidden(verb string) bool {
	err := g.nc.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), verb+"."+g.stream())
}

// state reads the state of the raw stream. Its error names the cure.
func (g *guard) state(ctx context.Context) (streams.RawState, error) {
	state, err := streams.ReadRawState(ctx, g.js, g.cell)
	const verb = "STREAM.INFO"
	switch {
	case err == nil && state.Discards:
		err = fmt.Errorf("%w: %w", errDiscards, streams.DiscardError(g.cell))
	case err == nil:
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, nats.ErrNoResponders):
		err = noStream(err)
	case g.forbidden(verb):
		err = fmt.Errorf("%w: let it publish to %s%s.%s: %w", errNoRight, jetstream.DefaultAPIPrefix, verb, g.stream(), err)
	}
	return state, err
}

// notePurge logs that messages were removed from the start of the stream, unless the stream removes them by itself.
func (g *guard) notePurge(ctx context.Context, f finding) {
	first := max(f.state.First, 1) // 0 in a new stream
	before := g.offsets.SawFirst(g.cell, first)
	if before == 0 || first <= before || f.state.Limited || f.newest < before {
		return
	}
	g.logger.InfoContext(ctx, "records were purged from the raw stream: acknowledged ones are not shipped again; tributary ship --again ships everything",
		"purged_up_to", first-1, "acknowledged_up_to", f.newest)
}

// holds reports whether the raw stream still has the message that it calls the original of a duplicate. The broker
// remembers ids of purged messages, too.
func (g *guard) holds(ctx context.Context, seq uint64, id string) (bool, error) {
	mark, err := g.mark(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case errors.Is(err, errMayNotRead):
		state, err := g.state(ctx)
		return seq >= state.First && seq <= state.Last, err
	}
	return mark.ID == id, err
}

// noteRevived logs once that the broker remembers messages that are gone.
func (g *guard) noteRevived(ctx context.Context, id string) {
	if !g.revived {
		g.revived = true
		g.logger.WarnContext(ctx, "broker takes records for duplicates of removed messages: storing them under other message ids", "message_id", id)
	}
}
