package ship

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"tributary/normalizers"
)

const (
	markBytes = 1 << 10 // before a mark, that it is known by
	lineMarks = 8       // of each read: the ends of its last lines
	maxMarks  = 16      // of a file
)

// mark is a place in a log, and what stood before it when it was read.
type mark struct {
	At     int64  `json:"at"`
	Digest string `json:"sha256"` // of the up to 1 KiB before it, its first 8 bytes
}

func markOf(at int64, before []byte) mark {
	sum := sha256.Sum256(before)
	return mark{at, hex.EncodeToString(sum[:8])}
}

// stands reports whether r still holds before m what it held.
func (m mark) stands(r io.ReaderAt) bool {
	before := make([]byte, min(m.At, markBytes))
	_, err := io.ReadFull(io.NewSectionReader(r, m.At-int64(len(before)), int64(len(before))), before)
	return err == nil && markOf(m.At, before) == m
}

// marks are places in a log in their order: the end of its first line, the ends of the
// lines that were read last, and between them ever fewer the farther back. They are never
// changed in place.
type marks []mark

// read adds marks for p, which was read at an offset behind tail, the up to 1 KiB before
// it. Places that are marked already, as when a log is read again, are left as they are.
func (m marks) read(tail, p []byte, offset int64) marks {
	ends := []int{len(p)} // in p, from the last
	for i := len(p); len(ends) < lineMarks; ends = append(ends, i+1) {
		if i = bytes.LastIndexByte(p[:i], '\n'); i < 0 {
			break
		}
	}
	if i := bytes.IndexByte(p, '\n'); len(m) == 0 && i >= 0 {
		ends = append(ends, i+1)
	}
	out := slices.Clone(m)
	for _, end := range slices.Backward(ends) {
		at := offset + int64(end)
		if n := len(out); n > 0 && at <= out[n-1].At {
			continue
		}
		before := p[max(0, end-markBytes):end]
		if end < markBytes {
			before = slices.Concat(tail[max(0, len(tail)+end-markBytes):], before)
		}
		out = append(out, markOf(at, before))
	}
	for len(out) > maxMarks { // every other one of the older half, but for the first
		old := out[1 : 1+maxMarks/2]
		for i := range maxMarks / 4 {
			old[i] = old[2*i+1]
		}
		out = slices.Delete(out, 1+maxMarks/4, 1+maxMarks/2)
	}
	return out
}

// stand reports whether r still holds all that it held.
func (m marks) stand(r io.ReaderAt) bool { return len(m) == 0 || m[len(m)-1].stands(r) }

// common is the last place of m up to which r, of a size and with a begin, holds what it
// held, 0 for none.
func (m marks) common(r io.ReaderAt, size int64, is head, begin []byte) int64 {
	for _, k := range slices.Backward(m) {
		if k.At <= size && (k.At < int64(is.Bytes) || is.begins(begin)) && k.stands(r) {
			return k.At
		}
	}
	return 0
}

// cut is the last place at which a log was cut back, to go on otherwise. For the stage what
// stands behind it is of another file: its positions have been there before, with other
// records.
type cut struct {
	Name string `json:"name"` // of that file; empty when it was never cut
	At   int64  `json:"at"`
}

// nextCut is the one that takes away what was shipped behind at. Its name is that of no other
// cut, for it comes of all that is known of the log before, but the same when it is found
// again after a crash.
func (e offset) nextCut(at int64) cut {
	sum := sha256.Sum256(fmt.Append(nil, e.Cut, e.Done, e.Marks))
	return cut{hex.EncodeToString(sum[:4]), at}
}

// origin is what the stage is told of the origin of a record that ends at an offset.
func (c cut) origin(o normalizers.Origin, end int64) normalizers.Origin {
	if c.Name != "" && end > c.At {
		o.File += "." + c.Name
		if o.Previous < c.At {
			o.Previous = -1
		}
	}
	return o
}
