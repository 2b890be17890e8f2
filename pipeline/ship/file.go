package ship

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"tributary/normalizers"
	"tributary/pipeline/ship/offsets"
)

// file is a log that is being shipped. It is active while it has a framer. An idle file
// has none: only its offset is remembered, and when it grows, the framer is rebuilt by
// reading the file again from its start.
type file struct {
	// These belong to the loop of the Ship.
	log    log
	queued bool         // waits for a worker
	busy   bool         // a worker visits it
	again  bool         // changed during the visit: needs another one
	seen   bool         // a visit has ended
	gone   bool         // no longer on the disk: only records pending in the framer are left
	unsent int64        // known unsent bytes, except those held back
	since  time.Time    // when the oldest unsent byte was written; zero for none
	acked  atomic.Int64 // bytes of unsent that the broker has acknowledged since

	// These belong to the worker that visits the file, and to the loop between visits.
	offset     offsets.Offset
	framer     *normalizers.Framer
	prior      offsets.Offset // offset of the file that had this path before; zero for none
	read       int64          // bytes written to the framer
	tail       []byte         // the last bytes written to the framer, up to offsets.MarkBytes
	grew       time.Time      // when bytes were last read
	lastID     string         // message id of the last record sent in this run; empty for none
	refused    bool           // belongs to no known agent: skipped until its content is replaced
	unshown    bool           // refused, and reported, but nothing in it shows its agent yet: read again when it grows
	unreadable bool           // cannot be read; was reported
	retry      bool           // every search visits it, even if it has not changed
	piped      bool           // is the input of the Ship: has no offset and cannot be read again
	torn       bool           // ends in an unfinished record, which waits for its rest
	parked     int64          // bytes read when it ended in an incomplete large record: it has no framer, and only searches find the rest; else 0
	backlog    *backlog       // its part of the backfill; nil when that is done
	polls      polls          // of a database
}

// active reports whether a part of the file is read and not shipped, or a session of a database has no end.
func (f *file) active() bool { return f.framer != nil || f.parked > 0 || len(f.offset.Open) > 0 }

// idle reports whether nothing was written to the file for limit, by the clock of its
// file system or by the clock of this process.
func (f *file) idle(info fs.FileInfo, limit time.Duration) bool {
	return time.Since(info.ModTime()) >= limit || time.Since(f.grew) >= limit
}

// size returns the size of the file when a search found it last, 0 before.
func (f *file) size() int64 {
	if f.log.info == nil {
		return 0
	}
	return f.log.info.Size()
}

// heldBack returns how many bytes at the end of the file were read and not sent: a last line without an end, or
// records whose session is not known yet.
func (f *file) heldBack() int64 {
	n := f.read - f.offset.Done
	if n <= 0 || f.refused || f.unreadable || f.framer == nil && !f.torn && f.parked == 0 {
		return 0
	}
	last := f.tail[max(0, int64(len(f.tail))-n):]
	if len(last) > 0 && len(bytes.TrimSpace(last)) == 0 {
		return 0 // empty lines
	}
	return n
}

// packed reports whether the file at path is compressed.
func packed(path string) bool { return normalizers.Unpacked(path) != path }

// rewritable reports whether every change rewrites the whole file at path, as agents do with a JSON document and
// packers with a packed log. Each change then ships the whole file again.
func rewritable(path string) bool { return packed(path) || filepath.Ext(path) == ".json" }
