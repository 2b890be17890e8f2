package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// fold computes what the generation should contain.
func (x Expectation) fold(ctx context.Context, js jetstream.JetStream, r *Report) (*content, error) {
	f := rawFold{Expectation: x, content: newContent(), sessions: make(map[sessionID]*core.Session), partitions: make(map[sessionID]int)}
	f.places = make([]Places, x.cells())
	claimStore := claims.NewStore(js)
	for m, err := range x.rawMessages(ctx, js) {
		if err != nil {
			return nil, err
		}
		r.Records++
		if m.gone {
			f.places[m.cell].Forget(m.Sequence - 1)
		}
		record, claim, cause := records.Read(m.Msg, m.Sequence, m.Stored)
		if claim != (claims.Claim{}) && cause == nil {
			record.Data, cause = claimStore.Get(ctx, claim)
		}
		if m.cell == 0 && slices.Contains(x.Crashed, m.Sequence) {
			cause = records.ErrCrashed
		}
		if err := f.record(m, record, cause, r); err != nil {
			return nil, fmt.Errorf("record %d: %w", m.Sequence, err)
		}
	}
	f.encodeStates()
	r.Sessions = len(f.states)
	return f.content, nil
}

// rawFold is the fold of the raw stream up to a record.
type rawFold struct {
	Expectation
	*content

	sessions   map[sessionID]*core.Session
	partitions map[sessionID]int // of the last record of each session
	places     []Places          // of each cell
}

// record adds the events of a record, or its dead letter if it has a cause or cannot be normalized.
func (f *rawFold) record(m rawMessage, record core.Record, cause error, r *Report) error {
	id := sessionID{record.Source, record.Session}
	partition := partitionOf(m.Subject)
	f.partitions[id] = partition
	addressed := id.source != envelopes.UnknownSource
	if addressed && f.sessions[id] == nil {
		f.sessions[id] = normalizers.NewSession(id.source, id.id)
		f.Topology.Settings.Apply(f.sessions[id])
	}
	if addressed {
		f.places[m.cell].Note(f.sessions[id], &record)
	}
	var result core.Result
	if cause == nil {
		result, cause = f.normalize(f.sessions, id, record)
	}
	if cause != nil {
		reason, permanent := records.Reason(cause)
		if !permanent {
			return cause
		}
		if addressed {
			f.states[id] = nil
			if _, ok := f.sessions[id].Reject(record); !ok {
				return nil
			}
		}
		r.DeadLetters++
		at := streams.PlaceOf(m.cell, m.Sequence)
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

// encodeStates adds the states of the sessions and their gaps.
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

// normalize calls the normalizer of x. It restores the session after a panic.
func (x Expectation) normalize(sessions map[sessionID]*core.Session, id sessionID, r core.Record) (result core.Result, err error) {
	if x.Normalize == nil {
		return normalizers.Normalize(sessions[id], r)
	}
	before := sessions[id].Encode()
	defer func() {
		if v := recover(); v != nil {
			err = &core.PanicError{Value: v}
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

// rawMessage is a message of a raw stream.
type rawMessage struct {
	broker.Message

	cell int
	gone bool // all earlier records had left the stream when it was processed
}

// Departed are processed records that have left the raw streams. The zero value is ready for use.
type Departed struct {
	messages []rawMessage
	last     map[int][]uint64 // the last sequence of each [Departed.Keep], by cell
}

// Keep keeps all records of the raw streams, which must all be processed, before they leave.
func (d *Departed) Keep(ctx context.Context, js jetstream.JetStream, x Expectation) error {
	if d.last == nil {
		d.last = make(map[int][]uint64)
	}
	for cell := range x.cells() {
		last := uint64(0)
		for m, err := range x.rawMessagesOf(ctx, js, cell) {
			if err != nil {
				return err
			}
			if last = m.Sequence; !d.has(cell, last) {
				d.messages = append(d.messages, m)
			}
		}
		d.last[cell] = append(d.last[cell], last)
	}
	return nil
}

func (d *Departed) has(cell int, sequence uint64) bool {
	return slices.ContainsFunc(d.messages, func(m rawMessage) bool { return m.cell == cell && m.Sequence == sequence })
}

// of returns the records of a cell before a sequence, none for a nil d.
func (d *Departed) of(cell int, before uint64) (list []rawMessage) {
	if d == nil {
		return nil
	}
	for _, m := range d.messages {
		if m.cell == cell && (before == 0 || m.Sequence < before) {
			list = append(list, m)
		}
	}
	return list
}

// rawMessages iterates over the raw streams, up to the last record that their leaders have.
func (x Expectation) rawMessages(ctx context.Context, js jetstream.JetStream) iter.Seq2[rawMessage, error] {
	return func(yield func(rawMessage, error) bool) {
		for cell := range x.cells() {
			for m, err := range x.rawMessagesOf(ctx, js, cell) {
				if !yield(m, err) {
					return
				}
			}
		}
	}
}

// rawMessagesOf iterates over the records of a cell: first those that left its raw stream, then the others.
func (x Expectation) rawMessagesOf(ctx context.Context, js jetstream.JetStream, cell int) iter.Seq2[rawMessage, error] {
	return func(yield func(rawMessage, error) bool) {
		first, last := true, uint64(0)
		next := func(m rawMessage) bool {
			if x.Departed != nil {
				m.gone = slices.ContainsFunc(x.Departed.last[cell], func(kept uint64) bool { return last <= kept && kept < m.Sequence })
			}
			last = m.Sequence
			return yield(m, nil)
		}
		for m, err := range rawMessages(ctx, js, cell) {
			if err != nil {
				yield(m, err)
				return
			}
			if first {
				for _, old := range x.Departed.of(cell, m.Sequence) {
					if !next(old) {
						return
					}
				}
				first = false
			}
			if !next(m) {
				return
			}
		}
	}
}

// rawMessages iterates over the raw stream of a cell.
func rawMessages(ctx context.Context, js jetstream.JetStream, cell int) iter.Seq2[rawMessage, error] {
	return func(yield func(rawMessage, error) bool) {
		for m, err := range storedMessages(ctx, js, streams.RawStreamOf(cell)) {
			if err != nil {
				yield(rawMessage{}, err)
				return
			}
			if !yield(rawMessage{Message: m, cell: cell}, nil) {
				return
			}
		}
	}
}
