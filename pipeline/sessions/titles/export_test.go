package titles

import "time"

// What the tests, which are a package of their own, need from inside.
var DecodeChange = decodeChange

// SetTTL lets changes of s expire sooner than a [Config] can.
func (s *Service) SetTTL(age time.Duration) { s.setTTL(age) }

// Conflicts is the number of writes that another writer overtook.
func (s *Service) Conflicts() int64 { return s.conflicts.Load() }
