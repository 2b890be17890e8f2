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

// write is a call that changes a record, over all its tries. Its id is the id of the change that any of them stores, so
// a try whose answer was lost can be found.
type write struct {
	key   Key
	id    string
	guard guard
	apply func(*Session) (ChangeType, bool)

	lost  error  // why the answer to a try was lost, so that its outcome is unknown; nil when it is known
	since uint64 // revision that this try was to replace
}

// try reads the record and stores the change that follows from it, unless another writer has stored a newer record
// meanwhile. again says that another try may succeed after an error. Each try names the record that it replaces, so at
// most one try of a call is ever stored: a late one finds a newer record.
func (s *Service) try(ctx context.Context, w *write) (c *Change, again bool, err error) {
	record, err := s.load(ctx, w.key)
	if err == nil && w.lost != nil && record.Revision > w.since { // the outcome can be known
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
	// Not ended with ctx: what is sent has an outcome.
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

// errBusy: other writers were always faster, until the time of the call was over.
var errBusy = errors.New("too many other writers")

// maxWait bounds the wait between two tries.
const maxWait = 200 * time.Millisecond

// wait waits before the next try: the longer, the more tries there were. It fails when ctx ends.
func wait(ctx context.Context, tries int) error {
	return broker.Pause(ctx, rand.N(min(maxWait, time.Millisecond<<min(tries, 10))))
}

// errorCodeOf returns the code of an error that the server has answered with, 0 for any other.
func errorCodeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// tooManyBatches is the error code of a server that has no room for another batch
// (nats-server, JSAtomicPublishTooManyInflight).
const tooManyBatches = 10210

// noLeader is the error code of a server that knows no leader of the stream (nats-server,
// JSClusterNotAvailErr).
const noLeader = 10008

// unanswered reports whether nobody who could know has answered: another try may be answered.
func unanswered(err error) bool {
	code := errorCodeOf(err)
	return (code == 0 || code == noLeader) && !errors.Is(err, errDamaged) && !errors.Is(err, ErrNotFound)
}

// later returns the later of two times: the clocks of replicas differ, and the time of a
// session never goes back.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// readTimeout bounds the wait for one answer: a request that was sent on a connection that
// was lost is never answered.
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
			return nil, fmt.Errorf("%w: its message has %d bytes, and the broker accepts %d (max_payload)", errTooLarge, size, limit)
		}
	}
	return messages, nil
}

// batchHeaderBytes is room for the headers of a batch.
const batchHeaderBytes = 256

// find returns the change that a try of w has stored although its answer was lost, nil when none has: it reads the
// changes of the session behind the record that this try was to replace, up to that of the present record.
func (s *Service) find(ctx context.Context, w *write, last uint64) (*Change, error) {
	for from := w.since + 2; from <= last; from++ { // the change of a record is behind it
		m, err := broker.NextStored(ctx, s.js, stream, w.key.changesSubject(), from)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, nil //nolint:nilnil // no change and no error
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
	return nil, nil //nolint:nilnil // no change and no error
}
