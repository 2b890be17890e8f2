package pipeline

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
)

// SessionID names a session: two sources can have one of the same id.
type SessionID struct {
	Source  envelopes.Source
	Session string
}

// FindSessions returns the sessions of a generation that have an event which q selects and whose ids begin with a
// prefix: at most so many (0 for all), in the order of these events. It reads subjects and headers, and no events.
func FindSessions(ctx context.Context, js jetstream.JetStream, generation string, q EventsQuery, prefix string, most int) ([]SessionID, error) {
	stream, err := js.Stream(ctx, EventsStream(generation))
	if err != nil {
		return nil, fmt.Errorf("find sessions: %w", err)
	}
	r := eventsReader{EventsQuery: q, stream: stream, end: stream.CachedInfo().State.LastSeq}
	if err := r.resolve(ctx, generation); err != nil {
		return nil, fmt.Errorf("find sessions: %w", err)
	}
	cfg := r.consumer(q.After + 1)
	cfg.HeadersOnly = true
	consumer, err := stream.OrderedConsumer(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("find sessions: %w", err)
	}
	if consumer.CachedInfo().NumPending == 0 {
		return nil, nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("find sessions: %w", err)
	}
	defer messages.Stop()
	var found []SessionID
	known := map[SessionID]bool{}
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("find sessions: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("find sessions: %w", err)
		}
		if meta.Sequence.Stream > r.end {
			return found, nil
		}
		if id, ok := sessionOf(m); ok && strings.HasPrefix(id.Session, prefix) && !known[id] {
			known[id] = true
			found = append(found, id)
		}
		if most > 0 && len(found) == most || meta.NumPending == 0 {
			return found, nil
		}
	}
}

// sessionOf returns the session of the subject of an event. The headers have an id that is too long for
// a subject.
func sessionOf(m jetstream.Msg) (SessionID, bool) {
	address, err := envelopes.ParseEventSubject(m.Subject())
	if err != nil {
		return SessionID{}, false
	}
	stated, err := envelopes.DecodeHeaderValue(m.Headers().Get(envelopes.HeaderSession))
	if err != nil {
		return SessionID{}, false
	}
	id, err := envelopes.ResolveToken(address.Token, stated)
	return SessionID{address.Source, id}, err == nil
}
