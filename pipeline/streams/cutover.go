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

// Cutover is the last change of the live generation: a promotion or a rollback. The command stores it before its
// first step, and marks it as done after the last. A command that is killed in between leaves it open: running the
// same command finishes it, and all others refuse until then.
type Cutover struct {
	Command string `json:"command"` // promote or rollback
	From    string `json:"from"`    // generation to retire
	To      string `json:"to"`      // generation to make live
	Done    bool   `json:"done,omitzero"`

	sequence uint64 // sequence of its key; 0 if there is none
}

// Open reports whether the change was begun and not finished.
func (c Cutover) Open() bool { return c.To != "" && !c.Done }

// Involves reports whether an open change concerns a generation.
func (c Cutover) Involves(generation string) bool {
	return c.Open() && (c.From == generation || c.To == generation)
}

// Interrupted returns a sentence that says what is open and how to finish it.
func (c Cutover) Interrupted() string {
	if c.Command == CommandRollback {
		return fmt.Sprintf("the rollback from %s to %s was interrupted, or is under way: finish it with tributary replay rollback", c.From, c.To)
	}
	return fmt.Sprintf("the promotion of %s over %s was interrupted, or is under way: finish it with tributary replay promote %s", c.To, c.From, c.To)
}

// decodeCutover decodes the value of the key.
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

// store writes the key, unless another command wrote it after it was read.
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

// Finish takes the remaining steps of a change. One write to the key of the live generation decides. Every step may
// be repeated, so it does not matter which ones an earlier command took.
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
			return fmt.Errorf("%w: the %s to %s was given up, %s stays live", ErrChanged, c.Command, c.To, all.Live)
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

// close marks a change as done.
func (c *Cutover) close(ctx context.Context, kv jetstream.KeyValue) error {
	c.Done = true
	return c.store(ctx, kv)
}
