package titles

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
)

// write is a call that changes a record, over all its tries. The id of the call is the id of the change, so a try
// with a lost answer can be found.
type write struct {
	key   Key
	id    string
	guard guard
	apply func(*Session) (ChangeType, bool)

	lost  error  // why the answer to a try was lost, so that its outcome is unknown; else nil
	since uint64 // revision that this try was to replace
}

// try reads the record and stores the resulting change, unless another writer stored a newer record meanwhile. again
// means that another try may succeed after an error. Each try expects the record that it replaces, so at most one try
// of a call is ever stored: a late one finds a newer record.
func (s *Service) try(ctx context.Context, w *write) (c *Change, again bool, err error) {
	record, err := s.load(ctx, w.key)
	if err == nil && w.lost != nil && record.Revision > w.since { // the outcome can be found out
		if c, err = s.find(ctx, w, record.changed()); err == nil {
			w.lost = nil
		}
	}
	switch {
	case err != nil:
		return nil, unanswered(err), err
	case c != nil:
		return c, false, nil
	case w.guard.version != nil && *w.guard.version != record.MetadataVersion:
		return nil, false, &VersionConflictError{Expected: *w.guard.version, Current: record.MetadataVersion}
	}
	revision, previous := record.Revision, record.changed()
	t, changed := w.apply(&record)
	if !changed {
		return nil, false, nil
	}
	record.MetadataVersion = next(record.MetadataVersion)
	record.UpdatedAt = later(record.UpdatedAt, s.config.Now().UTC().Truncate(time.Microsecond))
	c = changeOf(&record, t, w.id, previous)
	messages, err := s.messages(&record, c, revision)
	if err != nil {
		return nil, false, err
	}
	// Does not end with ctx, because what was sent has an outcome.
	c.Sequence, err = broker.PublishBatch(context.WithoutCancel(ctx), s.js.Conn(), messages)
	switch {
	case err == nil:
		return c, false, nil
	case broker.Fenced(err):
		s.conflicts.Add(1)
		s.telemetry.conflicts.Add(ctx, 1)
		return nil, true, storage("save_session", errBusy)
	case unanswered(err) && w.lost == nil:
		w.lost, w.since = err, revision
	}
	return nil, unanswered(err) || errorCodeOf(err) == tooManyBatches, storage("save_session", err)
}

// errBusy means that other writers were always faster until the call timed out.
var errBusy = errors.New("too many other writers")

// maxWait bounds the wait between two tries.
const maxWait = 200 * time.Millisecond

// wait waits before the next try, longer after each try. It returns an error when ctx ends.
func wait(ctx context.Context, tries int) error {
	return broker.Pause(ctx, rand.N(min(maxWait, time.Millisecond<<min(tries, 10))))
}

// errorCodeOf returns the code of an error answered by the server; 0 for any other error.
func errorCodeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// tooManyBatches is the error code of a server without room for another batch (nats-server,
// JSAtomicPublishTooManyInflight).
const tooManyBatches = 10210

// noLeader is the error code of a server that knows no leader of the stream (nats-server, JSClusterNotAvailErr).
const noLeader = 10008

// unanswered reports whether no leader answered, so that another try may succeed.
func unanswered(err error) bool {
	code := errorCodeOf(err)
	return (code == 0 || code == noLeader) && !errors.Is(err, errDamaged) && !errors.Is(err, ErrNotFound)
}

// later returns the later of two times. The clocks of replicas differ, and the time of a session must not go back.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// readTimeout bounds the wait for one answer, because a request on a lost connection is never answered.
const readTimeout = 3 * time.Second

// load reads the record of a session from the leader of the stream.
func (s *Service) load(ctx context.Context, k Key) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := broker.LastStored(ctx, s.js, stream, k.metadataSubject())
	if err == nil {
		r, err := decodeSession(m)
		if err != nil {
			return Session{}, storage("load_session", err)
		}
		return r, nil
	}
	if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return Session{}, storage("load_session", err)
	}
	switch exists, err := events.Exist(ctx, s.js, k.Source, k.SessionID); {
	case err != nil:
		return Session{}, storage("load_session", err)
	case !exists:
		return Session{}, notFound(k)
	}
	return Session{Source: k.Source, SessionID: k.SessionID}, nil
}

// messages returns the messages of a record that replaces the one at a revision, and of its change.
func (s *Service) messages(r *Session, c *Change, revision uint64) ([]*nats.Msg, error) {
	data, err := r.encode()
	if err != nil {
		return nil, storage("save_session", err)
	}
	record := &nats.Msg{Subject: r.Key().metadataSubject(), Data: data, Header: nats.Header{
		jetstream.MsgRollup:                 {jetstream.MsgRollupSubject},
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(revision, 10)},
	}}
	change, err := c.message(s.config.Mode, s.ttl)
	if err != nil {
		return nil, storage("save_session", err)
	}
	messages := []*nats.Msg{record, change}
	for _, m := range messages {
		if size, limit := int64(m.Size()+batchHeaderBytes), s.js.Conn().MaxPayload(); size > limit {
			return nil, fmt.Errorf("%w: its message has %d bytes, the broker accepts %d (max_payload)", errTooLarge, size, limit)
		}
	}
	return messages, nil
}

// batchHeaderBytes is room for the headers of a batch.
const batchHeaderBytes = 256

// find returns the change stored by a try of w whose answer was lost; nil if there is none. It reads the changes of
// the session from the record that the try was to replace up to the present record.
func (s *Service) find(ctx context.Context, w *write, last uint64) (*Change, error) {
	for from := w.since + 2; from <= last; from++ { // the change of a record follows it
		m, err := broker.NextStored(ctx, s.js, stream, w.key.changesSubject(), from)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, nil //nolint:nilnil // neither a change nor an error
		}
		if err != nil {
			return nil, storage("load_session", err)
		}
		c, err := decodeChange(m)
		if err != nil {
			return nil, storage("load_session", err)
		}
		if c.ID == w.id {
			return c, nil
		}
		from = m.Sequence
	}
	return nil, nil //nolint:nilnil // neither a change nor an error
}
