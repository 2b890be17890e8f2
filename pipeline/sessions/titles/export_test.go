package titles

import (
	"context"
	"time"
)

// What the tests, which are a package of their own, need from inside.
var DecodeChange = decodeChange

// SetTTL lets changes of s expire sooner than a [Config] can.
func (s *Service) SetTTL(age time.Duration) { s.setTTL(age) }

// Lock locks a session as a call does.
func (s *Service) Lock(ctx context.Context, k Key) (unlock func(), err error) {
	return s.locks.lock(ctx, k)
}

// Conflicts is the number of writes that another writer overtook.
func (s *Service) Conflicts() int64 { return s.conflicts.Load() }
