package normalizers

import (
	"bytes"
	"sync"

	"tributary/normalizers/core"
)

// buffer has the bytes of a file that were written and are not cut into records yet.
type buffer struct {
	buf     []byte // begins at a line
	space   []byte // empty slice of the whole memory of buf
	given   bool   // a record owns a part of it
	offset  int64  // of buf[0] in the file
	line    int    // of buf[0], from 1
	scanned int    // leading bytes of buf known to have no further line end
}

// grow appends p to buf, reusing the space of cut bytes if it fits there.
func (b *buffer) grow(p []byte) {
	if b.space == nil {
		b.space = *buffers.Get().(*[]byte)
		b.buf = b.space
	}
	switch need := len(b.buf) + len(p); {
	case need <= cap(b.buf):
		b.buf = append(b.buf, p...)
	case need <= cap(b.space):
		b.buf = append(append(b.space, b.buf...), p...)
	default:
		b.space = make([]byte, 0, max(need, min(2*cap(b.space), core.MaxRecordBytes+maxBuffer)))
		b.buf = append(append(b.space, b.buf...), p...)
	}
}

// buffers is a pool, because a framer needs a buffer only while a record of its file is incomplete.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0)) }}

// maxBuffer is the size of the largest pooled buffer.
const maxBuffer = 1 << 20

// free returns the buffer to the pool if everything in it is cut.
func (b *buffer) free() {
	if len(b.buf) > 0 {
		return
	}
	if space := b.space; space != nil && cap(space) <= maxBuffer {
		buffers.Put(&space)
	}
	b.space, b.buf = nil, nil
}

// consume drops the first n bytes of buf, which end a line.
func (b *buffer) consume(n int) {
	b.line += bytes.Count(b.buf[:n], []byte{'\n'})
	b.buf = b.buf[n:]
	b.offset += int64(n)
	b.scanned = 0
	if b.given {
		b.space = bytes.Clone(b.buf)[:0:len(b.buf)]
		b.buf, b.given = b.space[:len(b.buf)], false
	}
}

// own returns buf[at:at+n] for a record to own: a copy, or the memory itself if the record takes most of it.
func (b *buffer) own(at, n int) []byte {
	if n <= maxBuffer || n < cap(b.space)/2 {
		return bytes.Clone(b.buf[at : at+n])
	}
	b.given = true
	return b.buf[at : at+n : at+n]
}
