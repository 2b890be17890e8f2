// Package index keeps in memory what a list of sessions shows and sorts by, so that a page of 100,000 sessions takes
// milliseconds, in any order.
//
// Start with [Index.List]: the first question starts reading and following the records of the sessions
// (pipeline/sessions/summaries) and the titles and pins (pipeline/sessions/titles). [Session] is an entry of the
// list.
//
// The invariant: an index is a copy. Nothing runs before the first question; the index is dropped when nobody has
// asked for a while, and built again from the records whenever it may differ from them.
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
	Generation string // of the sessions; empty to follow the live one
	Pricing    *figures.Pricing
	Limit      int           // sessions in memory; default [DefaultLimit]
	Idle       time.Duration // after the last question the memory is freed; default 5 minutes
	Look       time.Duration // interval of the checks whether the index still matches the records; default 5 seconds
	Logger     *slog.Logger
}

// DefaultLimit is the default number of sessions in memory: the pinned ones, and those with the newest last events.
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
	ctx    context.Context // of the goroutines, which outlive the first request
	stop   context.CancelFunc
	epochs atomic.Uint64 // number of tables made

	mu     sync.Mutex
	memory *memory // nil if nobody has asked for a while
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

// Close drops the memory and waits for the goroutines. Later questions fail.
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

// ask returns the memory; it starts filling a new one if there is none.
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

// idle drops the memory if nobody has asked for long enough, and reports that.
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

// lastAsked returns the time of the last question.
func (x *Index) lastAsked() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asked
}

// memory is the memory of an index from the first question until some time after the last one.
type memory struct {
	*Index

	done   chan struct{} // closed when nothing runs any more
	filled chan struct{} // closed when the list is complete for the first time
	titled chan struct{} // closed when titles and pins are complete for the first time, or cannot be read

	mu           sync.RWMutex
	table        *table // the one to show; nil before the live generation is known
	next         *table // its replacement, while that is filled; nil for none
	epoch        uint64 // of table
	changes      uint64
	sets         sets
	problem      error // why records cannot be read
	titleProblem error // why titles and pins cannot be read
}

// Status is the state of an index.
type Status struct {
	Generation string    // of the sessions; empty until known
	Count      int       // sessions in memory
	Bytes      int64     // their approximate memory
	Left       int       // about how many older sessions exceed the limit
	Filling    bool      // sessions are still missing
	Again      bool      // the index is being rebuilt; its content is old
	Stored     time.Time // when the records were last stored, if no worker keeps them; else zero
	Epoch      uint64    // of the list: changes are comparable only within an epoch
	Change     uint64    // number of the last change
	Problem    error     // why records cannot be read; the content is old
	Untitled   error     // why titles and pins cannot be read
	Dropped    int       // about how many of the oldest titles do not fit
}

// Status returns the state of the index. It counts as a question.
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
	s := Status{Filling: true, Epoch: m.epoch, Change: m.changes, Problem: m.problem, Untitled: m.titleProblem, Dropped: m.sets.dropped}
	if t := m.table; t != nil {
		s.Generation, s.Count, s.Bytes, s.Left, s.Stored = t.generation, len(t.rows), t.bytes+m.sets.bytes, t.left, t.stored
		s.Filling, s.Again = t.complete.IsZero(), m.next != nil
	}
	return s
}

// Await waits until the list is complete for the first time, or until ctx ends. It counts as a question.
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

// sets are the titles and pins that users set, by session: the latest ones, at most twice the limit.
type sets struct {
	limit      int
	young, old map[events.SessionID]*set
	bytes      int64
	dropped    int
}

// setEntry is the approximate memory of a title without its text and id.
const setEntry = 144

func (s *sets) find(id events.SessionID) *set {
	if one := s.young[id]; one != nil {
		return one
	}
	return s.old[id]
}

// add adds what was set for a session that has nothing set yet.
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

// Dropped reports whether the memory is empty: nobody has asked, or not for a while.
func (x *Index) Dropped() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.memory == nil
}
