package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/streams"
)

// promoteGrace is how long a promotion waits for the records that arrive just then.
const promoteGrace = 3 * time.Second

var errNotCaughtUp = errors.New("not caught up in time")

// Promote makes a generation the live one, once it has stored the results of every
// record that the raw stream holds now. One write to the key of the live generation decides.
// Then the generation that was live is retired: each of its partitions gets a cut, a last
// checkpoint behind which nothing can be stored.
//
// With wait it waits until the generation has caught up. Without, it returns [streams.ErrNotReady]
// for one that is more than a few seconds behind.
//
// It is idempotent, and may be run again after an interruption, which it finishes: see [streams.Cutover]. It
// returns [streams.ErrInterrupted] while another change is not finished. It returns the name of the
// generation that was live before.
func Promote(ctx context.Context, js jetstream.JetStream, name string, wait bool) (before string, err error) {
	all, err := streams.ReadGenerations(ctx, js)
	if err != nil {
		return "", err
	}
	kv, err := js.KeyValue(ctx, streams.ControlBucket)
	if err != nil {
		return "", fmt.Errorf("bucket %s: %w", streams.ControlBucket, err)
	}
	if c := all.Cutover; c.Open() {
		if c.Command != streams.CommandPromote || c.To != name {
			return "", fmt.Errorf("%w: %s", streams.ErrInterrupted, c.Interrupted())
		}
		return c.From, c.Finish(ctx, js, kv)
	}
	g, err := all.Find(name)
	if err != nil {
		return "", err
	}
	live, err := all.Find(all.Live)
	if err != nil {
		return "", err
	}
	switch {
	case g.State == streams.StateLive:
		return g.Replaces, all.RetireRest(ctx, js, kv)
	case g.State == streams.StateDropping:
		return "", fmt.Errorf("%w: %s", streams.ErrDropping, name)
	case g.State == streams.StateStarting:
		return "", fmt.Errorf("%w: finish it with tributary replay start %s", streams.ErrStarting, name)
	case g.State == streams.StateRetired && live.Replaces == name:
		return "", fmt.Errorf("%w: %s is retired: make it live again with tributary replay rollback, or take it up first with tributary replay start %s", streams.ErrNotReady, name, name)
	case g.State == streams.StateRetired:
		return "", fmt.Errorf("%w: %s is retired: take it up first with tributary replay start %s", streams.ErrNotReady, name, name)
	case g.Part != streams.Part{}:
		return "", fmt.Errorf("%w: %s is made of a part of the raw stream (%s): build one of all records", streams.ErrNotReady, name, g.Part)
	}
	if err := awaitCaughtUp(ctx, js, g, wait); err != nil {
		return "", err
	}
	if err := all.RetireRest(ctx, js, kv); err != nil {
		return "", err
	}
	return live.Name, all.CutOver(ctx, js, kv, streams.CommandPromote, live.Name, name)
}

// awaitCaughtUp waits until a generation has caught up with the raw stream.
func awaitCaughtUp(ctx context.Context, js jetstream.JetStream, g streams.Generation, wait bool) error {
	t, err := streams.StoredTopology(ctx, js, g.Name)
	if err != nil {
		return err
	}
	waiting := ctx
	if !wait {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, promoteGrace, errNotCaughtUp)
		defer cancel()
	}
	err = CatchUp(waiting, js, t)
	if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(waiting), errNotCaughtUp) {
		return err
	}
	g.Layout = t.Layout()
	lag, err := readLag(ctx, js, g, t.Partitions)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w yet: %s has not done %d records: wait for it with --wait; tributary replay status %s shows how far it is", streams.ErrNotReady, g.Name, lag, g.Name)
}

// RollBack is [RollBackTo] the generation that was live before the last promotion.
func RollBack(ctx context.Context, js jetstream.JetStream) (from, to string, err error) {
	return RollBackTo(ctx, js, "")
}

// RollBackTo makes the generation live again that was live before the last promotion, and
// retires the one that is live now. Workers go on with it from where it was cut, so it lacks
// the records since then for a while. It returns the names of both.
//
// It may be run again after an interruption, which it finishes: see [streams.Cutover]. When the last change
// was a rollback it does nothing, because a command cannot know that the last answer of the broker to the one
// before was lost; to go back one promotion further, name its generation in to.
func RollBackTo(ctx context.Context, js jetstream.JetStream, to string) (from, name string, err error) {
	all, err := streams.ReadGenerations(ctx, js)
	if err != nil {
		return "", "", err
	}
	kv, err := js.KeyValue(ctx, streams.ControlBucket)
	if err != nil {
		return "", "", fmt.Errorf("bucket %s: %w", streams.ControlBucket, err)
	}
	c := all.Cutover
	same := c.Command == streams.CommandRollback && (to == "" || to == c.To)
	switch {
	case c.Open() && !same:
		return "", "", fmt.Errorf("%w: %s", streams.ErrInterrupted, c.Interrupted())
	case c.Open():
		return c.From, c.To, c.Finish(ctx, js, kv)
	case same && c.To == all.Live:
		return c.From, c.To, nil
	}
	from, to, err = all.Rollback(to)
	if err != nil {
		return "", "", err
	}
	return from, to, all.CutOver(ctx, js, kv, streams.CommandRollback, from, to)
}
