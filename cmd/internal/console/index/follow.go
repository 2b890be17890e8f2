package index

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/events"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/summaries"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

// maxAge is the age at which a followed index is built again: followers get no message about expired records.
const maxAge = time.Hour

// newest is the least number of sessions that are read first. Lists show them while the others are read.
const newest = 1000

// unkept limits the age of an index that cannot be followed, because no worker keeps the records: as a multiple of the
// time that building it took. The next question after that age rebuilds the index.
const unkept = 20

// run fills the memory and follows changes, until ctx ends or nobody has asked for long enough.
func (m *memory) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		defer cancel()
		m.awaitIdle(ctx)
	})
	running.Go(func() { m.followTitles(ctx) })
	for wait := time.Second; ; wait = min(2*wait, 15*time.Second) {
		begun := time.Now()
		err := m.followLive(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > time.Minute {
			wait = time.Second
		}
		m.config.Logger.DebugContext(ctx, "the list of sessions is not followed: trying again", slog.Any("error", err))
		m.mu.Lock()
		m.problem, m.next = err, nil
		m.mu.Unlock()
		if broker.Pause(ctx, wait) != nil {
			return
		}
	}
}

// awaitIdle waits until nobody has asked for long enough, or ctx ends.
func (m *memory) awaitIdle(ctx context.Context) {
	look := time.NewTicker(max(m.config.Idle/8, time.Millisecond))
	defer look.Stop()
	for !m.idle(m) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// followLive keeps the sessions of the configured generation in memory, else of the live one at any time, until an
// error.
func (m *memory) followLive(ctx context.Context) error {
	if m.config.Generation != "" {
		return m.follow(ctx, m.config.Generation)
	}
	live, err := streams.LiveGeneration(ctx, m.js)
	for err == nil {
		var next string
		next, err = streams.WhileLive(ctx, m.js, live, func(ctx context.Context) error { return m.follow(ctx, live) })
		if next == "" {
			return err
		}
		live = next
	}
	return err
}

// follow keeps the sessions of a generation in memory, until an error.
func (m *memory) follow(ctx context.Context, generation string) error {
	select {
	case <-m.titled: // first, because pinned sessions are kept beyond the limit
	case <-time.After(time.Second): // the broker is slow, or denies the right to read them
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		if err := m.once(ctx, generation); err != nil {
			return err
		}
	}
}

// once reads the records of a generation and follows their changes. It returns nil when the records have to be read
// again, and an error if it fails.
func (m *memory) once(ctx context.Context, generation string) error {
	lost := m.js.Conn().StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer m.js.Conn().RemoveStatusListener(lost)
	view, err := summaries.Open(ctx, m.js, generation, m.unreadable(ctx))
	if err != nil {
		return err
	}
	status, err := view.Status(ctx)
	if err != nil {
		return err
	}
	t := m.begin(generation)
	put := func(r *summaries.Record) error {
		m.put(t, r)
		return context.Cause(ctx)
	}
	if err := view.Newest(ctx, newest, put); err != nil { // shown while the others are read
		return err
	}
	if err := view.Each(ctx, "", put); err != nil {
		return err
	}
	m.finish(t)
	m.keeping(t, &status)
	if !status.Kept {
		return m.awaitKeeper(ctx, generation, t)
	}
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for r, err := range view.Follow(ctx, "", status.StoredAt) {
			if err != nil {
				failed <- err
				return
			}
			m.put(t, &r)
		}
	}()
	err = m.watch(ctx, generation, t, lost, failed)
	cancel()
	for range failed { // until the follower has ended
	}
	return err
}

// watch returns nil when the table may differ from the records, so that they have to be read again, and an error if it
// fails.
func (m *memory) watch(ctx context.Context, generation string, t *table, lost <-chan nats.Status, failed <-chan error) error {
	look := time.NewTicker(m.config.Look)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			if errors.Is(err, summaries.ErrAnew) {
				return nil
			}
			return err
		case <-lost:
			return nil
		case <-look.C:
		}
		view, err := summaries.Open(ctx, m.js, generation, func(error) {})
		if err != nil {
			return err
		}
		status, err := view.Status(ctx)
		if err != nil {
			return err
		}
		m.keeping(t, &status)
		if time.Since(t.complete) > maxAge || status.Silent && status.Behind > 0 && m.isOld(t) {
			return nil
		}
	}
}

// awaitKeeper returns nil when a worker keeps the records, so that they can be followed, or when the table is old and
// somebody has asked since.
func (m *memory) awaitKeeper(ctx context.Context, generation string, t *table) error {
	for {
		if err := broker.Pause(ctx, m.config.Look); err != nil {
			return err
		}
		view, err := summaries.Open(ctx, m.js, generation, func(error) {})
		if err != nil {
			return err
		}
		status, err := view.Status(ctx)
		if err != nil || status.Kept || m.isOld(t) {
			return err
		}
	}
}

// isOld reports whether a table that cannot be followed is old, and somebody has asked since.
func (m *memory) isOld(t *table) bool {
	patience := max(unkept*t.complete.Sub(t.begun), 2*m.config.Look)
	return time.Since(t.complete) > patience && m.lastAsked().After(t.complete.Add(patience))
}

// unreadable returns a function that logs the error of an event that cannot be read.
func (m *memory) unreadable(ctx context.Context) func(error) {
	return func(err error) {
		m.config.Logger.DebugContext(ctx, "event is not in the list of sessions", slog.Any("error", err))
	}
}

// begin returns a table to fill. It is shown at once, unless a complete table is shown.
func (m *memory) begin(generation string) *table {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := newTable(generation, m.config.Limit)
	if m.table == nil || m.table.complete.IsZero() {
		m.show(t)
	} else {
		m.next = t
	}
	return t
}

// show makes a table the one that lists show.
func (m *memory) show(t *table) {
	m.table, m.next = t, nil
	m.epoch = m.epochs.Add(1)
	m.changes++
}

// finish marks a table as complete, and shows it.
func (m *memory) finish(t *table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(t.rows) > t.limit {
		t.evict()
	}
	t.complete = time.Now()
	m.problem = nil
	if m.table != t {
		m.show(t)
	}
	m.changes++
	select {
	case <-m.filled:
	default:
		close(m.filled)
	}
}

// keeping sets when the records of a table were last stored, zero while a worker keeps them.
func (m *memory) keeping(t *table, s *summaries.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !s.Silent:
		t.stored = time.Time{}
	case s.Kept:
		t.stored = s.StoredAt
	default:
		t.stored = t.begun
	}
}

// put adds a record to a table.
func (m *memory) put(t *table, r *summaries.Record) {
	one := rowOf(&r.Summary, r.Position, m.config.Pricing)
	m.mu.Lock()
	defer m.mu.Unlock()
	if one.set = m.sets.find(one.id); one.set == nil {
		if old := t.find(one.id); old != nil {
			one.set = old.set
		}
	}
	one.change = m.changes + 1
	if t.put(one) {
		m.changes++
	}
}

// followTitles keeps titles and pins in memory, until ctx ends.
func (m *memory) followTitles(ctx context.Context) {
	known := sync.OnceFunc(func() { close(m.titled) })
	defer known()
	for wait := time.Second; ; wait = min(2*wait, 15*time.Second) {
		m.forgetSets()
		for u, err := range titles.Watch(ctx, m.js, 0) {
			if err != nil {
				m.untitled(ctx, err)
				continue
			}
			switch u.Kind {
			case titles.Snapshot:
				m.set(u.Session.Key(), func(s *set) {
					if u.Session.MetadataVersion >= s.version {
						*s = setOf(&u.Session)
					}
				})
			case titles.Changed:
				m.set(titles.Key{Source: u.Change.Source, SessionID: u.Change.SessionID}, func(s *set) { s.change(u.Change) })
			case titles.Reset:
				m.forgetSets()
			case titles.Synced:
				m.untitled(ctx, nil)
				known()
				wait = time.Second
			}
		}
		if ctx.Err() != nil {
			return
		}
		known()
		if broker.Pause(ctx, wait) != nil {
			return
		}
	}
}

// untitled sets why titles and pins cannot be read, nil if they can.
func (m *memory) untitled(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil // nothing was ever set
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.titleProblem = err
}

// forgetSets forgets all titles and pins that were set.
func (m *memory) forgetSets() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets = sets{limit: m.sets.limit}
	for _, t := range []*table{m.table, m.next} {
		if t != nil {
			for i := range t.rows {
				t.rows[i].set = nil
			}
		}
	}
	m.changes++
}

// set changes the title and the pin of a session.
func (m *memory) set(k titles.Key, change func(*set)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := events.SessionID{Source: sourceOf(k.Source), Session: k.SessionID}
	one := m.sets.find(id)
	for _, t := range []*table{m.table, m.next} {
		if t == nil || one != nil {
			continue
		}
		if r := t.find(id); r != nil {
			one = r.set
		}
	}
	if one == nil {
		one = &set{}
		change(one)
		m.sets.add(id, one)
	} else {
		m.sets.bytes -= int64(len(one.title))
		change(one)
		m.sets.bytes += int64(len(one.title))
	}
	m.changes++
	for _, t := range []*table{m.table, m.next} {
		if t == nil {
			continue
		}
		if r := t.find(id); r != nil {
			r.set, r.change = one, m.changes
		}
	}
}

// change applies a change if it is newer.
func (s *set) change(c *titles.Change) {
	if c.MetadataVersion <= s.version {
		return
	}
	s.version = c.MetadataVersion
	if c.Type == titles.TitleUpdated {
		s.title, s.source = c.Title, sessions.TitleSource(c.TitleSource)
	} else {
		s.pinned = c.Pinned
	}
}
