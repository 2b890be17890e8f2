package ship

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"tributary/pipeline/ship/offsets"
)

// state is the relation of an opened file to its offset. README.md, Offset states, has each.
type state int

const (
	stateExchanged state = iota // another file took the path after the search: skipped, the next search finds it
	stateLinked                 // a second name of a file that is shipped under its first: skipped until the first is gone
	stateNew                    // has no offset: shipped from its start
	stateKnown                  // has the shipped content and maybe more, perhaps under a new name: shipped from its offset
	stateRewritten              // a document or packed log that has changed: shipped whole
	stateTruncated              // a log of lines that begins as before and then differs: shipped from the first difference
	stateReplaced               // a log of lines that begins differently: shipped from its start as another log
	stateUndecided              // a changed log with less than its first line: waits until it grows or is idle
)

// stateNames are the names of the states, by state.
var stateNames = [...]string{"exchanged", "linked", "new", "known", "rewritten", "truncated", "replaced", "undecided"}

// String returns the name of the state.
func (s state) String() string { return stateNames[s] }

// snapshot is the identity of an open file at one moment.
type snapshot struct {
	info fs.FileInfo
	id   offsets.Inode
	head []byte // the first KiB of the file, or all of it
}

// examine takes a snapshot; its head is in buf.
func examine(r *os.File, buf []byte) (snapshot, error) {
	info, err := r.Stat()
	if err != nil {
		return snapshot{}, err
	}
	n, err := r.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return snapshot{}, err
	}
	id, err := offsets.InodeOf(r)
	return snapshot{info, id, buf[:n]}, err
}

// version returns what distinguishes the versions of a rewritable file: modification time in Unix nanoseconds and
// bytes on disk. Both are 0 for a log of lines.
func (l log) version(info fs.FileInfo) (modified, size int64) {
	if rewritable(l.path) {
		return info.ModTime().UnixNano(), info.Size()
	}
	return 0, 0
}

// recognize finds out which file was opened, and prepares its offset and framer. It returns false when there is
// nothing to read.
func (v *visit) recognize(ctx context.Context, r *os.File) (readable bool, err error) {
	seen, err := examine(r, v.buf[:offsets.HeadBytes])
	if err != nil {
		v.reportUnreadable(ctx, err)
		return false, nil
	}
	n := &recognition{v, seen}
	state, common := n.compare(r)
	if ok, err := n.enter(ctx, state, common); !ok {
		return false, err
	}
	n.locate()
	if f := v.f; f.unshown && seen.info.Size() > f.read {
		f.refused = false
	}
	if n.nothingNew() {
		v.tally.reportReadable(v.f, v.log.path)
		return false, nil
	}
	v.startFramer(seen.info)
	return true, nil
}

// recognition is the identification of the file that a visit opened.
type recognition struct {
	*visit
	seen snapshot
}

// compare decides the state of the file. For a truncated log, common is the offset up to which it is unchanged. It
// acquires the inode, looks up its offset, and changes nothing else.
func (n *recognition) compare(r io.ReaderAt) (s state, common int64) {
	if !os.SameFile(n.seen.info, n.log.info) {
		return stateExchanged, 0
	}
	n.log.info = n.seen.info
	if !n.offsets.Acquire(n.seen.id, n.f) {
		return stateLinked, 0
	}
	n.lookUp()
	was := n.f.offset
	switch {
	case was.Inode != n.seen.id:
		return stateNew, 0
	case n.unchanged(r):
		return stateKnown, 0
	case rewritable(n.log.path):
		return stateRewritten, 0
	}
	if common := was.Marks.Common(r, n.seen.info.Size(), was.Head, n.seen.head); common > 0 {
		return stateTruncated, common
	}
	switch {
	case !n.fragment():
		return stateReplaced, 0
	case n.seen.info.Size() == 0 || !n.final():
		return stateUndecided, 0
	default:
		return stateTruncated, 0
	}
}

// lookUp gives the file the stored offset of its inode. A log of lines with an unknown inode takes over the offset of
// the log that had its path: that log is gone, and this one may be a copy of it.
func (n *recognition) lookUp() {
	f := n.f
	if f.offset.Inode == n.seen.id {
		return
	}
	f.offset = n.offsets.Get(n.seen.id)
	if f.offset.Inode == n.seen.id || f.prior.Done == 0 || rewritable(n.log.path) {
		return
	}
	f.offset = f.prior
	f.offset.Inode = n.seen.id
	n.remember()
}

// unchanged reports whether the file still has the content that was read.
func (n *recognition) unchanged(r io.ReaderAt) bool {
	was := n.f.offset
	modified, size := n.log.version(n.seen.info)
	if !was.Unchanged(modified, size) || !was.Head.Begins(n.seen.head) {
		return false
	}
	return rewritable(n.log.path) || n.seen.info.Size() >= max(n.f.read, was.Done) && was.Marks.LastMatches(r)
}

// fragment reports whether the file is shorter than its first line was when read: too short to decide whether it
// begins as before.
func (n *recognition) fragment() bool {
	marks := n.f.offset.Marks
	return len(marks) > 0 && n.seen.info.Size() < marks[0].At && !bytes.Contains(n.seen.head, []byte("\n"))
}

// enter does what a state requires before the file is read. It returns false if this visit does not read the file.
func (n *recognition) enter(ctx context.Context, s state, common int64) (ok bool, err error) {
	f := n.f
	switch s {
	case stateExchanged:
		return false, nil
	case stateLinked:
		f.retry = true
		return false, nil
	case stateNew, stateKnown:
		return true, nil
	case stateUndecided:
		return false, n.finish(ctx)
	case stateRewritten:
		f.restart(offsets.Offset{Inode: n.seen.id})
	case stateTruncated, stateReplaced:
		if err := n.finish(ctx); err != nil {
			return false, err
		}
		n.config.Logger.InfoContext(ctx, "log was truncated or replaced: shipping it from the first difference", "path", n.log.path, "state", s, "offset", common)
		if s == stateTruncated {
			f.restart(f.offset.Truncated(common))
		} else {
			f.restart(offsets.Offset{Inode: n.seen.id})
		}
	}
	// A changed file that is no longer at the path of a log may be anything.
	return !n.log.strayed, nil
}

// restart rereads the file from its start and ships it from an offset.
func (f *file) restart(from offsets.Offset) {
	f.framer, f.parked, f.offset, f.refused, f.unshown = nil, 0, from, false, false
}

// locate updates the offset with the present path and attributes of the file.
func (n *recognition) locate() {
	o := &n.f.offset
	o.Inode, o.Head, o.Path = n.seen.id, offsets.HeadOf(n.seen.head), n.log.path
	o.Modified, o.Size = n.log.version(n.seen.info)
	if o.Origin == "" {
		o.Origin = n.log.origin
	}
	if o.Done > 0 {
		n.remember() // also after a mere rename
	}
	if n.f.framer == nil {
		n.f.torn = false // nothing of it was read yet
	}
}

// nothingNew reports whether the file has nothing to ship.
func (n *recognition) nothingNew() bool {
	f := n.f
	return f.refused || f.framer == nil && f.offset.Ended && (packed(n.log.path) || f.offset.Done == n.seen.info.Size())
}
