package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// Records that left a raw stream before a generation read them are not observed, but computed: each checkpoint counts
// the done records of its partition, and the server gives each record one sequence. Take a sequence up to which every
// partition has done all existing records. The sequences up to it that no checkpoint counts belong to records that
// expired, or were removed, before they were done.

// Expired is what a generation lost in a cell because records left the raw stream unread.
type Expired struct {
	Generation   string `json:"generation"`
	Stream       string `json:"stream"`
	Records      uint64 `json:"records"`               // since the generation began
	Acknowledged uint64 `json:"acknowledged,omitzero"` // among Records
	// Least is set when Records is a lower bound, because some partitions are far ahead of others.
	Least bool `json:"least,omitzero"`
	// The broker stored the records that are not acknowledged between From and To.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
}

// Open returns how many records are not acknowledged.
func (e Expired) Open() uint64 { return e.Records - min(e.Acknowledged, e.Records) }

// ReadExpired counts the records that left the raw stream unread, for all generations with workers. It changes
// nothing. It does not count generations of one source or session.
func ReadExpired(ctx context.Context, js jetstream.JetStream) ([]Expired, error) {
	var list []Expired
	err := eachExpired(ctx, js, func(g *streams.Generation, r ExpiredRecord) error {
		next, err := r.Next(ctx, js, g)
		list = append(list, next.list(g)...)
		return err
	})
	return list, err
}

// AcknowledgeExpired acknowledges everything that [ReadExpired] counts, and returns what had not been acknowledged.
func AcknowledgeExpired(ctx context.Context, js jetstream.JetStream) ([]Expired, error) {
	kv, err := js.KeyValue(ctx, streams.ControlBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", streams.ControlBucket, err)
	}
	var open []Expired
	err = eachExpired(ctx, js, func(g *streams.Generation, r ExpiredRecord) error {
		next, err := r.Next(ctx, js, g)
		if err != nil {
			return err
		}
		var found []Expired
		for _, e := range next.list(g) {
			if e.Open() > 0 {
				found = append(found, e)
			}
		}
		if found == nil {
			return nil
		}
		open = append(open, found...)
		return next.acknowledged().Store(ctx, kv, g)
	})
	return open, err
}

// eachExpired calls do for each generation whose expired records are counted, with its stored counts.
func eachExpired(ctx context.Context, js jetstream.JetStream, do func(*streams.Generation, ExpiredRecord) error) error {
	all, err := streams.ReadGenerations(ctx, js)
	if err != nil {
		return err
	}
	for i := range all.List {
		g := &all.List[i]
		if g.State != streams.StateLive && !g.Replay || !g.CountsExpired() {
			continue
		}
		r, err := ReadExpiredRecord(ctx, js, g)
		if err == nil {
			err = do(g, r)
		}
		if err != nil {
			return fmt.Errorf("expired records of generation %s: %w", g.Name, err)
		}
	}
	return nil
}

// audit combines the checkpoints and the raw stream of a cell.
type audit struct {
	raw     broker.StreamInfo // read before the checkpoints
	end     uint64            // last sequence of the raw stream, read after the checkpoints
	low     uint64            // every partition has done all existing records up to this sequence
	lowTime time.Time         // when the broker stored the first record behind low, or the last record if there is none
	done    uint64            // records counted by the checkpoints, without those known to be behind low
	all     uint64            // records counted by the checkpoints
	counted uint64            // sum of [streams.Checkpoint.Counted]
	origin  uint64            // a record that is done but not counted has at most this sequence
	ahead   bool              // done includes records behind low
	last    uint64            // last record that a partition has done
	since   time.Time         // the records that expired unread were stored after it
}

// lost returns how many sequences up to low belong to records that were never done: all sequences except those of the
// records in done and of uncounted records, which are at least as many as were done and counted by no checkpoint. The
// result is a lower bound, and exact only if uncounted is exact and done has no records behind low.
func (a *audit) lost(uncounted uint64) uint64 { return a.low - min(a.low, uncounted+a.done) }

// exact reports whether lost is exact: everything is done, nothing arrived meanwhile, and the stream was not rolled
// back.
func (a *audit) exact() bool {
	return a.counted == 0 && a.low == a.raw.State.LastSeq && a.end == a.low && a.last <= a.low
}

// to returns a time after which no expired record was stored.
func (a *audit) to() time.Time {
	if s := a.raw.State; s.FirstSeq <= s.LastSeq && s.Deleted == 0 {
		return s.FirstTime
	}
	return a.raw.State.LastTime
}

// auditCell audits a cell of a generation; raw is the state of its raw stream.
func auditCell(ctx context.Context, js jetstream.JetStream, g *streams.Generation, cell int, raw broker.StreamInfo) (*audit, error) {
	partitions, last := g.Layout.PartitionsOf(cell), raw.State.LastSeq
	list := make([]partitionAudit, len(partitions))
	reads, each := errgroup.WithContext(ctx)
	reads.SetLimit(streams.MaxAcquiring)
	for i, p := range partitions {
		reads.Go(func() (err error) {
			list[i], err = auditPartition(each, js, g, p, last)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	a := &audit{raw: raw, low: last, lowTime: raw.State.LastTime, origin: max(g.From.In(cell), g.Part.Sequence, 1) - 1}
	for _, p := range list {
		if p.upTo < a.low {
			a.low, a.lowTime = p.upTo, p.next
		}
	}
	for i, p := range list {
		records := p.checkpoint.Records
		if a.low < last && p.checkpoint.Raw > a.low {
			var err error
			if records, err = recordsUpTo(ctx, js, g, partitions[i], p.checkpoint, a.low); err != nil {
				return nil, err
			}
			a.ahead = a.ahead || records == p.checkpoint.Records
		}
		a.done += records
		a.all += p.checkpoint.Records
		a.counted += p.checkpoint.Counted
		a.last = max(a.last, p.checkpoint.Raw)
		a.origin = max(a.origin, p.checkpoint.Counted)
	}
	a.since = since(list, raw)
	var err error
	a.end, err = broker.LastSequence(ctx, js, streams.RawStreamOf(cell))
	return a, err
}

// partitionAudit is the contribution of one partition to an audit.
type partitionAudit struct {
	checkpoint streams.Checkpoint
	upTo       uint64    // everything of the partition up to this sequence is done or gone
	next       time.Time // when the broker stored the record behind upTo, or an earlier time; zero when there is none
}

// auditPartition finds the sequence, at most last, up to which a partition has done all existing records.
func auditPartition(ctx context.Context, js jetstream.JetStream, g *streams.Generation, partition int, last uint64) (partitionAudit, error) {
	c, _, err := streams.ReadCheckpoint(ctx, js, g.CellName(partition), partition)
	if err != nil {
		return partitionAudit{}, err
	}
	a := partitionAudit{checkpoint: c.WithCounted(), upTo: last}
	for _, filter := range g.Part.Filters(partition) {
		next, err := broker.LeaderGet(ctx, js, g.Layout.RawStream(partition), broker.GetRequest{Sequence: max(c.Raw+1, g.Part.Sequence), NextBySubject: filter})
		switch {
		case err == nil && next.Sequence <= a.upTo:
			a.upTo, a.next = next.Sequence-1, next.Time
		case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
			return partitionAudit{}, err
		}
	}
	now, _, err := streams.ReadCheckpoint(ctx, js, g.CellName(partition), partition)
	if now.Raw != c.Raw { // records that are gone may have been done meanwhile
		a.upTo, a.next = min(c.Raw, last), c.RawTime
	}
	return a, err
}

// recordsUpTo returns how many records a partition has done up to a sequence that it has passed: the count of its
// checkpoint minus the records that still exist behind the sequence. If some of those are not done yet, it returns the
// whole count, which then includes records behind the sequence.
func recordsUpTo(ctx context.Context, js jetstream.JetStream, g *streams.Generation, partition int, c streams.Checkpoint, sequence uint64) (uint64, error) {
	there, err := broker.CountFrom(ctx, js, g.Layout.RawStream(partition), max(sequence, c.Counted)+1, g.Part.Filters(partition)...)
	if err != nil {
		return 0, err
	}
	now, err := auditPartition(ctx, js, g, partition, math.MaxUint64)
	if err != nil || now.upTo < math.MaxUint64 || now.checkpoint.Counted != c.Counted {
		return c.Records, err
	}
	return now.checkpoint.Records - min(there, now.checkpoint.Records), nil
}

// since returns the earliest time at which the broker stored the last done record of any partition that may have lost
// some. If such a partition has done none, it is the creation time of the raw stream.
func since(list []partitionAudit, raw broker.StreamInfo) time.Time {
	earliest := raw.State.LastTime
	for _, p := range list {
		if c := p.checkpoint; (c.Raw+1 < raw.State.FirstSeq || raw.State.Deleted > 0) && c.RawTime.Before(earliest) {
			earliest = c.RawTime
		}
	}
	if earliest.Before(raw.Created) {
		return raw.Created
	}
	return earliest
}
