package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// Status is how a generation stands, by what the broker holds: the checkpoints are the
// truth, what the workers say of themselves is a hint.
type Status struct {
	Generation  string            `json:"generation"`
	At          time.Time         `json:"at"`         // by the broker's clock, as all times here
	Workers     []Worker          `json:"workers"`    // that have written within 10 seconds
	Partitions  []PartitionStatus `json:"partitions"` // all, in their order
	DeadLetters uint64            `json:"dead_letters"`
}

// PartitionStatus is how far one partition has come.
type PartitionStatus struct {
	Partition int        `json:"partition"`
	Worker    string     `json:"worker,omitzero"`  // name of the one that works on it; empty when none does
	Claimed   string     `json:"claimed,omitzero"` // worker that wrote the last checkpoint
	Epoch     uint64     `json:"epoch"`            // how often it was claimed
	Tries     int        `json:"tries,omitzero"`   // attempts on the next record without progress
	Raw       uint64     `json:"raw"`              // the last raw sequence that is done
	Lag       uint64     `json:"lag"`              // records that are not
	Oldest    *time.Time `json:"oldest,omitzero"`  // when the broker stored the first of them
	CommitAt  time.Time  `json:"commit_at"`        // when the last checkpoint was stored
	Problem   error      `json:"-"`                // [ErrRawLost], [ErrNoCheckpoint] or [ErrState]: no worker goes on here
	Fault     string     `json:"fault,omitzero"`   // Problem as text
}

// ReadStatus reads how the generation of t stands. A partition that cannot go on is told
// in its status; the error is of the broker, or that it does not hold t ([ErrTopology]).
func ReadStatus(ctx context.Context, js jetstream.JetStream, t Topology) (Status, error) {
	if err := check(ctx, js, t); err != nil {
		return Status{}, err
	}
	s := Status{Generation: t.Generation, Partitions: make([]PartitionStatus, t.Partitions)}
	var err error
	if s.Workers, err = Workers(ctx, js, t.Generation); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return Status{}, err
	}
	for p := range s.Partitions {
		if s.Partitions[p], err = readPartition(ctx, js, t.Generation, p); err != nil {
			return Status{}, fmt.Errorf("partition %d: %w", p, err)
		}
	}
	if s.At, err = brokerTime(ctx, js); err != nil {
		return Status{}, err
	}
	for _, w := range s.Workers {
		for _, p := range w.Partitions {
			// Of several that say so, as after a takeover, it is the one whose claim stands.
			if p >= 0 && p < len(s.Partitions) && !w.Silent(s.At) && (s.Partitions[p].Worker == "" || s.Partitions[p].claimedBy(w)) {
				s.Partitions[p].Worker = w.Name
			}
		}
	}
	s.DeadLetters, err = countFrom(ctx, js, EventsStream(t.Generation), 1, envelopes.DeadLetterFilter(t.Generation, "", ""))
	return s, err
}

// claimedBy reports whether a worker wrote the last checkpoint: its name and what tells
// its lives apart are the owner's.
func (s PartitionStatus) claimedBy(w Worker) bool {
	life := strings.LastIndexByte(s.Claimed, '-')
	return life >= 0 && s.Claimed[:life] == w.Name
}

// brokerTime is the time by the broker's clock.
func brokerTime(ctx context.Context, js jetstream.JetStream) (time.Time, error) {
	s, err := js.Stream(ctx, RawStream)
	if err != nil {
		return time.Time{}, fmt.Errorf("stream %s: %w", RawStream, err)
	}
	return s.CachedInfo().TimeStamp, nil
}

// readPartition reads how far a partition has come.
func readPartition(ctx context.Context, js jetstream.JetStream, generation string, partition int) (PartitionStatus, error) {
	s := PartitionStatus{Partition: partition}
	fault := func(err error) (PartitionStatus, error) {
		s.Problem, s.Fault = err, err.Error()
		return s, nil
	}
	c, stored, err := getCheckpoint(ctx, js, generation, partition)
	switch {
	case errors.Is(err, ErrNoCheckpoint), errors.Is(err, ErrState):
		return fault(err)
	case err != nil:
		return s, err
	}
	s.Claimed, s.Epoch, s.Tries, s.Raw, s.CommitAt = c.Owner, c.Epoch, c.Tries, c.Raw, stored.Time
	switch err := c.checkRaw(ctx, js, partition); {
	case errors.Is(err, ErrRawLost):
		return fault(err)
	case err != nil:
		return s, err
	}
	for _, filter := range envelopes.RawFilters(partition) {
		next, err := leaderGet(ctx, js, RawStream, getRequest{Sequence: c.Raw + 1, NextBySubject: filter})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return s, err
		}
		if s.Oldest == nil || next.Time.Before(*s.Oldest) {
			s.Oldest = &next.Time
		}
	}
	if s.Oldest == nil {
		s.Tries = 0 // of no record: workers have gone without a word while there was nothing to do
		return s, nil
	}
	s.Lag, err = countFrom(ctx, js, RawStream, c.Raw+1, envelopes.RawFilters(partition)...)
	return s, err
}

// countFrom counts the messages of some subjects from a sequence on: a consumer that is
// made for the purpose knows.
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
