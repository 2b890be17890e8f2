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
	Type          envelopes.EventType
	Since         time.Time         // stored at this time or later
	After         uint64            // only later positions
	Match         func(*Event) bool // nil for all
	Last          int               // only that many of the selected events that are there, and all that follow
	DeadLetters   bool              // dead letters, too
	Follow        bool              // go on with events that arrive, instead of ending with those that are there
}

// Events iterates over the events of a generation in the order of their stream, and so in
// order within each session. It ends with the last event that is there at the beginning or,
// when q follows, with ctx. A message that cannot be read is yielded as an error with its
// Position, and the iteration goes on; any other error ends it.
func Events(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := eachEvent(ctx, js, generation, q, yield); err != nil {
			yield(Event{}, fmt.Errorf("read events of %s: %w", generation, err))
		}
	}
}

// eachEvent yields the events, until yield returns false.
func eachEvent(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery, yield func(Event, error) bool) error {
	stream, err := js.Stream(ctx, EventsStream(generation))
	if err != nil {
		return err
	}
	r := eventsReader{EventsQuery: q, stream: stream, end: stream.CachedInfo().State.LastSeq}
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
	stream  jetstream.Stream
	end     uint64   // the last position at the beginning
	filters []string // subjects; nil if no session has the prefix
	waiting bool     // the filters select more than the sessions of the prefix
}

// maxSessionFilters limits the subjects of a consumer. The sessions of a prefix that has more
// are selected here, not by the broker.
const maxSessionFilters = 64

// resolve finds the subjects of the query.
func (r *eventsReader) resolve(ctx context.Context, generation string) error {
	subjects := func(source envelopes.Source, session string) []string {
		filters := []string{envelopes.EventFilter(generation, source, session, r.Type)}
		if r.DeadLetters {
			filters = append(filters, envelopes.DeadLetterFilter(generation, source, session))
		}
		return filters
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
	case len(found) == 0 || len(found) > maxSessionFilters:
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

// each yields the selected events from a position on.
func (r *eventsReader) each(ctx context.Context, from uint64, follow bool, yield func(Event, error) bool) error {
	if r.filters == nil {
		return nil
	}
	consumer, err := r.stream.OrderedConsumer(ctx, r.consumer(from))
	if err != nil {
		return err
	}
	if consumer.CachedInfo().NumPending == 0 && !follow {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if ctx.Err() != nil && err != nil {
			return nil // ctx ends the iteration
		}
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if !follow && meta.Sequence.Stream > r.end {
			return nil
		}
		e, err := readEvent(m, meta)
		if (err != nil || r.selects(&e)) && !yield(e, err) || meta.NumPending == 0 && !follow {
			return nil
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
func (r *eventsReader) consumer(from uint64) jetstream.OrderedConsumerConfig {
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: r.filters, DeliverPolicy: jetstream.DeliverAllPolicy}
	switch {
	case from > 1:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	case !r.Since.IsZero():
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &r.Since
	}
	return cfg
}

// readEvent reads an event. The result has its Position even when it cannot be read.
func readEvent(m jetstream.Msg, meta *jetstream.MsgMetadata) (Event, error) {
	e := Event{Position: meta.Sequence.Stream, Stored: meta.Timestamp.UTC()}
	var err error
	if strings.HasPrefix(m.Subject(), "deadletters.") {
		letter, err := readDeadLetter(m)
		e.DeadLetter = &letter
		return e, err
	}
	if e.AgentEventV1, e.Provenance, err = envelopes.DecodeEvent(m.Headers(), m.Data()); err != nil {
		return e, fmt.Errorf("event %d of %s: %w", e.Position, meta.Stream, err)
	}
	return e, nil
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
