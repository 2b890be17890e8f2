package titles

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
)

// UpdateKind is the kind of an [Update].
type UpdateKind string

// The kinds of updates.
const (
	// Snapshot has a record of the snapshot.
	Snapshot UpdateKind = "snapshot"
	// Synced ends the snapshot.
	Synced UpdateKind = "synced"
	// Changed has a change that is not in the snapshot.
	Changed UpdateKind = "change"
	// Reset means that changes are missing, because they are no longer kept. The watcher's copy is out of date; a new
	// snapshot follows.
	Reset UpdateKind = "reset"
)

// Update is the next thing that a watcher sees.
type Update struct {
	Kind    UpdateKind
	Session Session // set for Snapshot
	Change  *Change // set for Changed
	// Cursor is set for Synced and Changed: pass it to [Watch] to continue after this update. It is the sequence of the
	// last change, and 1, which is before the first one, behind a snapshot without records.
	Cursor uint64
}

// Watch iterates over the metadata of all sessions as it changes, until ctx ends.
//
// From 0 it begins with a snapshot: a Snapshot for each stored record, then Synced. A session that changes meanwhile
// may have two, the newer one last. Then a Changed follows for each change that is not in the snapshot, in stream
// order: every change is in exactly one of both. From the cursor of a handled update, it continues with the changes
// after that. It begins with Reset and a snapshot if one of those is no longer kept, or if the stream ends before the
// cursor because it was created anew.
//
// For an unreadable message it yields an error and continues; any other error ends it. Watch only needs the rights to
// read the stream, not a [Service].
func Watch(ctx context.Context, js jetstream.JetStream, from uint64) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		w := &watch{js: js, yield: yield}
		err := w.run(ctx, from)
		if err != nil && !errors.Is(err, errStopped) && ctx.Err() == nil {
			yield(Update{}, fmt.Errorf("watch stream %s: %w", stream, err))
		}
	}
}

var (
	// errStopped: the caller ended the iteration.
	errStopped = errors.New("stopped")
	// errMissed: changes behind the cursor are no longer kept.
	errMissed = errors.New("changes are missing")
	// errLate: the leader has changes that do not arrive.
	errLate = errors.New("replica is late")
)

// watch is one iteration.
type watch struct {
	js    jetstream.JetStream
	yield func(Update, error) bool

	cursor uint64    // of the last update
	fresh  time.Time // until then, the change at cursor and all later ones are certainly kept

	// Where changes may have expired: between the cursor of the last check and the first kept change. Sessions
	// without a later change were checked.
	missing struct{ after, before uint64 }
}

func (w *watch) send(u Update, err error) error {
	if !w.yield(u, err) {
		return errStopped
	}
	return nil
}

// run yields a snapshot if from is 0 and whenever changes are missing, and changes otherwise.
func (w *watch) run(ctx context.Context, from uint64) error {
	w.cursor = from
	if from == 0 {
		if err := w.snapshot(ctx); err != nil {
			return err
		}
	} else if err := w.check(ctx); err != nil && !errors.Is(err, errMissed) {
		return err
	} else if err != nil {
		if err := w.reset(ctx); err != nil {
			return err
		}
	}
	for {
		err := w.changes(ctx)
		switch {
		case errors.Is(err, errLate): // the next consumer may be on another replica
		case !errors.Is(err, errMissed):
			return err
		default:
			if err := w.reset(ctx); err != nil {
				return err
			}
		}
	}
}

func (w *watch) reset(ctx context.Context) error {
	if err := w.send(Update{Kind: Reset}, nil); err != nil {
		return err
	}
	return w.snapshot(ctx)
}

// snapshot yields the records. The changes after the cursor are not in them.
func (w *watch) snapshot(ctx context.Context) error {
	stopped := false
	complete, err := eachRecord(ctx, w.js, allMetadata, 0, func(r Session, err error) bool {
		stopped = !w.yield(Update{Kind: Snapshot, Session: r}, err)
		return !stopped
	})
	switch {
	case err != nil:
		return err
	case stopped:
		return errStopped
	}
	// From 0, Watch would begin with another snapshot.
	w.cursor, w.fresh = max(complete, 1), time.Time{}
	w.missing.after, w.missing.before = 0, 0
	return w.send(Update{Kind: Synced, Cursor: w.cursor}, nil)
}

// changes yields the changes after the cursor. It returns errMissed if a change is missing, and errLate if the
// replica stays behind.
func (w *watch) changes(ctx context.Context) error {
	s, err := w.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	messages, _, err := read(ctx, s, allChanges, w.cursor+1)
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := w.next(ctx, messages)
		if err != nil {
			return err
		}
		if !time.Now().Before(w.fresh) {
			if err := w.check(ctx); err != nil {
				return err
			}
		}
		c, err := decodeChange(m)
		if err == nil && w.missing.after < c.previous && c.previous < w.missing.before {
			return errMissed
		}
		w.cursor, w.fresh = m.Sequence, surelyKept(m)
		if err := w.send(Update{Kind: Changed, Change: c, Cursor: m.Sequence}, err); err != nil {
			return err
		}
	}
}

// idleCheck is the interval at which an idle watcher asks the leader for changes.
const idleCheck = 10 * time.Second

// next waits for the next change. A replica that no longer follows the leader sends nothing, sometimes for long. It
// returns errLate if the leader has a change at two checks that has not arrived.
func (w *watch) next(ctx context.Context, messages jetstream.MessagesContext) (*jetstream.RawStreamMsg, error) {
	for late := uint64(0); ; {
		idle, cancel := context.WithTimeout(ctx, idleCheck)
		m, _, err := nextMessage(idle, messages)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return m, err
		}
		switch m, err := broker.NextStored(ctx, w.js, stream, allChanges, w.cursor+1); {
		case err != nil: // none, or no leader to compare with
			late = 0
		case m.Sequence == late:
			return nil, errLate
		default:
			late = m.Sequence
		}
	}
}

// check returns errMissed if a change after the cursor is known to have expired. Changes expire in order, because
// they have the same TTL, so none is missing while the change at the cursor exists. Otherwise:
//
//   - The record of a session behind the cursor is followed by its change, unless that change has expired.
//   - A session whose newest change exists may miss an earlier one. The newest change names it, see watch.missing.
func (w *watch) check(ctx context.Context) error {
	s, err := w.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	if w.cursor > max(s.CachedInfo().State.LastSeq, 1) {
		return errMissed // the stream was created anew
	}
	record, err := broker.NextStored(ctx, w.js, stream, allMetadata, w.cursor)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // there is no later change
	}
	if err != nil {
		return err
	}
	// This comes second, because a change stored from now on has its record behind this one.
	first, err := broker.NextStored(ctx, w.js, stream, allChanges, w.cursor)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return errMissed
	case err != nil:
		return err
	case first.Sequence == w.cursor:
		w.fresh = surelyKept(first)
		w.missing.after, w.missing.before = 0, 0
	case record.Sequence+1 < first.Sequence:
		return errMissed
	default:
		w.missing.after, w.missing.before = w.cursor, first.Sequence
	}
	return nil
}

// surelyKept returns a time until which a change and all later ones do not expire, with a margin for clocks that
// differ.
func surelyKept(m *jetstream.RawStreamMsg) time.Time {
	header := m.Header.Get(jetstream.MsgTTLHeader)
	if header == "" {
		return m.Time.AddDate(100, 0, 0)
	}
	ttl, err := time.ParseDuration(header)
	if err != nil {
		return time.Time{}
	}
	return m.Time.Add(ttl - min(ttl/4, time.Hour))
}
