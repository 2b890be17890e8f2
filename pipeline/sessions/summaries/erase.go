package summaries

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// CountMessages returns the number of messages that a generation has of the records and folds of sessions.
func CountMessages(ctx context.Context, js jetstream.JetStream, generation string, erased []events.SessionID) (n int64, err error) {
	s := store{js, generation}
	for _, id := range erased {
		for _, subject := range s.subjects(id) {
			_, err := broker.LastStored(ctx, js, s.stream(), subject)
			switch {
			case err == nil:
				n++
			case errors.Is(err, jetstream.ErrStreamNotFound):
				return 0, nil
			case !errors.Is(err, jetstream.ErrMsgNotFound):
				return n, fmt.Errorf("read stream %s: %w", s.stream(), err)
			}
		}
	}
	return n, nil
}

// Erase removes the records and folds of sessions that are in the log of erasures, and all filters, which may have their
// text. It returns the number of removed messages of each session. The keeper of the generation is fenced, and the next one
// reads the log and makes the filters again.
func Erase(ctx context.Context, js jetstream.JetStream, generation string, erased []events.SessionID) (removed []int64, err error) {
	removed = make([]int64, len(erased))
	s := store{js, generation}
	// Before the fence: the next keeper removes what this one stores until then, and its own filters stay.
	_, err = broker.Purge(ctx, js, s.stream(), s.filterSubject(anyCell, 0), 0)
	if err == nil {
		err = s.fence(ctx)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return removed, nil
	case err != nil:
		return removed, err
	}
	for i, id := range erased {
		for _, subject := range s.subjects(id) {
			n, err := broker.Purge(ctx, js, s.stream(), subject, 0)
			if err != nil {
				return removed, err
			}
			removed[i] += int64(n)
		}
	}
	return removed, nil
}

// subjects returns the subjects of a session.
func (s *store) subjects(id events.SessionID) []string {
	return []string{s.recordFilter(id.Source, id.Session), s.foldSubject(id)}
}

// fence stores the checkpoint again without an owner, so that no commit of the present keeper can succeed.
func (s *store) fence(ctx context.Context) error {
	for {
		c, stored, err := s.readCheckpoint(ctx)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, errDamaged):
			return nil // the next keeper begins anew, and reads the log
		case err != nil:
			return err
		}
		c.Owner = ""
		c.Epoch++
		c.Erasures++
		m, err := s.checkpointMessage(&c, stored.Sequence)
		if err != nil {
			return err
		}
		if _, err = broker.PublishBatch(ctx, s.js.Conn(), []*nats.Msg{m}); !broker.Fenced(err) {
			return broker.Wrap(err, "take the records of "+s.stream()+" from their keeper")
		}
	}
}

// readErased reads the log of erasures.
func (l *leader) readErased(ctx context.Context) error {
	list, err := streams.ReadErasures(ctx, l.js, streams.AllPartitions)
	if err != nil || len(list) == 0 {
		return err
	}
	l.erased = make(map[events.SessionID]bool, len(list))
	for _, e := range list {
		l.erased[events.SessionID{Source: e.Source, Session: e.Session}] = true
	}
	return nil
}

// leaveOutErased leaves out the steps of erased sessions, which a stage of this process may have handed over before.
func (l *leader) leaveOutErased(list []item) {
	if len(l.erased) == 0 {
		return
	}
	for i := range list {
		if s := list[i].step; s != nil && l.erased[events.SessionID{Source: s.Source, Session: s.Session}] {
			list[i].step = nil
		}
	}
}
