package ship

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tributary/envelopes"
)

// maxRefusals is how many refusals a Summary lists.
const maxRefusals = 100

// Summary counts what a [Ship] has done so far.
type Summary struct {
	Files      int // files found
	Hidden     int // hidden folders below the paths, which were skipped
	Sessions   int // sessions with a shipped record
	Agents     map[envelopes.Source]Counts
	Records    int            // records acknowledged by the broker; in a dry run, those to be sent
	Duplicates int            // records among these that the broker already had
	Bytes      int64          // bytes of Records
	Waiting    int            // files with unshipped content: queued, being visited, or held back
	Held       []Held         // held back ends of files, by path
	Refused    map[Reason]int // number of refused files and records
	Refusals   []Refusal      // the first 100 of them
	Redacted   map[string]int // number of secrets or texts replaced, by rule
	Losses     []Loss         // what the raw stream acknowledged and no longer has
	Revived    int            // messages, ends included, that the broker took for duplicates of removed messages; they are stored
	Stalls     int            // how often the broker stopped accepting records
	Stalled    error          // why the broker accepts no records now; nil when it does
	Backfill   Backfill       // progress of the first pass
	Behind     Behind         // what waits to be sent, at most a second old
	Shipped    time.Time      // when the broker acknowledged the last record; zero for none
	Unknown    *Refusal       // last file that is no log of a known agent; nil for none
	Trouble    error          // last error that may not be over: a stall, another refusal, unsaved offsets; nil for none
	TroubleAt  time.Time      // when Trouble was noticed
}

// Counts are the records of an agent among those of a Summary, and their sessions.
type Counts struct{ Records, Sessions int }

// Behind is the content of files that can be sent and is not sent yet, estimated from sizes on disk.
type Behind struct {
	Files  int
	Bytes  int64
	Oldest time.Time // when the file that has been behind for longest was first written to in that time; zero for none
}

// Held is the end of a file that was read and is not sent. It is an unfinished line, sent when it is completed or
// when the file is idle and the line is whole JSON; or records whose session is not known yet.
type Held struct {
	Path  string
	Bytes int64
}

// Backfill is the progress of a [Ship] through the files that existed when it began, or were found before it had
// shipped those. A file is done once it was shipped to its end or refused. Bytes are bytes on disk. An Input has no
// backfill.
type Backfill struct {
	Files, Done int
	Bytes       int64
	BytesDone   int64
	Packed      int64 // compressed bytes among the remaining ones, which hold more content
	Over        bool  // everything is done; stays true
}

// Loss describes what a raw stream acknowledged and no longer has. Its records are shipped again if their logs still
// have them.
type Loss struct {
	New          bool   // the whole stream was replaced by another one
	Acknowledged uint64 // sequence of the last acknowledged message; 0 when New
	Intact       uint64 // nothing is lost up to this sequence; 0 when New
	Files        int    // number of logs shipped again, from their last stored records or earlier; 0 for all
}

// Error says what was lost and what is shipped again.
func (l Loss) Error() string {
	if l.New {
		return "the broker has another raw stream than before: all logs are shipped again"
	}
	return fmt.Sprintf("the raw stream has lost records: it had acknowledged message %d, and is unchanged only up to %d; shipped again from there: %d logs",
		l.Acknowledged, l.Intact, l.Files)
}

// tally collects the Summary for all workers, and reports each change.
type tally struct {
	report func(Summary) // nil for none

	mu       sync.Mutex
	sum      Summary
	sessions map[session]struct{}
	held     map[*file]Held
	troubles map[string]trouble // troubles that may not be over, by origin: a path, or a constant
}

// trouble is an error that the operator sees until it is over.
type trouble struct {
	err error
	at  time.Time
}

// Origins of troubles that are no path of an unreadable file.
const (
	ofRecords = "" // this trouble is never over, because a refused record stays refused
	ofBroker  = "broker:"
	ofOffsets = "offsets:"
)

func newTally(report func(Summary)) *tally {
	return &tally{report: report, sum: Summary{Agents: map[envelopes.Source]Counts{}, Refused: map[Reason]int{}, Redacted: map[string]int{}}, sessions: map[session]struct{}{}, held: map[*file]Held{}, troubles: map[string]trouble{}}
}

// reset forgets the files, for another pass over them.
func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Files, t.sum.Waiting = 0, 0
	clear(t.held)
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

// count adds stored records; the broker already had duplicates of them.
func (t *tally) count(stored []outgoing, duplicates int) {
	t.change(func(sum *Summary) {
		for _, o := range stored {
			if o.end {
				continue
			}
			for _, hit := range o.redacted {
				sum.Redacted[hit.Rule]++
			}
			sum.Records++
			sum.Bytes += int64(o.size)
			of := sum.Agents[o.session.source]
			if of.Records++; !t.has(o.session) {
				of.Sessions++
			}
			sum.Agents[o.session.source] = of
			t.sessions[o.session] = struct{}{}
			sum.Shipped = time.Now()
		}
		sum.Duplicates += duplicates
		sum.Sessions = len(t.sessions)
	})
}

// has reports whether a session has a stored record.
func (t *tally) has(s session) bool {
	_, ok := t.sessions[s]
	return ok
}

// refuse adds a refusal.
func (t *tally) refuse(r Refusal) {
	t.change(func(sum *Summary) {
		sum.Refused[r.Reason]++
		switch r.Reason {
		case ReasonUnknownSource:
			sum.Unknown = &r
		case ReasonUnreadable, ReasonLocked, ReasonDamaged, ReasonUnknownSchema:
			t.note(r.Path, &r)
		default:
			t.note(ofRecords, &r)
		}
		if len(sum.Refusals) < maxRefusals {
			sum.Refusals = append(sum.Refusals, r)
		}
	})
}

// stall sets why the broker accepts no records; nil when it does.
func (t *tally) stall(err error) {
	t.change(func(sum *Summary) {
		if err != nil && sum.Stalled == nil {
			sum.Stalls++
		}
		sum.Stalled = err
		t.note(ofBroker, err)
	})
}

// trouble sets the error of an origin; nil means that it is over. The next change reports it.
func (t *tally) trouble(origin string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(origin, err)
}

// note is [tally.trouble] for callers that hold mu.
func (t *tally) note(origin string, err error) {
	if _, had := t.troubles[origin]; err == nil && !had {
		return
	}
	delete(t.troubles, origin)
	if err != nil {
		t.troubles[origin] = trouble{err, time.Now()}
	}
	var last trouble
	for _, is := range t.troubles {
		if !is.at.Before(last.at) {
			last = is
		}
	}
	t.sum.Trouble, t.sum.TroubleAt = last.err, last.at
}

// behind counts the unsent content of files, which belong to the caller. The next change reports it.
func (t *tally) behind(files map[string]*file) {
	var b Behind
	for _, f := range files {
		if f.unsent == 0 {
			continue
		}
		b.Files++
		b.Bytes += max(0, f.unsent-f.acked.Load())
		if b.Oldest.IsZero() || f.since.Before(b.Oldest) {
			b.Oldest = f.since
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Behind = b
}

// hold lists the end of a file as held back, until unhold.
func (t *tally) hold(f *file, h Held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held[f] = h
}

func (t *tally) unhold(f *file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.held, f)
}

// wait sets how many files wait, besides those held back, and whether the backfill is over.
func (t *tally) wait(files int) {
	t.mu.Lock()
	files += len(t.held)
	b := t.sum.Backfill
	over := b.Done == b.Files
	same := t.sum.Waiting == files && b.Over == over
	t.mu.Unlock()
	if same {
		return
	}
	t.change(func(sum *Summary) { sum.Waiting, sum.Backfill.Over = files, over })
}

// backlog is the rest of a file in the backfill.
type backlog struct {
	bytes  int64
	packed bool
}

// found adds new files. They join the backfill if that is not over.
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
	f.acked.Add(n)
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.backlog != nil {
		t.reduce(f.backlog, n)
	}
}

// passed notes that a file was shipped to its end, or cannot be shipped. The next change reports it.
func (t *tally) passed(f *file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.backlog != nil {
		t.reduce(f.backlog, f.backlog.bytes)
		t.sum.Backfill.Done++
		f.backlog = nil
	}
}

// reduce moves up to n bytes of a backlog to the done bytes.
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
	sum.Agents = maps.Clone(sum.Agents)
	sum.Refused = maps.Clone(sum.Refused)
	sum.Redacted = maps.Clone(sum.Redacted)
	sum.Refusals = slices.Clip(sum.Refusals) // appending to the copy reallocates
	sum.Losses = slices.Clip(sum.Losses)
	sum.Held = slices.SortedFunc(maps.Values(t.held), func(a, b Held) int { return strings.Compare(a.Path, b.Path) })
	return sum
}
