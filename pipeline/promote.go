package pipeline

import (
	"cmp"
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
// It is idempotent, and may be run again after an interruption, which it finishes: see [Cutover]. It
// returns [ErrInterrupted] while another change is not finished. It returns the name of the
// generation that was live before.
func PromoteGeneration(ctx context.Context, js jetstream.JetStream, name string, wait bool) (before string, err error) {
	all, err := ReadGenerations(ctx, js)
	if err != nil {
		return "", err
	}
	kv, err := js.KeyValue(ctx, controlBucket)
	if err != nil {
		return "", fmt.Errorf("bucket %s: %w", controlBucket, err)
	}
	if c := all.Cutover; c.Open() {
		if c.Command != commandPromote || c.To != name {
			return "", fmt.Errorf("%w: %s", ErrInterrupted, c.Interrupted())
		}
		return c.From, c.finish(ctx, js, kv)
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
	case g.State == StateLive:
		return g.Replaces, all.retireRest(ctx, js, kv)
	case g.State == StateDropping:
		return "", fmt.Errorf("%w: %s", errDropping, name)
	case g.State == StateStarting:
		return "", fmt.Errorf("%w: finish it with tributary replay start %s", errStarting, name)
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
	if err := all.retireRest(ctx, js, kv); err != nil {
		return "", err
	}
	return live.Name, all.cutOver(ctx, js, kv, commandPromote, live.Name, name)
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
	if g.marked != StateRetired {
		if err := g.store(ctx, kv, g.record(StateRetired)); err != nil {
			return err
		}
	}
	return wrap(g.cut(ctx, js, successor), "retire generation "+g.Name)
}

// retireRest cuts what is left of every retired generation: a version that stored no [Cutover] may have
// been interrupted.
func (g *Generations) retireRest(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) error {
	for _, x := range g.List {
		if x.State != StateRetired {
			continue
		}
		if err := x.retire(ctx, js, kv, g.Live); err != nil {
			return err
		}
	}
	return nil
}

// RollBack is [RollBackTo] the generation that was live before the last promotion.
func RollBack(ctx context.Context, js jetstream.JetStream) (from, to string, err error) {
	return RollBackTo(ctx, js, "")
}

// RollBackTo makes the generation live again that was live before the last promotion, and
// retires the one that is live now. Workers go on with it from where it was cut, so it lacks
// the records since then for a while. It returns the names of both.
//
// It may be run again after an interruption, which it finishes: see [Cutover]. When the last change
// was a rollback it does nothing, because a command cannot know that the last answer of the broker to the one
// before was lost; to go back one promotion further, name its generation in to.
func RollBackTo(ctx context.Context, js jetstream.JetStream, to string) (from, name string, err error) {
	all, err := ReadGenerations(ctx, js)
	if err != nil {
		return "", "", err
	}
	kv, err := js.KeyValue(ctx, controlBucket)
	if err != nil {
		return "", "", fmt.Errorf("bucket %s: %w", controlBucket, err)
	}
	c := all.Cutover
	same := c.Command == commandRollback && (to == "" || to == c.To)
	switch {
	case c.Open() && !same:
		return "", "", fmt.Errorf("%w: %s", ErrInterrupted, c.Interrupted())
	case c.Open():
		return c.From, c.To, c.finish(ctx, js, kv)
	case same && c.To == all.Live:
		return c.From, c.To, nil
	}
	from, to, err = all.rollback(to)
	if err != nil {
		return "", "", err
	}
	return from, to, all.cutOver(ctx, js, kv, commandRollback, from, to)
}

// rollback returns the generations between which a rollback changes, to one of a name or to the one
// that was live before.
func (g *Generations) rollback(to string) (from, name string, err error) {
	live, err := g.Find(g.Live)
	if err != nil {
		return "", "", err
	}
	half := g.unretired()
	switch {
	case half != "" && to == "":
		return "", "", fmt.Errorf("%w: %s has replaced %s and is not retired, so a version that cannot be told apart has promoted it or rolled it back in part: "+
			"retire it with tributary replay rollback %s, or make it live with tributary replay promote %s", ErrNotReady, half, live.Name, live.Name, half)
	case half != "" && to == live.Name:
		return half, live.Name, nil
	case to == live.Name:
		return "", "", fmt.Errorf("%w: choose the one that it has replaced, %s", ErrLive, cmp.Or(live.Replaces, "which is none"))
	case live.Replaces == "":
		return "", "", fmt.Errorf("%w: %s has replaced no generation: nothing to roll back", ErrNotReady, live.Name)
	case to != "" && to != live.Replaces:
		return "", "", fmt.Errorf("%w: %s has replaced %s, and a rollback goes back to that alone: tributary replay rollback %s", ErrNotReady, live.Name, live.Replaces, live.Replaces)
	}
	old, err := g.Find(live.Replaces)
	if err != nil {
		return "", "", fmt.Errorf("%s has replaced %s, which was dropped since: %w", live.Name, live.Replaces, err)
	}
	if old.State == StateDropping {
		return "", "", fmt.Errorf("%w: %s", errDropping, old.Name)
	}
	return live.Name, old.Name, nil
}

// unretired returns the generation that a version that stored no [Cutover] has left half promoted or half
// rolled back: it is no longer live, or not yet, and has the mark of a promotion over the live one.
func (g *Generations) unretired() string {
	for _, x := range g.List {
		if x.replay && x.Replaces == g.Live {
			return x.Name
		}
	}
	return ""
}
