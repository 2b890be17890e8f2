package worker

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/redact"
)

// minBody is the least room that a body counts for, which bounds the number of bodies.
const minBody = 1 << 20

// body is the data of a record that travels as a large object (claim check).
type body struct {
	claim                   claims.Claim
	traceparent, tracestate string        // trace context in which the record was created
	done                    chan struct{} // closed once data or err is set; nil before the fetch begins
	data                    []byte
	err                     error
	room                    int64 // counted in bodies
}

// bodies fetches the data of large records for all partitions of a stage, several at once and ahead of need. It
// bounds the bytes that are being fetched or wait to be normalized, for all partitions together. One body always
// fits, whatever its size.
type bodies struct {
	claims *claims.Store
	traces *traces
	limit  int64
	room   *semaphore.Weighted
}

func newBodies(claims *claims.Store, traces *traces, limit int64) *bodies {
	return &bodies{claims, traces, limit, semaphore.NewWeighted(limit)}
}

// begin begins to fetch a list of bodies, which is in the order of their records. It closes the done channel of each
// body that has arrived or failed. The order prevents deadlock: a partition always occupies room for its next record
// first, so whoever waits for room waits for a partition that can go on.
//
// The caller calls end when it needs no more of the bodies; end waits until no fetch is in progress. Before that, the
// caller may call [bodies.release] for each body.
func (b *bodies) begin(ctx context.Context, list ...*body) (end func()) {
	if len(list) == 0 {
		return func() {}
	}
	for _, y := range list {
		y.done = make(chan struct{})
	}
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() {
		for _, y := range list {
			room := b.roomFor(y.claim)
			if y.err = b.room.Acquire(ctx, room); y.err != nil {
				close(y.done)
				continue
			}
			y.room = room
			working.Go(func() {
				defer close(y.done)
				ctx, end := b.traces.traceGet(ctx, y)
				y.data, y.err = b.claims.Get(ctx, y.claim)
				end(y.err)
			})
		}
	})
	return func() {
		cancel()
		working.Wait()
		for _, y := range list {
			b.release(y)
		}
	}
}

// roomFor returns the room that a body occupies, in bytes.
func (b *bodies) roomFor(claim claims.Claim) int64 {
	if claim.Size > core.MaxRecordBytes {
		return 0 // refused, not fetched
	}
	return min(max(claim.Size, minBody), b.limit)
}

// release drops a body and returns its room. It may be called repeatedly, but not by two goroutines at the same time.
func (b *bodies) release(y *body) {
	b.room.Release(y.room)
	y.room, y.data = 0, nil
}

// received is a message of the raw stream and the record that it holds.
type received struct {
	core.Record

	raw  broker.Message
	body *body        // source of Data; nil when that came with the message
	hits []redact.Hit // what was redacted in Data
	err  error        // why the record becomes a dead letter; nil when it is to be normalized
}

func (r *received) key() records.SessionKey {
	return records.SessionKey{Source: r.Source, ID: r.Session}
}

// addressed reports whether the session of the record is known. It can be even if the rest of the record cannot be
// read.
func (r *received) addressed() bool { return r.Source != envelopes.UnknownSource }
