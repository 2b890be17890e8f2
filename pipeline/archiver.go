package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
)

// archiving is what tests change of the time in which states leave.
type archiving struct {
	age   func(stored, now time.Time) time.Duration // of a state; nil for the difference
	every time.Duration                             // between two looks at the oldest state; 0 for [archiveEvery]
	limit int                                       // bytes of an archive; 0 for [maxArchive]
}

// archiveEvery is how often an owner looks at the oldest state of its partition.
const archiveEvery = 5 * time.Minute

// A move rewrites the whole of an archive, so an owner waits until many states of each may leave: it
// begins when the oldest is older by a quarter than it has to be.
const archiveSlack = 4

// The limits of one step, between which records are read.
const (
	listStates   = 512                   // that are listed with one request
	listBytes    = 2 << 20               // of these
	sweepStates  = 32 << 10              // that are listed before they are moved, so that each archive is written once
	stepArchives = 16                    // that are written with one batch
	stepStates   = 128                   // that are moved with one batch; those of one archive may be more
	stepBytes    = 512 << 10             // of the archives
	groupStates  = 400                   // of one archive that are moved at once
	groupBytes   = 4 << 20               // of these
	archiveGap   = 10 * time.Millisecond // between two looks, at least
)

// archiver moves the states of a partition that are old enough to the archives, see archive.go. It
// works in steps while no record waits, in the goroutine that works on the partition. It reads states in the
// order in which they were stored and remembers up to where it has, so that those that stay are not
// read again.
type archiver struct {
	o      *ownership
	source *subscription
	after  time.Duration
	every  time.Duration
	limit  int // bytes of an archive
	timer  *time.Timer
	ready  chan time.Time // closed: a sweep has more steps

	next    uint64 // sequence behind the states that were listed
	again   bool   // a state was not removed: list all of them again
	failed  bool   // since the last sweep that was complete, which is logged once
	full    bool   // an archive was full, which is logged once
	*sweep         // nil between two sweeps
	release func() // of the right to sweep
}

// sweep is a pass over the states that are old enough.
type sweep struct {
	now      time.Time
	began    time.Time
	listed   bool       // the states are complete
	rest     bool       // more states than these may leave
	states   []oldState // that are still to be moved; when they are complete, in the order of their archives
	encoder  *zstd.Encoder
	moved    int
	archives int
	kept     int // because their archives are full
}

// oldState is a state that may leave.
type oldState struct {
	subject, archive, session string
	sequence                  uint64
	size                      int
}

// newArchiver returns an archiver of an ownership, which reads records from source; nil when nothing leaves. A
// replay moves nothing: its states are young until it is live.
func newArchiver(o *ownership, source *subscription) *archiver {
	cfg := o.p.stage.config
	if cfg.ArchiveAfter <= 0 || cfg.pacer != nil {
		return nil
	}
	a := &archiver{o: o, source: source, after: cfg.ArchiveAfter, ready: make(chan time.Time)}
	close(a.ready)
	a.every = cmp.Or(cfg.archiving.every, max(min(archiveEvery, a.after), archiveGap))
	a.limit = cmp.Or(cfg.archiving.limit, min(maxArchive, int(o.p.stage.nc.MaxPayload())-archiveRoom))
	a.timer = time.NewTimer(rand.N(a.every)) // partitions that were acquired together do not look at the same time
	return a
}

// due returns a channel that has a value when there is a step to do.
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

// step does the next step. An error ends the ownership; when the broker does not answer, the
// archiver tries again later.
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
			a.o.p.log.Warn("old session states were not moved to archives: tries again", slog.Any("error", err))
		}
		a.failed, a.again = true, true
	}
	if err != nil || a.sweep == nil {
		a.end()
		a.timer.Reset(a.every)
	}
	return nil
}

// begin begins a sweep when the oldest state has waited long enough.
func (a *archiver) begin() error {
	p, ctx := a.o.p, a.o.ctx
	select {
	case p.stage.sweeping <- struct{}{}:
		a.release = a.o.hold(p.stage.sweeping.release)
	default:
		return nil // another partition sweeps
	}
	stream, err := p.stage.js.Stream(ctx, EventsStream(p.cell.name))
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	if !slices.ContainsFunc(info.Config.Subjects, envelopes.IsArchiveFilter) {
		return fmt.Errorf("stream %s has no subject for archives: start a worker of this version, which adds it", info.Config.Name)
	}
	if a.again {
		a.next, a.again = 0, false
	}
	oldest, err := nextMessages(ctx, p.stage.js, info.Config.Name, envelopes.StateFilter(p.cell.name, p.number), a.next, 1, 1)
	if err != nil || len(oldest) == 0 || a.age(oldest[0], info.TimeStamp) < a.after+a.after/archiveSlack {
		return err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	a.sweep = &sweep{now: info.TimeStamp, began: time.Now(), encoder: encoder}
	return nil
}

// age returns how long ago a state was stored.
func (a *archiver) age(m storedMessage, now time.Time) time.Duration {
	if age := a.o.p.stage.config.archiving.age; age != nil {
		return age(m.Time, now)
	}
	return now.Sub(m.Time)
}

// list lists the next states that may leave.
func (a *archiver) list() error {
	p := a.o.p
	stored, err := nextMessages(a.o.ctx, p.stage.js, EventsStream(p.cell.name), envelopes.StateFilter(p.cell.name, p.number), a.next, listStates, listBytes)
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
		if mayLeave(m) {
			archive, session := envelopes.ArchiveOf(m.Subject)
			a.states = append(a.states, oldState{m.Subject, archive, session, m.Sequence, len(m.Data)})
		}
	}
	if !a.listed && len(a.states) >= sweepStates {
		a.listed, a.rest = true, true
	}
	if a.listed {
		slices.SortFunc(a.states, func(a, b oldState) int {
			return cmp.Or(cmp.Compare(a.archive, b.archive), cmp.Compare(a.sequence, b.sequence))
		})
	}
	return nil
}

// mayLeave reports whether a state may leave its subject. One with gaps is named by the
// checkpoint, and one that cannot be decoded stays where an operator looks for it.
func mayLeave(m storedMessage) bool {
	s, err := normalizers.DecodeSession(m.Data)
	return err == nil && len(s.Gaps()) == 0
}

// move moves the states of the next archives: it reads both, and stores the archives with the checkpoint;
// then it removes the states.
func (a *archiver) move() error {
	o := a.o
	if len(a.states) == 0 {
		return a.finish()
	}
	if err := o.waitUntil(o.allStored); err != nil { // no state is newer than the stored one
		return err
	}
	var messages []*nats.Msg
	var leave []uint64 // sequences of states that an archive has
	moved, size := 0, 0
	for n := 0; n < stepArchives && len(a.states) > 0 && len(leave) < stepStates && size < stepBytes && !a.source.busy(); n++ {
		group := a.nextGroup()
		m, added, in, err := a.merge(group)
		if err != nil {
			return err
		}
		leave = append(leave, in...)
		if m != nil {
			messages, moved, size = append(messages, m), moved+added, size+len(m.Data)
		}
		if len(a.states) > 0 && a.states[0].archive == group[0].archive {
			break // a batch writes an archive once
		}
	}
	if messages != nil {
		if err := o.storeArchives(messages, moved); err != nil {
			return err
		}
		a.moved, a.archives = a.moved+moved, a.archives+len(messages)
	}
	return removeMessages(o.ctx, o.p.stage.js, EventsStream(o.p.cell.name), leave)
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

// merge returns an archive with states of it that may leave, nil when it has them already; how many are
// new to it; and the sequences of all of these that it has. States for which it has no room stay, and
// those that are newer than when they were listed.
func (a *archiver) merge(group []oldState) (m *nats.Msg, moved int, in []uint64, err error) {
	subjects := []string{group[0].archive}
	for _, s := range group {
		subjects = append(subjects, s.subject)
	}
	stored, err := a.o.readStored(subjects)
	if err != nil {
		return nil, 0, nil, err
	}
	content := make(archive)
	if old, ok := stored[group[0].archive]; ok {
		if content, err = decodeArchive(old.Data); err != nil {
			a.o.p.log.Error("archive of session states cannot be read: late records of its sessions become dead letters",
				slog.String("archive", group[0].archive), slog.Uint64("sequence", old.Sequence), slog.Any("error", err), slog.String("cure", cureReplay))
			return nil, 0, nil, nil
		}
	}
	var added []oldState
	for _, s := range group {
		state, ok := stored[s.subject]
		copied := archivedState{s.sequence, state.Data}
		switch have, there := content[s.session]; {
		case !ok || state.Sequence != s.sequence:
		case there && (have.sequence > s.sequence || have.sequence == s.sequence && bytes.Equal(have.state, state.Data)):
			in = append(in, s.sequence) // it was not removed, or a server that was killed has brought it back
		default:
			content[s.session] = copied
			added = append(added, s)
		}
	}
	for len(added) > 0 {
		data := content.encode(a.encoder)
		if len(data) <= a.limit && content.size() <= maxArchived {
			m = archiveMessage(group[0].archive, data)
			break
		}
		a.keep(content, added[len(added)/2:])
		added = added[:len(added)/2]
	}
	for _, s := range added {
		in = append(in, s.sequence)
	}
	return m, len(added), in, nil
}

// keep takes states that do not fit their archive out of it. A copy of one that it had before is older
// than the state under its own subject.
func (a *archiver) keep(content archive, states []oldState) {
	for _, s := range states {
		delete(content, s.session)
	}
	a.kept += len(states)
	t := a.o.p.stage.telemetry
	t.count(a.o.ctx, t.archiveFull, len(states))
	if !a.full {
		a.full = true
		a.o.p.log.Warn("archive of session states is full: its sessions stay under their own subjects, which take memory of the broker",
			slog.String("archive", states[0].archive))
	}
}

// finish ends a sweep, or begins the next where more states may leave.
func (a *archiver) finish() error {
	a.o.p.log.Debug("old session states were moved to archives", slog.Int("states", a.moved), slog.Int("archives", a.archives),
		slog.Int("kept", a.kept), slog.Duration("took", time.Since(a.began)))
	if a.rest {
		a.sweep = &sweep{now: a.now, began: time.Now(), encoder: a.encoder}
		return nil
	}
	a.failed = false
	a.end()
	return nil
}

// end drops what a sweep has in memory.
func (a *archiver) end() {
	a.sweep = nil
	if a.release != nil {
		a.release()
		a.release = nil
	}
}

// readStored reads messages of the partition as they are with the newest checkpoint, or later.
func (o *ownership) readStored(subjects []string) (map[string]storedMessage, error) {
	o.mu.Lock()
	sequence := o.sequence
	o.mu.Unlock()
	return o.sessions.read(o.ctx, subjects, sequence)
}

// storeArchives hands archives, with so many states, to the committer and waits until they are stored. No
// chunk may wait.
func (o *ownership) storeArchives(archives []*nats.Msg, states int) error {
	o.mu.Lock()
	o.building.archives, o.building.archived, o.building.started = archives, states, time.Now()
	o.mu.Unlock()
	o.p.cell.signalPending()
	return o.waitUntil(o.allStored)
}

// removeMessages removes messages of a stream by their sequences, with all requests on their way at once. One that is
// gone already is no error.
func removeMessages(ctx context.Context, js jetstream.JetStream, stream string, sequences []uint64) error {
	if len(sequences) == 0 {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	nc := js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for _, sequence := range sequences {
		if err := nc.PublishRequest(apiSubject(js, "STREAM.MSG.DELETE."+stream), inbox, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, sequence)); err != nil {
			return err
		}
	}
	var failed error
	for range sequences {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("remove messages of stream %s: %w", stream, nameRequest(err, "STREAM.MSG.DELETE", began))
		}
		var answer struct {
			Error *jetstream.APIError `json:"error"`
		}
		switch err := json.Unmarshal(m.Data, &answer); {
		case m.Header.Get("Status") == "503":
			return nats.ErrNoResponders
		case err != nil:
			failed = fmt.Errorf("remove messages of stream %s: %w", stream, err)
		case answer.Error != nil && answer.Error.ErrorCode != codeNoSequence:
			failed = fmt.Errorf("remove messages of stream %s: %w", stream, answer.Error)
		}
	}
	return failed
}

// codeNoSequence is the error code for a sequence that a stream does not have (nats-server,
// JSSequenceNotFoundErrF).
const codeNoSequence = 10043
