package events

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
)

// SessionID identifies a session: two sources may have sessions with the same id.
type SessionID struct {
	Source  envelopes.Source
	Session string
}

// FindSessions returns the sessions of a generation whose ids begin with a prefix and that have an event selected by
// q: at most most of them (0 for all), in the order of these events. It reads subjects and headers, not events.
func FindSessions(ctx context.Context, js jetstream.JetStream, generation string, q Query, prefix string, most int) ([]SessionID, error) {
	q.Match = nil
	readers, err := openEvents(ctx, js, generation, eventsReader{Query: q, read: readSession, headersOnly: true})
	if err != nil {
		return nil, fmt.Errorf("find sessions: %w", err)
	}
	var found []SessionID
	known := map[SessionID]bool{}
	err = merge(ctx, readers, false, func(e Event, err error) bool {
		if id := (SessionID{e.Source, e.SessionID}); err == nil && strings.HasPrefix(id.Session, prefix) && !known[id] {
			known[id] = true
			found = append(found, id)
		}
		return most == 0 || len(found) < most
	})
	if err = cmp.Or(err, context.Cause(ctx)); err != nil {
		return nil, fmt.Errorf("find sessions: %w", err)
	}
	return found, nil
}

// readSession reads only the session of an event, from its subject, or from the headers if the id is too long for a
// subject.
func readSession(_ string, m broker.Message) (Event, error) {
	e := newEvent(m)
	address, err := envelopes.ParseEventSubject(m.Subject)
	if err != nil {
		return e, err
	}
	stated, err := envelopes.DecodeHeaderValue(m.Header.Get(envelopes.HeaderSession))
	if err != nil {
		return e, err
	}
	e.Source, e.EventType = address.Source, address.EventType
	e.SessionID, err = envelopes.ResolveToken(address.Token, stated)
	return e, err
}
