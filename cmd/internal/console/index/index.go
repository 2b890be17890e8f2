// Package index keeps in memory what a list of sessions shows and sorts by, so that a page of 100,000 sessions is a matter
// of milliseconds, in any order.
//
// Start with [Index.List]: the first question begins to read the records of the sessions (pipeline/sessions/summaries) and
// the titles and pins (pipeline/sessions/titles), and to follow both. [Session] is one of the list.
//
// The invariant: an index is a copy. Nothing runs before the first question, it is dropped when nobody has asked for a
// while, and it is made again from the records whenever it may not be what became of them.
package index

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tributary/cmd/internal/figures"
	"tributary/pipeline/events"
)

// Config configures an [Index]. Pricing and Logger are required.
type Config struct {
	Generation string // of the sessions; empty for the live one, which is followed
	Pricing    *figures.Pricing
	Limit      int           // sessions in memory; default [DefaultLimit]
	Idle       time.Duration // after the last question the memory is given back; default 5 minutes
	Look       time.Duration // between two looks at whether the index is still what became of the records; default 5 seconds
	Logger     *slog.Logger
}

// DefaultLimit is how many sessions are in memory: those whose last event is the newest, and the pinned ones.
const DefaultLimit = 200_000

func (c Config) withDefaults() Config {
	if c.Limit <= 0 {
		c.Limit = DefaultLimit
	}
	if c.Idle <= 0 {
		c.Idle = 5 * time.Minute
	}
	if c.Look <= 0 {
		c.Look = 5 * time.Second
	}
	return c
}

// Index is a list of the sessions in memory. Several goroutines may use it at once.
type Index struct {
	js     jetstream.JetStream
	config Config
	ctx    context.Context // of what runs, which outlives the request that asks first
	stop   context.CancelFunc
	epochs atomic.Uint64 // of tables so far

	mu     sync.Mutex
	memory *memory // nil while nobody has asked for a while
	asked  time.Time
	closed bool
}

// New returns an index. It reads nothing and starts nothing.
func New(js jetstream.JetStream, cfg Config) *Index {
	x := &Index{js: js, config: cfg.withDefaults()}
	x.ctx, x.stop = context.WithCancel(context.Background())
	return x
}

// ErrClosed is the error of a question after [Index.Close].
var ErrClosed = errors.New("the console is closing")

// Close drops the memory and waits for what runs. Questions fail from then on.
func (x *Index) Close() {
	x.mu.Lock()
	m := x.memory
	x.memory, x.closed = nil, true
	x.mu.Unlock()
	x.stop()
	if m != nil {
		<-m.done
	}
}

// ask returns the memory, which it begins to fill when there is none.
func (x *Index) ask() (*memory, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, ErrClosed
	}
	x.asked = time.Now()
	if x.memory == nil {
		m := &memory{Index: x, done: make(chan struct{}), filled: make(chan struct{}), titled: make(chan struct{})}
		m.sets.limit = x.config.Limit
		x.memory = m
		go func() {
			defer close(m.done)
			m.run(x.ctx)
		}()
	}
	return x.memory, nil
}

// idle drops the memory, and reports that, if nobody has asked for long enough.
func (x *Index) idle(m *memory) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.memory != m {
		return true
	}
	if time.Since(x.asked) < x.config.Idle {
		return false
	}
	x.memory = nil
	return true
}

// lastAsked returns when somebody has asked last.
func (x *Index) lastAsked() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asked
}

// memory is what an index has in memory between the first question and the time after the last one.
type memory struct {
	*Index

	done   chan struct{} // closed when nothing runs any more
	filled chan struct{} // closed when the list is complete for the first time
	titled chan struct{} // closed when titles and pins are complete for the first time, or cannot be read

	mu      sync.RWMutex
	table   *table // that is shown; nil before the live generation is known
	next    *table // that is being filled in its place; nil if none is
	epoch   uint64 // of the table
	changes uint64
	sets    sets
	problem error // why the records are not read
	untold  error // why titles and pins are not read
}

// Status is what an index is.
type Status struct {
	Generation string    // of the sessions; empty before it is known
	Count      int       // sessions in memory
	Bytes      int64     // that they take, about
	Left       int       // older sessions beyond the limit, about
	Filling    bool      // not all sessions are in it yet
	Again      bool      // it is being made again; what it has is from before
	Stored     time.Time // when the records were stored last, where no worker keeps them; else zero
	Epoch      uint64    // of the list: changes of lists of two epochs cannot be compared
	Change     uint64    // number of the last change
	Problem    error     // why records are not read; what is in memory is from before
	Untitled   error     // why titles and pins that were set are not read
	Dropped    int       // titles that were set longest ago and do not fit, about
}

// Status returns what the index is. It counts as a question.
func (x *Index) Status() (Status, error) {
	m, err := x.ask()
	if err != nil {
		return Status{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.status(), nil
}

func (m *memory) status() Status {
	s := Status{Filling: true, Epoch: m.epoch, Change: m.changes, Problem: m.problem, Untitled: m.untold, Dropped: m.sets.dropped}
	if t := m.table; t != nil {
		s.Generation, s.Count, s.Bytes, s.Left, s.Stored = t.generation, len(t.rows), t.bytes+m.sets.bytes, t.left, t.stored
		s.Filling, s.Again = t.complete.IsZero(), m.next != nil
	}
	return s
}

// Await waits until the list is complete for the first time, or as long as ctx lasts. It counts as a question.
func (x *Index) Await(ctx context.Context) {
	m, err := x.ask()
	if err != nil {
		return
	}
	select {
	case <-m.filled:
	case <-m.done:
	case <-ctx.Done():
	}
}

// sets are the titles and pins that were set, by session: at most twice the limit, those that were set last.
type sets struct {
	limit      int
	young, old map[events.SessionID]*set
	bytes      int64
	dropped    int
}

// setEntry is about the memory of a title without its text and id.
const setEntry = 144

func (s *sets) find(id events.SessionID) *set {
	if one := s.young[id]; one != nil {
		return one
	}
	return s.old[id]
}

// add adds what was set for a session that has nothing yet.
func (s *sets) add(id events.SessionID, one *set) {
	if s.young == nil {
		s.young = map[events.SessionID]*set{}
	}
	if len(s.young) >= s.limit {
		for id, old := range s.old {
			if old.pinned {
				s.young[id] = old
			} else {
				s.dropped++
				s.bytes -= setEntry + int64(len(id.Session)+len(old.title))
			}
		}
		s.old, s.young = s.young, map[events.SessionID]*set{}
	}
	s.young[id] = one
	s.bytes += setEntry + int64(len(id.Session)+len(one.title))
}

// Dropped reports whether there is nothing in memory: nobody has asked yet, or for a while.
func (x *Index) Dropped() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.memory == nil
}
