package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"tributary/normalizers"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/records"
	"tributary/pipeline/streams"
)

// Status is the progress of a generation as stored in the broker. The checkpoints are the truth, the heartbeats of
// workers a hint. All times are by the broker's clock.
type Status struct {
	Generation  string            `json:"generation"`
	Cells       int               `json:"cells,omitzero"` // 0 for one
	At          time.Time         `json:"at"`
	Workers     []streams.Worker  `json:"workers"`    // workers with a heartbeat in the last 10 seconds
	Partitions  []PartitionStatus `json:"partitions"` // all, in order
	DeadLetters uint64            `json:"dead_letters"`
}

// PartitionStatus is the progress of one partition.
type PartitionStatus struct {
	Partition int        `json:"partition"`
	Worker    string     `json:"worker,omitzero"`  // worker that works on it; empty for none
	Owner     string     `json:"claimed,omitzero"` // worker that wrote the last checkpoint
	Epoch     uint64     `json:"epoch"`            // how often it was acquired
	Tries     int        `json:"tries,omitzero"`   // attempts on the next record without progress
	Slow      uint64     `json:"slow,omitzero"`    // raw sequence of a record that took too long and is tried again
	Raw       uint64     `json:"raw"`              // last raw sequence that is done
	Lag       uint64     `json:"lag"`              // records not done
	Oldest    *time.Time `json:"oldest,omitzero"`  // when the broker stored the first of these
	Next      uint64     `json:"next,omitzero"`    // raw sequence of the first of these
	NextSize  int64      `json:"-"`                // bytes of that record, including its object
	CommitAt  time.Time  `json:"commit_at"`        // when the last checkpoint was stored
	Fault     string     `json:"fault,omitzero"`   // why no worker can go on: records or the checkpoint are lost or unreadable
	Cure      string     `json:"cure,omitzero"`    // what to do about the fault

	GapSessions int                  `json:"gap_sessions,omitzero"` // sessions with gaps in their files: some records are not in the raw stream
	Gaps        []events.SessionGaps `json:"gaps,omitzero"`         // of the newest such sessions

	RewrittenSessions int                      `json:"rewritten_sessions,omitzero"` // sessions with different records at places that they had passed
	Rewritten         []events.SessionRewrites `json:"rewritten,omitzero"`          // of the newest such sessions

	Unarchived int `json:"unarchived,omitzero"` // states of sessions that ended long ago whose archives are full
}

// Suspect reports whether the next record may end workers: more attempts ended without progress than other causes
// explain.
func (s PartitionStatus) Suspect() bool { return s.Tries > streams.MaxTogether }

// Idle reports whether no worker works on the partition, although it can go on.
func (s PartitionStatus) Idle() bool { return s.Worker == "" && s.Fault == "" }

// ReadStatus reads the progress of the generation of t. A partition that cannot go on has a Fault. ReadStatus returns
// an error when the broker cannot be read, or does not have t.
func ReadStatus(ctx context.Context, js jetstream.JetStream, t streams.Topology) (Status, error) {
	g, err := streams.CheckGeneration(ctx, js, t, normalizers.Revision)
	if err != nil {
		return Status{}, err
	}
	s := Status{Generation: t.Generation, Partitions: make([]PartitionStatus, t.Partitions)}
	if t.Cells > 1 {
		s.Cells = t.Cells
	}
	if s.Workers, err = streams.Workers(ctx, js, t.Generation); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return Status{}, err
	}
	if err := readPartitions(ctx, js, g, s.Partitions); err != nil {
		return Status{}, err
	}
	if s.At, err = streams.BrokerTime(ctx, js); err != nil {
		return Status{}, err
	}
	for i := range s.Partitions {
		s.Partitions[i].nameWorker(s.Workers, s.At)
	}
	s.DeadLetters, err = streams.CountInCells(ctx, js, g, streams.DeadLettersOf)
	return s, err
}

// nameWorker sets the worker that works on the partition: a live one that lists it. After a takeover several may list
// it; then the owner of the checkpoint counts. An owner that stored the checkpoint after its last heartbeat acquired
// the partition meanwhile, and will list it in the next one.
func (s *PartitionStatus) nameWorker(workers []streams.Worker, at time.Time) {
	for _, w := range workers {
		lists := slices.Contains(w.Partitions, s.Partition)
		owns := s.Owner != "" && streams.OwnerName(s.Owner) == w.Name && (lists || w.Seen.Before(s.CommitAt))
		if !w.Silent(at) && (owns || lists && s.Worker == "") {
			s.Worker = w.Name
		}
	}
}

// readPartitions reads the progress of all partitions, a few at a time.
func readPartitions(ctx context.Context, js jetstream.JetStream, g streams.Generation, all []PartitionStatus) error {
	ends := make([]*streams.SharedEnd, max(g.Layout.Cells, 1))
	for c := range ends {
		ends[c] = streams.NewSharedEnd(js, streams.RawStreamOf(c))
	}
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(streams.MaxAcquiring)
	for p := range all {
		reads.Go(func() (err error) {
			all[p], err = readPartition(ctx, js, g, p, ends[g.Layout.Cell(p)])
			return broker.Wrap(err, fmt.Sprintf("partition %d", p))
		})
	}
	return reads.Wait()
}

// readPartition reads the progress of a partition.
func readPartition(ctx context.Context, js jetstream.JetStream, g streams.Generation, partition int, end *streams.SharedEnd) (PartitionStatus, error) {
	s := PartitionStatus{Partition: partition}
	fault := func(err error) (PartitionStatus, error) {
		s.Fault = err.Error()
		if f, ok := errors.AsType[*streams.Fault](err); ok {
			s.Fault, s.Cure = f.Err.Error(), f.Cure
		}
		return s, nil
	}
	c, stored, err := streams.GetCheckpoint(ctx, js, g.CellName(partition), partition)
	switch {
	case errors.Is(err, streams.ErrNoCheckpoint), errors.Is(err, streams.ErrState):
		return fault(err)
	case err != nil:
		return s, err
	}
	s.Owner, s.Epoch, s.Tries, s.Slow, s.Raw, s.CommitAt = c.Owner, c.Epoch, c.Tries, c.Slow, c.Raw, stored.Time
	last, err := end.Get(ctx)
	if err != nil {
		return s, fmt.Errorf("check raw stream: %w", err)
	}
	switch err := c.CheckRaw(ctx, js, end.Stream, partition, last); {
	case errors.Is(err, streams.ErrRawLost):
		return fault(err)
	case err != nil:
		return s, err
	}
	from := max(c.Raw+1, g.Part.Sequence)
	for _, filter := range g.Part.Filters(partition) {
		next, err := broker.LeaderGet(ctx, js, end.Stream, broker.GetRequest{Sequence: from, NextBySubject: filter})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return s, err
		}
		if s.Oldest == nil || next.Sequence < s.Next {
			s.Oldest, s.Next, s.NextSize = &next.Time, next.Sequence, records.Size(next)
		}
	}
	s.GapSessions, s.Unarchived = c.Gaps.Sessions, c.Unarchived
	if s.Gaps, err = events.ReadGaps(ctx, js, g.CellName(partition), end.Stream, c.Gaps); err != nil {
		return s, err
	}
	s.RewrittenSessions = c.Rewritten.Sessions
	if s.Rewritten, err = events.ReadRewrites(ctx, js, g.CellName(partition), c.Rewritten, c.ArchivedTo); err != nil {
		return s, err
	}
	if s.Oldest == nil {
		s.Tries = 0 // not about a record: workers were killed while idle
		return s, nil
	}
	s.Lag, err = broker.CountFrom(ctx, js, end.Stream, from, g.Part.Filters(partition)...)
	s.Lag = max(s.Lag, 1) // the replica that counted may be behind
	return s, err
}
