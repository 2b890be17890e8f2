package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

// Request selects the sessions to erase.
type Request struct {
	Sessions []events.SessionID
	By       string // who erases them, for the log
}

// Result is the outcome for a session.
type Result struct {
	events.SessionID

	Removed streams.ErasureCounts
	Late    int // records that arrived meanwhile and stay in the raw stream; the erasure is then not finished
	Kept    int // objects that stay, because records of other sessions name them, or they were put again
}

// maxTogether is how many sessions are erased together. Each partition is fenced once for all of them.
const maxTogether = 64

// maxRounds bounds how often records that arrive meanwhile are removed, too.
const maxRounds = 4

// Run erases sessions. It is idempotent: run it again to finish an erasure that was interrupted, or that has late records.
// It returns [streams.ErrInterrupted], [streams.ErrStarting] or [streams.ErrDropping] while a command that changes
// generations is not finished, and [ErrOldWorker] while a worker of an earlier version runs.
func Run(ctx context.Context, js jetstream.JetStream, r Request) ([]Result, error) {
	l, err := streams.ReadLayout(ctx, js)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, js, l); err != nil {
		return nil, err
	}
	var results []Result
	for some := range slices.Chunk(r.Sessions, maxTogether) {
		e := &eraser{js: js, by: r.By, layout: l, claims: claims.NewStore(js)}
		for _, id := range some {
			e.sessions = append(e.sessions, newSession(id, l))
		}
		if err := e.run(ctx); err != nil {
			return results, err
		}
		for _, s := range e.sessions {
			results = append(results, Result{s.id, s.removed, s.late, s.kept})
		}
	}
	return results, nil
}

// prepare creates the log of erasures unless it exists. It returns an error if an erasure could be incomplete: if a
// command that makes or removes a generation is not finished, if workers run that do not know of erasures, or if the log
// lacks erasures that count.
func prepare(ctx context.Context, js jetstream.JetStream, l streams.Layout) error {
	all, err := streams.ReadEveryGeneration(ctx, js)
	if err != nil {
		return err
	}
	if all.Cutover.Open() {
		return fmt.Errorf("%w: %s", streams.ErrInterrupted, all.Cutover.Interrupted())
	}
	now, err := streams.BrokerTime(ctx, js)
	if err != nil {
		return err
	}
	counted := uint64(0) // last erasure that counts anywhere
	for i := range all.List {
		g := &all.List[i]
		if err := checkGeneration(g); err != nil {
			return err
		}
		if err := checkWorkers(ctx, js, g, now); err != nil {
			return err
		}
		checkpoints, err := streams.ReadCheckpoints(ctx, js, g.Name, l)
		if err != nil {
			return err
		}
		for _, c := range checkpoints {
			counted = max(counted, c.Erased)
		}
	}
	if err := streams.ProvisionErasures(ctx, js, counted+1); err != nil {
		return err
	}
	last, err := broker.LastSequence(ctx, js, streams.ErasuresStream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", streams.ErasuresStream, err)
	}
	if last < counted {
		return &streams.Fault{Err: fmt.Errorf("%w: it ends at %d, and checkpoints name %d", errLogLost, last, counted), Cure: cureLogLost}
	}
	return nil
}

// checkWorkers returns [ErrOldWorker] if a worker of a generation does not know of erasures.
func checkWorkers(ctx context.Context, js jetstream.JetStream, g *streams.Generation, now time.Time) error {
	workers, err := streams.Workers(ctx, js, g.Name)
	for _, w := range workers {
		if !w.Erasures && !w.Silent(now) {
			return fmt.Errorf("%w: %s of generation %s: update it first", ErrOldWorker, w.Name, g.Name)
		}
	}
	return err
}

func checkGeneration(g *streams.Generation) error {
	switch g.State {
	case streams.StateStarting:
		return fmt.Errorf("%w: finish it with tributary replay start %s", streams.ErrStarting, g.Name)
	case streams.StateDropping:
		return fmt.Errorf("%w: finish it with tributary replay drop %s", streams.ErrDropping, g.Name)
	default:
		return nil
	}
}

// session is a session that is being erased.
type session struct {
	id        events.SessionID
	partition int               // of its id
	entries   []streams.Erasure // in the log
	present   int               // number of its records that the raw streams had when they were last listed
	last      streams.Positions // positions of the last of these records, by cell
	removed   streams.ErasureCounts
	late      int
	kept      int
}

func newSession(id events.SessionID, l streams.Layout) *session {
	return &session{id: id, partition: envelopes.Partition(id.Source, id.Session, l.Partitions)}
}

// name returns the name of the session in subjects.
func (s *session) name() string { return envelopes.SessionPart(s.id.Source, s.id.Session) }

// partitions returns the partitions in which the session has entries: its own, and others to which a producer published
// its records by mistake.
func (s *session) partitions() (list []int) {
	for i := range s.entries {
		list = append(list, s.entries[i].Partition)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// eraser erases some sessions.
type eraser struct {
	js     jetstream.JetStream
	by     string
	layout streams.Layout
	claims *claims.Store

	sessions []*session
	log      []streams.Erasure // all entries
}

// run takes all steps, and repeats them while records of the sessions arrive.
func (e *eraser) run(ctx context.Context) error {
	for round := 0; ; round++ {
		if err := e.note(ctx); err != nil {
			return err
		}
		present := 0
		for _, s := range e.sessions {
			present += s.present
		}
		switch {
		case round > 0 && present == 0:
			return e.finish(ctx)
		case round == maxRounds:
			for _, s := range e.sessions {
				s.late = s.present
			}
			return nil
		}
		if err := e.remove(ctx); err != nil {
			return err
		}
	}
}

// remove removes everything. README.md explains the order.
func (e *eraser) remove(ctx context.Context) error {
	if err := e.eachGeneration(ctx, e.fenceAll); err != nil {
		return err
	}
	if err := e.removeRecords(ctx); err != nil {
		return err
	}
	if err := e.removeObjects(ctx); err != nil {
		return err
	}
	if err := e.eachGeneration(ctx, e.removeFrom); err != nil {
		return err
	}
	for _, s := range e.sessions { // last: a session with events can get a title
		n, err := titles.Erase(ctx, e.js, titles.Key{Source: s.id.Source, SessionID: s.id.Session})
		if err != nil {
			return err
		}
		s.removed.Titles += n
	}
	return nil
}

// eachGeneration calls do for each generation, also for one that is started meanwhile, and for the live one last.
func (e *eraser) eachGeneration(ctx context.Context, do func(context.Context, *streams.Generation) error) error {
	done := make(map[string]time.Time) // by their start: a name may be used again
	for {
		g, err := e.nextGeneration(ctx, done)
		if err != nil || g == nil {
			return err
		}
		if err := do(ctx, g); err != nil {
			return fmt.Errorf("generation %s: %w", g.Name, err)
		}
		done[g.Name] = g.Started
	}
}

// nextGeneration returns a generation that is not done, the live one last; nil if there is none.
func (e *eraser) nextGeneration(ctx context.Context, done map[string]time.Time) (next *streams.Generation, err error) {
	all, err := streams.ReadEveryGeneration(ctx, e.js)
	if err != nil {
		return nil, err
	}
	for i := range all.List {
		g := &all.List[i]
		if started, is := done[g.Name]; is && started.Equal(g.Started) {
			continue
		}
		if err := checkGeneration(g); err != nil {
			return nil, err
		}
		if next == nil || next.IsLive() {
			next = g
		}
	}
	return next, nil
}

// removeRecords removes the records that were listed from the raw streams.
func (e *eraser) removeRecords(ctx context.Context) error {
	for _, s := range e.sessions {
		for cell := range max(e.layout.Cells, 1) {
			last := s.last.In(cell)
			if last == 0 {
				continue
			}
			filter := envelopes.RawSessionFilter(s.id.Source, s.id.Session)
			n, err := broker.Purge(ctx, e.js, streams.RawStreamOf(cell), filter, last+1)
			if err != nil {
				return err
			}
			s.removed.Records += int64(n)
		}
	}
	return nil
}

// removeObjects removes the objects that only records of the sessions named.
func (e *eraser) removeObjects(ctx context.Context) error {
	until := make(map[string]time.Time) // when the last record that names the object was noted, by digest
	var chunks []string
	for _, s := range e.sessions {
		for i := range s.entries {
			entry := &s.entries[i]
			chunks = append(chunks, entry.Chunks...)
			for _, digest := range entry.Objects {
				until[digest] = entry.At
			}
		}
	}
	removed, kept, err := claims.Erase(ctx, e.claims, until, chunks)
	for _, s := range e.sessions {
		s.removed.Objects += int64(s.count(removed))
		s.kept = s.count(kept)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // there are no objects
	}
	return err
}

// count returns how many of the objects the records of the session have named.
func (s *session) count(digests []string) (n int) {
	for _, digest := range digests {
		if slices.ContainsFunc(s.entries, func(e streams.Erasure) bool { return slices.Contains(e.Objects, digest) }) {
			n++
		}
	}
	return n
}

// finish notes in the log that everything is removed.
func (e *eraser) finish(ctx context.Context) error {
	for _, s := range e.sessions {
		end := streams.ErasureEnd{Through: s.entries[len(s.entries)-1].Sequence, Removed: s.removed, By: e.by}
		subject, data, err := end.Message(s.id.Source, s.id.Session)
		if err != nil {
			return err
		}
		if _, err := e.js.Publish(ctx, subject, data); err != nil {
			return fmt.Errorf("write stream %s: %w", streams.ErasuresStream, err)
		}
	}
	return nil
}
