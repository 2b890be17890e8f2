package summaries

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/filters"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// Limits of one step of a leader.
const (
	maxChunk   = 512     // events whose sessions are loaded with one request
	maxChanged = 400     // sessions that wait to be stored
	maxBatch   = 900     // messages in one atomic batch
	maxBytes   = 4 << 20 // bytes of their bodies
)

// leader keeps the records of a generation until another keeper stores a checkpoint.
type leader struct {
	store

	keeper   *Keeper
	log      *slog.Logger
	stored   checkpoint
	sequence uint64            // of the checkpoint
	begun    streams.Positions // ends of the streams if it began anew, else none

	position atomic.Pointer[streams.Positions] // of the last event added, by cell
	cell     int                               // of that event
	at       time.Time                         // when the broker stored it; zero if not known
	folds    map[events.SessionID]*entry
	erased   map[events.SessionID]bool // sessions without a record
	changed  []*entry                  // since the last commit
	filters  []*filters.Filter         // since the last commit
	bytes    int                       // approximate size of all folds
	list     []item                    // last chunk, whose memory the next one reuses
	round    uint64                    // number of commits
	added    int                       // number of events
}

// entry is a session in memory.
type entry struct {
	id      events.SessionID
	fold    *sessions.Fold
	size    int
	changed bool
	used    uint64 // commit before its last use
	last    int    // number of its last event
}

func newLeader(c *candidate, stored checkpoint, sequence uint64) *leader {
	l := &leader{
		store: c.store, keeper: c.keeper, log: c.log, stored: stored, sequence: sequence, cell: stored.Cell, at: stored.Stored,
		folds: make(map[events.SessionID]*entry),
	}
	l.position.Store(&stored.Position)
	return l
}

// item is an event that was read.
type item struct {
	step     *sessions.Step // nil if the event cannot be read
	cell     int
	position uint64
	stored   time.Time // zero if it was handed over
}

// lead reads events and stores records until ctx ends, the keeper is drained, or another keeper takes over.
func (l *leader) lead(ctx context.Context) error {
	unobserve, err := l.keeper.telemetry.observe(l)
	if err != nil {
		return err
	}
	defer unobserve()
	lost := l.js.Conn().StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer l.js.Conn().RemoveStatusListener(lost)
	reading, stop := context.WithCancelCause(ctx)
	items, made := make(chan item, maxChunk), make(chan *filters.Filter)
	var failed error
	var readers sync.WaitGroup
	readers.Go(func() {
		defer close(items)
		failed = l.read(reading, stop, items)
	})
	maker := &filterMaker{
		store: l.store, keeper: l.keeper, log: l.log, position: func() streams.Positions { return *l.position.Load() },
		erasures: l.stored.Erasures, made: made, cells: map[int]*filtering{},
	}
	readers.Go(func() { maker.run(reading) })
	defer readers.Wait()
	defer stop(nil)
	alive := time.NewTicker(l.keeper.config.Beat)
	defer alive.Stop()
	var due <-chan time.Time // nil while nothing waits to be stored
	for {
		select {
		case first, open := <-items:
			if !open {
				return failed
			}
			l.list = chunk(append(l.list[:0], first), items)
			began := time.Now()
			if err := l.add(ctx, l.list); err != nil {
				return err
			}
			if err := l.rest(ctx, len(l.list), time.Since(began)); err != nil {
				return err
			}
			if due == nil {
				due = time.After(l.keeper.config.Every)
			}
			if len(l.changed) < maxChanged && l.bytes < 2*l.keeper.config.Bytes {
				continue
			}
		case f := <-made:
			l.filters = append(l.filters, f)
			if due == nil {
				due = time.After(l.keeper.config.Every)
			}
			continue
		case <-due:
		case <-alive.C:
		case <-lost:
			return errInterrupted
		case <-l.keeper.drain:
			return l.commit(ctx, "")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := l.commit(ctx, l.keeper.owner); err != nil {
			return err
		}
		due = nil
	}
}

// A leader rests after each chunk read from the broker, if stages are working and events arrive faster than they are
// folded, so that it takes little time from the stages.
const (
	restFactor = 4                // rest as a multiple of the time of the chunk
	maxRest    = time.Second      // after one chunk
	recent     = 10 * time.Minute // older events are folded without a rest
)

// rest waits after a chunk of this many events that took d.
func (l *leader) rest(ctx context.Context, events int, d time.Duration) error {
	if handed := l.at.IsZero(); handed || events < maxChunk || time.Since(l.at) > recent {
		return nil
	}
	timer := time.NewTimer(min(restFactor*d, maxRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.keeper.drain:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// chunk appends the items that have arrived to a list.
func chunk(list []item, items <-chan item) []item {
	for len(list) < maxChunk {
		select {
		case next, open := <-items:
			if !open {
				return list
			}
			list = append(list, next)
		default:
			return list
		}
	}
	return list
}

// read passes the events behind the checkpoint to items until ctx ends or the reading is interrupted, because the
// stream may be another one then.
func (l *leader) read(ctx context.Context, stop context.CancelCauseFunc, items chan<- item) error {
	interrupted := func(err error) { stop(fmt.Errorf("%w: %w", errInterrupted, err)) }
	for e, err := range l.keeper.config.Handover.Steps(ctx, l.js, l.generation, l.stored.Position, interrupted) {
		if err != nil && e.Position == 0 {
			return err
		}
		if err != nil {
			l.log.WarnContext(ctx, "event cannot be added to the record of its session", slog.Any("error", err))
		}
		one := item{step: e.Step, cell: e.Cell, position: e.Position, stored: e.Stored}
		select {
		case items <- one:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return context.Cause(ctx)
}

// add adds events to the folds of their sessions.
func (l *leader) add(ctx context.Context, list []item) error {
	l.leaveOutErased(list)
	if err := l.load(ctx, list); err != nil {
		return err
	}
	position := *l.position.Load()
	defer func() { l.position.Store(&position) }()
	for i := range list {
		l.cell, l.at = list[i].cell, list[i].stored
		position = position.With(l.cell, list[i].position)
		s := list[i].step
		if s == nil {
			continue
		}
		e := l.folds[events.SessionID{Source: s.Source, Session: s.Session}]
		if l.isAgain(e.fold, s) {
			return fmt.Errorf("stream %s: %w", streams.EventsStream(l.generation), events.ErrWentBack)
		}
		e.fold.Add(s)
		l.added++
		l.bytes += e.fold.Size() - e.size
		e.size, e.used, e.last = e.fold.Size(), l.round, l.added
		if !e.changed {
			e.changed = true
			l.changed = append(l.changed, e)
		}
	}
	l.keeper.telemetry.add(ctx, l.generation, len(list))
	return nil
}

// isAgain reports whether an event was made again at another position, because the stream lost the one in the fold.
// Events that existed when the leader began anew are never again.
func (l *leader) isAgain(f *sessions.Fold, s *sessions.Step) bool {
	_, last := f.Positions()
	return s.Position > last && s.Sequence > 0 && s.Sequence <= f.Sequence() && s.Position > l.begun.In(l.cell)
}

// load loads the missing folds of a chunk with one request. It rejects the answer of a replica that lacks this
// leader's checkpoint.
func (l *leader) load(ctx context.Context, list []item) error {
	var subjects []string
	missing := map[events.SessionID]string{}
	for i := range list {
		if list[i].step == nil {
			continue
		}
		id := events.SessionID{Source: list[i].step.Source, Session: list[i].step.Session}
		if _, known := missing[id]; known || l.folds[id] != nil {
			continue
		}
		missing[id] = l.foldSubject(id)
		subjects = append(subjects, missing[id])
	}
	if len(missing) == 0 {
		return nil
	}
	newest := broker.Place{Subject: l.checkpointSubject(), Sequence: l.sequence}
	stored, err := broker.MessagesAsOf(ctx, l.js, l.stream(), newest, subjects)
	if err != nil {
		return err
	}
	for id, subject := range missing {
		e := &entry{id: id, fold: sessions.NewFold(sessions.WholeSession)}
		if m, ok := stored[subject]; ok {
			if e.fold, err = sessions.DecodeFold(m.Data); err != nil {
				return fmt.Errorf("%w: fold %d of stream %s", errDamaged, m.Sequence, l.stream())
			}
		}
		e.size = e.fold.Size()
		l.bytes += e.size
		l.folds[id] = e
	}
	return nil
}

// commit stores the changed sessions, and the checkpoint under an owner. After an error nothing in memory is valid:
// taking the records over again shows what is stored.
func (l *leader) commit(ctx context.Context, owner string) error {
	if err := l.findStored(ctx); err != nil {
		return err
	}
	next := l.stored
	next.Position, next.Cell, next.Stored, next.Owner = *l.position.Load(), l.cell, l.at, owner
	var messages []*nats.Msg
	size := 0
	for _, e := range l.changed {
		own, err := l.messages(e.fold, e.id)
		if err != nil {
			return err
		}
		more := len(own[0].Data) + len(own[1].Data)
		if len(messages) > 0 && (len(messages)+len(own) > maxBatch || size+more > maxBytes) {
			// The checkpoint moves with the last batch; until then the folds know their events.
			if err := l.publish(ctx, messages, &l.stored); err != nil {
				return err
			}
			messages, size = nil, 0
		}
		messages, size = append(messages, own[:]...), size+more
		e.changed = false
	}
	if err := l.publish(ctx, messages, &next); err != nil {
		return err
	}
	l.stored, l.changed = next, nil
	if err := l.storeFilters(ctx); err != nil {
		return err
	}
	l.evict()
	l.round++
	return nil
}

// findStored asks the broker when it stored the last event; this is unknown for an event that was handed over.
func (l *leader) findStored(ctx context.Context) error {
	position := l.position.Load().In(l.cell)
	if !l.at.IsZero() || position == 0 {
		return nil
	}
	var err error
	l.at, err = l.storedAt(ctx, l.cell, position)
	return err
}

// messages returns the messages of the record and the fold of a session.
func (l *leader) messages(f *sessions.Fold, id events.SessionID) (out [2]*nats.Msg, err error) {
	fold, err := f.Encode()
	if err != nil {
		return out, err
	}
	record, err := json.Marshal(new(recordOf(f)))
	if err != nil {
		return out, fmt.Errorf("encode record: %w", err)
	}
	out[0] = l.message(l.recordFilter(id.Source, id.Session), record)
	out[1] = l.message(l.foldSubject(id), fold)
	return out, nil
}

// message returns a message that is kept as long as an event.
func (l *leader) message(subject string, data []byte) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
	if age := l.keeper.config.EventsMaxAge; age > 0 {
		m.Header[jetstream.MsgTTLHeader] = []string{strconv.FormatInt(int64(age/time.Second), 10) + "s"}
	}
	return m
}

// publish stores messages and a checkpoint in one atomic batch.
func (l *leader) publish(ctx context.Context, messages []*nats.Msg, c *checkpoint) error {
	m, err := l.checkpointMessage(c, l.sequence)
	if err != nil {
		return err
	}
	sequence, err := broker.PublishBatch(ctx, l.js.Conn(), append(messages, m))
	l.keeper.telemetry.commit(ctx, l.generation, err)
	if err != nil {
		return fmt.Errorf("store records of %s: %w", l.stream(), err)
	}
	l.sequence = sequence
	return nil
}

// evict drops the idle folds. If the rest still takes too much memory, it drops those not used since the last commit,
// then all. All of them are stored.
func (l *leader) evict() {
	l.drop(func(e *entry) bool { return l.added-e.last >= l.keeper.config.Idle })
	if l.bytes > l.keeper.config.Bytes {
		l.drop(func(e *entry) bool { return e.used != l.round })
	}
	if l.bytes > l.keeper.config.Bytes {
		l.drop(func(*entry) bool { return true })
	}
}

// drop drops the folds for which chosen returns true from memory.
func (l *leader) drop(chosen func(*entry) bool) {
	for id, e := range l.folds {
		if chosen(e) {
			l.bytes -= e.size
			delete(l.folds, id)
		}
	}
}
