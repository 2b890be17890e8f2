package subscribe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// Status is the progress of a subscription.
type Status struct {
	Name string `json:"name"`
	events.ReaderStatus
	Stored     time.Time `json:"stored"`              // when its progress was last stored
	Unreadable bool      `json:"unreadable,omitzero"` // its progress cannot be read
}

// selection is the part of a subscription's selection that the broker can make by subject.
type selection struct {
	Source  envelopes.Source    `json:"source,omitzero"`
	Session string              `json:"session,omitzero"`
	Type    envelopes.EventType `json:"type,omitzero"`
}

// ReadStatus returns the progress of all subscriptions, ordered by name. It changes nothing.
func ReadStatus(ctx context.Context, js jetstream.JetStream) ([]Status, error) {
	ctx, cancel := broker.UntilDisconnected(ctx, js.Conn())
	defer cancel()
	const what = "progress of the subscriptions"
	kv, err := js.KeyValue(ctx, streams.SubscribersBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	names, err := kv.ListKeys(ctx, jetstream.MetaOnly())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var list []Status
	var sorted []string
	for name := range names.Keys() {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		s, err := readStatus(ctx, js, name)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // removed meanwhile
		case err != nil:
			return nil, fmt.Errorf("subscription %s: %w", name, err)
		default:
			list = append(list, s)
		}
	}
	return list, context.Cause(ctx)
}

// readStatus reads the progress of a subscription and compares it with the streams.
func readStatus(ctx context.Context, js jetstream.JetStream, name string) (s Status, err error) {
	m, err := broker.LastStored(ctx, js, "KV_"+streams.SubscribersBucket, subjectPrefix+name)
	switch {
	case err != nil:
		return s, err
	case len(m.Data) == 0:
		return s, jetstream.ErrMsgNotFound
	}
	var c cursor
	s = Status{Name: name, Stored: m.Time, Unreadable: json.Unmarshal(m.Data, &c) != nil}
	if !s.Unreadable {
		reader := c.reader()
		s.ReaderStatus, err = reader.Status(ctx, js)
	}
	return s, err
}

// reader returns the progress in the form common to all readers.
func (c *cursor) reader() events.Reader {
	r := events.Reader{
		Generation: c.Generation, Created: c.Created, Marks: c.Marks, Done: c.Position,
		Source: c.Selects.Source, Session: c.Selects.Session, Type: c.Selects.Type,
	}
	for cell, end := range c.Ends {
		r.Done = r.Done.With(cell, max(end, r.Done.In(cell)))
	}
	return r
}
