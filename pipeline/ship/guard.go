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

	"tributary/pipeline/streams"
)

// guardEvery is the interval between two comparisons of the raw stream with what it has
// acknowledged.
const guardEvery = 10 * time.Second

// errStreamChanged ends a pass over the logs: the raw stream is another one, or has lost what
// it had acknowledged. The next pass ships that again.
var errStreamChanged = errors.New("the raw stream is no longer the one that acknowledged the records")

// guard compares the raw stream of a cell with what it has acknowledged. It belongs to the goroutine
// that publishes.
type guard struct {
	cell    int
	created time.Time // of the stream, when the pass began
	nc      *nats.Conn
	js      jetstream.JetStream
	logger  *slog.Logger
	offsets *offsets // nil for an input, which has none

	connections uint64    // that there were at the last comparison
	compared    time.Time // when that was
	blind       bool      // this client may not read messages of the raw stream
	revived     bool      // a message was stored under another id, which is logged once
}

// stream returns the name of the stream.
func (g *guard) stream() string { return streams.RawStreamOf(g.cell) }

// finding is the outcome of a comparison.
type finding struct {
	state  streams.RawState
	newest uint64 // sequence of the last message that was acknowledged
	intact uint64 // up to here the stream is the one that acknowledged
	lost   bool   // messages behind intact that were acknowledged are gone
}

// due reports whether it is time for a comparison: after each connection, because a broker
// that was restarted may have lost messages, and at intervals, because another broker of a
// cluster may have.
func (g *guard) due() bool {
	return g.offsets != nil && (g.nc.Stats().Reconnects != g.connections || time.Since(g.compared) >= guardEvery)
}

// check compares, and returns errStreamChanged when the stream is another one. lost is called
// when the stream has lost something that it had acknowledged.
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

// require is check for a time at which nothing can be taken back: files are being shipped.
func (g *guard) require(ctx context.Context) error {
	if !g.due() {
		return nil
	}
	return g.check(ctx, func(finding) error { return errStreamChanged })
}

// compare compares the end of the stream with the newest checkpoint, and the messages at the
// checkpoints with those that are there now: a stream that was rolled back may have grown
// beyond its old end since.
func (g *guard) compare(ctx context.Context) (finding, error) {
	state, err := g.state(ctx)
	if err != nil {
		return finding{}, err
	}
	acknowledged := g.offsets.acknowledged(g.cell)
	f := finding{state: state, newest: acknowledged.last()}
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

// verify reports whether the message at a checkpoint is, or counts as, the one that was
// acknowledged, and whether the two were compared. What
// was purged or has expired, with everything before it, cannot be compared, and counts as
// the same. A message that was deleted alone cannot be compared either, but says nothing
// about those before it.
func (g *guard) verify(ctx context.Context, state streams.RawState, c checkpoint) (is, compared bool, err error) {
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
	return c.is(mark), true, nil
}

// errMayNotRead: the rights of this client do not include the messages of the raw stream.
var errMayNotRead = errors.New("messages of the raw stream may not be read")

// mark reads what identifies the message at a sequence. It returns errMayNotRead, and logs
// that once, without the right to do so.
func (g *guard) mark(ctx context.Context, seq uint64) (streams.RawMark, error) {
	if g.blind {
		return streams.RawMark{}, errMayNotRead
	}
	mark, err := streams.ReadRawMark(ctx, g.js, g.cell, seq)
	if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) || !g.forbidden("STREAM.MSG.GET") {
		return mark, err
	}
	g.blind = true
	g.logger.WarnContext(ctx, "the broker does not let this edge read its own messages: a raw stream that was rolled back and has grown since is not noticed",
		"right", jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+g.stream())
	return streams.RawMark{}, errMayNotRead
}

// forbidden reports whether the broker has rejected a request for lack of rights. It answers
// such a request with nothing but an error of the connection.
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

// notePurge logs that messages were removed from the start of the stream, unless the stream
// does that by itself.
func (g *guard) notePurge(ctx context.Context, f finding) {
	first := max(f.state.First, 1) // a new stream says 0
	before := g.offsets.sawFirst(g.cell, first)
	if before == 0 || first <= before || f.state.Limited || f.newest < before {
		return
	}
	g.logger.InfoContext(ctx, "records were purged from the raw stream: those that it had acknowledged are not shipped again; tributary ship --again ships all",
		"purged_up_to", first-1, "acknowledged_up_to", f.newest)
}

// holds reports whether the raw stream holds a message at a sequence, of which it says that it
// is a duplicate of. It remembers the ids of messages also when they were purged.
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
		g.logger.WarnContext(ctx, "broker takes records for duplicates of messages that were removed from the raw stream: storing them under other message ids", "message_id", id)
	}
}
