package streams

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// setLive makes a generation the live one, unless another process changed the key after it was read.
func (g *Generations) setLive(ctx context.Context, kv jetstream.KeyValue, name string) error {
	_, err := kv.Update(ctx, currentKey, []byte(name), g.live)
	if broker.Fenced(err) {
		return fmt.Errorf("%w: %s", ErrChanged, currentKey)
	}
	return broker.Wrap(err, "write "+currentKey+" in bucket "+ControlBucket)
}

// retire ends a generation that is no longer live.
func (g *Generation) retire(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, successor string) error {
	if g.Marked != StateRetired {
		if err := g.Store(ctx, kv, g.Record(StateRetired)); err != nil {
			return err
		}
	}
	return broker.Wrap(g.cut(ctx, js, successor), "retire generation "+g.Name)
}

// RetireRest cuts the remaining partitions of every retired generation, because a version without [Cutover] may have
// been interrupted.
func (g *Generations) RetireRest(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) error {
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

// Rollback returns the generations of a rollback: to the named one, or to the one that was live before.
func (g *Generations) Rollback(to string) (from, name string, err error) {
	live, err := g.Find(g.Live)
	if err != nil {
		return "", "", err
	}
	half := g.unretired()
	switch {
	case half != "" && to == "":
		return "", "", fmt.Errorf("%w: %s has replaced %s and is not retired: an earlier version promoted it, or rolled it back, only in part: "+
			"retire it with tributary replay rollback %s, or make it live with tributary replay promote %s", ErrNotReady, half, live.Name, live.Name, half)
	case half != "" && to == live.Name:
		return half, live.Name, nil
	case to == live.Name:
		return "", "", fmt.Errorf("%w: choose the one that it replaced: %s", ErrLive, cmp.Or(live.Replaces, "none"))
	case live.Replaces == "":
		return "", "", fmt.Errorf("%w: %s replaced no generation: nothing to roll back", ErrNotReady, live.Name)
	case to != "" && to != live.Replaces:
		return "", "", fmt.Errorf("%w: %s replaced %s, and a rollback can only go back to that: tributary replay rollback %s", ErrNotReady, live.Name, live.Replaces, live.Replaces)
	}
	old, err := g.Find(live.Replaces)
	if err != nil {
		return "", "", fmt.Errorf("%s replaced %s, which was dropped since: %w", live.Name, live.Replaces, err)
	}
	if old.State == StateDropping {
		return "", "", fmt.Errorf("%w: %s", ErrDropping, old.Name)
	}
	return live.Name, old.Name, nil
}

// unretired returns the generation that a version without [Cutover] left half promoted or half rolled back: it is not
// live, but is marked as promoted over the live one.
func (g *Generations) unretired() string {
	for _, x := range g.List {
		if x.Replay && x.Replaces == g.Live {
			return x.Name
		}
	}
	return ""
}
