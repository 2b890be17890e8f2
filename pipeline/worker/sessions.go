package worker

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/pipeline/broker"
	"tributary/pipeline/records"
	"tributary/pipeline/states"
	"tributary/pipeline/streams"
)

// liveSession is a session whose state is in memory.
type liveSession struct {
	key       records.SessionKey
	state     *core.Session
	size      int
	chunk     uint64        // number of the last chunk that changed it
	damaged   error         // error for its records when its stored state cannot be read, else nil
	cause     error         // why the state cannot be read, for the log
	older     uint64        // see [states.Stored]
	gaps      bool          // had gaps when its last chunk was sealed
	rewritten bool          // had rewritten files then
	whole     states.Whole  // see [liveSession.message]
	used      uint64        // number, in the partition, of its last record
	version   string        // of the agent, as of its last record
	newer     bool          // version is newer than the last checked one
	element   *list.Element // in sessionCache.recent
}

// idleRecords is how many records of other sessions evict an idle session: in a long drain most sessions are over.
const idleRecords = 8192

// sessionCache is the cache of the live sessions of a partition, bounded by bytes. It loads a state when a record
// first needs it, and evicts the least recently used ones and those idle for [idleRecords]. It keeps states that no
// commit has stored yet. Not safe for concurrent use.
type sessionCache struct {
	js         jetstream.JetStream
	generation string // name of the generation in the cell of the partition
	partition  int
	limit      int // bytes
	settings   streams.Settings

	live   map[records.SessionKey]*liveSession
	recent list.List // of *liveSession, the most recently used first
	bytes  int
	uses   uint64 // records of live sessions so far
}

func newSessionCache(js jetstream.JetStream, generation string, partition, limit int, settings streams.Settings) *sessionCache {
	return &sessionCache{
		js: js, generation: generation, partition: partition, limit: limit, settings: settings,
		live: make(map[records.SessionKey]*liveSession),
	}
}

// loadTogether is how many sessions one request loads. At the largest size of a state they take about 16 MiB.
const loadTogether = 32

// load loads the states of sessions that are not live, with one request for several. A session whose state cannot be
// decoded is damaged; the others are not affected. checkpoint is the sequence of the newest checkpoint that this
// worker knows, see [sessionCache.read]; archivedTo is the argument of [states.Reader.States].
func (c *sessionCache) load(ctx context.Context, keys []records.SessionKey, checkpoint, archivedTo uint64) error {
	subjects := make([]string, len(keys))
	for i, k := range keys {
		subjects[i] = envelopes.StateSubject(c.generation, c.partition, k.Source, k.ID)
	}
	read := states.Reader(func(subjects []string) (map[string]broker.Stored, error) {
		return c.read(ctx, subjects, checkpoint)
	})
	stored, err := read.States(subjects, archivedTo)
	if err != nil {
		return fmt.Errorf("load session states of partition %d: %w", c.partition, err)
	}
	for i, k := range keys {
		stored, ok := stored[subjects[i]]
		if !ok {
			c.add(k, normalizers.NewSession(k.Source, k.ID))
			continue
		}
		s, err := stored.Decode()
		if err != nil || s.Source() != k.Source || s.ID() != k.ID {
			c.add(k, normalizers.NewSession(k.Source, k.ID))
			if c.live[k].cause = err; err == nil {
				c.live[k].cause = errors.New("the state belongs to another session")
			}
			c.live[k].damaged = fmt.Errorf("%w: message %d of stream %s: %s", core.ErrSession, stored.Sequence, streams.EventsStream(c.generation), streams.CureReplay)
			continue
		}
		c.add(k, s)
		c.live[k].whole, c.live[k].older = states.Whole{Sequence: stored.Base, Size: len(stored.Whole)}, stored.Older
	}
	return nil
}

// read reads the newest messages of subjects of the partition, from any replica that has the checkpoint at a
// sequence.
func (c *sessionCache) read(ctx context.Context, subjects []string, checkpoint uint64) (map[string]broker.Stored, error) {
	newest := broker.Place{Subject: envelopes.CheckpointSubject(c.generation, c.partition), Sequence: checkpoint}
	return broker.MessagesAsOf(ctx, c.js, streams.EventsStream(c.generation), newest, subjects)
}

// logLoaded logs problems with the states of sessions just loaded.
func (c *sessionCache) logLoaded(log *slog.Logger, keys []records.SessionKey) {
	for _, k := range keys {
		session := []any{slog.String("source", string(k.Source)), slog.String("session", k.ID)}
		if err := c.live[k].damaged; err != nil {
			log.Error("session state cannot be read: the records of the session become dead letters", append(session, slog.Any("error", err), slog.Any("cause", c.live[k].cause))...)
		}
		if older := c.live[k].older; older > 0 {
			log.Warn("broker restored an outdated session state: using the archived copy", append(session, slog.Uint64("sequence", older))...)
		}
	}
}

func (c *sessionCache) add(k records.SessionKey, s *core.Session) {
	c.settings.Apply(s) // not part of a stored state
	l := &liveSession{key: k, state: s, size: s.Size(), gaps: len(s.Gaps()) > 0, rewritten: len(s.Rewrites()) > 0, used: c.uses}
	l.element = c.recent.PushFront(l)
	c.live[k] = l
	c.bytes += l.size
}

// use returns a live session and marks it as used.
func (c *sessionCache) use(k records.SessionKey) *liveSession {
	l := c.live[k]
	c.recent.MoveToFront(l.element)
	c.uses++
	l.used = c.uses
	return l
}

// changed notes that a record of a chunk changed l.
func (c *sessionCache) changed(l *liveSession, chunk uint64) {
	size := l.state.Size()
	c.bytes += size - l.size
	l.size, l.chunk = size, chunk
}

// evict drops the least recently used sessions until the rest is within the limit and not idle. It keeps sessions
// changed by a chunk after stored, because the stream has an older state of them.
func (c *sessionCache) evict(stored uint64) {
	for e := c.recent.Back(); e != nil; {
		l := e.Value.(*liveSession)
		if c.bytes <= c.limit && c.uses-l.used < idleRecords {
			return
		}
		e = e.Prev()
		if l.chunk <= stored {
			c.recent.Remove(l.element)
			delete(c.live, l.key)
			c.bytes -= l.size
		}
	}
}

// message returns the message of the present state of the session: the whole state, or its change. The whole is
// stored again once its changes have cost as much.
func (s *liveSession) message(generation string, partition int) *nats.Msg {
	m := &nats.Msg{
		Subject: envelopes.StateSubject(generation, partition, s.key.Source, s.key.ID),
		Header:  nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}},
	}
	if change := s.change(); change != nil {
		m.Subject, m.Data = envelopes.ChangeSubject(m.Subject), change
		return m
	}
	m.Data = s.state.Encode()
	s.state.Mark()
	s.whole = states.Whole{Size: len(m.Data)}
	return m
}

// change returns the data of a change; nil when the whole state is to be stored.
func (s *liveSession) change() []byte {
	w := &s.whole
	if w.Sequence == 0 || w.Size < states.MinChanged || w.Paid >= w.Size {
		return nil
	}
	change := s.state.EncodeChange()
	if change == nil || len(change) > w.Size/2 {
		return nil
	}
	if w.First == 0 {
		w.First = len(change)
	}
	w.Paid += len(change) - w.First
	return append(binary.AppendUvarint(nil, w.Sequence), change...)
}

// isStored notes the sequence at which the state is stored.
func (s *liveSession) isStored(sequence uint64) {
	if s.whole.Sequence == 0 {
		s.whole.Sequence = sequence
	}
}
