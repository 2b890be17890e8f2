package pipelinetest

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"

	"tributary/normalizers/core"
)

// Known keeps the results of earlier comparisons: a comparison reads both streams in full, but folds and decodes only
// messages with new bytes. The zero value is ready for use.
type Known struct {
	fold   *rawFold
	report Report              // of the fold
	raw    [][sha256.Size]byte // the digests of the messages in the fold
	events map[[sha256.Size]byte]knownEvent
}

// begin begins the fold anew.
func (k *Known) begin(x Expectation) {
	k.report, k.raw = Report{}, nil
	k.fold = &rawFold{
		Expectation: x, content: newContent(), sessions: make(map[sessionID]*core.Session),
		partitions: make(map[sessionID]int), places: make([]Places, x.cells()),
	}
}

// event returns the event of a message, which decode decodes where no message had the same bytes.
func (k *Known) event(cell int, m *nats.Msg, decode func() (knownEvent, error)) (knownEvent, error) {
	if k == nil {
		return decode()
	}
	digest := digestOf(m, uint64(cell)) //nolint:gosec // not negative
	e, ok := k.events[digest]
	if ok {
		return e, nil
	}
	e, err := decode()
	if err == nil {
		if k.events == nil {
			k.events = make(map[[sha256.Size]byte]knownEvent)
		}
		k.events[digest] = e
	}
	return e, err
}

// knownEvent is an event of a message.
type knownEvent struct {
	id sessionID
	event
}

// digestOf returns the digest of a message with all headers.
func digestOf(m *nats.Msg, numbers ...uint64) [sha256.Size]byte {
	h := sha256.New()
	text := func(s string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	for _, n := range numbers {
		h.Write(binary.BigEndian.AppendUint64(nil, n))
	}
	text(m.Subject)
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		text(name)
		for _, value := range m.Header[name] {
			text(value)
		}
		h.Write([]byte{0xff, 0xff})
	}
	h.Write(m.Data)
	return [sha256.Size]byte(h.Sum(nil))
}

// digest returns the digest of a raw message with everything that the fold uses of it.
func (m rawMessage) digest() [sha256.Size]byte {
	gone := uint64(0)
	if m.gone {
		gone = 1
	}
	return digestOf(m.Msg, uint64(m.cell), m.Sequence, uint64(m.Stored.UnixNano()), gone) //nolint:gosec // only compared
}
