package summaries

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// Status is the progress of the records of a generation.
type Status struct {
	Kept     bool              `json:"kept"`               // there are records; otherwise each reader sums up the events itself
	Position streams.Positions `json:"position"`           // of the last event in them, by cell
	Behind   uint64            `json:"behind"`             // events not in them
	Owner    string            `json:"owner,omitzero"`     // keeper that works on them; empty for none
	StoredAt time.Time         `json:"stored_at,omitzero"` // when the checkpoint was stored, by the broker's clock
	Silent   bool              `json:"silent"`             // no keeper works on the records
}

// View reads the records of a generation and the events not in them yet. Its results include all events stored when
// it is asked.
type View struct {
	store

	kept       bool
	cells      int // set if kept
	checkpoint checkpoint
	sequence   uint64 // of the checkpoint
	storedAt   time.Time
	openedAt   time.Time // by the broker's clock
	unreadable func(error)
}

// Open returns a view of a generation. It passes the errors of unreadable events to unreadable and skips the events,
// as the keeper of the records did.
func Open(ctx context.Context, js jetstream.JetStream, generation string, unreadable func(error)) (*View, error) {
	v := &View{store: store{js, generation}, unreadable: unreadable}
	events, err := v.events(ctx)
	if err != nil {
		return nil, err
	}
	v.openedAt = events.TimeStamp
	c, stored, err := v.readCheckpoint(ctx)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, errDamaged):
		return v, nil
	case err != nil:
		return nil, err
	}
	if v.kept, err = v.fits(ctx, &c, events); err != nil {
		return nil, err
	}
	if v.kept {
		v.checkpoint, v.sequence, v.storedAt = c, stored.Sequence, stored.Time
		last, err := streams.LastPositions(ctx, js, generation)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", streams.EventsStream(generation), err)
		}
		v.cells = len(last)
	}
	return v, nil
}

// Status returns the progress of the records.
func (v *View) Status(ctx context.Context) (Status, error) {
	s := Status{Kept: v.kept, Position: v.checkpoint.Position, Owner: v.checkpoint.Owner, StoredAt: v.storedAt}
	s.Silent = !s.Kept || s.Owner == "" || v.openedAt.Sub(v.storedAt) > Patience
	var err error
	s.Behind, err = events.Count(ctx, v.js, v.generation, v.checkpoint.Position)
	return s, err
}

// Continues reports whether the records of v are later states of the records of an earlier view. If they were made
// again, if some were erased, or if they went back in time with the broker, the earlier ones are void. It is also false
// if there are no records.
func (v *View) Continues(ctx context.Context, earlier *View) (bool, error) {
	now, then := &v.checkpoint, &earlier.checkpoint
	switch {
	case !v.kept || !earlier.kept, !now.Stream.Equal(then.Stream), !now.Begun.Equal(then.Begun), now.Erasures != then.Erasures,
		now.Epoch < then.Epoch, !now.Position.Reach(then.Position), v.sequence < earlier.sequence:
		return false, nil
	case v.sequence == earlier.sequence:
		return v.storedAt.Equal(earlier.storedAt), nil
	}
	// A stream that went back in time and has grown since has later messages at the sequences of the earlier view.
	last, err := v.lastStored(ctx, v.stream(), ">", earlier.sequence)
	if errors.Is(err, jetstream.ErrStreamNotFound) { // it was deleted since v was opened
		return false, nil
	}
	return err == nil && !last.After(earlier.storedAt), err
}

// Session returns the fold of the events of a session.
func (v *View) Session(ctx context.Context, id events.SessionID) (*sessions.Fold, error) {
	fold, err := v.stored(ctx, id)
	if err != nil {
		return nil, err
	}
	_, after := fold.Positions()
	q := events.Query{Source: id.Source, Session: id.Session, After: v.everywhere(after)}
	for s, err := range Steps(ctx, v.js, v.generation, q, v.unreadable) {
		if err != nil {
			return nil, err
		}
		fold.Add(&s)
	}
	return fold, nil
}

// stored returns the stored fold of a session; an empty one if there is none.
func (v *View) stored(ctx context.Context, id events.SessionID) (*sessions.Fold, error) {
	if !v.kept {
		return sessions.NewFold(sessions.WholeSession), nil
	}
	m, err := broker.LastStored(ctx, v.js, v.stream(), v.foldSubject(id))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return sessions.NewFold(sessions.WholeSession), nil
	case err != nil:
		return nil, fmt.Errorf("read stream %s: %w", v.stream(), err)
	}
	fold, err := sessions.DecodeFold(m.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: fold %d of stream %s", errDamaged, m.Sequence, v.stream())
	}
	return fold, nil
}

// Each passes the record of each session of a source, empty for all, to visit, in no order. A session that changes
// meanwhile may come twice, the newer record last. The memory is bounded except for 8 bytes per session with events
// that are not in the records yet.
func (v *View) Each(ctx context.Context, source envelopes.Source, visit func(*Record) error) error {
	behind, seed := map[uint64]bool{}, maphash.MakeSeed()
	hash := func(source envelopes.Source, session string) uint64 {
		return maphash.Comparable(seed, events.SessionID{Source: source, Session: session})
	}
	q := events.Query{Source: source, After: v.checkpoint.Position}
	begin := func(source envelopes.Source, session string) (*sessions.Fold, error) {
		return v.stored(ctx, events.SessionID{Source: source, Session: session})
	}
	steps := Steps(ctx, v.js, v.generation, q, v.unreadable)
	err := sessions.Each(steps, sessions.WholeSession, sessions.Memory{}, begin, func(f *sessions.Fold) error {
		r := recordOf(f)
		if v.kept {
			behind[hash(r.Source, r.Session)] = true
		}
		return visit(&r)
	})
	if err != nil || !v.kept {
		return err
	}
	for r, err := range v.records(ctx, source) {
		if err != nil {
			return err
		}
		if !behind[hash(r.Source, r.Session)] {
			if err := visit(&r); err != nil {
				return err
			}
		}
	}
	return nil
}

// Newest passes the records that were stored last to visit, oldest first: at least n of them. It passes none if there
// are fewer than n, or if reading all records takes about as long.
func (v *View) Newest(ctx context.Context, n int, visit func(*Record) error) error {
	if !v.kept {
		return nil
	}
	filter := v.recordFilter("", "")
	for window := 4 * uint64(n); window < v.sequence; window *= 8 {
		from := v.sequence - window + 1
		found, err := broker.CountFrom(ctx, v.js, v.stream(), from, filter)
		if err != nil {
			return err
		}
		if found < uint64(n) {
			continue
		}
		return v.visitFrom(ctx, from, filter, visit)
	}
	return nil
}

// visitFrom passes the records from a position on to visit.
func (v *View) visitFrom(ctx context.Context, from uint64, filter string, visit func(*Record) error) error {
	messages, err := v.read(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
	})
	if err != nil {
		return err
	}
	defer messages.Stop()
	for pending := uint64(1); pending > 0; {
		m, meta, err := v.next(ctx, messages, readTimeout)
		if err != nil {
			return err
		}
		pending = meta.NumPending
		r, err := v.decode(m, meta)
		if err != nil {
			return err
		}
		if err := visit(&r); err != nil {
			return err
		}
	}
	return nil
}

// records iterates over the stored records in the order of their last change. A replica has sent all of them once it
// has sent a checkpoint at least as new as the view's.
func (v *View) records(ctx context.Context, source envelopes.Source) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		messages, err := v.read(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{v.checkpointSubject(), v.recordFilter(source, "")}})
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer messages.Stop()
		for complete, pending := false, uint64(1); pending > 0 || !complete; {
			m, meta, err := v.next(ctx, messages, readTimeout)
			if err != nil {
				yield(Record{}, err)
				return
			}
			pending = meta.NumPending
			if m.Subject() == v.checkpointSubject() {
				var c checkpoint
				complete = json.Unmarshal(m.Data(), &c) == nil && c.Position.Reach(v.checkpoint.Position)
				continue
			}
			if r, err := v.decode(m, meta); !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Follow iterates over the records of a source, empty for all, stored from a time on, zero for now, until ctx ends. It
// ends with [ErrAnew] if the records were made again, some were erased, or they went back in time. A consumer alone would
// not notice: it waits for messages behind its position.
func (v *View) Follow(ctx context.Context, source envelopes.Source, since time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		messages, err := v.readFrom(ctx, source, since)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer messages.Stop()
		look := time.NewTicker(followLook)
		defer look.Stop()
		latest := v
		for {
			m, meta, err := v.next(ctx, messages, followLook)
			if ctx.Err() != nil {
				return
			}
			silent := errors.Is(err, context.DeadlineExceeded)
			if errors.Is(err, jetstream.ErrStreamNotFound) { // the reader noticed it before the next look
				_, gone := latest.continued(ctx) // nil if nobody answers for the stream at the moment
				err = cmp.Or(gone, v.anew())
			}
			var r Record
			if err == nil {
				r, err = v.decode(m, meta)
			}
			if !silent && (!yield(r, err) || err != nil) {
				return
			}
			select {
			case <-look.C:
				if latest, err = latest.continued(ctx); err != nil {
					yield(Record{}, err)
					return
				}
			default:
			}
		}
	}
}

// continued returns a later view of the records; the same view while the broker is unavailable.
func (v *View) continued(ctx context.Context) (*View, error) {
	later, err := Open(ctx, v.js, v.generation, v.unreadable)
	continues := !v.kept
	if err == nil && v.kept {
		continues, err = later.Continues(ctx, v)
	}
	switch {
	case ctx.Err() != nil, broker.Unavailable(err), !v.js.Conn().IsConnected():
		return v, nil //nolint:nilerr // the reading fails by itself if the broker stays unavailable
	case err != nil:
		return nil, err
	case !continues:
		return nil, v.anew()
	}
	return later, nil
}

func (v *View) anew() error { return fmt.Errorf("%w: stream %s", ErrAnew, v.stream()) }

// followLook is how often [View.Follow] checks that the records continue.
const followLook = 2 * time.Second

// readTimeout bounds the wait for an existing record or checkpoint.
const readTimeout = 10 * time.Second

// maxResets is how often reading starts again while the broker is away, which takes up to 25 seconds.
const maxResets = 5

// readFrom begins to read the records of a source stored from a time on; zero for now.
func (v *View) readFrom(ctx context.Context, source envelopes.Source, since time.Time) (jetstream.MessagesContext, error) {
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{v.recordFilter(source, "")}, DeliverPolicy: jetstream.DeliverNewPolicy}
	if !since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	return v.read(ctx, cfg)
}

// read begins to read messages.
func (v *View) read(ctx context.Context, cfg jetstream.OrderedConsumerConfig) (jetstream.MessagesContext, error) {
	cfg.MaxResetAttempts = maxResets
	consumer, err := v.js.OrderedConsumer(ctx, v.stream(), cfg)
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", v.stream(), err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", v.stream(), err)
	}
	return messages, nil
}

// next waits for the next message, for at most timeout unless that is 0.
func (v *View) next(ctx context.Context, messages jetstream.MessagesContext, timeout time.Duration) (m jetstream.Msg, meta *jetstream.MsgMetadata, err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	m, err = messages.Next(jetstream.NextContext(ctx))
	if err == nil {
		meta, err = m.Metadata()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read stream %s: %w", v.stream(), err)
	}
	return m, meta, nil
}

// decode decodes a record.
func (v *View) decode(m jetstream.Msg, meta *jetstream.MsgMetadata) (r Record, err error) {
	if json.Unmarshal(m.Data(), &r) != nil {
		return r, fmt.Errorf("%w: record %d of stream %s", errDamaged, meta.Sequence.Stream, v.stream())
	}
	return r, nil
}

// Steps iterates over the steps of all events of the sessions whose records wanted selects, and of those with events
// not in their records yet, in stream order. q further selects by source, session and type. It reads the stream from
// the first event of these sessions on and, if they are few, only their events. Without records, or if wanted is nil,
// it iterates over the events of all sessions.
func (v *View) Steps(ctx context.Context, q events.Query, wanted func(*Record) bool) (iter.Seq2[sessions.Step, error], error) {
	if !v.kept || q.Session != "" || wanted == nil {
		return Steps(ctx, v.js, v.generation, q, v.unreadable), nil
	}
	first, err := v.firsts(ctx, q, wanted)
	if err != nil {
		return nil, err
	}
	if len(first) == 0 {
		return func(func(sessions.Step, error) bool) {}, nil
	}
	from := v.behind()
	for id, position := range first {
		if from = min(from, position); len(first) <= events.MaxSessions {
			q.Sessions = append(q.Sessions, id)
		}
	}
	q.After = v.everywhere(from - 1)
	return func(yield func(sessions.Step, error) bool) {
		for s, err := range Steps(ctx, v.js, v.generation, q, v.unreadable) {
			_, is := first[events.SessionID{Source: s.Source, Session: s.Session}]
			if (is || err != nil) && !yield(s, err) {
				return
			}
		}
	}, nil
}

// firsts returns the positions of the first events of the sessions that wanted selects, and of those with events not
// in their records yet.
func (v *View) firsts(ctx context.Context, q events.Query, wanted func(*Record) bool) (map[events.SessionID]uint64, error) {
	q.After = v.checkpoint.Position
	found, err := events.FindSessions(ctx, v.js, v.generation, q, "", 0)
	if err != nil {
		return nil, err
	}
	first := make(map[events.SessionID]uint64)
	for _, id := range found {
		first[id] = v.behind()
	}
	for r, err := range v.records(ctx, q.Source) {
		if err != nil {
			return nil, err
		}
		id := events.SessionID{Source: r.Source, Session: r.Session}
		if _, is := first[id]; is || wanted(&r) {
			first[id] = r.First
		}
	}
	return first, nil
}

// everywhere returns a position in every cell, because a session has its positions in one of them.
func (v *View) everywhere(position uint64) streams.Positions {
	return slices.Repeat(streams.Positions{position}, max(1, v.cells))
}

// behind returns a position before which the records have all events of every cell.
func (v *View) behind() uint64 {
	least := v.checkpoint.Position.In(0)
	for c := range v.cells {
		least = min(least, v.checkpoint.Position.In(c))
	}
	return least + 1
}

// Steps iterates over the steps of the stored events that q selects, in stream order. It passes the error of an
// unreadable event to unreadable and skips the event. Unless q follows, the end of ctx is an error.
func Steps(ctx context.Context, js jetstream.JetStream, generation string, q events.Query, unreadable func(error)) iter.Seq2[sessions.Step, error] {
	return func(yield func(sessions.Step, error) bool) {
		for e, err := range events.Outlines(ctx, js, generation, q) {
			switch {
			case err != nil && e.Position > 0:
				unreadable(err)
			case !yield(sessions.NewStep(&e.AgentEventV1, e.Position), err):
				return
			}
		}
		if err := context.Cause(ctx); err != nil && !q.Follow {
			yield(sessions.Step{}, err)
		}
	}
}
