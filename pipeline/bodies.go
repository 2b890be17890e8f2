package pipeline

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"tributary/normalizers"
)

// minBody is what a body counts for at least, so that their number is bounded, too.
const minBody = 1 << 20

// body is the data of a record that travels by claim check. What is not begun has no done.
type body struct {
	claim Claim
	done  chan struct{} // closed when data or err is there
	data  []byte
	err   error
	room  int64 // that it takes of the bodies
}

// bodies fetches the data of records for all partitions of a stage: several at once, and
// before their turn. What is on its way, or has come and is not folded yet, is bounded in
// bytes for all partitions together; one body is always let through, whatever its size.
type bodies struct {
	claims *Claims
	limit  int64
	room   *semaphore.Weighted
}

func newBodies(claims *Claims, limit int64) *bodies {
	return &bodies{claims, limit, semaphore.NewWeighted(limit)}
}

// begin begins to fetch the bodies of a list, which is in the order of their records. Each
// is there, or has failed, when its done is closed. The order matters: a partition that
// has any room has it for the record whose turn is next, so whoever waits for room waits
// for another that can go on.
//
// The caller calls end, which waits until nothing of it is under way, when it needs no
// more of them, and may call [bodies.release] for each before.
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
				y.data, y.err = b.claims.Get(ctx, y.claim)
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

// roomFor is how much room a body takes.
func (b *bodies) roomFor(claim Claim) int64 {
	if claim.Size > normalizers.MaxRecordBytes {
		return 0 // nothing of it is fetched
	}
	return min(max(claim.Size, minBody), b.limit)
}

// release lets a body go that is done with, and gives its room back. It may be called
// more than once, but not by two at a time.
func (b *bodies) release(y *body) {
	b.room.Release(y.room)
	y.room, y.data = 0, nil
}
