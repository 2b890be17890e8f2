package offsets

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
)

// MarkBytes is how many bytes before a mark its digest covers.
const MarkBytes = 1 << 10

const (
	lineMarks = 8  // per read: the ends of its last lines
	maxMarks  = 16 // per file
)

// Mark is an offset in a log, and a digest of the bytes that were read before it.
type Mark struct {
	At     int64  `json:"at"`
	Digest string `json:"sha256"` // first 8 bytes of the digest of up to 1 KiB before At, in hex
}

func markOf(at int64, before []byte) Mark {
	sum := sha256.Sum256(before)
	return Mark{at, hex.EncodeToString(sum[:8])}
}

// matches reports whether r still has the same bytes before m.
func (m Mark) matches(r io.ReaderAt) bool {
	before := make([]byte, min(m.At, MarkBytes))
	_, err := io.ReadFull(io.NewSectionReader(r, m.At-int64(len(before)), int64(len(before))), before)
	return err == nil && markOf(m.At, before) == m
}

// Marks are the marks of a log in the order of their offsets: the end of its first line, the ends of the lines read
// last, and in between the fewer the older. Elements are never changed in place.
type Marks []Mark

// Extend returns m with marks for p, which was read at offset. tail is up to 1 KiB before p. Offsets up to the last
// mark of m get no new marks; a log that is read again passes them.
func (m Marks) Extend(tail, p []byte, offset int64) Marks {
	out := slices.Clone(m)
	for _, end := range slices.Backward(lineEnds(p, len(m) == 0)) {
		at := offset + int64(end)
		if n := len(out); n > 0 && at <= out[n-1].At {
			continue
		}
		before := p[max(0, end-MarkBytes):end]
		if end < MarkBytes {
			before = slices.Concat(tail[max(0, len(tail)+end-MarkBytes):], before)
		}
		out = append(out, markOf(at, before))
	}
	return Marks(thin(out, maxMarks))
}

// lineEnds returns the offsets in p that get marks, last one first: its length, the ends of its last lines, and, if
// first is set, the end of its first line.
func lineEnds(p []byte, first bool) []int {
	ends := []int{len(p)}
	for i := len(p); len(ends) < lineMarks; ends = append(ends, i+1) {
		if i = bytes.LastIndexByte(p[:i], '\n'); i < 0 {
			break
		}
	}
	if i := bytes.IndexByte(p, '\n'); first && i >= 0 {
		ends = append(ends, i+1)
	}
	return ends
}

// LastMatches reports whether r has the same bytes before the last mark.
func (m Marks) LastMatches(r io.ReaderAt) bool { return len(m) == 0 || m[len(m)-1].matches(r) }

// Common returns the offset of the last mark that matches r, which has the given size and begins with now; 0 when
// none matches. A mark behind the head of the log counts only while the head is unchanged.
func (m Marks) Common(r io.ReaderAt, size int64, was Head, now []byte) int64 {
	for _, k := range slices.Backward(m) {
		if k.At <= size && (k.At < int64(was.Bytes) || was.Begins(now)) && k.matches(r) {
			return k.At
		}
	}
	return 0
}
