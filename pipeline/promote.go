package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// promoteGrace is how long a promotion waits for the records that arrive just then.
const promoteGrace = 3 * time.Second

var errNotCaughtUp = errors.New("not caught up in time")

// PromoteGeneration makes a generation the live one, once it has stored the results of every
// record that the raw stream holds now. One write to the key of the live generation decides.
// Then the generation that was live is retired: each of its partitions gets a cut, a last
// checkpoint behind which nothing can be stored.
//
// With wait it waits until the generation has caught up. Without, it returns [ErrNotReady]
// for one that is more than a few seconds behind.
//
// It is idempotent, and may be run again after an interruption: before the write nothing has
// happened, and after it the next run retires the old generation. It returns the name of the
// generation that was live before.
func PromoteGeneration(ctx context.Context, js jetstream.JetStream, name string, wait bool) (before string, err error) {
	all, err := ReadGenerations(ctx, js)
	if err != nil {
		return "", err
	}
	g, err := all.Find(name)
	if err != nil {
		return "", err
	}
	kv, err := js.KeyValue(ctx, controlBucket)
	if err != nil {
		return "", fmt.Errorf("bucket %s: %w", controlBucket, err)
	}
	live, err := all.Find(all.Live)
	if err != nil {
		return "", err
	}
	// The promotion of the generation that is live now may have been interrupted.
	if err := all.retireReplaced(ctx, js, kv, live); err != nil {
		return "", err
	}
	switch {
	case g.State == StateLive:
		return g.Replaces, nil
	case g.State == StateDropping:
		return "", fmt.Errorf("%w: %s", errDropping, name)
	case g.State == StateRetired && live.Replaces == name:
		return "", fmt.Errorf("%w: %s is retired: make it live again with tributary replay rollback, or take it up first with tributary replay start %s", ErrNotReady, name, name)
	case g.State == StateRetired:
		return "", fmt.Errorf("%w: %s is retired: take it up first with tributary replay start %s", ErrNotReady, name, name)
	case g.Part != Part{}:
		return "", fmt.Errorf("%w: %s is made of a part of the raw stream (%s): build one of all records", ErrNotReady, name, g.Part)
	}
	if err := awaitCaughtUp(ctx, js, g, wait); err != nil {
		return "", err
	}
	record := g.record(StateReplaying) // until the next write
	record.Replaces = live.Name
	if err := g.store(ctx, kv, record); err != nil {
		return "", err
	}
	if err := all.setLive(ctx, kv, name); err != nil {
		return "", err
	}
	return live.Name, live.retire(ctx, js, kv, name)
}

// awaitCaughtUp waits until a generation has caught up with the raw stream.
func awaitCaughtUp(ctx context.Context, js jetstream.JetStream, g Generation, wait bool) error {
	t, err := storedTopology(ctx, js, g.Name)
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
	g.layout = t.layout()
	lag, err := readLag(ctx, js, g, t.Partitions)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w yet: %s has not done %d records: wait for it with --wait; tributary replay status %s shows how far it is", ErrNotReady, g.Name, lag, g.Name)
}

// setLive makes a generation the live one, unless another process has changed that since it
// was read.
func (g *Generations) setLive(ctx context.Context, kv jetstream.KeyValue, name string) error {
	_, err := kv.Update(ctx, currentKey, []byte(name), g.live)
	if fenced(err) {
		return fmt.Errorf("%w: %s", errChanged, currentKey)
	}
	return wrap(err, "write "+currentKey+" in bucket "+controlBucket)
}

// retire ends a generation that is no longer live.
func (g *Generation) retire(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, successor string) error {
	if err := g.store(ctx, kv, g.record(StateRetired)); err != nil {
		return err
	}
	return wrap(g.cut(ctx, js, successor), "retire generation "+g.Name)
}

// retireReplaced retires the generation that the live one has replaced, where that was
// interrupted.
func (g *Generations) retireReplaced(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, live Generation) error {
	old, err := g.Find(live.Replaces)
	if err != nil || old.State != StateRetired {
		return nil //nolint:nilerr // it was dropped since
	}
	return old.retire(ctx, js, kv, live.Name)
}

// RollBack makes the generation live again that was live before the last promotion, and
// retires the one that is live now. Workers go on with it from where it was cut, so it lacks
// the records since then for a while. It returns the names of both.
func RollBack(ctx context.Context, js jetstream.JetStream) (from, to string, err error) {
	all, err := ReadGenerations(ctx, js)
	if err != nil {
		return "", "", err
	}
	live, err := all.Find(all.Live)
	if err != nil {
		return "", "", err
	}
	if live.Replaces == "" {
		return "", "", fmt.Errorf("%w: %s has replaced no generation: nothing to roll back", ErrNotReady, live.Name)
	}
	old, err := all.Find(live.Replaces)
	if err != nil {
		return "", "", fmt.Errorf("%s has replaced %s, which was dropped since: %w", live.Name, live.Replaces, err)
	}
	kv, err := js.KeyValue(ctx, controlBucket)
	if err != nil {
		return "", "", fmt.Errorf("bucket %s: %w", controlBucket, err)
	}
	if err := old.uncut(ctx, js); err != nil {
		return "", "", err
	}
	if err := old.store(ctx, kv, old.record("")); err != nil {
		return "", "", err
	}
	if err := all.setLive(ctx, kv, old.Name); err != nil {
		return "", "", err
	}
	return live.Name, old.Name, live.retire(ctx, js, kv, old.Name)
}
