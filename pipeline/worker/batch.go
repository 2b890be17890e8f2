package worker

import (
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// batchMessages is the limit of messages: of the 1,000 that the broker accepts, see [broker.MaxBatch].
const batchMessages = 900

// batchLimits are those of one atomic batch. A new field of [batchSize] is a compiler error wherever it needs a value;
// it is counted in [entry.measure], and compared in within and reaches. A record that exceeds it alone is cut in
// [chunk.head].
var batchLimits = batchSize{0, batchMessages, broker.BatchBytes}

// A chunk is full at half of a batch: that of a partition with much to do fits beside those of
// others. Its records are limited because those without a message count for nothing else.
const chunkRecords = 512

var chunkLimits = batchSize{chunkRecords, batchMessages / 2, broker.BatchBytes / 2}

// maxWaiting limits the bytes of the messages that wait in the chunks of all partitions of a cell: while one batch
// is stored, another gets ready.
const maxWaiting = 2 * broker.BatchBytes

// batchSize measures a batch, or a part of one, in everything that a batch is limited by.
type batchSize struct {
	records  int // in the limits of a batch 0, for they are not compared
	messages int // events, dead letters, session states and checkpoints
	bytes    int
}

func (s batchSize) plus(other batchSize) batchSize {
	return batchSize{s.records + other.records, s.messages + other.messages, s.bytes + other.bytes}
}

// within reports whether s exceeds none of the limits of a batch.
func (s batchSize) within(limits batchSize) bool {
	return s.messages <= limits.messages && s.bytes <= limits.bytes
}

// reaches reports whether s has reached one of the limits of a chunk.
func (s batchSize) reaches(limits batchSize) bool {
	return s.records >= limits.records || s.messages >= limits.messages || s.bytes >= limits.bytes
}

// batch is one atomic batch: an entry for each partition that has something to store.
type batch struct {
	limits  batchSize
	entries []entry
	size    batchSize
}

// entry is the part of a batch that belongs to one partition: a chunk, or as much of it as
// one batch holds.
type entry struct {
	outbox     *outbox
	chunk      *chunk
	sent       []message   // events and dead letters
	messages   []*nats.Msg // of these
	blocks     blocks      // of messages that were encoded for this entry
	states     []*nats.Msg // session states, with the last entry of a chunk
	size       batchSize   // see [entry.measure]
	last       bool        // the chunk has nothing left after this entry
	checkpoint streams.Checkpoint
	expected   uint64 // stream sequence of the checkpoint before it
	tries      int    // attempts on the partition without progress, this one included; 0 after progress
}

// measure counts what the entry adds to its batch. The records of a chunk count with its last entry.
func (e *entry) measure() {
	e.size = batchSize{messages: len(e.sent) + len(e.states) + 2} // with its begin and the checkpoint
	if e.last {
		e.size.records = e.chunk.records
	}
	for _, m := range e.sent {
		e.size.bytes += m.size
	}
	for _, m := range e.states {
		e.size.bytes += len(m.Data)
	}
}

// empty reports whether no partition has anything to store.
func (b *batch) empty() bool { return len(b.entries) == 0 }

// accepts reports whether the whole of a chunk fits beside the entries that are there.
// An empty batch accepts any chunk: one that exceeds the limits is split.
func (b *batch) accepts(c *chunk) bool {
	return b.empty() || b.size.plus(c.size()).within(b.limits)
}

// add appends the entry of another partition.
func (b *batch) add(e entry) {
	b.entries = append(b.entries, e)
	b.size = b.size.plus(e.size)
}

// seal returns the messages in the order in which they are stored: per partition its begin,
// events, dead letters and states, then the checkpoints of all partitions. Because the
// checkpoints come last, [batch.sequence] knows their stream sequences.
func (b *batch) seal() ([]*nats.Msg, error) {
	messages := make([]*nats.Msg, 0, b.size.messages)
	for _, e := range b.entries {
		messages = append(messages, e.begin())
		messages = append(append(messages, e.messages...), e.states...)
	}
	for _, e := range b.entries {
		m, err := e.checkpoint.Message(e.outbox.p.cell.name, e.outbox.p.number, e.expected)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// sequence returns the stream sequence of the checkpoint of entry i, when last is that of
// the last message of the batch.
func (b *batch) sequence(i int, last uint64) uint64 {
	return last - uint64(len(b.entries)-1-i)
}

// stateSequence returns the stream sequence of the first state of entry i, when last is that of the
// last message of the batch.
func (b *batch) stateSequence(i int, last uint64) uint64 {
	behind := len(b.entries)
	for _, e := range b.entries[i+1:] {
		behind += 1 + len(e.messages) + len(e.states)
	}
	return last - uint64(behind+len(b.entries[i].states)) + 1
}

// steps returns the steps of the events in the batch with their positions, when last is the stream sequence of the
// last message. ok is false when a step was not made.
func (b *batch) steps(last uint64) (out events.HandedBatch, ok bool) {
	out = events.HandedBatch{First: last - uint64(b.size.messages) + 1, Last: last}
	position := out.First
	for _, e := range b.entries {
		position++ // behind its begin
		for i, m := range e.sent {
			switch {
			case m.letter:
				continue
			case m.step == nil:
				return out, false
			}
			m.step.Position = position + uint64(i)
			out.Steps = append(out.Steps, m.step)
		}
		position += uint64(len(e.sent) + len(e.states))
	}
	return out, true
}

// started returns when the work on the first record of the batch began.
func (b *batch) started() time.Time {
	started := b.entries[0].chunk.started
	for _, e := range b.entries[1:] {
		if e.chunk.started.Before(started) {
			started = e.chunk.started
		}
	}
	return started
}

// attempt returns the largest number of attempts on a partition of the batch.
func (b *batch) attempt() int {
	n := 0
	for _, e := range b.entries {
		n = max(n, e.tries)
	}
	return n
}

// links returns the trace contexts of the records that the batch completes.
func (b *batch) links() []trace.Link {
	var links []trace.Link
	for _, e := range b.entries {
		if e.last {
			links = append(links, e.chunk.links...)
		}
	}
	return links
}
