package worker

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"tributary/normalizers/core"
	"tributary/pipeline/claims"
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
// body that has arrived or failed. The order prevents deadlock: each partition occupies room for its next record
// first, so the partitions that have room can go on.
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
