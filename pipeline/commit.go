package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
)

// commit is one atomic batch: the chunks of some partitions, then their checkpoints.
type commit struct {
	messages []*nats.Msg
	shares   []share
	records  int
	bytes    int
	started  time.Time // when the work on its first record began
	links    []trace.Link
}

// share is what a partition has in a batch.
type share struct {
	o          *ownership
	chunk      *chunk
	messages   int  // of the chunk, in this batch
	whole      bool // nothing of the chunk is left after it
	checkpoint Checkpoint
	expected   uint64 // sequence of the checkpoint before it
}

// waken tells the committer that there is something to take.
func (s *Stage) waken() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// commit sends one batch after another, each with all that is there when the one before
// it is done.
func (s *Stage) commit(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		for {
			b := s.fill()
			if len(b.shares) == 0 {
				break
			}
			s.send(ctx, b)
		}
	}
}

// fill takes the chunks of the partitions in turn, as many as one batch holds.
func (s *Stage) fill() *commit {
	b := &commit{}
	partitions := s.list()
	s.turn++
	for i := range partitions {
		if o := partitions[(s.turn+i)%len(partitions)].ownership(); o != nil {
			o.take(b)
		}
	}
	return b
}

// send stores a batch and tells the partitions in it. The checkpoints are its last
// messages, so their sequences follow from that of the last one.
func (s *Stage) send(ctx context.Context, b *commit) {
	first := len(b.messages)
	err := s.addCheckpoints(b)
	var last uint64
	if err == nil {
		last, err = s.telemetry.commit(ctx, b, func() (uint64, error) { //nolint:contextcheck // the link ends with ctx, too
			// Who waits longer keeps the partitions from finding out.
			ctx, cancel := context.WithTimeout(s.linked(), requestTimeout)
			defer cancel()
			return PublishBatch(ctx, s.nc, b.messages)
		})
	}
	for i, sh := range b.shares {
		if err != nil {
			sh.o.cancel(fmt.Errorf("commit: %w", err))
			continue
		}
		if sh.whole {
			s.telemetry.add(ctx, sh.chunk.tally)
		}
		sh.o.acknowledge(sh, last-uint64(len(b.messages)-1-first-i))
	}
}

// addCheckpoints ends a batch.
func (s *Stage) addCheckpoints(b *commit) error {
	for _, sh := range b.shares {
		m, err := sh.checkpoint.message(s.config.Topology.Generation, sh.o.p.number, sh.expected)
		if err != nil {
			return err
		}
		b.messages = append(b.messages, m)
	}
	return nil
}

// take moves what the partition has into b, if it fits. A chunk that is more than one
// batch holds goes out in several: its messages first, its states and its checkpoint
// with the last of them.
func (o *ownership) take(b *commit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return
	}
	c := o.sealed
	if c == nil {
		c = o.building
	}
	if c.records == 0 || len(b.shares) > 0 && !b.fits(c) {
		return
	}
	if c == o.building {
		c.seal(o.p.stage.config.Topology.Generation, o.p.number)
		o.sealed, o.building = c, newChunk(c.number+1)
		o.move()
	}
	sh := share{o: o, chunk: c, expected: o.sequence, checkpoint: o.checkpoint}
	sh.checkpoint.Tries = 0
	out := c.messages[c.sent:]
	if sh.whole = c.weight() <= MaxBatch && c.bytes <= 2*commitBytes; sh.whole {
		sh.checkpoint.Raw, sh.checkpoint.RawTime = c.raw, c.rawTime
		if c.raw >= sh.checkpoint.Out {
			sh.checkpoint.Out, sh.checkpoint.Part = 0, 0
		}
		b.records += c.records
		b.links = append(b.links, c.links...)
	} else {
		out = c.head()
		last := out[len(out)-1]
		sh.checkpoint.Out, sh.checkpoint.Part = last.raw, last.part
	}
	messages, err := o.messages(out)
	if err != nil {
		o.cancel(err)
		return
	}
	sh.messages = len(out)
	b.messages = append(b.messages, messages...)
	for _, m := range out {
		b.bytes += m.size
	}
	if sh.whole {
		for _, m := range c.states {
			b.messages = append(b.messages, m)
			b.bytes += len(m.Data)
		}
	}
	if b.started.IsZero() || c.started.Before(b.started) {
		b.started = c.started
	}
	b.shares = append(b.shares, sh)
}

// messages are what is sent of a list.
func (o *ownership) messages(list []message) ([]*nats.Msg, error) {
	out := make([]*nats.Msg, len(list))
	for i, m := range list {
		if m.Msg == nil {
			var err error
			if m, err = o.event(m.event); err != nil {
				return nil, err // the broker takes less than it did before
			}
		}
		out[i] = m.Msg
	}
	return out, nil
}

// fits reports whether the whole of c goes into b beside what is there.
func (b *commit) fits(c *chunk) bool {
	return b.records+c.records <= commitRecords &&
		len(b.messages)+len(b.shares)+c.weight() <= commitMessages &&
		b.bytes+c.size() <= commitBytes
}

// acknowledge notes that a share is stored, with its checkpoint at sequence. If the
// ownership has ended meanwhile, the next claim finds it in the stream.
func (o *ownership) acknowledge(sh share, sequence uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return
	}
	o.checkpoint, o.sequence = sh.checkpoint, sequence
	o.tries = 0
	for _, m := range sh.chunk.messages[sh.chunk.sent:][:sh.messages] {
		sh.chunk.bytes -= m.size
	}
	sh.chunk.sent += sh.messages
	if sh.whole {
		o.sealed, o.stored = nil, sh.chunk.number
		o.p.open.Add(-int64(sh.chunk.records))
	}
	o.move()
}

// move tells the partition that there is room again, or that something is stored.
func (o *ownership) move() {
	select {
	case o.moved <- struct{}{}:
	default:
	}
}

// stateMessage is the state of a session as it is now. Only the newest is kept.
func stateMessage(generation string, partition int, s *liveSession) *nats.Msg {
	return &nats.Msg{
		Subject: envelopes.StateSubject(generation, partition, s.key.source, s.key.id),
		Header:  nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}},
		Data:    s.state.Encode(),
	}
}
