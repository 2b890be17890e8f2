package pipeline

import (
	"slices"
	"sync"

	"tributary/envelopes"
)

// blocks are memory in which the events of a chunk are encoded one behind the other. They are used again
// once the chunk is stored: events are most of what a worker allocates. The zero value is ready for use.
type blocks struct {
	full []*[]byte
	last *[]byte // has room; nil at the beginning
}

// blockBytes is the length of a block. An event that may be longer than half of it is encoded in memory of its own.
const blockBytes = 128 << 10

var freeBlocks = sync.Pool{New: func() any { return new(make([]byte, 0, blockBytes)) }}

// room returns an empty slice with room for about size bytes; nil where they take memory of their own.
func (b *blocks) room(size int) []byte {
	if size > blockBytes/2 {
		return nil
	}
	if b.last == nil || cap(*b.last)-len(*b.last) < size {
		if b.last != nil {
			b.full = append(b.full, b.last)
		}
		b.last = freeBlocks.Get().(*[]byte)
	}
	return (*b.last)[len(*b.last):]
}

// keep keeps what was appended to a slice from [blocks.room], unless it has grown beyond that. Appending to the
// result copies it.
func (b *blocks) keep(data []byte) []byte {
	if b.last != nil {
		if block := *b.last; len(data) > 0 && len(block) < cap(block) && &data[0] == &block[:len(block)+1][len(block)] {
			*b.last = block[:len(block)+len(data)]
		}
	}
	return slices.Clip(data)
}

// free gives all blocks back: nobody uses any more what was kept.
func (b *blocks) free() {
	if b.last != nil {
		b.full = append(b.full, b.last)
	}
	for _, block := range b.full {
		*block = (*block)[:0]
		freeBlocks.Put(block)
	}
	*b = blocks{}
}

// lengthOf is about the length of an event in JSON.
func lengthOf(e *envelopes.AgentEventV1) int {
	const members = 4 << 10 // names, ids and metadata
	size := members + len(e.Raw) + len(e.ToolMetadata) + len(e.ToolInput)
	if e.Text != nil {
		size += len(*e.Text) + len(*e.Text)/8 // with its escape sequences
	}
	return size
}
