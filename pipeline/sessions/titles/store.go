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

// attempt is a call that changes a record, over all its tries. Its id is the id of the change
// that any of them stores, so that a try whose outcome is unknown can be found.
type attempt struct {
	key   Key
	id    string
	guard guard
	apply func(*Session) (ChangeType, bool)

	tries int
	last  error     // of the last try that the server did not answer
	doubt bool      // the outcome of a try is unknown
	until time.Time // it must be known by then
	since uint64    // revision that the first such try was to replace
}

// errAgain: the change is not known to be stored, and another try may store it.
var errAgain = errors.New("try again")

// try reads the record and stores the change that follows from it. Each try names the record
// that it replaces, so at most one try of a call is ever stored: a late one finds a newer
// record.
func (s *Service) try(ctx context.Context, a *attempt) (*Change, error) {
	a.tries++
	record, err := s.load(ctx, a.key)
	if err == nil && a.doubt {
		var stored *Change
		if stored, err = s.find(ctx, a, record.changed()); stored != nil {
			return stored, nil
		}
	}
	switch {
	case err != nil:
		return nil, a.unread(err)
	case a.guard.version != nil && *a.guard.version != record.MetadataVersion:
		return nil, &VersionConflictError{Expected: *a.guard.version, Current: record.MetadataVersion}
	}
	revision, previous := record.Revision, record.changed()
	t, changed := a.apply(&record)
	if !changed {
		return nil, nil //nolint:nilnil // no change and no error
	}
	record.MetadataVersion = next(record.MetadataVersion)
	record.UpdatedAt = later(record.UpdatedAt, s.config.Now().UTC().Truncate(time.Microsecond))
	c := changeOf(&record, t, a.id, previous)
	err = s.save(ctx, &record, c, revision)
	if err == nil {
		return c, nil
	}
	if overtaken(err) {
		s.conflicts.Add(1)
		s.telemetry.conflicts.Add(ctx, 1)
	}
	return nil, a.unsaved(err, revision)
}

// unread returns the error of a try that could not read. Only an answer of the server ends
// the call, and only when no outcome is unknown.
func (a *attempt) unread(err error) error {
	if a.doubt || errors.Is(err, ErrStorage) && !answered(err) {
		a.last = err
		return errAgain
	}
	return err
}

// unsaved returns the error of a try to replace the record of a revision.
func (a *attempt) unsaved(err error, revision uint64) error {
	switch {
	case overtaken(err):
		return errAgain
	case errors.Is(err, ErrStorage): // nothing was sent
		return err
	case answered(err) && (a.doubt || errorCodeOf(err) == tooManyBatches):
		return errAgain
	case answered(err):
		return storage("save_session", err)
	case !a.doubt:
		a.doubt, a.since, a.until = true, revision, time.Now().Add(doubtTimeout)
	}
	a.last = err
	return errAgain
}

// errorCodeOf returns the code of an error that the server has answered with, 0 for any other.
func errorCodeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// answered reports whether the error is an answer: trying again does not help, unless it is
// one of those that other functions name.
func answered(err error) bool {
	code := errorCodeOf(err)
	return code != 0 && code != noLeader || errors.Is(err, errDamaged)
}

// later returns the later of two times: the clocks of replicas differ, and the time of a
// session never goes back.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// tooManyBatches is the error code of a server that has no room for another batch
// (nats-server, JSAtomicPublishTooManyInflight).
const tooManyBatches = 10210

// noLeader is the error code of a server that knows no leader of the stream (nats-server,
// JSClusterNotAvailErr).
const noLeader = 10008

// overtaken reports whether the server refused a record because there is a newer one.
func overtaken(err error) bool {
	code := errorCodeOf(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence || code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// maxWait bounds the wait between two tries.
const maxWait = 200 * time.Millisecond

// errBusy: other writers were always faster, until the time of the call was over.
var errBusy = errors.New("too many other writers")

// wait waits before the next try: the longer, the more tries there were. It fails when ctx
// ends, or when an outcome stays unknown.
func (a *attempt) wait(ctx context.Context) error {
	if a.doubt && time.Now().After(a.until) {
		return context.DeadlineExceeded
	}
	limit := min(maxWait, time.Millisecond<<min(a.tries, 10))
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed is the error of a call whose time is over.
func (a *attempt) failed() error {
	switch {
	case a.doubt:
		return storage("save_session: the outcome is unknown", a.last)
	case a.last != nil:
		return a.last
	default:
		return storage("save_session", errBusy)
	}
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

// save stores a record that replaces the one at a revision, and its change. It sets the
// Sequence of the change. Only a nil error means that both are stored; see
// [broker.PublishBatch] for the others.
func (s *Service) save(ctx context.Context, r *Session, c *Change, revision uint64) error {
	data, err := r.encode()
	if err != nil {
		return storage("save_session", err)
	}
	record := &nats.Msg{Subject: r.Key().metadataSubject(), Data: data, Header: nats.Header{
		jetstream.MsgRollup:                 {jetstream.MsgRollupSubject},
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(revision, 10)},
	}}
	change, err := c.message(s.config.Mode, s.ttl)
	if err != nil {
		return storage("save_session", err)
	}
	for _, m := range []*nats.Msg{record, change} {
		if size, limit := int64(m.Size()+batchHeaderBytes), s.js.Conn().MaxPayload(); size > limit {
			return fmt.Errorf("%w: its message has %d bytes, and the broker accepts %d (max_payload)", errTooLarge, size, limit)
		}
	}
	// Not ended with ctx: what is sent has an outcome.
	c.Sequence, err = broker.PublishBatch(context.WithoutCancel(ctx), s.js.Conn(), []*nats.Msg{record, change})
	return err
}

// batchHeaderBytes is room for the headers of a batch.
const batchHeaderBytes = 256

// find returns the change that one of the tries of a has stored, nil when none has: it reads
// the changes of the session behind the record that the first try in doubt was to replace, up
// to that of the present record.
func (s *Service) find(ctx context.Context, a *attempt, last uint64) (*Change, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for from := a.since + 2; from <= last; from++ { // the change of a record is behind it
		m, err := broker.NextStored(ctx, s.js, stream, a.key.changesSubject(), from)
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
		if c.ID == a.id {
			return c, nil
		}
		from = m.Sequence
	}
	return nil, nil //nolint:nilnil // no change and no error
}
