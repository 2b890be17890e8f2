package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/streams"
)

// expiredPrefix begins the keys of [streams.ControlBucket] with the expired records of generations.
const expiredPrefix = "expired."

// ExpiredRecord is the value of a key with [expiredPrefix].
type ExpiredRecord struct {
	Started time.Time     `json:"started,omitzero"` // of the generation; another time means another generation of the same name
	Cells   []expiredCell `json:"cells"`

	sequence uint64 // revision of the key; 0 when it is not stored
}

// expiredCell is the stored count of a cell.
type expiredCell struct {
	// Low is the low-water mark: every record up to it was done or is among Records. LowTime is when the broker
	// stored the first record behind it.
	Low     uint64    `json:"low,omitzero"`
	LowTime time.Time `json:"low_time,omitzero"`

	Records      uint64    `json:"records,omitzero"` // this and the others as in [Expired]
	Acknowledged uint64    `json:"acknowledged,omitzero"`
	Least        bool      `json:"least,omitzero"`
	From         time.Time `json:"from,omitzero"`
	To           time.Time `json:"to,omitzero"`

	// Counted is the sum of [streams.Checkpoint.Counted], above 0 once a worker of a version without it has run.
	// While Counted is unchanged, Uncounted is an upper bound of the sequences that no checkpoint counts, without
	// those of the records that expired since Counted last changed; Records was Before then.
	Counted   uint64 `json:"counted,omitzero"`
	Uncounted uint64 `json:"uncounted,omitzero"`
	Before    uint64 `json:"before,omitzero"`
}

// ReadExpiredRecord reads the stored record of a generation.
func ReadExpiredRecord(ctx context.Context, js jetstream.JetStream, g *streams.Generation) (ExpiredRecord, error) {
	r := ExpiredRecord{Started: g.Started, Cells: make([]expiredCell, max(g.Layout.Cells, 1))}
	m, err := broker.LeaderGet(ctx, js, "KV_"+streams.ControlBucket, broker.GetRequest{LastBySubject: streams.ControlSubject(expiredPrefix + g.Name)})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read %s%s of bucket %s: %w", expiredPrefix, g.Name, streams.ControlBucket, err)
	}
	r.sequence = m.Sequence
	if len(m.Data) == 0 {
		return r, nil // deleted
	}
	var have ExpiredRecord
	if err := json.Unmarshal(m.Data, &have); err != nil {
		return r, fmt.Errorf("%w: %s%s of bucket %s: remove it with nats kv del", streams.ErrState, expiredPrefix, g.Name, streams.ControlBucket)
	}
	if have.Started.Equal(g.Started) && len(have.Cells) == len(r.Cells) {
		r.Cells = have.Cells
	}
	return r, nil
}

// Store writes the key. It returns [streams.ErrChanged] if another process changed the key after it was read.
func (r ExpiredRecord) Store(ctx context.Context, kv jetstream.KeyValue, g *streams.Generation) error {
	key := expiredPrefix + g.Name
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	if _, err := kv.Update(ctx, key, value, r.sequence); broker.Fenced(err) {
		return streams.ErrChanged
	} else if err != nil {
		return fmt.Errorf("write %s of bucket %s: %w", key, streams.ControlBucket, err)
	}
	return nil
}

// Next returns the record to store now. A cell stays unchanged if nothing was or will be removed from its raw stream,
// or if one of its partitions lost its checkpoint.
func (r ExpiredRecord) Next(ctx context.Context, js jetstream.JetStream, g *streams.Generation) (ExpiredRecord, error) {
	r.Cells = slices.Clone(r.Cells)
	for c := range r.Cells {
		stream := streams.RawStreamOf(c)
		raw, err := broker.LeaderInfo(ctx, js, stream)
		if err != nil {
			return r, fmt.Errorf("stream %s: %w", stream, err)
		}
		if raw.State.FirstSeq <= 1 && raw.State.Deleted == 0 && raw.Config.MaxAge == 0 {
			continue
		}
		a, err := auditCell(ctx, js, g, c, raw)
		switch {
		case err == nil:
			r.Cells[c] = r.Cells[c].after(a)
		case !errors.Is(err, streams.ErrNoCheckpoint) && !errors.Is(err, streams.ErrState):
			return r, err
		}
	}
	return r, nil
}

// after returns the cell updated by an audit.
func (c expiredCell) after(a *audit) expiredCell {
	uncounted := a.origin
	if a.counted != c.Counted {
		c.Counted, c.Uncounted, c.Before = a.counted, a.origin, c.Records
	}
	if a.counted > 0 {
		uncounted = c.Uncounted
	}
	switch records := c.Before + a.lost(uncounted); {
	case records > c.Records:
		if c.Acknowledged >= c.Records {
			c.From = a.since
			if c.Low > 0 {
				c.From = c.LowTime
			}
		}
		c.Records, c.To, c.Least = records, a.to(), a.ahead
	case a.exact(): // a worker had some in memory and has done them
		c.Records, c.Acknowledged = records, min(records, c.Acknowledged)
	}
	c.Least = c.Least && a.ahead
	if a.counted > 0 { // the uncounted ones include the records that are not done yet, so the lowest bound is the tightest
		c.Uncounted = min(c.Uncounted, a.end-min(a.end, a.all+c.Records-c.Before))
	}
	if a.low > c.Low {
		c.Low, c.LowTime = a.low, a.lowTime
	}
	return c
}

// acknowledged returns r with everything acknowledged.
func (r ExpiredRecord) acknowledged() ExpiredRecord {
	r.Cells = slices.Clone(r.Cells)
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Acknowledged, c.From, c.To = c.Records, time.Time{}, time.Time{}
	}
	return r
}

// list returns the cells that have lost records.
func (r ExpiredRecord) list(g *streams.Generation) (list []Expired) {
	for i, c := range r.Cells {
		if c.Records > 0 {
			list = append(list, Expired{g.Name, streams.RawStreamOf(i), c.Records, c.Acknowledged, c.Least, c.From, c.To})
		}
	}
	return list
}

// markEvery is how far a low-water mark must advance to be stored for its own sake.
const markEvery = time.Minute

// Newer reports whether r should be stored in place of before.
func (r ExpiredRecord) Newer(before ExpiredRecord) bool {
	for i, c := range r.Cells {
		b := before.Cells[i]
		if moved := c.LowTime.Sub(b.LowTime); moved > 0 && moved < markEvery && b.Low > 0 {
			c.Low, c.LowTime = b.Low, b.LowTime
		}
		if c != b {
			return true
		}
	}
	return false
}
