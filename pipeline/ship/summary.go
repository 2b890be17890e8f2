package ship

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"tributary/envelopes"
)

// Reason names why a file or a record is not shipped. The set is bounded.
type Reason string

// The reasons for which a file or a record is not shipped.
const (
	ReasonTooLarge      Reason = "too_large"      // the record is longer than Tributary takes, or its headers are than the broker does
	ReasonUnknownSource Reason = "unknown_source" // the content does not tell whose log the file is
	ReasonUnreadable    Reason = "unreadable"     // the file or folder cannot be read now
)

// Refusal is a file or record that is not shipped, and what would cure it. The rest of
// the file, and the other files, go on.
type Refusal struct {
	Reason Reason
	Path   string
	Line   int   // of the record, from 1; 0 for the whole file
	Size   int64 // of a record that is too large, in bytes, headers included
	Limit  int64 // that it breaks
	Err    error // what is wrong and the cure; holds no content of the file
}

// Error names file, line and cure.
func (r *Refusal) Error() string {
	if r.Line > 0 {
		return fmt.Sprintf("%s:%d: %v", r.Path, r.Line, r.Err)
	}
	return fmt.Sprintf("%s: %v", r.Path, r.Err)
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

func unreadable(path string, err error) Refusal {
	return Refusal{Reason: ReasonUnreadable, Path: path, Err: fmt.Errorf("cannot be read, tried again when it changes: %w", err)}
}

// maxRefusals is how many refusals a Summary tells in full.
const maxRefusals = 100

// Summary is what a [Ship] has done so far.
type Summary struct {
	Files      int            // found
	Sessions   int            // of which records were shipped
	Records    int            // acknowledged by the broker; in a dry run: that would be sent
	Duplicates int            // those of Records that the broker already had
	Bytes      int64          // of Records
	Waiting    int            // files with more than is shipped: queued, in work, or ending in an unfinished record
	Refused    map[Reason]int // files and records that are not shipped
	Refusals   []Refusal      // the first 100 of them
	Stalled    error          // why the broker takes nothing at the moment; nil when it does
	Backfill   Backfill       // how far the first pass is
}

// Backfill is how far a [Ship] is with the files that were there when it began, or came
// before it was through. A file is done when it was shipped to its end once, or cannot be.
// Bytes are those on the disk. An input has no backfill.
type Backfill struct {
	Files, Done int
	Bytes       int64
	BytesDone   int64
	Packed      int64 // the rest of Bytes that is packed: it holds more than it takes
	Over        bool  // all is done, and stays so
}

// tally is the summary that workers write. Each change is reported.
type tally struct {
	report func(Summary)

	mu       sync.Mutex
	sum      Summary
	sessions map[session]struct{}
}

// session is the key of a session.
type session struct {
	source envelopes.Source
	id     string
}

// change does f to the summary, alone.
func (t *tally) change(f func(*Summary)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.sum)
	if t.report != nil {
		t.report(t.copy())
	}
}

// count takes shipped records in, and how many of them the broker had.
func (t *tally) count(shipped []outgoing, duplicates int) {
	t.change(func(sum *Summary) {
		for _, o := range shipped {
			if o.end {
				continue
			}
			sum.Records++
			sum.Bytes += int64(o.size)
			t.sessions[o.session] = struct{}{}
		}
		sum.Duplicates += duplicates
		sum.Sessions = len(t.sessions)
	})
}

// refuse takes a refusal in.
func (t *tally) refuse(r Refusal) {
	t.change(func(sum *Summary) {
		sum.Refused[r.Reason]++
		if len(sum.Refusals) < maxRefusals {
			sum.Refusals = append(sum.Refusals, r)
		}
	})
}

// wait says how many files wait, and that the backfill is over when none of its own do.
func (t *tally) wait(files int) {
	t.mu.Lock()
	b := t.sum.Backfill
	over := b.Done == b.Files
	same := t.sum.Waiting == files && b.Over == over
	t.mu.Unlock()
	if same {
		return
	}
	t.change(func(sum *Summary) { sum.Waiting, sum.Backfill.Over = files, over })
}

// found takes in files that are new.
func (t *tally) found(files []*file) {
	if len(files) == 0 {
		return
	}
	t.change(func(sum *Summary) {
		sum.Files += len(files)
		b := &sum.Backfill
		if b.Over {
			return
		}
		for _, f := range files {
			f.share = &share{rest: f.log.info.Size(), packed: packed(f.log.path)}
			b.Files++
			b.Bytes += f.share.rest
			if f.share.packed {
				b.Packed += f.share.rest
			}
		}
	})
}

// share is what a file has left in the backfill.
type share struct {
	rest   int64
	packed bool
}

// reached takes in that n bytes more of a file are done. It is told with the next change.
func (t *tally) reached(f *file, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := f.share; s != nil {
		t.done(s, n)
	}
}

// passed takes in that all of a file was shipped that can be.
func (t *tally) passed(f *file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := f.share; s != nil {
		t.done(s, s.rest)
		t.sum.Backfill.Done++
		f.share = nil
	}
}

// done takes n bytes from a share.
func (t *tally) done(s *share, n int64) {
	n = min(n, s.rest)
	s.rest -= n
	t.sum.Backfill.BytesDone += n
	if s.packed {
		t.sum.Backfill.Packed -= n
	}
}

// summary returns the summary as it is now.
func (t *tally) summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.copy()
}

func (t *tally) copy() Summary {
	sum := t.sum
	sum.Refused = maps.Clone(sum.Refused)
	sum.Refusals = slices.Clip(sum.Refusals) // appending to it makes another
	return sum
}
