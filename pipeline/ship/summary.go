package ship

import (
	"maps"
	"slices"
	"sync"

	"tributary/envelopes"
)

// maxRefusals is how many refusals a Summary has in full.
const maxRefusals = 100

// Summary is what a [Ship] has done so far.
type Summary struct {
	Files      int            // found
	Sessions   int            // with a shipped record
	Records    int            // acknowledged by the broker; in a dry run, those that would be sent
	Duplicates int            // those of Records that the broker already had
	Bytes      int64          // of Records
	Waiting    int            // files with unshipped content: queued, being visited, or ending in an unfinished record
	Refused    map[Reason]int // number of files and records that are not shipped
	Refusals   []Refusal      // the first 100 of them
	Losses     []Loss         // what the raw stream had acknowledged and no longer has
	Revived    int            // messages, ends included, that the broker took for duplicates of such that are gone; they are stored
	Stalled    error          // why the broker takes no records at the moment; nil when it does
	Backfill   Backfill       // progress of the first pass
}

// Backfill is the progress of a [Ship] through the files that existed when it began, or
// were found before it had shipped those. A file is done when it was shipped to its end
// once, or is refused. Bytes are those on the disk. An Input has no backfill.
type Backfill struct {
	Files, Done int
	Bytes       int64
	BytesDone   int64
	Packed      int64 // those of the remaining Bytes that are compressed, and so hold more content
	Over        bool  // all is done; never false again
}

// tally is the Summary that workers write. It reports each change.
type tally struct {
	report func(Summary) // nil for none

	mu       sync.Mutex
	sum      Summary
	sessions map[session]struct{}
}

func newTally(report func(Summary)) *tally {
	return &tally{report: report, sum: Summary{Refused: map[Reason]int{}}, sessions: map[session]struct{}{}}
}

// reset forgets the files, for another pass over them.
func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Files, t.sum.Waiting = 0, 0
	if !t.sum.Backfill.Over {
		t.sum.Backfill = Backfill{}
	}
}

// session is the key of a session.
type session struct {
	source envelopes.Source
	id     string
}

// change applies f to the summary and reports the result. f must not use the tally.
func (t *tally) change(f func(*Summary)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.sum)
	if t.report != nil {
		t.report(t.copy())
	}
}

// count adds stored records, of which the broker already had some.
func (t *tally) count(stored []outgoing, duplicates int) {
	t.change(func(sum *Summary) {
		for _, o := range stored {
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

// refuse adds a refusal.
func (t *tally) refuse(r Refusal) {
	t.change(func(sum *Summary) {
		sum.Refused[r.Reason]++
		if len(sum.Refusals) < maxRefusals {
			sum.Refusals = append(sum.Refusals, r)
		}
	})
}

// wait sets how many files wait, and whether the backfill is over.
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

// backlog is what is left of a file in the backfill.
type backlog struct {
	bytes  int64
	packed bool
}

// found adds new files. Until the backfill is over they are part of it.
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
			f.backlog = &backlog{bytes: f.log.info.Size(), packed: packed(f.log.path)}
			b.Files++
			b.Bytes += f.backlog.bytes
			if f.backlog.packed {
				b.Packed += f.backlog.bytes
			}
		}
	})
}

// advance notes that n more bytes of a file are done. The next change reports it.
func (t *tally) advance(f *file, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.backlog != nil {
		t.reduce(f.backlog, n)
	}
}

// passed notes that a file was shipped to its end, or cannot be. The next change reports
// it.
func (t *tally) passed(f *file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.backlog != nil {
		t.reduce(f.backlog, f.backlog.bytes)
		t.sum.Backfill.Done++
		f.backlog = nil
	}
}

// reduce moves up to n bytes of a backlog to the bytes that are done.
func (t *tally) reduce(b *backlog, n int64) {
	n = min(n, b.bytes)
	b.bytes -= n
	t.sum.Backfill.BytesDone += n
	if b.packed {
		t.sum.Backfill.Packed -= n
	}
}

// summary returns a copy of the summary.
func (t *tally) summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.copy()
}

func (t *tally) copy() Summary {
	sum := t.sum
	sum.Refused = maps.Clone(sum.Refused)
	sum.Refusals = slices.Clip(sum.Refusals) // appending to the copy reallocates
	sum.Losses = slices.Clip(sum.Losses)
	return sum
}
