package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// Event is an event of a generation, as the events stream holds it. An event that is a dead
// letter has DeadLetter, and no AgentEventV1.
type Event struct {
	envelopes.AgentEventV1
	DeadLetter *DeadLetter // nil unless [EventsQuery.DeadLetters]; open, whatever happened since
	Provenance envelopes.Provenance
	Position   uint64    // sequence in the events stream
	Stored     time.Time // when the broker stored it
	RecordGone bool      // [EventsQuery.Raw] was asked for, and the record has left the raw stream

	// W3C context in which the event was published; Provenance has that of its record.
	Traceparent, Tracestate string
}

// EventsQuery selects events of a generation. The zero value of a field selects all.
type EventsQuery struct {
	Source  envelopes.Source
	Session string
	// SessionPrefix is an id, else the beginning of ids: it selects the session of this id if
	// there is one, else all sessions of the beginning. It is resolved at the start of the
	// iteration; if there is no such session, an iteration that follows waits for one. An id
	// of more than 120 bytes must be whole.
	SessionPrefix string
	Sessions      []SessionID // at most [MaxSessions]; not together with Session or SessionPrefix
	Type          envelopes.EventType
	Since         time.Time         // stored at this time or later
	After         uint64            // only later positions
	Match         func(*Event) bool // nil for all
	Last          int               // only that many of the selected events that are there, and all that follow
	DeadLetters   bool              // dead letters, too
	Raw           bool              // load the raw of events that refer to their record
	Follow        bool              // go on with events that arrive, instead of ending with those that are there

	// Interrupted is called when the reading is interrupted, before it goes on behind the last
	// event: the broker is away, the consumer was deleted, or a replica has lost its leader.
	Interrupted func(error)
}

// Events iterates over the events of a generation in the order of their stream, and so in
// order within each session. It ends with the last event that is there at the beginning or,
// when q follows, with ctx. A message that cannot be read is yielded as an error with its
// Position, and the iteration goes on; any other error ends it. One that follows goes on when the
// broker comes back, however long that takes.
func Events(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		loaded := yield
		if q.Raw {
			loaded = func(e Event, err error) bool {
				if err == nil {
					if err := e.loadRaw(ctx, js); err != nil {
						yield(Event{}, err)
						return false
					}
				}
				return yield(e, err)
			}
		}
		if err := eachEvent(ctx, js, generation, q, readEvent, loaded); err != nil {
			yield(Event{}, fmt.Errorf("read events of %s: %w", generation, err))
		}
	}
}

// Outlines is [Events] without Provenance and without what is native to a vendor
// ([envelopes.DecodeOutline]): it is faster, for sums over many events.
func Outlines(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := eachEvent(ctx, js, generation, q, readOutline, yield); err != nil {
			yield(Event{}, fmt.Errorf("read events of %s: %w", generation, err))
		}
	}
}

// readFunc reads an event. The result has its Position even when it cannot be read.
type readFunc func(stream string, m rawMessage) (Event, error)

// eachEvent yields the events, until yield returns false.
func eachEvent(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery, read readFunc, yield func(Event, error) bool) error {
	stream, err := js.Stream(ctx, EventsStream(generation))
	if err != nil {
		return err
	}
	r := eventsReader{EventsQuery: q, generation: generation, read: read, js: js, stream: stream, end: stream.CachedInfo().State.LastSeq}
	if err := r.resolve(ctx, generation); err != nil {
		return err
	}
	from := q.After + 1
	if q.Last > 0 {
		if from, err = r.startOfLast(ctx, from); err != nil {
			return err
		}
	}
	return r.each(ctx, from, q.Follow, yield)
}

// eventsReader reads the events of a query.
type eventsReader struct {
	EventsQuery
	generation  string
	read        readFunc
	headersOnly bool // without the payload
	js          jetstream.JetStream
	stream      jetstream.Stream
	end         uint64   // the last position at the beginning
	filters     []string // subjects; nil if no session has the prefix
	waiting     bool     // the filters select more than the sessions of the prefix
}

// MaxSessions limits the sessions that the broker selects for a query. The sessions of a prefix that has more
// are selected here, not by the broker.
const MaxSessions = 64

// resolve finds the subjects of the query.
func (r *eventsReader) resolve(ctx context.Context, generation string) error {
	subjects := func(source envelopes.Source, session string) []string {
		filters := []string{envelopes.EventFilter(generation, source, session, r.Type)}
		if r.DeadLetters {
			filters = append(filters, envelopes.DeadLetterFilter(generation, source, session))
		}
		return filters
	}
	if len(r.Sessions) > MaxSessions {
		return fmt.Errorf("%d sessions are more than %d", len(r.Sessions), MaxSessions)
	}
	for _, s := range r.Sessions {
		r.filters = append(r.filters, subjects(s.Source, s.Session)...)
	}
	if len(r.Sessions) > 0 {
		return nil
	}
	if r.SessionPrefix == "" {
		r.filters = subjects(r.Source, r.Session)
		return nil
	}
	found, err := r.sessions(ctx, envelopes.EventFilter(generation, r.Source, r.SessionPrefix, r.Type))
	if err == nil && len(found) == 0 {
		found, err = r.sessions(ctx, envelopes.EventFilter(generation, r.Source, "", r.Type))
	}
	switch {
	case err != nil:
		return err
	case len(found) == 0 && !r.Follow:
		return nil
	case len(found) == 0 || len(found) > MaxSessions:
		r.waiting = true
		r.filters = subjects(r.Source, "")
	default:
		for s := range found {
			r.filters = append(r.filters, subjects(s.source, s.id)...)
		}
	}
	return nil
}

// sessions returns the sessions of a subject filter whose ids have the prefix.
func (r *eventsReader) sessions(ctx context.Context, filter string) (map[sessionKey]struct{}, error) {
	info, err := r.stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	found := make(map[sessionKey]struct{})
	for subject := range info.State.Subjects {
		a, err := envelopes.ParseEventSubject(subject)
		if err != nil {
			continue // of another program: reading it reports the error
		}
		id, whole, err := envelopes.ParseToken(a.Token)
		if err == nil && !whole && a.Token == envelopes.Token(r.SessionPrefix) {
			id = r.SessionPrefix
		}
		if err == nil && id != "" && strings.HasPrefix(id, r.SessionPrefix) {
			found[sessionKey{a.Source, id}] = struct{}{}
		}
	}
	return found, nil
}

// The part of the stream that is searched first for the last events, and the factor by which it
// grows until it has enough of them.
const (
	lastWindow = 1 << 10
	lastGrowth = 8
)

// startOfLast returns the position of the first of the last events, not before from.
func (r *eventsReader) startOfLast(ctx context.Context, from uint64) (uint64, error) {
	for window := uint64(lastWindow); ; window *= lastGrowth {
		start := from
		if r.end >= window {
			start = max(from, r.end-window+1)
		}
		var positions []uint64 // the last ones
		var failed error
		err := r.each(ctx, start, false, func(e Event, err error) bool {
			if e.Position == 0 {
				failed = err
				return false
			}
			if positions = append(positions, e.Position); len(positions) >= 2*r.Last {
				positions = append(positions[:0], positions[len(positions)-r.Last:]...)
			}
			return true
		})
		switch err := cmp.Or(err, failed, ctx.Err()); {
		case err != nil:
			return 0, err
		case len(positions) >= r.Last:
			return positions[len(positions)-r.Last], nil
		case start == from && len(positions) > 0:
			return positions[0], nil
		case start == from:
			return r.end + 1, nil
		}
	}
}

// maxInterruptions is how often a reading that does not follow begins again without progress.
const maxInterruptions = 3

// each yields the selected events from a position on. It begins again where the reading was
// interrupted: the next consumer may live on another replica.
func (r *eventsReader) each(ctx context.Context, from uint64, follow bool, yield func(Event, error) bool) error {
	if r.filters == nil {
		return nil
	}
	opened := false
	for failures := 0; ; {
		before := from
		c, err := openStream(ctx, r.js, EventsStream(r.generation), r.consumer(from))
		if err == nil {
			opened = true
			c.ahead = eventsAhead
			err = r.readOn(ctx, c, &from, follow, yield)
			c.close()
		}
		if failures++; from > before {
			failures = 1
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return nil //nolint:nilerr // ctx ends the iteration
		case !opened, errors.Is(err, jetstream.ErrStreamNotFound), !follow && failures >= maxInterruptions:
			return err
		}
		if r.Interrupted != nil {
			r.Interrupted(err)
		}
		if pause(ctx, min(time.Duration(failures)*retryReplica, maxReadPause)) != nil {
			return nil //nolint:nilerr // ctx ends the iteration
		}
	}
}

// eventsAhead is how many events a request asks for. Two requests fit the buffer of a reader.
const eventsAhead = 256

// maxReadPause is the longest wait before a reading that was interrupted begins again.
const maxReadPause = 5 * time.Second

// readOn yields the selected events of a consumer. It returns nil at the end, or when yield
// returns false. It keeps from behind the last message.
func (r *eventsReader) readOn(ctx context.Context, c *reader, from *uint64, follow bool, yield func(Event, error) bool) error {
	if pending := c.pending; !follow && pending == 0 {
		return c.exhausted(ctx, r.end)
	}
	for {
		messages, err := c.next(ctx, nil)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if !follow && m.sequence > r.end {
				return nil
			}
			*from = m.sequence + 1
			e, err := r.read(EventsStream(r.generation), m)
			if (err != nil || r.selects(&e)) && !yield(e, err) {
				return nil
			}
			if !follow && m.pending == 0 {
				return c.exhausted(ctx, r.end)
			}
		}
	}
}

// selects reports whether an event that the filters select belongs to the query.
func (r *eventsReader) selects(e *Event) bool {
	session := e.SessionID
	if e.DeadLetter != nil {
		session = e.DeadLetter.Session
	}
	return !e.Stored.Before(r.Since) && (!r.waiting || strings.HasPrefix(session, r.SessionPrefix)) && (r.Match == nil || r.Match(e))
}

// consumer returns the configuration of a consumer from a position on.
func (r *eventsReader) consumer(from uint64) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{Description: "A reader of events.", FilterSubjects: r.filters, HeadersOnly: r.headersOnly, DeliverPolicy: jetstream.DeliverAllPolicy}
	switch {
	case from > 1:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	case !r.Since.IsZero():
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &r.Since
	}
	return cfg
}

// newEvent returns an event of a message without its content.
func newEvent(m rawMessage) Event {
	return Event{
		Position: m.sequence, Stored: m.stored.UTC(),
		Traceparent: m.Header.Get(envelopes.HeaderTraceparent), Tracestate: m.Header.Get(envelopes.HeaderTracestate),
	}
}

// readEvent reads a whole event, or a dead letter.
func readEvent(stream string, m rawMessage) (Event, error) {
	e := newEvent(m)
	var err error
	if strings.HasPrefix(m.Subject, "deadletters.") {
		letter, err := readDeadLetter(stream, m)
		e.DeadLetter = &letter
		return e, err
	}
	if e.AgentEventV1, e.Provenance, err = envelopes.DecodeEvent(m.Header, m.Data); err != nil {
		return e, fmt.Errorf("event %d of %s: %w", e.Position, stream, err)
	}
	return e, nil
}

// readOutline reads an event without its native JSON. In binary mode the payload is the event; an event in
// structured mode, and a dead letter, is read as a whole.
func readOutline(stream string, m rawMessage) (Event, error) {
	if m.Header.Get("ce-specversion") == "" {
		return readEvent(stream, m)
	}
	e := newEvent(m)
	var err error
	if e.AgentEventV1, err = envelopes.DecodeOutline(m.Data); err != nil {
		return e, fmt.Errorf("event %d of %s: %w", e.Position, stream, err)
	}
	return e, nil
}

// CountEvents returns how many events of a generation the stream has behind a position.
func CountEvents(ctx context.Context, js jetstream.JetStream, generation string, after uint64) (uint64, error) {
	return countFrom(ctx, js, EventsStream(generation), after+1, envelopes.EventFilter(generation, "", "", ""))
}

// HasEvents reports whether any generation on the server has an event of a session.
func HasEvents(ctx context.Context, js jetstream.JetStream, source envelopes.Source, session string) (bool, error) {
	const keys = "$KV." + controlBucket + "." + generationPrefix
	stored, err := lastMessages(ctx, js, "KV_"+controlBucket, []string{keys + "*"})
	if err != nil {
		return false, fmt.Errorf("read generations: %w", err)
	}
	for subject := range stored {
		generation := strings.TrimPrefix(subject, keys)
		_, err := LastStored(ctx, js, EventsStream(generation), envelopes.EventFilter(generation, source, session, ""))
		var api *jetstream.APIError
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound: // the operator removed the generation
		default:
			return false, fmt.Errorf("look for events of generation %s: %w", generation, err)
		}
	}
	return false, nil
}
