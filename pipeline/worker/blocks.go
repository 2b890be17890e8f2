package worker

import (
	"math/bits"
	"slices"
	"sync"

	"tributary/envelopes"
)

// blocks is the memory in which the events of a chunk and their headers are encoded, one behind the other. It is
// reused once the chunk is stored, because events are most of what a worker allocates. The zero value is ready for
// use.
type blocks struct {
	full    []*[]byte
	last    *[]byte // has room; nil at first
	headers []*envelopes.EventHeader
}

// blockBytes is the length of a block. An event that may exceed half of it gets a longer block of its own.
const blockBytes = 128 << 10

// freeBlocks are the unused blocks: of blockBytes, of twice that, and so on. Still longer events are not encoded in
// blocks.
var freeBlocks [7]sync.Pool

var freeHeaders = sync.Pool{New: func() any { return new(envelopes.EventHeader) }}

// takeBlock returns a block with room for size bytes; nil when no class of blocks is long enough.
func takeBlock(size int) *[]byte {
	class := blockClass(size)
	if class >= len(freeBlocks) {
		return nil
	}
	if b, ok := freeBlocks[class].Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, blockBytes<<class))
}

// blockClass returns the index in freeBlocks of the shortest blocks with room for size bytes.
func blockClass(size int) int { return bits.Len(uint(max(size-1, 0) / blockBytes)) }

// header returns memory for the headers of an event.
func (b *blocks) header() *envelopes.EventHeader {
	h := freeHeaders.Get().(*envelopes.EventHeader)
	b.headers = append(b.headers, h)
	return h
}

// room returns an empty slice with room for about size bytes; nil when the memory would not be reused.
func (b *blocks) room(size int) []byte {
	if size > blockBytes/2 {
		block := takeBlock(size)
		if block == nil {
			return nil
		}
		b.full = append(b.full, block)
		return *block
	}
	if b.last == nil || cap(*b.last)-len(*b.last) < size {
		if b.last != nil {
			b.full = append(b.full, b.last)
		}
		b.last = takeBlock(blockBytes)
	}
	return (*b.last)[len(*b.last):]
}

// keep keeps what was appended to a slice from [blocks.room], unless the slice has grown beyond its room. The result
// has no spare capacity: an append copies it.
func (b *blocks) keep(data []byte) []byte {
	if b.last != nil {
		if block := *b.last; len(data) > 0 && len(block) < cap(block) && &data[0] == &block[:len(block)+1][len(block)] {
			*b.last = block[:len(block)+len(data)]
		}
	}
	return slices.Clip(data)
}

// free gives all blocks back. The caller no longer uses anything kept in them.
func (b *blocks) free() {
	if b.last != nil {
		b.full = append(b.full, b.last)
	}
	for _, block := range b.full {
		*block = (*block)[:0]
		freeBlocks[blockClass(cap(*block))].Put(block)
	}
	for _, h := range b.headers {
		freeHeaders.Put(h)
	}
	*b = blocks{}
}

// lengthOf estimates the length of an event in JSON.
func lengthOf(e *envelopes.AgentEventV1) int {
	const members = 4 << 10 // names, ids and metadata
	size := members + len(e.Raw) + len(e.ToolMetadata) + len(e.ToolInput)
	if e.Text != nil {
		size += len(*e.Text) + len(*e.Text)/8 // with its escape sequences
	}
	return size
}
