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

// Records that left a raw stream before a generation had read them are counted, not watched: each
// checkpoint has the number of records of its partition that are done, and the server gives each
// record one sequence. Up to a sequence to which every partition has done all that is there, the
// sequences that no checkpoint counts are those of records that expired, or were removed, before they
// were done (README.md, Expired records).

// Expired is what a generation has lost in a cell because its records left the raw stream before they were read.
type Expired struct {
	Generation   string `json:"generation"`
	Stream       string `json:"stream"`
	Records      uint64 `json:"records"`               // since the generation began
	Acknowledged uint64 `json:"acknowledged,omitzero"` // of these
	// Least is set when there may be more: some partitions are far ahead of others.
	Least bool `json:"least,omitzero"`
	// From and To are times between which the broker stored those that are not acknowledged.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
}

// Open returns how many records are not acknowledged.
func (e Expired) Open() uint64 { return e.Records - min(e.Acknowledged, e.Records) }

// ReadExpired counts what the generations on which workers work have lost because records left the raw stream before
// they were read. It changes nothing. Generations of the records of one source or session are not counted.
func ReadExpired(ctx context.Context, js jetstream.JetStream) ([]Expired, error) {
	var list []Expired
	err := eachExpired(ctx, js, func(g *streams.Generation, r ExpiredRecord) error {
		next, err := r.Next(ctx, js, g)
		list = append(list, next.list(g)...)
		return err
	})
	return list, err
}

// AcknowledgeExpired acknowledges everything that [ReadExpired] counts, and returns what was not acknowledged before.
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

// eachExpired passes the generations whose expired records are counted, with what is remembered of each.
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

// audit is what the checkpoints and the raw stream of a cell say together.
type audit struct {
	raw     broker.StreamInfo // asked for before the checkpoints
	end     uint64            // the last sequence of the raw stream, asked for behind them
	low     uint64            // every partition has done what is there up to this sequence
	lowTime time.Time         // when the broker stored the first record behind low, or else the last one
	done    uint64            // records that the checkpoints count, without those that are known to be behind low
	all     uint64            // records that the checkpoints count
	counted uint64            // sum of [streams.Checkpoint.Counted]
	origin  uint64            // a record that was done and is not counted has this sequence at most
	ahead   bool              // done has records behind low
	last    uint64            // the last record that a partition has done
	since   time.Time         // what expired unread was stored later than this
}

// lost returns how many sequences up to low are of records that were not done, when so many are not counted at all.
func (a *audit) lost(uncounted uint64) uint64 { return a.low - min(a.low, uncounted+a.done) }

// exact reports whether lost is exact: everything is done, nothing arrived meanwhile, and the stream has not gone back.
func (a *audit) exact() bool {
	return a.counted == 0 && a.low == a.raw.State.LastSeq && a.end == a.low && a.last <= a.low
}

// to returns when the broker stored the last record that can have expired, or a later one.
func (a *audit) to() time.Time {
	if s := a.raw.State; s.FirstSeq <= s.LastSeq && s.Deleted == 0 {
		return s.FirstTime
	}
	return a.raw.State.LastTime
}

// auditCell audits a cell of a generation whose raw stream has this state.
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

// partitionAudit is the part of an audit that one partition has.
type partitionAudit struct {
	checkpoint streams.Checkpoint
	upTo       uint64    // everything of the partition up to this sequence is done or gone
	next       time.Time // when the broker stored the record behind upTo, or one before; zero when there is none
}

// auditPartition finds out up to which sequence, which is not behind last, a partition has done all that is there.
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
	if now.Raw != c.Raw { // what is gone may have been done in between
		a.upTo, a.next = min(c.Raw, last), c.RawTime
	}
	return a, err
}

// recordsUpTo returns how many records of a partition that is behind a sequence were done up to there: those that its
// checkpoint counts, without those that are still there behind the sequence, unless some of these wait.
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

// since returns when the broker stored the earliest of the last records that the partitions have done which may have
// lost some; where one of these has done none, when the raw stream was created.
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
