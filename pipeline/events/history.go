package events

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
)

// The history of a session is what its records in the raw stream say about their places in files. The state of a
// session only knows how far each file was read. That suffices for nearly every record: one behind all others is new.
// A record at a passed place repeats an earlier one, or its file was rewritten; then the history decides. It depends
// on the raw stream alone, so a replay decides the same.

// maxHistories is the maximum number of records in all histories of an ownership, at about 40 bytes each. A single
// history may have more.
const maxHistories = 1 << 17

// Histories caches the histories that an ownership has read, most recently used first.
type Histories struct {
	js     jetstream.JetStream
	stream string // the raw stream

	read    map[string]*list.Element // of *history, by raw subject
	recent  list.List
	records int
}

// NewHistories returns an empty cache of histories of the sessions in a raw stream.
func NewHistories(js jetstream.JetStream, stream string) *Histories {
	return &Histories{js: js, stream: stream, read: make(map[string]*list.Element)}
}

// history is the history of a session up to a raw sequence.
type history struct {
	subject string
	whole   bool                  // the raw stream has every record of the session
	first   uint64                // sequence of its first record; 0 for none
	through uint64                // sequence up to which it was read
	seen    map[placeDigest]bool  // places of its records with digests of their bytes
	repeats map[uint64]bool       // sequences of records that repeat an earlier one
	begins  map[placeDigest]begin // by file
}

// begin is the first record of a file, for a session, in the raw stream.
type begin struct {
	sequence uint64
	position int64
}

// placeDigest is a digest of a file, or of a place in it together with the bytes of its record.
type placeDigest [12]byte

// Earlier returns what the raw stream says about earlier records of the session at the place of r. first is the raw
// sequence of the session's first record with a file; 0 if unknown.
func (h *Histories) Earlier(ctx context.Context, subject string, r core.Record, first uint64) (core.Earlier, error) {
	is, err := h.use(ctx, subject, first)
	if err != nil {
		return core.Earlier{}, err
	}
	before := len(is.seen)
	err = is.readThrough(ctx, h.js, h.stream, r.Sequence)
	h.records += len(is.seen) - before
	h.evict()
	if err != nil {
		return core.Earlier{}, fmt.Errorf("read the earlier records of the session of record %d: %w", r.Sequence, err)
	}
	e := core.Earlier{Known: true, Same: is.repeats[r.Sequence]}
	if is.whole || is.first == first {
		return e, nil
	}
	e.From = math.MaxInt64
	if begin, ok := is.begins[digestOf(r.Origin.File)]; ok && begin.sequence < r.Sequence {
		e.From = begin.position
	}
	return e, nil
}

// use returns the history of a session, reading it if needed.
func (h *Histories) use(ctx context.Context, subject string, first uint64) (*history, error) {
	if e := h.read[subject]; e != nil {
		h.recent.MoveToFront(e)
		return e.Value.(*history), nil
	}
	whole := false
	if first == 0 { // unknown in states of earlier versions
		info, err := broker.LeaderInfo(ctx, h.js, h.stream)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", h.stream, err)
		}
		whole = info.State.FirstSeq <= 1
	}
	is := &history{
		whole:   whole,
		subject: subject, through: max(first, 1) - 1,
		seen: make(map[placeDigest]bool), repeats: make(map[uint64]bool), begins: make(map[placeDigest]begin),
	}
	h.read[subject] = h.recent.PushFront(is)
	return is, nil
}

// evict drops the least recently used histories, but keeps the last one.
func (h *Histories) evict() {
	for h.records > maxHistories && h.recent.Len() > 1 {
		oldest := h.recent.Remove(h.recent.Back()).(*history)
		h.records -= len(oldest.seen)
		delete(h.read, oldest.subject)
	}
}

// readThrough reads the records of the session up to a sequence where it has one, and any that are already there
// behind it.
func (h *history) readThrough(ctx context.Context, js jetstream.JetStream, stream string, sequence uint64) error {
	if sequence <= h.through {
		return nil
	}
	r, err := broker.OpenReader(ctx, js, stream, jetstream.ConsumerConfig{
		Description:    "A worker: the earlier records of a session.",
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    h.through + 1,
		FilterSubjects: []string{h.subject},
	})
	if err != nil {
		return err
	}
	defer r.Close()
	r.End = sequence
	for h.through < sequence || r.Pending > 0 {
		messages, err := r.Next(ctx, nil)
		if errors.Is(err, broker.ErrEnd) { // what it has not sent lies behind the record, or was removed meanwhile
			h.through = max(h.through, sequence)
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range messages {
			h.add(m)
			r.Pending = m.Pending
		}
	}
	return nil
}

// add adds the next record of the session.
func (h *history) add(m broker.Message) {
	h.through = m.Sequence
	if h.first == 0 {
		h.first = m.Sequence
	}
	r, claim, _ := records.Read(m.Msg, m.Sequence, m.Stored) // an unreadable record has a place, too
	if r.Origin.File == "" || r.Origin.End || r.Origin.Requeued != 0 {
		return
	}
	file := digestOf(r.Origin.File)
	if _, ok := h.begins[file]; !ok {
		h.begins[file] = begin{m.Sequence, r.Origin.Position}
	}
	if claim == (claims.Claim{}) {
		claim = claims.Of(r.Data)
	}
	if is := digestOf(fmt.Sprintf("%x %d %s", file, r.Origin.Position, claim)); h.seen[is] {
		h.repeats[m.Sequence] = true
	} else {
		h.seen[is] = true
	}
}

func digestOf(text string) placeDigest {
	sum := sha256.Sum256([]byte(text))
	return placeDigest(sum[:])
}
