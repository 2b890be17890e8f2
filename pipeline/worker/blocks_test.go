package worker

import (
	"bytes"
	"fmt"
	"testing"
)

// Whatever the sizes, what is kept stays as it is until the blocks are free, and appending to it changes nothing
// beside it.
func TestBlocksKeepEveryBuffer(t *testing.T) {
	t.Parallel()
	for range 3 { // later rounds use the memory of the first
		var b blocks
		var kept [][]byte
		want := func(i int) []byte {
			n := 1 + i*i%9000
			switch {
			case i == 150:
				n = blockBytes<<(len(freeBlocks)-1)/len("150,") + 1 // longer than any block
			case i%10 == 0:
				n *= 20 // longer than a block is that others share
			}
			return bytes.Repeat(fmt.Appendf(nil, "%d,", i), n)
		}
		const buffers = 200
		for i := range buffers {
			guess := len(want(i)) * (i % 3) / 2 // too small, half, and right
			kept = append(kept, b.keep(append(b.room(guess), want(i)...)))
		}
		for _, k := range kept {
			_ = append(k, "overwrites"...)
		}
		for i, k := range kept {
			if !bytes.Equal(k, want(i)) {
				t.Fatalf("buffer %d of %d bytes has changed", i, len(k))
			}
		}
		b.free()
	}
}

// The partitions of a cell of a worker wait together with a bounded number of bytes, each with one record at
// least; what is stored, and an ownership that ends, makes room.
func TestWaitingBytesAreBoundedOverAllPartitions(t *testing.T) {
	t.Parallel()
	in := &cell{stage: &Stage{}}
	empty := func() *outbox { return &outbox{p: &partition{stage: in.stage, cell: in}, building: newChunk(1)} }
	first, second, third := empty(), empty(), empty()
	for _, b := range []*outbox{first, second} {
		b.building.records = 1
		b.wait(maxWaiting/2 + 1)
	}
	if first.hasRoom() || !third.hasRoom() {
		t.Error("an empty chunk has room, any other has none")
	}
	first.wait(-maxWaiting / 2)
	if !first.hasRoom() || !second.hasRoom() {
		t.Error("what is stored makes no room")
	}
	second.end()
	second.wait(1) // of a normalizer that was left behind
	first.end()
	if n := in.waiting.Load(); n != 0 {
		t.Errorf("%d bytes still wait after both ownerships ended", n)
	}
}
