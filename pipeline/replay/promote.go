package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/streams"
)

// promoteGrace is how long a promotion waits for records that are just arriving.
const promoteGrace = 3 * time.Second

var errNotCaughtUp = errors.New("not caught up in time")

// Promote makes a generation the live one, once it has stored the results of every record that is now in the raw
// stream. One write to the key of the live generation decides. Then the previous live generation is retired: each of
// its partitions gets a cut, a last checkpoint behind which nothing can be stored.
//
// With wait it waits until the generation has caught up. Without, it returns [streams.ErrNotReady] for a generation
// that is more than a few seconds behind.
//
// Promote is idempotent: running it again finishes an interrupted promotion, see [streams.Cutover]. It returns
// [streams.ErrInterrupted] while another change is unfinished. It returns the name of the previous live generation.
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
		return "", fmt.Errorf("%w: %s has only a part of the raw stream (%s): build one with all records", streams.ErrNotReady, name, g.Part)
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

// RollBack is [RollBackTo] for the generation that was live before the last promotion.
func RollBack(ctx context.Context, js jetstream.JetStream) (from, to string, err error) {
	return RollBackTo(ctx, js, "")
}

// RollBackTo makes the generation live again that was live before the last promotion, and retires the present one.
// Workers continue it from its cut, so at first it lacks the records since then. It returns the names of both.
//
// Running it again finishes an interrupted rollback, see [streams.Cutover]. If the last change was a rollback it does
// nothing, because it cannot know whether only the answer to that one was lost. To go back one promotion further,
// name that generation in to.
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
