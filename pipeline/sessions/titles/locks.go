package titles

import (
	"context"
	"sync"
)

// locks is a lock for each session: the calls of one process for one session wait for each
// other instead of losing to each other at the broker. They are a matter of speed alone.
type locks struct {
	mu  sync.Mutex
	all map[Key]*keyLock
}

// keyLock is the lock of a session, as long as a call holds it or waits for it.
type keyLock struct {
	held  chan struct{} // of capacity 1
	calls int           // guarded by locks.mu
}

func newLocks() *locks { return &locks{all: make(map[Key]*keyLock)} }

// lock waits for the lock of a session. It fails when ctx ends before.
func (l *locks) lock(ctx context.Context, k Key) (unlock func(), err error) {
	l.mu.Lock()
	one := l.all[k]
	if one == nil {
		one = &keyLock{held: make(chan struct{}, 1)}
		l.all[k] = one
	}
	one.calls++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.calls--; one.calls == 0 {
			delete(l.all, k)
		}
	}
	select {
	case one.held <- struct{}{}:
		return func() { <-one.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
