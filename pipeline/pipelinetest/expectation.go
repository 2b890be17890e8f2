package pipelinetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline"
)

// Expectation is what a generation should hold: the fold of the raw stream, in its order.
// It shares nothing with a stage but the reading of a record and of the object that the
// record names.
type Expectation struct {
	Topology pipeline.Topology
	// Normalize is that of the stage; nil for [normalizers.Normalize]. A record at which it
	// panics is a dead letter, and leaves its session as it was.
	Normalize func(*normalizers.Session, normalizers.Record) (normalizers.Result, error)
	// Crashed are the raw sequences of records that end the process.
	Crashed []uint64
}

// Report is the result of a comparison.
type Report struct {
	Records, Events, DeadLetters, Sessions int // expected

	Missing, Doubled int // events
	OutOfOrder       int // events that are not stored right behind the one before them in their session
	States           int // session states that differ
	Changed          int // sessions whose state is a whole and its change
	Archived         int // sessions whose state is in an archive

	Problems []string // the first problems of any kind
	More     int      // number of problems beyond those
}

const maxProblems = 20

// Err returns nil when the generation holds exactly what it should.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	text := strings.Join(r.Problems, "\n\t")
	if r.More > 0 {
		text += fmt.Sprintf("\n\tand %d more", r.More)
	}
	return errors.New("generation differs from the fold of the raw stream:\n\t" + text)
}

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) == maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// Compare folds the raw stream and compares the result with what the generation holds:
// events, in their order, bytes and provenance; dead letters, session states and
// checkpoints. The stage must have caught up, see [pipeline.CatchUp].
func (x Expectation) Compare(ctx context.Context, js jetstream.JetStream) (*Report, error) {
	r := &Report{}
	want, err := x.fold(ctx, js, r)
	if err != nil {
		return nil, fmt.Errorf("fold raw stream: %w", err)
	}
	have, err := x.stored(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("read generation: %w", err)
	}
	if r.Changed, r.Archived, err = have.addStates(); err != nil {
		return nil, fmt.Errorf("read generation: %w", err)
	}
	want.compareEvents(have, r)
	want.compareDeadLetters(have, r)
	want.compareStates(have, r)
	for p := range x.Topology.Partitions {
		switch c, ok := have.checkpoints[p]; {
		case !ok:
			r.problem("partition %d has no checkpoint", p)
		case c.Out != 0 || c.Part != 0:
			r.problem("partition %d: record %d is stored in part", p, c.Out)
		default:
			want.compareGaps(p, c, r)
		}
	}
	return r, nil
}

// RequireInOrder fails the test unless a text contains parts, one behind the other.
func RequireInOrder(tb testing.TB, text string, parts ...string) {
	tb.Helper()
	rest := text
	for _, p := range parts {
		_, after, ok := strings.Cut(rest, p)
		if !ok {
			tb.Errorf("no %q, behind those before it, in:\n%s", p, text)
			return
		}
		rest = after
	}
}

// catchUpTimeout is far more than any test needs, so that one that stands still says where.
const catchUpTimeout = 4 * time.Minute

// RequireExact waits until the generation has caught up, and fails the test unless it holds
// exactly what is expected.
func (x Expectation) RequireExact(tb testing.TB, js jetstream.JetStream) *Report {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), catchUpTimeout)
	defer cancel()
	if err := pipeline.CatchUp(ctx, js, x.Topology); err != nil {
		workers, _ := pipeline.Workers(tb.Context(), js, x.Topology.Generation) // none where the broker is away
		tb.Fatalf("%v; the workers are %+v", err, workers)
	}
	r, err := x.Compare(tb.Context(), js)
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.Err(); err != nil {
		tb.Fatal(err)
	}
	return r
}

// sessionID identifies a session.
type sessionID struct {
	source envelopes.Source
	id     string
}

// event is an event with the digest of its data: generations may be larger than memory. It is
// small, because a comparison has each event twice.
type event struct {
	sequence  uint64 // in the session
	raw       uint64
	partition int32
	size      int32
	digest    [16]byte // the begin of the SHA-256
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
	cell        int // that is being read
	events      map[sessionID][]event
	deadLetters map[uint64][]deadLetter // by cell and raw sequence, see [pipeline.PlaceOf]
	states      map[sessionID][]byte
	subjects    map[sessionID]string                  // of the states under their own subjects
	wholes      map[string]stateMessage               // by their subjects
	changes     map[string]stateMessage               // by the subjects of the wholes
	archives    map[string]map[sessionID]stateMessage // by the subjects of the archives
	checkpoints map[int]pipeline.Checkpoint
	gaps        map[int]map[string]bool // subjects of the states of sessions with gaps, by partition
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
		checkpoints: make(map[int]pipeline.Checkpoint),
		gaps:        make(map[int]map[string]bool),
	}
}

// fold computes the content that the generation should hold.
func (x Expectation) fold(ctx context.Context, js jetstream.JetStream, r *Report) (*content, error) {
	f := rawFold{Expectation: x, content: newContent(), sessions: make(map[sessionID]*normalizers.Session), partitions: make(map[sessionID]int)}
	claims := pipeline.NewClaims(js)
	for m, err := range x.rawMessages(ctx, js) {
		if err != nil {
			return nil, err
		}
		r.Records++
		record, claim, cause := pipeline.ReadRecord(m.Msg, m.sequence, m.stored)
		if claim != (pipeline.Claim{}) && cause == nil {
			record.Data, cause = claims.Get(ctx, claim)
		}
		if m.cell == 0 && slices.Contains(x.Crashed, m.sequence) {
			cause = pipeline.ErrCrashed
		}
		if err := f.record(m, record, cause, r); err != nil {
			return nil, fmt.Errorf("record %d: %w", m.sequence, err)
		}
	}
	f.encodeStates()
	r.Sessions = len(f.states)
	return f.content, nil
}

// rawFold is the fold of the raw stream so far.
type rawFold struct {
	Expectation
	*content

	sessions   map[sessionID]*normalizers.Session
	partitions map[sessionID]int // of the last record of each session
}

// record adds the events of a record, or its dead letter where it has a cause or cannot be
// normalized.
func (f *rawFold) record(m rawMessage, record normalizers.Record, cause error, r *Report) error {
	id := sessionID{record.Source, record.Session}
	partition := partitionOf(m.Subject)
	f.partitions[id] = partition
	addressed := id.source != envelopes.UnknownSource
	if addressed && f.sessions[id] == nil {
		f.sessions[id] = normalizers.NewSession(id.source, id.id)
		f.Topology.Settings.Apply(f.sessions[id])
	}
	var result normalizers.Result
	if cause == nil {
		result, cause = f.normalize(f.sessions, id, record)
	}
	if cause != nil {
		reason, permanent := pipeline.Reason(cause)
		if !permanent {
			return cause
		}
		if addressed {
			if _, ok := f.sessions[id].Reject(record); !ok {
				return nil
			}
			f.states[id] = nil
		}
		r.DeadLetters++
		at := pipeline.PlaceOf(m.cell, m.sequence)
		f.deadLetters[at] = append(f.deadLetters[at], deadLetter{reason, m.Data})
		return nil
	}
	for _, e := range result.Events {
		data, err := e.Event.AppendJSON(nil)
		if err != nil {
			return err
		}
		r.Events++
		f.events[id] = append(f.events[id], newEvent(e.Event.Sequence, e.Sequence, partition, data))
	}
	f.states[id] = nil
	return nil
}

// encodeStates adds the states of the sessions, and the gaps that they have.
func (f *rawFold) encodeStates() {
	for id := range f.states {
		f.states[id] = f.sessions[id].Encode()
		if len(f.sessions[id].Gaps()) == 0 {
			continue
		}
		p := f.partitions[id]
		if f.gaps[p] == nil {
			f.gaps[p] = make(map[string]bool)
		}
		f.gaps[p][envelopes.StateSubject(f.cellName(p), p, id.source, id.id)] = true
	}
}

// normalize calls the normalizer of x. When it panics, the session is restored.
func (x Expectation) normalize(sessions map[sessionID]*normalizers.Session, id sessionID, r normalizers.Record) (result normalizers.Result, err error) {
	if x.Normalize == nil {
		return normalizers.Normalize(sessions[id], r)
	}
	before := sessions[id].Encode()
	defer func() {
		if v := recover(); v != nil {
			err = &normalizers.PanicError{Value: v}
			s, decodeErr := normalizers.DecodeSession(before)
			sessions[id] = s
			err = errors.Join(err, decodeErr)
		}
	}()
	return x.Normalize(sessions[id], r)
}

func partitionOf(subject string) int {
	if a, err := envelopes.ParseRawSubject(subject); err == nil {
		return a.Partition
	}
	return 0
}

// cells is the number of cells.
func (x Expectation) cells() int { return max(x.Topology.Cells, 1) }

// cellName returns the name under which the cell of a partition stores the generation.
func (x Expectation) cellName(partition int) string {
	return envelopes.CellName(x.Topology.Generation, partition%x.cells())
}

// stored reads what the generation holds.
func (x Expectation) stored(ctx context.Context, js jetstream.JetStream) (*content, error) {
	c := newContent()
	for cell := range x.cells() {
		c.cell = cell
		if err := c.readAll(ctx, js, pipeline.EventsStream(x.cellName(cell))); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// readAll reads what the events stream of the cell holds. What a consumer says is pending is not all: it leaves a
// message out that has just replaced another, keeps those that are removed meanwhile, and may be that of a replica that is behind.
func (c *content) readAll(ctx context.Context, js jetstream.JetStream, stream string) error {
	for next := uint64(1); ; {
		if err := c.readFrom(ctx, js, stream, &next); err != nil {
			return err
		}
		if _, err := pipeline.NextStored(ctx, js, stream, ">", next); errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// readFrom reads what one consumer sends from next on, and moves next behind it.
func (c *content) readFrom(ctx context.Context, js jetstream.JetStream, stream string, next *uint64) error {
	consumer, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next})
	if err != nil || consumer.CachedInfo().NumPending == 0 {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(time.Second))
		if errors.Is(err, nats.ErrTimeout) {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if err := c.read(m, meta.Sequence.Stream); err != nil {
			return fmt.Errorf("message %d of %s: %w", meta.Sequence.Stream, stream, err)
		}
		if *next = meta.Sequence.Stream + 1; meta.NumPending == 0 {
			return nil
		}
	}
}

// read adds a message of the generation, which is stored at a sequence.
func (c *content) read(m jetstream.Msg, sequence uint64) error {
	kind, _, _ := strings.Cut(m.Subject(), ".")
	switch kind {
	case "events":
		ce, err := envelopes.Decode(m.Headers(), m.Data())
		if err != nil {
			return err
		}
		e, p, err := envelopes.FromCloudEvent(ce)
		if err != nil {
			return err
		}
		if want := envelopes.EventSubject(envelopes.CellName(p.Generation, c.cell), &e); m.Subject() != want {
			return errors.New("event at another subject than its own")
		}
		id := sessionID{e.Source, e.SessionID}
		c.events[id] = append(c.events[id], newEvent(e.Sequence, p.RawSequence, p.Partition, ce.DataEncoded))
	case "deadletters":
		raw, err := strconv.ParseUint(m.Headers().Get(envelopes.HeaderSequence), 10, 64)
		if err != nil {
			return err
		}
		at := pipeline.PlaceOf(c.cell, raw)
		c.deadLetters[at] = append(c.deadLetters[at], deadLetter{m.Headers().Get(envelopes.HeaderReason), m.Data()})
	case "states":
		subject, changed := strings.CutSuffix(m.Subject(), "+")
		if changed {
			c.changes[subject] = stateMessage{sequence, m.Data()}
			return nil
		}
		s, err := normalizers.DecodeSession(m.Data())
		if err != nil {
			return err
		}
		id := sessionID{s.Source(), s.ID()}
		if old, ok := c.wholes[subject]; ok {
			return fmt.Errorf("second state of a session: the first is message %d", old.sequence)
		}
		c.wholes[subject] = stateMessage{sequence, m.Data()}
		c.subjects[id] = subject
	case "checkpoints":
		a, err := envelopes.ParseCheckpointSubject(m.Subject())
		if err != nil {
			return err
		}
		var p pipeline.Checkpoint
		if err := json.Unmarshal(m.Data(), &p); err != nil {
			return err
		}
		c.checkpoints[a.Partition] = p // an owner that moves states may have stored another one since
	case "archives":
		states, err := readArchive(m.Data())
		if err != nil {
			return err
		}
		c.archives[m.Subject()] = states // as the newest message has them
	}
	return nil
}

// stateMessage is a state, or a part of one, as it is stored at a sequence.
type stateMessage struct {
	sequence uint64
	data     []byte
}

// addStates adds the states of the sessions: the whole under its own subject with the change that names it, or
// the copy in an archive where that was stored later, as a server that was killed can bring back an older one that was
// removed. It returns how many are changed, and how many are in archives.
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

// readArchive returns the states that an archive has.
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

// compareEvents compares the events, session by session, in the order of their stream.
func (c *content) compareEvents(have *content, r *Report) {
	for id, want := range c.events {
		compareSession(id, want, have.events[id], r)
	}
	for id, events := range have.events {
		if c.events[id] == nil {
			r.problem("session %s/%s has %d events, want none", id.source, id.id, len(events))
		}
	}
}

func compareSession(id sessionID, want, have []event, r *Report) {
	where := fmt.Sprintf("session %s/%s", id.source, id.id)
	seen := make(map[uint64]bool, len(have))
	previous := uint64(0)
	for _, e := range have {
		if e.sequence != previous+1 {
			r.OutOfOrder++
			r.problem("%s: event %d is out of order: the one before it is %d", where, e.sequence, previous)
		}
		previous = e.sequence
		if seen[e.sequence] {
			r.Doubled++
			r.problem("%s: event %d is doubled", where, e.sequence)
			continue
		}
		seen[e.sequence] = true
		if e.sequence == 0 || e.sequence > uint64(len(want)) {
			r.problem("%s: event %d is one too many", where, e.sequence)
			continue
		}
		w := want[e.sequence-1]
		if e.digest != w.digest {
			r.problem("%s: event %d has other bytes: have %d, want %d", where, e.sequence, e.size, w.size)
		}
		if e.raw != w.raw || e.partition != w.partition {
			r.problem("%s: event %d is of record %d in partition %d, want %d in %d", where, e.sequence, e.raw, e.partition, w.raw, w.partition)
		}
	}
	for i, w := range want {
		if w.sequence != uint64(i)+1 {
			r.problem("%s: the fold gives event %d the sequence %d", where, i+1, w.sequence)
		}
		if !seen[w.sequence] {
			r.Missing++
			r.problem("%s: event %d is missing", where, w.sequence)
		}
	}
}

func (c *content) compareDeadLetters(have *content, r *Report) {
	for raw, want := range c.deadLetters {
		got := have.deadLetters[raw]
		switch {
		case len(got) == 0:
			r.problem("record %d: dead letter %s is missing", raw, want[0].reason)
		case len(got) > 1:
			r.problem("record %d: %d dead letters", raw, len(got))
		case got[0].reason != want[0].reason:
			r.problem("record %d: dead letter %s, want %s", raw, got[0].reason, want[0].reason)
		case len(got[0].data) > 0 && !bytes.Equal(got[0].data, want[0].data):
			r.problem("record %d: dead letter has other bytes", raw)
		}
	}
	for raw, got := range have.deadLetters {
		if c.deadLetters[raw] == nil {
			r.problem("record %d: dead letter %s, want none", raw, got[0].reason)
		}
	}
}

func (c *content) compareStates(have *content, r *Report) {
	for id, want := range c.states {
		switch got, ok := have.states[id]; {
		case !ok:
			r.States++
			r.problem("session %s/%s: state is missing", id.source, id.id)
		case !bytes.Equal(got, want):
			r.States++
			r.problem("session %s/%s: state differs: have %d bytes, want %d", id.source, id.id, len(got), len(want))
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(have.states), func(a, b sessionID) int { return strings.Compare(a.id, b.id) }) {
		if _, ok := c.states[id]; !ok {
			r.problem("session %s/%s: state, want none", id.source, id.id)
		}
	}
}

// compareGaps compares the sessions with gaps with those that the checkpoint of a partition
// counts and names.
func (c *content) compareGaps(p int, have pipeline.Checkpoint, r *Report) {
	if have.Gaps.Sessions != len(c.gaps[p]) {
		r.problem("partition %d: the checkpoint counts %d sessions with gaps, want %d", p, have.Gaps.Sessions, len(c.gaps[p]))
	}
	for _, subject := range have.Gaps.Subjects {
		if !c.gaps[p][subject] {
			r.problem("partition %d: the checkpoint names %s, which has no gap", p, subject)
		}
	}
}

// rawMessage is a message of a raw stream.
type rawMessage struct {
	*nats.Msg
	cell     int
	sequence uint64
	stored   time.Time
}

// rawMessages iterates over the raw streams through their leaders, one message at a time.
func (x Expectation) rawMessages(ctx context.Context, js jetstream.JetStream) func(yield func(rawMessage, error) bool) {
	return func(yield func(rawMessage, error) bool) {
		for cell := range x.cells() {
			for m, err := range rawMessages(ctx, js, cell) {
				if !yield(m, err) {
					return
				}
			}
		}
	}
}

// rawMessages iterates over the raw stream of a cell.
func rawMessages(ctx context.Context, js jetstream.JetStream, cell int) func(yield func(rawMessage, error) bool) {
	return func(yield func(rawMessage, error) bool) {
		for next := uint64(1); ; {
			body := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":">"}`, next)
			reply, err := js.Conn().RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+pipeline.RawStreamOf(cell), body)
			if err != nil {
				yield(rawMessage{}, err)
				return
			}
			var answer struct {
				Message struct {
					Subject  string    `json:"subject"`
					Sequence uint64    `json:"seq"`
					Header   []byte    `json:"hdrs"`
					Data     []byte    `json:"data"`
					Time     time.Time `json:"time"`
				} `json:"message"`
				Error *jetstream.APIError `json:"error"`
			}
			if err := json.Unmarshal(reply.Data, &answer); err != nil {
				yield(rawMessage{}, err)
				return
			}
			if answer.Error != nil {
				if answer.Error.ErrorCode != jetstream.JSErrCodeMessageNotFound {
					yield(rawMessage{}, answer.Error)
				}
				return
			}
			a := answer.Message
			m := &nats.Msg{Subject: a.Subject, Data: a.Data}
			if len(a.Header) > 0 {
				m.Header, _ = nats.DecodeHeadersMsg(a.Header) // what a client gets when the headers are damaged
			}
			if !yield(rawMessage{m, cell, a.Sequence, a.Time}, nil) {
				return
			}
			next = a.Sequence + 1
		}
	}
}
