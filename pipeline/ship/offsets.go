package ship

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/pipeline/ship/database"
)

// headBytes is how many bytes at the start of a file identify it, together with its inode.
const headBytes = 1 << 10

// inode identifies a file on this machine while it exists, whatever its path.
type inode struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"inode"`
}

// head is a digest of the first KiB of a file, or of all of a shorter one.
type head struct {
	Bytes  int    `json:"bytes"`
	Digest string `json:"sha256"`
}

func headOf(b []byte) head {
	sum := sha256.Sum256(b)
	return head{len(b), hex.EncodeToString(sum[:])}
}

// begins reports whether a file that starts with b still has the head h.
func (h head) begins(b []byte) bool { return len(b) >= h.Bytes && headOf(b[:h.Bytes]) == h }

// offset is how far a file is shipped, and what identifies the file.
type offset struct {
	inode `json:",embed"`

	Head   head   `json:"head"`
	Path   string `json:"path"`   // last known path
	Origin string `json:"origin"` // identity for the stage, unchanged by a rename
	Done   int64  `json:"done"`   // offset in the unpacked content: the broker acknowledged all records before it
	Ended  bool   `json:"ended"`  // the broker acknowledged the ends of the sessions, too
	Acks   acks   `json:"acks,omitempty"`

	// Only for a log of lines: they show a truncation.
	Marks marks `json:"marks,omitempty"`
	Cut   cut   `json:"cut,omitzero"`

	// Only for a document or a packed log: modification time in Unix nanoseconds and size on disk when it was read.
	Modified int64 `json:"modified,omitempty"`
	Size     int64 `json:"size,omitempty"`

	// Only for a database, whose Modified and Size are its stamp, and whose Done counts the row versions that were sent.
	Source envelopes.Source `json:"source,omitempty"`
	Open   []string         `json:"open,omitempty"` // sessions with a record and no end behind it, least recent first
	rows   *sentRows        // nil for none
}

// covers reports whether the record from begin to end is shipped. A record across a truncation is not: its end is
// new.
func (o offset) covers(begin, end int64) bool {
	return begin < o.Done && (o.Done != o.Cut.At || end <= o.Cut.At)
}

// unsent estimates how many bytes of l, the log now at the path of o, are not shipped.
func (o offset) unsent(l log) int64 {
	modified, size := l.info.ModTime().UnixNano(), l.info.Size()
	switch {
	case database.Is(l.path):
		if o.read(l.stamp) {
			return 0
		}
	case !rewritable(l.path):
		return max(0, size-o.Done)
	case o.Ended && o.Modified == modified && o.Size == size:
		return 0
	}
	return size
}

// read reports whether a database with a stamp was read in full.
func (o offset) read(s database.Stamp) bool { return o.Modified == s.Modified && o.Size == s.Size }

// moved reports whether the file is no longer at its path. If its folder is missing too, the file counts as present:
// the folder may be on a disk that returns.
func (o offset) moved() bool {
	f, err := open(o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(filepath.Dir(o.Path))
		return err == nil
	}
	if err != nil {
		return false
	}
	id, err := inodeOf(f)
	return errors.Join(err, f.Close()) == nil && id != o.inode
}

// rewound returns the offset after the stream of a cell lost everything behind a sequence. It returns false when the
// stream lost nothing of the file.
func (o offset) rewound(cell int, seq uint64) (offset, bool) {
	kept := o.Acks.upTo(cell, seq)
	if len(kept) == len(o.Acks) && kept.end() >= o.Done { // earlier versions kept no ack of the end of a truncated log
		return o, false
	}
	o.Done, o.Ended, o.Acks = kept.end(), false, kept
	return o, true
}

// offsets keeps the offset of each file in the raw streams of one broker, and what these streams acknowledged. It may
// be behind the broker, never ahead: what it lacks is shipped again and dropped as a duplicate, by message id or
// position. All methods may be called concurrently.
type offsets struct {
	mu      sync.Mutex
	stream  streamEntry // without its files
	known   map[inode]offset
	paths   map[string]inode // by last known path
	owners  map[inode]*file
	dirty   bool           // changed since the last call of changes
	changed map[inode]bool // changed files
}

// newOffsets returns the offsets of a stream with its files.
func newOffsets(stream streamEntry) *offsets {
	o := &offsets{stream: stream, known: map[inode]offset{}, paths: map[string]inode{}, owners: map[inode]*file{}, changed: map[inode]bool{}}
	for id, e := range stream.files {
		o.known[id], o.paths[e.Path] = e, id
	}
	o.stream.files = nil
	return o
}

// acknowledged returns the checkpoints of the stream of a cell.
func (o *offsets) acknowledged(cell int) checkpoints {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.in(cell).Acknowledged
}

// acknowledge adds a checkpoint. It returns false if the stream had given out the sequence before, and so has lost
// what it acknowledged since.
func (o *offsets) acknowledge(cell int, c checkpoint) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := o.stream.in(cell)
	if c.Seq <= is.Acknowledged.last() {
		return false
	}
	is.Acknowledged = is.Acknowledged.with(c)
	o.stream = o.stream.with(cell, is)
	o.dirty = true
	return true
}

// sawFirst sets the first sequence of the stream of a cell, and returns the previous one.
func (o *offsets) sawFirst(cell int, seq uint64) (before uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := o.stream.in(cell)
	before = is.First
	if before != seq {
		is.First = seq
		o.stream = o.stream.with(cell, is)
		o.dirty = true
	}
	return before
}

// rewind takes back what the stream of a cell acknowledged behind a sequence. It returns the number of files with
// lost records.
func (o *offsets) rewind(cell int, seq uint64) (files int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := o.stream.in(cell)
	is.Acknowledged = is.Acknowledged.upTo(seq)
	o.stream = o.stream.with(cell, is)
	for id, e := range o.known {
		if next, ok := e.rewound(cell, seq); ok {
			o.known[id] = next
			o.mark(id)
			files++
		}
	}
	o.dirty = true
	return files
}

// restart marks every file as unshipped.
func (o *offsets) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, e := range o.known {
		e.Done, e.Ended, e.Acks = 0, false, nil
		o.known[id] = e
		o.mark(id)
	}
}

// disown ends the ownership of all files.
func (o *offsets) disown() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.owners)
}

// acquire makes f the owner of an inode. It returns false if another file owns it: the same log under another name.
func (o *offsets) acquire(id inode, f *file) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if owner, ok := o.owners[id]; ok {
		return owner == f
	}
	o.owners[id] = f
	return true
}

// release ends the ownership of f. It drops the offset of a file that was moved or deleted.
func (o *offsets) release(f *file) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owners[f.offset.inode] != f {
		return
	}
	delete(o.owners, f.offset.inode)
	if e, ok := o.known[f.offset.inode]; ok && e.moved() {
		o.drop(e)
	}
}

// drop drops an offset. The caller has locked mu.
func (o *offsets) drop(e offset) {
	delete(o.known, e.inode)
	if o.paths[e.Path] == e.inode {
		delete(o.paths, e.Path)
	}
	o.mark(e.inode)
}

// mark notes that the offset of an inode has changed. The caller has locked mu.
func (o *offsets) mark(id inode) {
	o.dirty = true
	o.changed[id] = true
}

// get returns the offset of an inode; zero for an unknown one. The inode may have been reused: only the head shows
// whether the file is the same.
func (o *offsets) get(id inode) offset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[id]
}

// at returns the offset of the file with this last known path; zero for none.
func (o *offsets) at(path string) offset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[o.paths[path]]
}

// set stores an offset.
func (o *offsets) set(e offset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if reflect.DeepEqual(o.known[e.inode], e) {
		return
	}
	if was := o.known[e.inode].Path; was != e.Path && o.paths[was] == e.inode {
		delete(o.paths, was)
	}
	o.known[e.inode], o.paths[e.Path] = e, e.inode
	o.mark(e.inode)
}

// prune drops the offsets of files that are no longer at their path. It is for the end of a run that visited every
// log: renamed files have their new paths by then.
func (o *offsets) prune() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.known {
		if e.moved() {
			o.drop(e)
		}
	}
}

// changes returns what changed since the last call; false when nothing did.
func (o *offsets) changes() (c offsetsChange, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.dirty {
		return offsetsChange{}, false
	}
	stream := o.stream
	c.Stream = &stream
	for id := range o.changed {
		if e, ok := o.known[id]; ok {
			c.Files = append(c.Files, e)
			if rows := e.rows.changes(); rows != nil {
				c.Rows = append(c.Rows, rowsChange{id, rows})
			}
		} else {
			c.Gone = append(c.Gone, id)
		}
	}
	o.dirty = false
	clear(o.changed)
	return c, true
}

// unsaved marks what changes returned as not stored.
func (o *offsets) unsaved() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dirty = true
}

// entry returns everything to store.
func (o *offsets) entry() streamEntry {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.stream
	e.files = maps.Clone(o.known)
	return e
}

// size returns the number of files and of rows of databases.
func (o *offsets) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.known)
	for _, e := range o.known {
		n += e.rows.size()
	}
	return n
}

// cut is the last truncation of a log. The records behind it are published at places that were used before; the stage
// compares them with the earlier records.
type cut struct {
	// Name is a suffix of the file identity of records behind At. Earlier versions gave one to each truncated log.
	// Those logs keep it, because their records would change places otherwise.
	Name string `json:"name,omitzero"`
	At   int64  `json:"at"` // 0 for a log that was never truncated
}

// truncated returns the offset of a log of which only the first at bytes are unchanged.
func (o offset) truncated(at int64) offset {
	next := offset{inode: o.inode, Origin: o.Origin, Done: min(o.Done, at), Ended: o.Ended}
	if o.Cut.Name != "" {
		next.Done = min(next.Done, o.Cut.At) // the records behind it keep the name
	}
	next.Acks = o.Acks.before(next.Done)
	next.Cut = cut{o.Cut.Name, next.Done}
	next.Marks = slices.DeleteFunc(slices.Clone(o.Marks), func(m mark) bool { return m.At > at })
	return next
}

// origin returns the origin of a record that ends at an offset.
func (c cut) origin(o core.Origin, end int64) core.Origin {
	if c.Name != "" && end > c.At {
		o.File += "." + c.Name
		if o.Previous < c.At {
			o.Previous = -1
		}
	}
	return o
}
