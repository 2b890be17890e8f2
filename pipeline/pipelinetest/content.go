package pipelinetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline/streams"
)

// sessionID identifies a session.
type sessionID struct {
	source envelopes.Source
	id     string
}

// event is an event with the digest of its data, because generations may be larger than memory. It is small, because
// a comparison has each event twice.
type event struct {
	sequence  uint64 // in its session
	raw       uint64
	partition int32
	size      int32
	digest    [16]byte // the beginning of the SHA-256
}

func newEvent(sequence, raw uint64, partition int, data []byte) event {
	digest := sha256.Sum256(data)
	return event{sequence, raw, int32(partition), int32(len(data)), [16]byte(digest[:])}
}

// deadLetter is the dead letter of a record.
type deadLetter struct {
	reason string
	data   []byte
}

// content is what a generation holds, or should hold.
type content struct {
	cell        int  // the one that is read
	killed      bool // as in [Expectation]
	kept        int  // as in [Report]
	events      map[sessionID][]event
	deadLetters map[uint64][]deadLetter // by cell and raw sequence, see [streams.PlaceOf]
	states      map[sessionID][]byte
	subjects    map[sessionID]string                  // of the states under their own subjects
	wholes      map[string]stateMessage               // by subject
	changes     map[string]stateMessage               // by the subject of the whole
	archives    map[string]map[sessionID]stateMessage // by the subject of the archive
	checkpoints map[int]streams.Checkpoint
	gaps        map[int]map[string]bool // subjects of states of sessions with gaps, by partition
}

func newContent() *content {
	return &content{
		events:      make(map[sessionID][]event),
		deadLetters: make(map[uint64][]deadLetter),
		states:      make(map[sessionID][]byte),
		subjects:    make(map[sessionID]string),
		wholes:      make(map[string]stateMessage),
		changes:     make(map[string]stateMessage),
		archives:    make(map[string]map[sessionID]stateMessage),
		checkpoints: make(map[int]streams.Checkpoint),
		gaps:        make(map[int]map[string]bool),
	}
}

// stored reads what the generation contains.
func (x Expectation) stored(ctx context.Context, js jetstream.JetStream) (*content, error) {
	c := newContent()
	c.killed = x.Killed
	for cell := range x.cells() {
		c.cell = cell
		if err := c.readAll(ctx, js, streams.EventsStream(x.cellName(cell))); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// readAll reads what the events stream of a cell contains.
func (c *content) readAll(ctx context.Context, js jetstream.JetStream, stream string) error {
	for m, err := range storedMessages(ctx, js, stream) {
		if err != nil {
			return err
		}
		if err := c.read(m.Msg, m.Sequence); err != nil {
			return fmt.Errorf("message %d of %s: %w", m.Sequence, stream, err)
		}
	}
	return nil
}

// read adds a message of the generation with its sequence.
func (c *content) read(m *nats.Msg, sequence uint64) error {
	kind, _, _ := strings.Cut(m.Subject, ".")
	switch kind {
	case "events":
		ce, err := envelopes.Decode(m.Header, m.Data)
		if err != nil {
			return err
		}
		e, p, err := envelopes.FromCloudEvent(ce)
		if err != nil {
			return err
		}
		if want := envelopes.EventSubject(envelopes.CellName(p.Generation, c.cell), &e); m.Subject != want {
			return errors.New("event at another subject than its own")
		}
		id := sessionID{e.Source, e.SessionID}
		c.events[id] = append(c.events[id], newEvent(e.Sequence, p.RawSequence, p.Partition, ce.DataEncoded))
	case "deadletters":
		raw, err := strconv.ParseUint(m.Header.Get(envelopes.HeaderSequence), 10, 64)
		if err != nil {
			return err
		}
		at := streams.PlaceOf(c.cell, raw)
		c.deadLetters[at] = append(c.deadLetters[at], deadLetter{m.Header.Get(envelopes.HeaderReason), m.Data})
	case "states":
		subject, changed := strings.CutSuffix(m.Subject, "+")
		if changed {
			c.changes[subject] = stateMessage{sequence, m.Data}
			return nil
		}
		s, err := normalizers.DecodeSession(m.Data)
		if err != nil {
			return err
		}
		id := sessionID{s.Source(), s.ID()}
		if old, ok := c.wholes[subject]; ok {
			if !c.killed || m.Header.Get(jetstream.MsgRollup) != jetstream.MsgRollupSubject {
				return fmt.Errorf("second state of a session: the first is message %d", old.sequence)
			}
			c.kept++
		}
		c.wholes[subject] = stateMessage{sequence, m.Data}
		c.subjects[id] = subject
	case "checkpoints":
		if envelopes.IsBeginSubject(m.Subject) {
			return nil
		}
		a, err := envelopes.ParseCheckpointSubject(m.Subject)
		if err != nil {
			return err
		}
		var p streams.Checkpoint
		if err := json.Unmarshal(m.Data, &p); err != nil {
			return err
		}
		c.checkpoints[a.Partition] = p // an owner that moves states may have stored another one since
	case "archives":
		if a, erased := strings.CutSuffix(m.Subject, ".erased.events"); erased && m.Subject == envelopes.ErasedSubject(strings.TrimPrefix(a, "archives.")) {
			return nil
		}
		states, err := readArchive(m.Data)
		if err != nil {
			return err
		}
		c.archives[m.Subject] = states // the newest message counts
	}
	return nil
}

// stateMessage is a stored state, or a part of one, with its sequence.
type stateMessage struct {
	sequence uint64
	data     []byte
}

// addStates adds the states of the sessions. A state is the whole under its own subject with the change that names
// it, or a copy in an archive if that was stored later: a killed server can bring back an older, removed state. It
// returns how many states have changes, and how many are in archives.
func (c *content) addStates() (changed, archived int, err error) {
	at := make(map[sessionID]uint64)
	for id, subject := range c.subjects {
		whole := c.wholes[subject]
		c.states[id], at[id] = whole.data, whole.sequence
		change, ok := c.changes[subject]
		base, n := binary.Uvarint(change.data)
		if !ok || base < whole.sequence {
			continue
		}
		if base > whole.sequence {
			return 0, 0, fmt.Errorf("message %d is a change of message %d, and %s is message %d", change.sequence, base, subject, whole.sequence)
		}
		s, err := normalizers.DecodeChanged(whole.data, change.data[n:])
		if err != nil {
			return 0, 0, fmt.Errorf("message %d, a change of %s: %w", change.sequence, subject, err)
		}
		c.states[id], at[id] = s.Encode(), change.sequence
		changed++
	}
	for _, states := range c.archives {
		for id, s := range states {
			if s.sequence > at[id] {
				c.states[id] = s.data
				archived++
			}
		}
	}
	return changed, archived, nil
}

// readArchive returns the states in an archive.
func readArchive(data []byte) (map[sessionID]stateMessage, error) {
	if len(data) == 0 || data[0] != 1 {
		return nil, errors.New("archive of another version")
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	plain, err := d.DecodeAll(data[1:], nil)
	if err != nil {
		return nil, err
	}
	states := make(map[sessionID]stateMessage)
	for r := bytes.NewReader(plain); r.Len() > 0; {
		var part [2][]byte // name and state
		var sequence uint64
		for i := range part {
			n, err := binary.ReadUvarint(r)
			if err != nil {
				return nil, err
			}
			part[i] = make([]byte, n)
			if _, err := io.ReadFull(r, part[i]); err != nil {
				return nil, err
			}
			if i == 0 {
				if sequence, err = binary.ReadUvarint(r); err != nil {
					return nil, err
				}
			}
		}
		s, err := normalizers.DecodeSession(part[1])
		if err != nil {
			return nil, err
		}
		id := sessionID{s.Source(), s.ID()}
		if name := string(id.source) + "." + envelopes.Token(id.id); name != string(part[0]) || states[id].data != nil {
			return nil, fmt.Errorf("state of %s in the place of %s", name, part[0])
		}
		states[id] = stateMessage{sequence, part[1]}
	}
	return states, nil
}
