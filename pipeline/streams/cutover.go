package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// cutoverKey is the key of [ControlBucket] with the last [Cutover].
const cutoverKey = "cutover"

// The commands that make another generation live.
const (
	CommandPromote  = "promote"
	CommandRollback = "rollback"
)

// Cutover is the last change of the live generation: a promotion or a rollback. Its command stores it
// before the first step, and that it is done behind the last one. A command that is killed in between
// leaves it open: the same command finishes it, and every other one refuses until then.
type Cutover struct {
	Command string `json:"command"` // promote or rollback
	From    string `json:"from"`    // the generation that is retired
	To      string `json:"to"`      // the one that becomes live
	Done    bool   `json:"done,omitzero"`

	sequence uint64 // of its key; 0 when there is none
}

// Open reports whether a command has begun the change, and none has finished it.
func (c Cutover) Open() bool { return c.To != "" && !c.Done }

// Involves reports whether an open change is one of a generation.
func (c Cutover) Involves(generation string) bool {
	return c.Open() && (c.From == generation || c.To == generation)
}

// Interrupted says what is open, and how it is finished.
func (c Cutover) Interrupted() string {
	if c.Command == CommandRollback {
		return fmt.Sprintf("the rollback from %s to %s was interrupted, or is under way: finish it with tributary replay rollback", c.From, c.To)
	}
	return fmt.Sprintf("the promotion of %s in the place of %s was interrupted, or is under way: finish it with tributary replay promote %s", c.To, c.From, c.To)
}

// decodeCutover reads the key.
func decodeCutover(m broker.Stored) (Cutover, error) {
	c := Cutover{sequence: m.Sequence}
	if len(m.Data) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(m.Data, &c); err != nil {
		return c, fmt.Errorf("%w: %s of bucket %s", ErrState, cutoverKey, ControlBucket)
	}
	return c, nil
}

// readCutover reads the last change from the leader of the bucket.
func readCutover(ctx context.Context, js jetstream.JetStream) (Cutover, error) {
	data, err := ReadControl(ctx, js, cutoverKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Cutover{}, nil
	}
	if err != nil {
		return Cutover{}, err
	}
	return decodeCutover(broker.Stored{Data: data})
}

// store writes the key, unless another command has written it since it was read.
func (c *Cutover) store(ctx context.Context, kv jetstream.KeyValue) error {
	value, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode %s: %w", cutoverKey, err)
	}
	sequence, err := kv.Update(ctx, cutoverKey, value, c.sequence)
	if broker.Fenced(err) {
		return fmt.Errorf("%w: %s", ErrChanged, cutoverKey)
	}
	if err != nil {
		return fmt.Errorf("write %s of bucket %s: %w", cutoverKey, ControlBucket, err)
	}
	c.sequence = sequence
	return nil
}

// CutOver begins and finishes a change.
func (g *Generations) CutOver(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, command, from, to string) error {
	c := Cutover{Command: command, From: from, To: to, sequence: g.Cutover.sequence}
	if err := c.store(ctx, kv); err != nil {
		return err
	}
	return c.Finish(ctx, js, kv)
}

// Finish takes the steps of a change that are left. One write to the key of the live generation
// decides. Each step may be taken again, so it does not matter which of them an earlier command has
// taken.
func (c *Cutover) Finish(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) error {
	all, err := ReadGenerations(ctx, js)
	if err != nil {
		return err
	}
	if all.Live != c.To {
		to, err := all.Find(c.To)
		if err != nil || to.State == StateDropping || all.Live != c.From {
			if err := c.close(ctx, kv); err != nil {
				return err
			}
			return fmt.Errorf("%w: the %s to %s is given up, and %s stays live", ErrChanged, c.Command, c.To, all.Live)
		}
		if err := all.makeLive(ctx, js, kv, &to, c); err != nil {
			return err
		}
	}
	if from, err := all.Find(c.From); err == nil {
		if err := from.retire(ctx, js, kv, c.To); err != nil {
			return err
		}
	}
	return c.close(ctx, kv)
}

// makeLive makes a generation the live one.
func (g *Generations) makeLive(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, to *Generation, c *Cutover) error {
	if err := to.Uncut(ctx, js); err != nil {
		return err
	}
	record := to.Record("")
	if c.Command == CommandPromote {
		record.State, record.Replaces = StateReplaying, c.From // workers build it until it is live
	}
	if err := to.Store(ctx, kv, record); err != nil {
		return err
	}
	return g.setLive(ctx, kv, to.Name)
}

// close notes that a change is done.
func (c *Cutover) close(ctx context.Context, kv jetstream.KeyValue) error {
	c.Done = true
	return c.store(ctx, kv)
}
