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

// Status is the progress of a generation, as the broker holds it: the checkpoints are the
// truth, the heartbeats of the workers a hint. All times are those of the broker's clock.
type Status struct {
	Generation  string            `json:"generation"`
	Cells       int               `json:"cells,omitzero"` // 0 for one
	At          time.Time         `json:"at"`
	Workers     []streams.Worker  `json:"workers"`    // with a heartbeat within the last 10 seconds
	Partitions  []PartitionStatus `json:"partitions"` // all, in their order
	DeadLetters uint64            `json:"dead_letters"`
}

// PartitionStatus is the progress of one partition.
type PartitionStatus struct {
	Partition int        `json:"partition"`
	Worker    string     `json:"worker,omitzero"`  // name of the worker that works on it; empty when none does
	Owner     string     `json:"claimed,omitzero"` // worker that wrote the last checkpoint
	Epoch     uint64     `json:"epoch"`            // how often it was acquired
	Tries     int        `json:"tries,omitzero"`   // attempts on the next record without progress
	Slow      uint64     `json:"slow,omitzero"`    // raw sequence of a record that took too long, and is tried again
	Raw       uint64     `json:"raw"`              // the last raw sequence that is done
	Lag       uint64     `json:"lag"`              // records that are not done
	Oldest    *time.Time `json:"oldest,omitzero"`  // when the broker stored the first of them
	Next      uint64     `json:"next,omitzero"`    // raw sequence of the first of them
	NextSize  int64      `json:"-"`                // its bytes; of a large record those of its object
	CommitAt  time.Time  `json:"commit_at"`        // when the last checkpoint was stored
	Fault     string     `json:"fault,omitzero"`   // why no worker can go on: records or the checkpoint are lost, or cannot be read
	Cure      string     `json:"cure,omitzero"`    // what to do about the fault

	GapSessions int                  `json:"gap_sessions,omitzero"` // sessions with gaps in their files: records that are not in the raw stream
	Gaps        []events.SessionGaps `json:"gaps,omitzero"`         // of the newest of them

	RewrittenSessions int                      `json:"rewritten_sessions,omitzero"` // sessions with records at places that they had passed
	Rewritten         []events.SessionRewrites `json:"rewritten,omitzero"`          // of the newest of them

	Unarchived int `json:"unarchived,omitzero"` // states of sessions that ended long ago for which their archives have no room
}

// Suspect reports whether the next record may be one that ends workers: so many attempts
// on it have ended without progress.
func (s PartitionStatus) Suspect() bool { return s.Tries > streams.MaxTogether }

// ReadStatus reads the progress of the generation of t. It reports a partition that cannot
// go on in its Fault; it returns an error when the broker cannot be read, or does not hold
// t.
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

// nameWorker finds the worker that works on the partition: one that is alive and lists it. After a
// takeover several may list it: the owner of the checkpoint counts. An owner that stored the
// checkpoint after its last heartbeat has acquired the partition since, and lists it with the next.
func (s *PartitionStatus) nameWorker(workers []streams.Worker, at time.Time) {
	for _, w := range workers {
		lists := slices.Contains(w.Partitions, s.Partition)
		owns := s.Owner != "" && streams.OwnerName(s.Owner) == w.Name && (lists || w.Seen.Before(s.CommitAt))
		if !w.Silent(at) && (owns || lists && s.Worker == "") {
			s.Worker = w.Name
		}
	}
}

// readPartitions reads the progress of all partitions, of a few at a time.
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
		s.Tries = 0 // of no record: workers were killed while they had nothing to do
		return s, nil
	}
	s.Lag, err = broker.CountFrom(ctx, js, end.Stream, from, g.Part.Filters(partition)...)
	s.Lag = max(s.Lag, 1) // the replica that counts may be behind
	return s, err
}
