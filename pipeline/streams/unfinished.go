package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Unfinished lists what interrupted or running commands have left half done, each with its cure.
func Unfinished(ctx context.Context, js jetstream.JetStream) (list []string, err error) {
	all, err := ReadGenerations(ctx, js)
	if err != nil {
		return nil, err
	}
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if all.Cutover.Open() {
		add("%s", all.Cutover.Interrupted())
	}
	for _, g := range all.List {
		switch {
		case all.Cutover.Involves(g.Name):
		case g.State == StateStarting:
			add("the start of generation %s was interrupted, or is under way: finish it with tributary replay start %[1]s and the same flags, or remove it with tributary replay drop %[1]s", g.Name)
		case g.State == StateDropping:
			add("the drop of generation %s was interrupted, or is under way: finish it with tributary replay drop %[1]s", g.Name)
		case g.Name == all.unretired():
			add("generation %s has replaced %s and is not retired, because an earlier version was interrupted: retire it with tributary replay rollback %[2]s, make it live with tributary replay promote %[1]s, or build it anew with tributary replay start %[1]s", g.Name, all.Live)
		case g.State == StateRetired:
			missing, err := g.uncutPartitions(ctx, js)
			if err != nil {
				return nil, fmt.Errorf("generation %s: %w", g.Name, err)
			}
			if len(missing) > 0 {
				add("generation %s is retired, but its partitions %s have no cut, so subscriptions wait: finish its retirement with tributary replay promote %s", g.Name, Ranges(missing), all.Live)
			}
		}
	}
	return list, nil
}

// uncutPartitions returns the partitions of a retired generation that have no cut.
func (g *Generation) uncutPartitions(ctx context.Context, js jetstream.JetStream) (missing []int, err error) {
	checkpoints, err := ReadCheckpoints(ctx, js, g.Name, g.Layout)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, ErrNoCheckpoint) {
		return nil, nil // the status of its streams shows that
	}
	for p, c := range checkpoints {
		if c.Cut == "" {
			missing = append(missing, p)
		}
	}
	return missing, err
}
