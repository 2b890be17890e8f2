package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/records"
	"tributary/pipeline/sessions"
	"tributary/pipeline/streams"
)

// Event is an event of a generation, as stored in its events stream. A dead letter has DeadLetter and an empty
// AgentEventV1.
type Event struct {
	envelopes.AgentEventV1
	DeadLetter *DeadLetter // nil unless [Query.DeadLetters]; its Standing is always open
	Provenance envelopes.Provenance
	Cell       int           // cell of its events stream
	Position   uint64        // sequence in that stream
	Stored     time.Time     // when the broker stored it
	Kept       time.Duration // how long the broker keeps it after Stored; 0 for ever
	RecordGone bool          // [Query.Raw] was set, but the record has left the raw stream

	Step *sessions.Step // what sums need of the event; set only by [Handover.Steps]

	// W3C context of the publication of the event; Provenance has that of its record.
	Traceparent, Tracestate string
}

// ClockError bounds how far the clock of a machine that writes logs may be ahead of the broker's, including a wrong
// time zone. Events are stored after they happen, so an event since a time t was stored at t minus ClockError or
// later.
const ClockError = 24 * time.Hour

// During reports whether an event happened from since on and before until; a zero time is no bound. An event without
// a time happened when it was stored.
func (e *Event) During(since, until time.Time) bool {
	at, err := e.Timestamp()
	if err != nil {
		at = e.Stored
	}
	return (since.IsZero() || !at.Before(since)) && (until.IsZero() || at.Before(until))
}

// Query selects events of a generation. The zero value of a field selects all.
type Query struct {
	Source  envelopes.Source
	Session string
	// SessionPrefix selects the session with this id if there is one, else all sessions whose ids begin with it. It
	// is resolved when the iteration begins; if no session matches, an iteration that follows waits for one. An id of
	// more than 120 bytes must be given in full.
	SessionPrefix string
	Sessions      []SessionID // at most [MaxSessions]; not together with Session or SessionPrefix
	Types         []envelopes.EventType
	Cells         []int             // only events of these cells; nil for all
	Since         time.Time         // stored at or after this time
	After         streams.Positions // only events after these positions
	Match         func(*Event) bool // nil for all
	Last          int               // only this many of the selected existing events, and all that follow
	DeadLetters   bool              // also dead letters
	Raw           bool              // load the raw of events that refer to their record
	Follow        bool              // continue with new events instead of ending with the existing ones

	// Read has, for each cell, the last event that was read before; zero for none. The iteration ends with
	// [ErrWentBack] if the stream has another event in its place, now or after an interruption.
	Read []Mark

	// Interrupted is called when the reading is interrupted, before it continues after the last event: the broker is
	// away, the consumer was deleted, or a replica has lost its leader.
	Interrupted func(error)
}

// Read iterates over the events of a generation in the order of their stream, and so in order within each session.
// With several cells, the existing events are ordered by their times of storage. It ends with the last event that
// exists at the beginning or, if q follows, with ctx. For an unreadable message it yields an error with its Position
// and continues; any other error ends it. If q follows, Read continues when the broker returns, however long that
// takes.
func Read(ctx context.Context, js jetstream.JetStream, generation string, q Query) iter.Seq2[Event, error] {
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

// Outlines is [Read] without Provenance and native parts of a vendor ([envelopes.DecodeOutline]). It is faster, for
// sums over many events.
func Outlines(ctx context.Context, js jetstream.JetStream, generation string, q Query) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := eachEvent(ctx, js, generation, q, readOutline, yield); err != nil {
			yield(Event{}, fmt.Errorf("read events of %s: %w", generation, err))
		}
	}
}

// readFunc decodes an event. The result has a Position even on an error. The error is errNotEvent for another message
// of the stream.
type readFunc func(stream string, m broker.Message) (Event, error)

// errNotEvent: the message is no event, such as a state or a dead letter.
var errNotEvent = errors.New("the message is not an event")

// eachEvent yields the events, until yield returns false.
func eachEvent(ctx context.Context, js jetstream.JetStream, generation string, q Query, read readFunc, yield func(Event, error) bool) error {
	readers, err := openEvents(ctx, js, generation, eventsReader{Query: q, read: read})
	if err != nil {
		return err
	}
	if q.Last > 0 {
		if err := startAtLast(ctx, readers, q.Last); err != nil {
			return err
		}
	}
	return merge(ctx, readers, q.Follow, yield)
}

// eventsReader reads the events of a query from the stream of one cell.
type eventsReader struct {
	Query
	name        string // name of the generation in the cell
	cell        int
	read        readFunc
	handover    *Handover // source of events that need not be read; nil for none
	headersOnly bool      // read headers only
	js          jetstream.JetStream
	stream      jetstream.Stream
	from        uint64   // first position
	end         uint64   // last position at the beginning
	mark        Mark     // last event read
	caughtUp    func()   // called when every event up to the end was passed; nil for nothing
	filters     []string // subjects; nil if no session has the prefix
	waiting     bool     // the filters select more sessions than have the prefix
}

// openEvents returns a reader like template for each cell of a generation.
func openEvents(ctx context.Context, js jetstream.JetStream, generation string, template eventsReader) ([]*eventsReader, error) {
	streams, err := streams.EventsStreams(ctx, js, generation)
	if err != nil {
		return nil, err
	}
	var readers []*eventsReader
	for c, stream := range streams {
		if template.Cells != nil && !slices.Contains(template.Cells, c) {
			continue
		}
		r := template
		r.name, r.cell, r.js, r.stream = envelopes.CellName(generation, c), c, js, stream
		r.from, r.end = r.After.In(c)+1, stream.CachedInfo().State.LastSeq
		if c < len(r.Read) {
			r.mark = r.Read[c]
		}
		readers = append(readers, &r)
	}
	return readers, resolve(ctx, readers)
}

// MaxSessions limits the sessions that the broker selects for a query. More sessions of a prefix are selected here
// instead. So are the types of a query, if the broker would need more filters for them.
const MaxSessions = 64

// resolve finds the subjects of the query for the readers of all cells.
func resolve(ctx context.Context, readers []*eventsReader) error {
	q := &readers[0].Query
	if len(q.Sessions) > MaxSessions {
		return fmt.Errorf("%d sessions are more than %d", len(q.Sessions), MaxSessions)
	}
	selected, waiting := q.Sessions, false
	switch {
	case len(q.Sessions) > 0:
	case q.SessionPrefix == "":
		selected = []SessionID{{q.Source, q.Session}}
	default:
		found, err := findPrefix(ctx, readers)
		switch {
		case err != nil:
			return err
		case len(found) == 0 && !q.Follow:
			return nil
		case len(found) == 0 || len(found) > MaxSessions:
			selected, waiting = []SessionID{{Source: q.Source}}, true
		default:
			selected = nil
			for s := range found {
				selected = append(selected, SessionID{s.Source, s.ID})
			}
		}
	}
	types := q.Types
	if len(types) == 0 || len(types)*len(selected) > MaxSessions {
		types = []envelopes.EventType{""}
	}
	for _, r := range readers {
		r.waiting = waiting
		for _, s := range selected {
			for _, t := range types {
				r.filters = append(r.filters, envelopes.EventFilter(r.name, s.Source, s.Session, t))
			}
			if q.DeadLetters {
				r.filters = append(r.filters, envelopes.DeadLetterFilter(r.name, s.Source, s.Session))
			}
		}
	}
	return nil
}

// findPrefix returns the session whose id is the prefix of the query, else those whose ids begin with it.
func findPrefix(ctx context.Context, readers []*eventsReader) (map[records.SessionKey]struct{}, error) {
	for _, session := range []string{readers[0].SessionPrefix, ""} {
		all := make(map[records.SessionKey]struct{})
		for _, r := range readers {
			found, err := r.sessions(ctx, envelopes.EventFilter(r.name, r.Source, session, ""))
			if err != nil {
				return nil, err
			}
			maps.Copy(all, found)
		}
		if len(all) > 0 {
			return all, nil
		}
	}
	return nil, nil
}

// sessions returns the sessions of a subject filter whose ids have the prefix.
func (r *eventsReader) sessions(ctx context.Context, filter string) (map[records.SessionKey]struct{}, error) {
	info, err := r.stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	found := make(map[records.SessionKey]struct{})
	for subject := range info.State.Subjects {
		a, err := envelopes.ParseEventSubject(subject)
		if err != nil {
			continue // of another program; reading it reports the error
		}
		id, whole, err := envelopes.ParseToken(a.Token)
		if err == nil && !whole && a.Token == envelopes.Token(r.SessionPrefix) {
			id = r.SessionPrefix
		}
		if err == nil && id != "" && strings.HasPrefix(id, r.SessionPrefix) {
			found[records.SessionKey{Source: a.Source, ID: id}] = struct{}{}
		}
	}
	return found, nil
}

// The part of the stream that is searched first for the last events, and the factor by which it grows until it has
// enough.
const (
	lastWindow = 1 << 10
	lastGrowth = 8
)

// place is the position of an event.
type place struct {
	reader   *eventsReader
	position uint64
	stored   time.Time
}

// startAtLast makes the readers begin at the last most events.
func startAtLast(ctx context.Context, readers []*eventsReader, most int) error {
	var all []place
	for _, r := range readers {
		last, err := r.last(ctx)
		if err != nil {
			return err
		}
		all = append(all, last...)
		r.from = r.end + 1
	}
	slices.SortStableFunc(all, func(a, b place) int { return a.stored.Compare(b.stored) })
	for _, p := range all[max(0, len(all)-most):] {
		p.reader.from = min(p.reader.from, p.position)
	}
	return nil
}

// last returns the places of the last events of the reader in order.
func (r *eventsReader) last(ctx context.Context) ([]place, error) {
	for window := uint64(lastWindow); ; window *= lastGrowth {
		start := r.from
		if r.end >= window {
			start = max(r.from, r.end-window+1)
		}
		var places []place
		var failed error
		err := r.each(ctx, start, false, func(e Event, err error) bool {
			if e.Position == 0 {
				failed = err
				return false
			}
			if places = append(places, place{r, e.Position, e.Stored}); len(places) >= 2*r.Last {
				places = append(places[:0], places[len(places)-r.Last:]...)
			}
			return true
		})
		switch err := cmp.Or(err, failed, ctx.Err()); {
		case err != nil:
			return nil, err
		case len(places) >= r.Last, start == r.from:
			return places[max(0, len(places)-r.Last):], nil
		}
	}
}

// maxInterruptions is how often in a row, without progress, a reading that does not follow begins again.
const maxInterruptions = 3

// each yields the selected events from a position on.
func (r *eventsReader) each(ctx context.Context, from uint64, follow bool, yield func(Event, error) bool) error {
	if r.handover != nil {
		return r.eachHanded(ctx, from, yield)
	}
	return r.eachStored(ctx, from, follow, yield)
}

// eachStored yields the selected events in the broker from a position on. After an interruption it begins again,
// because the next consumer may live on another replica.
func (r *eventsReader) eachStored(ctx context.Context, from uint64, follow bool, yield func(Event, error) bool) error {
	if r.filters == nil {
		return nil
	}
	opened := false
	for failures := 0; ; {
		before := from
		began, err := r.readOnce(ctx, &from, follow, yield)
		opened = opened || began
		if failures++; from > before {
			failures = 1
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return nil //nolint:nilerr // ctx ends the iteration
		case !opened, errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, ErrWentBack), errors.Is(err, nats.ErrConnectionClosed), !follow && failures >= maxInterruptions:
			return err
		}
		if r.Interrupted != nil {
			r.Interrupted(err)
		}
		if broker.Pause(ctx, min(time.Duration(failures)*claims.RetryReplica, maxReadPause)) != nil {
			return nil //nolint:nilerr // ctx ends the iteration
		}
	}
}

// readOnce is one attempt of eachStored. It ends with the connection, because a restarted server has lost the
// consumer.
func (r *eventsReader) readOnce(ctx context.Context, from *uint64, follow bool, yield func(Event, error) bool) (opened bool, err error) {
	ctx, cancel := broker.UntilDisconnected(ctx, r.js.Conn())
	defer cancel()
	c, err := broker.OpenReader(ctx, r.js, streams.EventsStream(r.name), r.consumer(*from))
	if err != nil {
		return false, broker.CauseOf(ctx, err)
	}
	defer c.Close()
	c.Ahead = eventsAhead
	if err = r.compare(ctx); err == nil {
		err = r.readOn(ctx, c, from, follow, yield)
	}
	return true, broker.CauseOf(ctx, err)
}

// compare returns [ErrWentBack] if the stream has another event in place of the last one read. It is called while
// there is a consumer, because restoring a stream ends its consumers.
func (r *eventsReader) compare(ctx context.Context) error {
	if r.mark.Position == 0 {
		return nil
	}
	is, err := compareMark(ctx, r.js, r.name, r.mark)
	if err == nil && is == markParted {
		err = fmt.Errorf("%w: stream %s no longer has event %d", ErrWentBack, streams.EventsStream(r.name), r.mark.Position)
	}
	return err
}

// eventsAhead is how many events a request asks for. Two requests fit the buffer of a reader.
const eventsAhead = 256

// maxReadPause is the longest wait before an interrupted reading begins again.
const maxReadPause = 5 * time.Second

// readOn yields the selected events of a consumer. It returns nil at the end, or when yield returns false. It keeps
// from at the position behind the last message.
func (r *eventsReader) readOn(ctx context.Context, c *broker.Reader, from *uint64, follow bool, yield func(Event, error) bool) error {
	switch pending := c.Pending; {
	case pending != 0:
	case follow:
		r.noteCaughtUp()
	default:
		return c.Exhausted(ctx, r.end)
	}
	if !follow {
		c.End, c.Until = r.end, r.end
	}
	for {
		messages, err := c.Next(ctx, nil)
		if errors.Is(err, broker.ErrEnd) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range messages {
			if !follow && m.Sequence > r.end {
				return nil
			}
			*from = m.Sequence + 1
			e, err := r.read(streams.EventsStream(r.name), m)
			e.Cell = r.cell
			if e.DeadLetter == nil && !errors.Is(err, errNotEvent) { // a dead letter or a state may be removed
				r.mark = MarkOf(&e)
			}
			if !errors.Is(err, errNotEvent) && (err != nil || r.selects(&e)) && !yield(e, err) {
				return nil
			}
			switch {
			case m.Pending != 0 && m.Sequence < r.end:
			case follow:
				r.noteCaughtUp()
			default:
				return c.Exhausted(ctx, r.end)
			}
		}
	}
}

func (r *eventsReader) noteCaughtUp() {
	if r.caughtUp != nil {
		r.caughtUp()
		r.caughtUp = nil
	}
}

// selects reports whether an event selected by the filters belongs to the query.
func (r *eventsReader) selects(e *Event) bool {
	session, typed := e.SessionID, len(r.Types) == 0 || slices.Contains(r.Types, e.EventType)
	if e.DeadLetter != nil {
		session, typed = e.DeadLetter.Session, true
	}
	return typed && !e.Stored.Before(r.Since) && (!r.waiting || strings.HasPrefix(session, r.SessionPrefix)) && (r.Match == nil || r.Match(e))
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

// newEvent returns the event of a message without its content.
func newEvent(m broker.Message) Event {
	return Event{
		Position: m.Sequence, Stored: m.Stored.UTC(), Kept: ttlOf(m.Header),
		Traceparent: m.Header.Get(envelopes.HeaderTraceparent), Tracestate: m.Header.Get(envelopes.HeaderTracestate),
	}
}

// ttlOf returns how long the broker keeps a message; 0 for ever.
func ttlOf(h nats.Header) time.Duration {
	text := h.Get(jetstream.MsgTTLHeader)
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	ttl, err := time.ParseDuration(text)
	if err != nil {
		return 0 // "never", or missing
	}
	return ttl
}

// readEvent reads a whole event, or a dead letter.
func readEvent(stream string, m broker.Message) (Event, error) {
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

// readOutline decodes an event without its native JSON. In binary mode the payload is the event. An event in
// structured mode, and a dead letter, is decoded as a whole.
func readOutline(stream string, m broker.Message) (Event, error) {
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

// Count returns how many events of a generation come after positions.
func Count(ctx context.Context, js jetstream.JetStream, generation string, after streams.Positions) (n uint64, err error) {
	list, err := streams.EventsStreams(ctx, js, generation)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", streams.EventsStream(generation), err)
	}
	for c := range list {
		name := envelopes.CellName(generation, c)
		more, err := broker.CountFrom(ctx, js, streams.EventsStream(name), after.In(c)+1, streams.EventsOf(name))
		if err != nil {
			return 0, err
		}
		n += more
	}
	return n, nil
}

// Exist reports whether any generation on the server has an event of a session.
func Exist(ctx context.Context, js jetstream.JetStream, source envelopes.Source, session string) (bool, error) {
	const keys = "$KV." + streams.ControlBucket + "." + streams.GenerationPrefix
	stored, err := broker.MessagesOf(ctx, js, "KV_"+streams.ControlBucket, []string{keys + "*"})
	if err != nil {
		return false, fmt.Errorf("read generations: %w", err)
	}
	l, err := streams.ReadLayout(ctx, js)
	if err != nil {
		return false, err
	}
	cell := l.Cell(envelopes.Partition(source, session, l.Partitions))
	for subject := range stored {
		generation := strings.TrimPrefix(subject, keys)
		name := envelopes.CellName(generation, cell)
		_, err := broker.LastStored(ctx, js, streams.EventsStream(name), envelopes.EventFilter(name, source, session, ""))
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
