package ship

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// state says how an opened file relates to its offset. README.md, Offset states, has a row
// for each.
type state int

const (
	stateExchanged state = iota // another file took the path after the search: skipped, the next search finds it
	stateLinked                 // a second name of a file that is shipped under its first: skipped until that is gone
	stateNew                    // has no offset: shipped from its start
	stateKnown                  // has the content that was shipped, and maybe more; it may be renamed: shipped from its offset
	stateRewritten              // a document or packed log that has changed: shipped whole
	stateTruncated              // a log of lines that starts as before and goes on differently: shipped from where it differs
	stateReplaced               // a log of lines that starts differently: shipped from its start as another log
	stateUndecided              // a changed log with less than its first line: waits until it grows or is idle
)

// stateNames are the names of the states, by state.
var stateNames = [...]string{"exchanged", "linked", "new", "known", "rewritten", "truncated", "replaced", "undecided"}

// String returns the name of the state.
func (s state) String() string { return stateNames[s] }

// snapshot is the identity of an open file at one moment.
type snapshot struct {
	info fs.FileInfo
	id   inode
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
	id, err := inodeOf(r)
	return snapshot{info, id, buf[:n]}, err
}

// version distinguishes the versions of a rewritable file: by the time of modification in
// Unix nanoseconds, and by the bytes on the disk. Both are 0 for a log of lines.
func (v *visit) version(info fs.FileInfo) (modified, size int64) {
	if rewritable(v.log.path) {
		return info.ModTime().UnixNano(), info.Size()
	}
	return 0, 0
}

// recognize finds out which file was opened, and prepares its offset and its framer.
// False means that there is nothing to read.
func (v *visit) recognize(ctx context.Context, r *os.File) (readable bool, err error) {
	seen, err := examine(r, v.buf[:headBytes])
	if err != nil {
		v.reportUnreadable(ctx, err)
		return false, nil
	}
	state, common := v.compare(r, seen)
	if ok, err := v.enter(ctx, state, common, seen); !ok {
		return false, err
	}
	v.locate(seen)
	if f := v.f; f.unshown && seen.info.Size() > f.read {
		f.refused = false
	}
	if v.nothingNew(seen.info) {
		return false, nil
	}
	v.startFramer(seen.info)
	return true, nil
}

// compare decides the state of the file. For a truncated log, common is the offset up to
// which it is as before. It acquires the inode and looks up its offset, and changes
// nothing else.
func (v *visit) compare(r io.ReaderAt, seen snapshot) (s state, common int64) {
	if !os.SameFile(seen.info, v.log.info) {
		return stateExchanged, 0
	}
	v.log.info = seen.info
	if !v.offsets.acquire(seen.id, v.f) {
		return stateLinked, 0
	}
	v.lookUp(seen.id)
	was := v.f.offset
	switch {
	case was.inode != seen.id:
		return stateNew, 0
	case v.unchanged(r, seen):
		return stateKnown, 0
	case rewritable(v.log.path):
		return stateRewritten, 0
	}
	if common := was.Marks.common(r, seen.info.Size(), was.Head, seen.head); common > 0 {
		return stateTruncated, common
	}
	switch {
	case !v.fragment(seen):
		return stateReplaced, 0
	case seen.info.Size() == 0 || !v.final():
		return stateUndecided, 0
	default:
		return stateTruncated, 0
	}
}

// lookUp gives the file the offset that is stored for its inode. A log of lines whose
// inode is unknown takes over the offset of the log that had its path before: that log is
// gone, and this one may be a copy of it.
func (v *visit) lookUp(id inode) {
	f := v.f
	if f.offset.inode == id {
		return
	}
	f.offset = v.offsets.get(id)
	if f.offset.inode == id || f.prior.Done == 0 || rewritable(v.log.path) {
		return
	}
	f.offset = f.prior
	f.offset.inode = id
	v.remember()
}

// unchanged reports whether the file still has the content that was read of it.
func (v *visit) unchanged(r io.ReaderAt, seen snapshot) bool {
	was := v.f.offset
	modified, size := v.version(seen.info)
	if was.Modified != modified || was.Size != size || !was.Head.begins(seen.head) {
		return false
	}
	return rewritable(v.log.path) || seen.info.Size() >= max(v.f.read, was.Done) && was.Marks.lastMatches(r)
}

// fragment reports whether the file has less than the first line that was read of it: too
// little to decide whether it starts as before.
func (v *visit) fragment(seen snapshot) bool {
	marks := v.f.offset.Marks
	return len(marks) > 0 && seen.info.Size() < marks[0].At && !bytes.Contains(seen.head, []byte("\n"))
}

// enter does what a state asks for before the file is read. False means that the file is
// not read in this visit.
func (v *visit) enter(ctx context.Context, s state, common int64, seen snapshot) (ok bool, err error) {
	f := v.f
	switch s {
	case stateExchanged:
		return false, nil
	case stateLinked:
		f.retry = true
		return false, nil
	case stateNew, stateKnown:
		return true, nil
	case stateUndecided:
		return false, v.finish(ctx)
	case stateRewritten:
		v.restart(offset{inode: seen.id})
	case stateTruncated, stateReplaced:
		if err := v.finish(ctx); err != nil {
			return false, err
		}
		v.config.Logger.InfoContext(ctx, "log was truncated or replaced: shipping it from where it differs", "path", v.log.path, "state", s, "offset", common)
		if s == stateTruncated {
			v.restart(f.offset.truncated(common))
		} else {
			v.restart(offset{inode: seen.id})
		}
	}
	// A changed file that is no longer at the path of a log may be anything.
	return !v.log.strayed, nil
}

// restart reads the file again from its start and ships it from an offset.
func (v *visit) restart(from offset) {
	v.f.framer, v.f.parked, v.f.offset, v.f.refused, v.f.unshown = nil, 0, from, false, false
}

// locate updates the offset with where the file is now and how it looks.
func (v *visit) locate(seen snapshot) {
	o := &v.f.offset
	o.inode, o.Head, o.Path = seen.id, headOf(seen.head), v.log.path
	o.Modified, o.Size = v.version(seen.info)
	if o.Origin == "" {
		o.Origin = v.log.origin
	}
	if o.Done > 0 {
		v.remember() // also where the file was only renamed
	}
	if v.f.framer == nil {
		v.f.torn = false // nothing of it is read yet
	}
}

// nothingNew reports whether the file has nothing that is to be shipped.
func (v *visit) nothingNew(info fs.FileInfo) bool {
	f := v.f
	return f.refused || f.framer == nil && f.offset.Ended && (packed(v.log.path) || f.offset.Done == info.Size())
}
