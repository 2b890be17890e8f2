package worker

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// batchMessages is the limit of messages per batch, below the 1,000 that the broker accepts ([broker.MaxBatch]).
const batchMessages = 900

// batchLimits are the limits of one atomic batch. A new field of [batchSize] needs a value here (the compiler says
// so), must be counted in [entry.measure] and, for a chunk that waits, in [chunk.size], and compared in within and
// reaches. [chunk.head] splits a record that alone exceeds it.
var batchLimits = batchSize{0, batchMessages, broker.BatchBytes}

// A chunk is full at half of a batch, so that the chunk of a busy partition fits beside others. Its records are
// limited too, because records without a message count for nothing else.
const chunkRecords = 512

var chunkLimits = batchSize{chunkRecords, batchMessages / 2, broker.BatchBytes / 2}

// maxWaiting limits the bytes of the messages that wait in the chunks of all partitions of a cell: one batch is
// stored while the next one fills.
const maxWaiting = 2 * broker.BatchBytes

// batchSize measures a batch, or a part of one, in every quantity that limits a batch.
type batchSize struct {
	records  int // not compared for a batch, so 0 in its limits
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

// entry is the part of a batch that belongs to one partition: a chunk, or as much of it as one batch can take.
type entry struct {
	outbox     *outbox
	chunk      *chunk
	sent       []message   // events and dead letters
	messages   []*nats.Msg // the encoded messages of sent
	blocks     blocks      // memory of messages encoded for this entry
	states     []*nats.Msg // session states; only in the last entry of a chunk
	size       batchSize   // see [entry.measure]
	last       bool        // no entry of the chunk follows
	checkpoint streams.Checkpoint
	expected   uint64 // stream sequence of the previous checkpoint
	tries      int    // attempts on the partition without progress, including this one; 0 after progress
}

// measure sets the size that the entry adds to its batch. The records of a chunk count in its last entry.
func (e *entry) measure() {
	e.size = batchSize{messages: len(e.sent) + len(e.states) + 2} // plus its begin message and its checkpoint
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

// accepts reports whether a whole chunk fits beside the present entries. An empty batch accepts any chunk, and splits
// one that exceeds the limits.
func (b *batch) accepts(c *chunk) bool {
	return b.empty() || b.size.plus(c.size()).within(b.limits)
}

// add appends the entry of another partition.
func (b *batch) add(e entry) {
	b.entries = append(b.entries, e)
	b.size = b.size.plus(e.size)
}

// seal returns the messages in the order in which they are stored: for each partition its begin message, events, dead
// letters and states; then the checkpoints of all partitions. [batch.sequence] relies on the checkpoints being last.
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

// sequence returns the stream sequence of the checkpoint of entry i; last is the sequence of the last message of the
// batch.
func (b *batch) sequence(i int, last uint64) uint64 {
	return last - uint64(len(b.entries)-1-i)
}

// stateSequence returns the stream sequence of the first state of entry i; last is the sequence of the last message
// of the batch.
func (b *batch) stateSequence(i int, last uint64) uint64 {
	behind := len(b.entries)
	for _, e := range b.entries[i+1:] {
		behind += 1 + len(e.messages) + len(e.states)
	}
	return last - uint64(behind+len(b.entries[i].states)) + 1
}

// steps returns the steps of the events in the batch with their positions; last is the stream sequence of the last
// message. ok is false when an event has no step.
func (b *batch) steps(last uint64) (out events.HandedBatch, ok bool) {
	out = events.HandedBatch{First: last - uint64(b.size.messages) + 1, Last: last}
	position := out.First
	for _, e := range b.entries {
		position++ // behind the begin message
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

// started returns when work on the first record of the batch began.
func (b *batch) started() time.Time {
	started := b.entries[0].chunk.started
	for _, e := range b.entries[1:] {
		if e.chunk.started.Before(started) {
			started = e.chunk.started
		}
	}
	return started
}

// attempt returns the highest number of attempts on any partition of the batch.
func (b *batch) attempt() int {
	n := 0
	for _, e := range b.entries {
		n = max(n, e.tries)
	}
	return n
}

// links returns the trace contexts of the records that this batch completes.
func (b *batch) links() []trace.Link {
	var links []trace.Link
	for _, e := range b.entries {
		if e.last {
			links = append(links, e.chunk.links...)
		}
	}
	return links
}

// begin returns the message that precedes the messages of the entry in its batch. It has the last raw sequence of the
// entry.
func (e *entry) begin() *nats.Msg {
	p := e.outbox.p
	return &nats.Msg{
		Subject: envelopes.BeginSubject(envelopes.CheckpointSubject(p.cell.name, p.number)),
		Header:  nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}},
		Data:    strconv.AppendUint(nil, e.checkpoint.Raw, 10),
	}
}
