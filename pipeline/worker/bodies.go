package worker

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"tributary/normalizers/core"
	"tributary/pipeline/claims"
)

// minBody is the least that a body counts for, so that the number of bodies is bounded, too.
const minBody = 1 << 20

// body is the data of a record that travels by claim check.
type body struct {
	claim                   claims.Claim
	traceparent, tracestate string        // of the creation of the record
	done                    chan struct{} // closed when data or err is set; nil before the fetch begins
	data                    []byte
	err                     error
	room                    int64 // that it occupies in the bodies
}

// bodies fetches the data of records for all partitions of a stage: several at once, and
// ahead of their records. The bytes that are being fetched, or are fetched and not yet
// normalized, are bounded for all partitions together. One body always fits, whatever its
// size.
type bodies struct {
	claims *claims.Store
	traces *traces
	limit  int64
	room   *semaphore.Weighted
}

func newBodies(claims *claims.Store, traces *traces, limit int64) *bodies {
	return &bodies{claims, traces, limit, semaphore.NewWeighted(limit)}
}

// begin begins to fetch the bodies of a list, which is in the order of their records. The
// done of each is closed when it has arrived or failed. The order prevents deadlock: a
// partition that occupies any room occupies it for its next record, so a partition that
// waits for room waits for one that can go on.
//
// When the caller needs no more of the bodies it calls end, which waits until no fetch is in
// progress. It may call [bodies.release] for each body before.
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

// roomFor returns how much room a body occupies.
func (b *bodies) roomFor(claim claims.Claim) int64 {
	if claim.Size > core.MaxRecordBytes {
		return 0 // it is refused, not fetched
	}
	return min(max(claim.Size, minBody), b.limit)
}

// release drops a body and returns its room. It may be called more than once, but not by
// two goroutines at the same time.
func (b *bodies) release(y *body) {
	b.room.Release(y.room)
	y.room, y.data = 0, nil
}
