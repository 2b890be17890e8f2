package pipeline

import (
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"tributary/normalizers"
)

// How much goes into one commit. A chunk that has reached a limit takes no further
// record; its last record may lead over it.
const (
	commitRecords  = 256
	commitMessages = 900 // of the 1,000 that the broker takes
	commitBytes    = 4 << 20
)

// message is an event or a dead letter, with its place among the messages of its record.
type message struct {
	*nats.Msg                      // nil when it is to be made of event when it is sent
	event     *normalizers.Emitted // of a record whose messages are more than one commit
	raw       uint64               // sequence of the record
	part      int                  // 1 for the first message of the record
	size      int
}

// chunk is the work on consecutive records of one partition that is stored together:
// messages in the order of their records, and the sessions that they changed.
type chunk struct {
	number  uint64
	started time.Time
	oldest  time.Time // when the broker stored the first record in it

	records  int
	raw      uint64 // the last record in it
	rawTime  time.Time
	messages []message
	bytes    int // of messages
	changed  []*liveSession
	tally    tally
	links    []trace.Link // to the creation of its records

	// From when it is sealed, that is handed to the committer:
	states []*nats.Msg // of the changed sessions
	sent   int         // messages that are stored already
}

func newChunk(number uint64) *chunk { return &chunk{number: number, tally: make(tally)} }

// full reports whether the chunk takes no further record.
func (c *chunk) full() bool {
	return c.records >= commitRecords || c.weight() >= commitMessages || c.size() >= commitBytes
}

// weight is how many messages are still to be stored, the checkpoint included.
func (c *chunk) weight() int { return len(c.messages) - c.sent + len(c.changed) + 1 }

// size is about how many bytes the chunk takes. Before it is sealed the memory that a
// session takes stands for its encoding.
func (c *chunk) size() int {
	n := c.bytes
	for _, s := range c.changed {
		n += s.size
	}
	return n
}

// add puts the messages of a record into the chunk, without the first skip of them,
// which an earlier commit has stored.
func (c *chunk) add(m rawMessage, messages []message, skip int) {
	if c.records == 0 {
		c.started, c.oldest = time.Now(), m.stored
	}
	c.records++
	c.raw, c.rawTime = m.sequence, m.stored
	for i, out := range messages[min(skip, len(messages)):] {
		out.raw, out.part = m.sequence, skip+i+1
		c.messages = append(c.messages, out)
		c.bytes += out.size
	}
}

// change notes that a record of the chunk has changed a session.
func (c *chunk) change(s *liveSession) {
	if s.chunk != c.number {
		c.changed = append(c.changed, s)
	}
}

// seal encodes the states of the changed sessions as they are now.
func (c *chunk) seal(generation string, partition int) {
	c.states = make([]*nats.Msg, len(c.changed))
	for i, s := range c.changed {
		c.states[i] = stateMessage(generation, partition, s)
	}
}

// head returns as many of the messages still to be stored as one commit takes.
func (c *chunk) head() []message {
	n, size := 0, 0
	for _, m := range c.messages[c.sent:] {
		if n == commitMessages || n > 0 && size+m.size > commitBytes {
			break
		}
		n, size = n+1, size+m.size
	}
	return c.messages[c.sent : c.sent+n]
}
