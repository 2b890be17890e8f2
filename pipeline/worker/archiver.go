package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
	"tributary/pipeline/worker/feed"
)

// archiving holds the times and limits of archiving that tests change.
type archiving struct {
	age   func(stored, now time.Time) time.Duration // age of a state; nil for now minus stored
	every time.Duration                             // interval between two checks of the oldest state; 0 for [archiveEvery]
	limit int                                       // bytes of an archive; 0 for [states.MaxArchive]
}

// archiveEvery is how often an owner checks the oldest state of its partition.
const archiveEvery = 5 * time.Minute

// A sweep starts once the oldest state exceeds ArchiveAfter by a quarter (1/archiveSlack): a move rewrites a whole
// archive, so it should move many states at once.
const archiveSlack = 4

// The limits of one step. Records are read between steps.
const (
	listStates   = 512                    // states per list request
	listBytes    = 2 << 20                // bytes of these states
	sweepStates  = 32 << 10               // states listed before any is moved, so that each archive is written once
	stepArchives = 16                     // archives written in one batch
	stepStates   = 128                    // states moved in one batch, unless one archive gets more
	stepBytes    = 512 << 10              // bytes of the archives in one batch
	stepTime     = 100 * time.Millisecond // no further archive is read after this time
	groupStates  = 400                    // states moved to one archive at once
	groupBytes   = 4 << 20                // bytes of these states
	changedBytes = 32 << 10               // bytes of a state that is listed by its change alone
	archiveGap   = 10 * time.Millisecond  // minimum interval between two checks
)

// archiver moves the old states of a partition to archives, see pipeline/states. It works in steps while no record
// waits, in the goroutine that works on the partition. It reads states in the order in which they were stored and
// remembers its position, so it does not read the remaining ones again.
type archiver struct {
	o      *ownership
	source *feed.Subscription
	after  time.Duration
	every  time.Duration
	limit  int // bytes of an archive
	timer  *time.Timer
	ready  chan time.Time // closed: the sweep has more steps

	next    uint64 // sequence behind the listed states
	again   bool   // a state was not removed: list all states again
	failed  bool   // a step failed since the last complete sweep; logged once
	full    bool   // an archive was full; logged once
	left    int    // states before next whose archives had no room
	*sweep         // nil between sweeps
	release func() // releases the right to sweep
}

// sweep is a pass over the states that are old enough.
type sweep struct {
	now      time.Time
	began    time.Time
	listed   bool       // all states are listed
	rest     bool       // there are more old states than these
	states   []oldState // still to be moved; once listed, in the order of their archives
	encoder  *zstd.Encoder
	moved    int
	archives int
	kept     int // states whose archives are full
}

// oldState is a state that is old enough to be moved.
type oldState struct {
	subject, archive, session string
	size                      int
}

// newArchiver returns the archiver of an ownership, which reads records from source; nil when nothing is archived. A
// replay archives nothing: its states are young until it is live.
func newArchiver(o *ownership, source *feed.Subscription) *archiver {
	cfg := o.p.stage.config
	if cfg.ArchiveAfter <= 0 || cfg.Pacer != nil {
		return nil
	}
	a := &archiver{o: o, source: source, after: cfg.ArchiveAfter, ready: make(chan time.Time)}
	close(a.ready)
	a.every = cmp.Or(cfg.archiving.every, max(min(archiveEvery, a.after), archiveGap))
	a.limit = cmp.Or(cfg.archiving.limit, min(states.MaxArchive, int(o.normalizer.encoder.maxPayload)-states.ArchiveRoom))
	a.timer = time.NewTimer(rand.N(a.every)) // partitions that were acquired together check at different times
	return a
}

// due returns a channel that yields a value when a step is due.
func (a *archiver) due() <-chan time.Time {
	switch {
	case a == nil:
		return nil
	case a.sweep != nil:
		return a.ready
	default:
		return a.timer.C
	}
}

// close ends the archiver.
func (a *archiver) close() {
	if a == nil {
		return
	}
	a.timer.Stop()
	a.end()
}

// step does the next step. An error ends the ownership. While the broker does not answer, the archiver tries again
// later.
func (a *archiver) step() error {
	var err error
	switch {
	case a.sweep == nil:
		err = a.begin()
	case !a.listed:
		err = a.list()
	default:
		err = a.move()
	}
	if a.o.ctx.Err() != nil {
		return context.Cause(a.o.ctx)
	}
	if err != nil {
		if !a.failed {
			a.o.p.log.Warn("old session states were not moved to archives: trying again", slog.Any("error", err))
		}
		a.failed, a.again = true, true
	}
	if err != nil || a.sweep == nil {
		a.end()
		a.timer.Reset(a.every)
	}
	return nil
}

// begin begins a sweep if the oldest state is old enough.
func (a *archiver) begin() error {
	p, ctx := a.o.p, a.o.ctx
	select {
	case p.stage.sweeping <- struct{}{}:
		a.release = a.o.occupy(p.stage.sweeping.Release)
	default:
		return nil // another partition sweeps
	}
	if a.again {
		a.next, a.left, a.again = 0, 0, false
	}
	name := streams.EventsStream(p.cell.name)
	oldest, err := broker.NextMessages(ctx, p.stage.js, name, envelopes.StateFilter(p.cell.name, p.number), a.next, 1, 1)
	if err != nil || len(oldest) == 0 {
		return err
	}
	stream, err := p.stage.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	if !slices.ContainsFunc(info.Config.Subjects, envelopes.IsArchiveFilter) {
		return fmt.Errorf("stream %s has no subject for archives: start a worker of this version, which adds it", name)
	}
	if a.age(oldest[0], info.TimeStamp) < a.after+a.after/archiveSlack {
		return nil
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	a.sweep = &sweep{now: info.TimeStamp, began: time.Now(), encoder: encoder}
	return nil
}

// age returns how long ago a state was stored.
func (a *archiver) age(m broker.Stored, now time.Time) time.Duration {
	if age := a.o.p.stage.config.archiving.age; age != nil {
		return age(m.Time, now)
	}
	return now.Sub(m.Time)
}

// list lists the next old states.
func (a *archiver) list() error {
	p := a.o.p
	stored, err := broker.NextMessages(a.o.ctx, p.stage.js, streams.EventsStream(p.cell.name), envelopes.StateFilter(p.cell.name, p.number), a.next, listStates, listBytes)
	if err != nil {
		return err
	}
	a.listed = len(stored) == 0
	for _, m := range stored {
		if a.age(m, a.now) < a.after {
			a.listed = true
			break
		}
		a.next = m.Sequence + 1
		subject, size := envelopes.StateOf(m.Subject), len(m.Data)
		if subject != m.Subject {
			size = changedBytes
		}
		archive, session := envelopes.ArchiveOf(subject)
		a.states = append(a.states, oldState{subject, archive, session, size})
	}
	if !a.listed && len(a.states) >= sweepStates {
		a.listed, a.rest = true, true
	}
	if a.listed {
		slices.SortFunc(a.states, func(a, b oldState) int {
			return cmp.Or(cmp.Compare(a.archive, b.archive), cmp.Compare(a.subject, b.subject))
		})
		a.states = slices.CompactFunc(a.states, func(a, b oldState) bool { return a.subject == b.subject })
	}
	return nil
}

// move moves the states of the next archives: it reads states and archives, stores the archives with the checkpoint,
// then removes the states, none of them before a checkpoint says that the archives reach so far.
func (a *archiver) move() error {
	o := a.o
	if len(a.states) == 0 {
		return a.finish()
	}
	if err := o.outbox.waitUntil(o.outbox.allStored); err != nil { // after this no state is newer than the stored one
		return err
	}
	var all moved
	began := time.Now()
	for n := 0; n < stepArchives && time.Since(began) < stepTime && len(a.states) > 0 && len(all.leave) < stepStates && all.size < stepBytes && !a.source.Busy(); n++ {
		group := a.nextGroup()
		m, err := a.merge(group)
		if err != nil {
			return err
		}
		all.add(m)
		if len(a.states) > 0 && a.states[0].archive == group[0].archive {
			break // a batch writes each archive once
		}
	}
	if newest, _ := o.outbox.newest(); all.archives != nil || all.to > newest.ArchivedTo {
		if err := o.outbox.storeArchives(all); err != nil {
			return err
		}
		a.moved, a.archives = a.moved+all.states, a.archives+len(all.archives)
	}
	o.outbox.areRemoved(all.leave)
	return broker.RemoveMessages(o.ctx, o.p.stage.js, streams.EventsStream(o.p.cell.name), all.leave)
}

// nextGroup takes the next states of one archive.
func (a *archiver) nextGroup() []oldState {
	n, size := 0, 0
	for n < len(a.states) && n < groupStates && a.states[n].archive == a.states[0].archive && (n == 0 || size+a.states[n].size <= groupBytes) {
		size += a.states[n].size
		n++
	}
	group := a.states[:n]
	a.states = a.states[n:]
	return group
}

// merge returns the archive of a group with the states of the group added. It returns no archive when that already
// has them all. A state stays where it is when its archive has no room, when it changed after it was listed, and when
// it cannot be read or has gaps: operators search for those.
func (a *archiver) merge(group []oldState) (moved, error) {
	var subjects []string
	for _, s := range group {
		subjects = append(subjects, s.subject)
	}
	subject := group[0].archive
	stored, err := a.o.readStored(append(states.Subjects(subjects), subject))
	if err != nil {
		return moved{}, err
	}
	content := make(states.Archive)
	old, ok := stored[subject]
	if ok {
		if content, err = states.DecodeArchive(old.Data); err != nil {
			a.o.p.log.Error("archive of session states cannot be read: late records of its sessions become dead letters",
				slog.String("archive", subject), slog.Uint64("sequence", old.Sequence), slog.Any("error", err), slog.String("cure", streams.CureReplay))
			return moved{}, nil
		}
	}
	var m moved
	var added []oldState
	found := make(map[string]states.Stored, len(group))
	for _, s := range group {
		state, ok := states.In(stored, s.subject)
		if !ok || state.Sequence >= a.next {
			continue
		}
		if have, there := content[s.session]; there && have.Sequence >= state.Sequence {
			// Not removed last time, restored by a server that was killed, or in an archive of a torn batch, whose
			// checkpoint is missing.
			m.leave, m.to = append(m.leave, state.Messages...), max(m.to, have.Sequence)
			continue
		}
		session, err := state.Decode()
		if err != nil || len(session.Gaps()) > 0 {
			continue
		}
		content[s.session] = states.Archived{Sequence: state.Sequence, State: state.Encode(session)}
		found[s.subject] = state
		added = append(added, s)
	}
	for len(added) > 0 {
		data := content.Encode(a.encoder)
		if len(data) <= a.limit && content.Size() <= states.MaxArchived {
			m.size, m.states = len(data), len(added)
			m.archives = []*nats.Msg{states.ArchiveMessage(subject, data)}
			break
		}
		a.keep(content, added[len(added)/2:])
		added = added[:len(added)/2]
	}
	for _, s := range added {
		m.to = max(m.to, found[s.subject].Sequence)
		m.leave = append(m.leave, found[s.subject].Messages...)
	}
	return m, nil
}

// keep takes states that do not fit out of the content of their archive. Copies that the archive already had are
// older than the states under their own subjects.
func (a *archiver) keep(content states.Archive, states []oldState) {
	for _, s := range states {
		delete(content, s.session)
	}
	a.kept += len(states)
	a.left += len(states)
	t := a.o.p.stage.telemetry
	t.count(a.o.ctx, t.archiveFull, len(states))
	if !a.full {
		a.full = true
		a.o.p.log.Warn("archive of session states is full: its sessions stay under their own subjects, which take memory of the broker",
			slog.String("archive", states[0].archive))
	}
}

// finish ends a sweep, or begins the next one if there are more old states.
func (a *archiver) finish() error {
	a.o.p.log.Debug("old session states were moved to archives", slog.Int("states", a.moved), slog.Int("archives", a.archives),
		slog.Int("kept", a.kept), slog.Duration("took", time.Since(a.began)))
	if a.rest {
		a.sweep = &sweep{now: a.now, began: time.Now(), encoder: a.encoder}
		return nil
	}
	if err := a.o.outbox.waitUntil(a.o.outbox.allStored); err != nil { // a commit in flight would restore the previous checkpoint
		return err
	}
	a.failed = false
	a.o.outbox.setUnarchived(a.left)
	a.end()
	return nil
}

// end drops the memory of a sweep.
func (a *archiver) end() {
	a.sweep = nil
	if a.release != nil {
		a.release()
		a.release = nil
	}
}

// readStored reads messages of the partition from a replica that has at least the newest checkpoint.
func (o *ownership) readStored(subjects []string) (map[string]broker.Stored, error) {
	_, sequence := o.outbox.newest()
	return o.sessions.read(o.ctx, subjects, sequence)
}
