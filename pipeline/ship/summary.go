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

// count takes shipped records in.
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

// wait says how many files wait. It is told with the next change.
func (t *tally) wait(files int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Waiting = files
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
