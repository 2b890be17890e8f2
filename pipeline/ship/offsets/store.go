package offsets

import (
	"maps"
	"reflect"
	"sync"
	"time"
)

// Store keeps the offset of each file in the raw streams of one broker, and what these streams acknowledged. It may
// be behind the broker, never ahead: what it lacks is shipped again and dropped as a duplicate, by message id or
// position. All methods may be called concurrently.
type Store struct {
	mu      sync.Mutex
	stream  streamEntry // without its files
	known   map[Inode]Offset
	paths   map[string]Inode // by last known path
	owners  map[Inode]any
	dirty   bool           // changed since the last call of changes
	changed map[Inode]bool // changed files
}

// newStore returns the offsets of a stream with its files.
func newStore(stream streamEntry) *Store {
	o := &Store{stream: stream, known: map[Inode]Offset{}, paths: map[string]Inode{}, owners: map[Inode]any{}, changed: map[Inode]bool{}}
	for id, e := range stream.files {
		o.known[id], o.paths[e.Path] = e, id
	}
	o.stream.files = nil
	return o
}

// Created returns when the stream was created.
func (o *Store) Created() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.Created
}

// Acknowledged returns the checkpoints of the stream of a cell.
func (o *Store) Acknowledged(cell int) Checkpoints {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.in(cell).Acknowledged
}

// Acknowledge adds a checkpoint. It returns false if the stream had given out the sequence before, and so has lost
// what it acknowledged since.
func (o *Store) Acknowledge(cell int, c Checkpoint) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := o.stream.in(cell)
	if c.Seq <= is.Acknowledged.Last() {
		return false
	}
	is.Acknowledged = is.Acknowledged.with(c)
	o.stream = o.stream.with(cell, is)
	o.dirty = true
	return true
}

// SawFirst sets the first sequence of the stream of a cell, and returns the previous one.
func (o *Store) SawFirst(cell int, seq uint64) (before uint64) {
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

// Rewind takes back what the stream of a cell acknowledged behind a sequence. It returns the number of files with
// lost records.
func (o *Store) Rewind(cell int, seq uint64) (files int) {
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

// Restart marks every file as unshipped.
func (o *Store) Restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, e := range o.known {
		e.Done, e.Ended, e.Acks = 0, false, nil
		o.known[id] = e
		o.mark(id)
	}
}

// Disown ends the ownership of all files.
func (o *Store) Disown() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.owners)
}

// Acquire makes owner, a pointer, the owner of an inode. It returns false if there is another one: the same log is known
// under another name.
func (o *Store) Acquire(id Inode, owner any) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if is, ok := o.owners[id]; ok {
		return is == owner
	}
	o.owners[id] = owner
	return true
}

// Release ends the ownership of an inode by owner. It drops the offset of a file that was moved or deleted.
func (o *Store) Release(id Inode, owner any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owners[id] != owner {
		return
	}
	delete(o.owners, id)
	if e, ok := o.known[id]; ok && e.moved() {
		o.drop(e)
	}
}

// drop drops an offset. The caller has locked mu.
func (o *Store) drop(e Offset) {
	delete(o.known, e.Inode)
	if o.paths[e.Path] == e.Inode {
		delete(o.paths, e.Path)
	}
	o.mark(e.Inode)
}

// mark notes that the offset of an inode has changed. The caller has locked mu.
func (o *Store) mark(id Inode) {
	o.dirty = true
	o.changed[id] = true
}

// Get returns the offset of an inode; zero for an unknown one. The inode may have been reused: only the head shows
// whether the file is the same.
func (o *Store) Get(id Inode) Offset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[id]
}

// At returns the offset of the file with this last known path; zero for none.
func (o *Store) At(path string) Offset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[o.paths[path]]
}

// Put stores an offset.
func (o *Store) Put(e Offset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if reflect.DeepEqual(o.known[e.Inode], e) {
		return
	}
	if was := o.known[e.Inode].Path; was != e.Path && o.paths[was] == e.Inode {
		delete(o.paths, was)
	}
	o.known[e.Inode], o.paths[e.Path] = e, e.Inode
	o.mark(e.Inode)
}

// Prune drops the offsets of files that are no longer at their path. It is for the end of a run that visited every
// log: renamed files have their new paths by then.
func (o *Store) Prune() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.known {
		if e.moved() {
			o.drop(e)
		}
	}
}

// changes returns what changed since the last call; false when nothing did.
func (o *Store) changes() (c fileChange, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.dirty {
		return fileChange{}, false
	}
	stream := o.stream
	c.Stream = &stream
	for id := range o.changed {
		if e, ok := o.known[id]; ok {
			c.Files = append(c.Files, e)
			if rows := e.Rows.changes(); rows != nil {
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
func (o *Store) unsaved() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dirty = true
}

// entry returns everything to store.
func (o *Store) entry() streamEntry {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.stream
	e.files = maps.Clone(o.known)
	return e
}

// size returns the number of files and of rows of databases.
func (o *Store) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.known)
	for _, e := range o.known {
		n += e.Rows.size()
	}
	return n
}
