package titles

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// CountMessages returns the number of messages with the title, the pin and the changes of a session.
func CountMessages(ctx context.Context, js jetstream.JetStream, k Key) (int64, error) {
	n, err := broker.CountFrom(ctx, js, stream, 1, k.metadataSubject(), k.changesSubject())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	return int64(n), err
}

// Erase removes the title, the pin and the changes of a session, and returns the number of removed messages. The events
// of the session must be gone before: [Service] accepts a title for every session with events.
func Erase(ctx context.Context, js jetstream.JetStream, k Key) (removed int64, err error) {
	for _, subject := range []string{k.metadataSubject(), k.changesSubject()} {
		n, err := broker.Purge(ctx, js, stream, subject, 0)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return 0, nil
		}
		if err != nil {
			return removed, err
		}
		removed += int64(n)
	}
	return removed, nil
}
