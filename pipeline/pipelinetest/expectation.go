package pipelinetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// Expectation is what a generation should contain: the fold of the raw stream in order. It shares only the reading of
// records and their objects with a stage.
type Expectation struct {
	Topology streams.Topology
	// Normalize is the normalizer of the stage; nil for [normalizers.Normalize]. A record at which it panics is a
	// dead letter and leaves its session unchanged.
	Normalize func(*core.Session, core.Record) (core.Result, error)
	// Crashed are the raw sequences of records that end the process.
	Crashed []uint64
	// Departed are processed records that have left the raw stream; nil for none.
	Departed *Departed
	// Killed says that a server was killed. A server that dies between storing a state and removing the previous one
	// keeps both; the last one counts, if it asks the server to remove the others.
	Killed bool
}

// Report is the result of a comparison.
type Report struct {
	Records, Events, DeadLetters, Sessions int // expected

	Missing, Doubled int // events
	OutOfOrder       int // events that do not directly follow the previous event of their session
	States           int // session states that differ
	Changed          int // sessions whose state is a whole and a change
	Archived         int // sessions whose state is in an archive
	Kept             int // states that a killed server did not remove, see [Expectation]

	Problems []string // the first problems of any kind
	More     int      // number of further problems
}

const maxProblems = 20

// Err returns nil if the generation contains exactly what it should.
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

// Compare folds the raw stream and compares the result with the generation: events with their order, bytes and
// provenance, dead letters, session states and checkpoints. The stage must have caught up, see [replay.CatchUp].
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
	r.Kept = have.kept
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

// RequireInOrder fails the test unless a text contains the parts in this order.
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

// catchUpTimeout is far longer than any test needs, so that a stage that stands still is reported with its position.
const catchUpTimeout = 4 * time.Minute

// RequireExact waits until the generation has caught up, and fails the test unless it contains exactly what is
// expected.
func (x Expectation) RequireExact(tb testing.TB, js jetstream.JetStream) *Report {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), catchUpTimeout)
	defer cancel()
	if err := replay.CatchUp(ctx, js, x.Topology); err != nil {
		workers, _ := streams.Workers(tb.Context(), js, x.Topology.Generation) // none where the broker is away
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

// cells is the number of cells.
func (x Expectation) cells() int { return max(x.Topology.Cells, 1) }

// cellName returns the name under which the cell of a partition stores the generation.
func (x Expectation) cellName(partition int) string {
	return envelopes.CellName(x.Topology.Generation, partition%x.cells())
}

// compareEvents compares the events of each session in the order of their stream.
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
			same := 0
			for same < min(len(got), len(want)) && got[same] == want[same] {
				same++
			}
			r.problem("session %s/%s: state differs from byte %d on: have %d bytes, want %d", id.source, id.id, same, len(got), len(want))
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(have.states), func(a, b sessionID) int { return strings.Compare(a.id, b.id) }) {
		if _, ok := c.states[id]; !ok {
			r.problem("session %s/%s: state, want none", id.source, id.id)
		}
	}
}

// compareGaps compares the sessions with gaps to those that the checkpoint of a partition counts and names.
func (c *content) compareGaps(p int, have streams.Checkpoint, r *Report) {
	if have.Gaps.Sessions != len(c.gaps[p]) {
		r.problem("partition %d: the checkpoint counts %d sessions with gaps, want %d", p, have.Gaps.Sessions, len(c.gaps[p]))
	}
	for _, subject := range have.Gaps.Subjects {
		if !c.gaps[p][subject] {
			r.problem("partition %d: the checkpoint names %s, which has no gap", p, subject)
		}
	}
}
