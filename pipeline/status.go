package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"tributary/envelopes"
	"tributary/normalizers"
)

// Status is the progress of a generation, as the broker holds it: the checkpoints are the
// truth, the heartbeats of the workers a hint. All times are those of the broker's clock.
type Status struct {
	Generation  string            `json:"generation"`
	Cells       int               `json:"cells,omitzero"` // 0 for one
	At          time.Time         `json:"at"`
	Workers     []Worker          `json:"workers"`    // with a heartbeat within the last 10 seconds
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

	GapSessions int           `json:"gap_sessions,omitzero"` // sessions with gaps in their files: records that are not in the raw stream
	Gaps        []SessionGaps `json:"gaps,omitzero"`         // of the newest of them

	RewrittenSessions int               `json:"rewritten_sessions,omitzero"` // sessions with records at places that they had passed
	Rewritten         []SessionRewrites `json:"rewritten,omitzero"`          // of the newest of them

	Unarchived int `json:"unarchived,omitzero"` // states of sessions that ended long ago for which their archives have no room
}

// Suspect reports whether the next record may be one that ends workers: so many attempts
// on it have ended without progress.
func (s PartitionStatus) Suspect() bool { return s.Tries > maxTogether }

// ReadStatus reads the progress of the generation of t. It reports a partition that cannot
// go on in its Fault; it returns an error when the broker cannot be read, or does not hold
// t.
func ReadStatus(ctx context.Context, js jetstream.JetStream, t Topology) (Status, error) {
	g, err := check(ctx, js, t, normalizers.Revision)
	if err != nil {
		return Status{}, err
	}
	s := Status{Generation: t.Generation, Partitions: make([]PartitionStatus, t.Partitions)}
	if t.Cells > 1 {
		s.Cells = t.Cells
	}
	if s.Workers, err = Workers(ctx, js, t.Generation); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return Status{}, err
	}
	if err := readPartitions(ctx, js, g, s.Partitions); err != nil {
		return Status{}, err
	}
	if s.At, err = BrokerTime(ctx, js); err != nil {
		return Status{}, err
	}
	for i := range s.Partitions {
		s.Partitions[i].nameWorker(s.Workers, s.At)
	}
	s.DeadLetters, err = countInCells(ctx, js, g, deadLettersOf)
	return s, err
}

// nameWorker finds the worker that works on the partition: one that is alive and lists it. After a
// takeover several may list it: the owner of the checkpoint counts. An owner that stored the
// checkpoint after its last heartbeat has acquired the partition since, and lists it with the next.
func (s *PartitionStatus) nameWorker(workers []Worker, at time.Time) {
	for _, w := range workers {
		lists := slices.Contains(w.Partitions, s.Partition)
		owns := s.Owner != "" && ownerName(s.Owner) == w.Name && (lists || w.Seen.Before(s.CommitAt))
		if !w.Silent(at) && (owns || lists && s.Worker == "") {
			s.Worker = w.Name
		}
	}
}

// ownerName returns the name of the worker in the owner of a checkpoint, which is that name and
// an id of the process.
func ownerName(owner string) string {
	if process := strings.LastIndexByte(owner, '-'); process >= 0 {
		return owner[:process]
	}
	return owner
}

// BrokerTime returns the time of the broker's clock.
func BrokerTime(ctx context.Context, js jetstream.JetStream) (time.Time, error) {
	s, err := js.Stream(ctx, RawStream)
	if err != nil {
		return time.Time{}, fmt.Errorf("stream %s: %w", RawStream, err)
	}
	return s.CachedInfo().TimeStamp, nil
}

// readPartitions reads the progress of all partitions, of a few at a time.
func readPartitions(ctx context.Context, js jetstream.JetStream, g Generation, all []PartitionStatus) error {
	ends := make([]*sharedEnd, max(g.layout.Cells, 1))
	for c := range ends {
		ends[c] = newSharedEnd(js, RawStreamOf(c))
	}
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(maxAcquiring)
	for p := range all {
		reads.Go(func() (err error) {
			all[p], err = readPartition(ctx, js, g, p, ends[g.layout.cell(p)])
			return wrap(err, fmt.Sprintf("partition %d", p))
		})
	}
	return reads.Wait()
}

// readPartition reads the progress of a partition.
func readPartition(ctx context.Context, js jetstream.JetStream, g Generation, partition int, end *sharedEnd) (PartitionStatus, error) {
	s := PartitionStatus{Partition: partition}
	fault := func(err error) (PartitionStatus, error) {
		s.Fault = err.Error()
		if f, ok := errors.AsType[*faultError](err); ok {
			s.Fault, s.Cure = f.err.Error(), f.cure
		}
		return s, nil
	}
	c, stored, err := getCheckpoint(ctx, js, g.cellName(partition), partition)
	switch {
	case errors.Is(err, errNoCheckpoint), errors.Is(err, errState):
		return fault(err)
	case err != nil:
		return s, err
	}
	s.Owner, s.Epoch, s.Tries, s.Slow, s.Raw, s.CommitAt = c.Owner, c.Epoch, c.Tries, c.Slow, c.Raw, stored.Time
	last, err := end.get(ctx)
	if err != nil {
		return s, fmt.Errorf("check raw stream: %w", err)
	}
	switch err := c.checkRaw(ctx, js, end.stream, partition, last); {
	case errors.Is(err, errRawLost):
		return fault(err)
	case err != nil:
		return s, err
	}
	from := max(c.Raw+1, g.Part.Sequence)
	for _, filter := range g.Part.filters(partition) {
		next, err := leaderGet(ctx, js, end.stream, getRequest{Sequence: from, NextBySubject: filter})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return s, err
		}
		if s.Oldest == nil || next.Sequence < s.Next {
			s.Oldest, s.Next, s.NextSize = &next.Time, next.Sequence, recordSize(next)
		}
	}
	s.GapSessions, s.Unarchived = c.Gaps.Sessions, c.Unarchived
	if s.Gaps, err = readGaps(ctx, js, g.cellName(partition), end.stream, c.Gaps); err != nil {
		return s, err
	}
	s.RewrittenSessions = c.Rewritten.Sessions
	if s.Rewritten, err = readRewrites(ctx, js, g.cellName(partition), c.Rewritten, c.ArchivedTo); err != nil {
		return s, err
	}
	if s.Oldest == nil {
		s.Tries = 0 // of no record: workers were killed while they had nothing to do
		return s, nil
	}
	s.Lag, err = countFrom(ctx, js, end.stream, from, g.Part.filters(partition)...)
	s.Lag = max(s.Lag, 1) // the replica that counts may be behind
	return s, err
}

// recordSize returns the bytes of a record, those of its object when it travels by claim check.
func recordSize(m storedMessage) int64 {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err == nil {
		if claim, err := readClaim(&nats.Msg{Header: header, Data: m.Data}); err == nil && claim != (Claim{}) {
			return claim.Size
		}
	}
	return int64(len(m.Data))
}

// deadLettersOf returns the subjects of the dead letters in a cell, by the name that it has for the generation.
func deadLettersOf(cellName string) string { return envelopes.DeadLetterFilter(cellName, "", "") }

// eventsOf returns the subjects of the events in a cell, by the name that it has for the generation.
func eventsOf(cellName string) string      { return envelopes.EventFilter(cellName, "", "", "") }

// countInCells counts the messages of a generation that filter selects in each cell.
func countInCells(ctx context.Context, js jetstream.JetStream, g Generation, filter func(cellName string) string) (n uint64, err error) {
	for _, name := range g.cellNames() {
		more, err := countFrom(ctx, js, EventsStream(name), 1, filter(name))
		if err != nil {
			return 0, err
		}
		n += more
	}
	return n, nil
}

// countFrom counts the messages of subjects from a stream sequence on. It creates a consumer,
// which knows their number, and deletes it.
func countFrom(ctx context.Context, js jetstream.JetStream, stream string, sequence uint64, filters ...string) (uint64, error) {
	consumer, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubjects:    filters,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       sequence,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: 5 * time.Second,
		MemoryStorage:     true,
		HeadersOnly:       true,
	})
	if err != nil {
		return 0, fmt.Errorf("count messages of stream %s: %w", stream, err)
	}
	info := consumer.CachedInfo()
	return info.NumPending, wrap(js.DeleteConsumer(ctx, stream, info.Name), "count messages of stream "+stream)
}
