package ship

import (
	"context"
	"testing"
	"time"

	"tributary/normalizers"
	"tributary/pipeline/ship/offsets"
)

// For tests of errors and names that no user of the package needs.
var (
	ErrNothingToShip = errNothingToShip
	ErrClosed        = errClosed
	ErrNoSession     = errNoSession
	StateNames       = stateNames[:]
)

// LookWhen makes a Ship look at the raw stream when c says so, instead of at an interval.
func LookWhen(s *Ship, c <-chan time.Time) { s.publisher.looks = c }

// Find waits for the session.
func (d Discovery) Find(ctx context.Context) (string, error) { return d.find(ctx) }

// Rescanned returns how many of the logs of a Ship that are at a path are enqueued by the search
// that follows a change, on a machine where the last search took so long. The files are
// active when that is set.
func Rescanned(ctx context.Context, c Config, took time.Duration, active bool, change func()) (int, error) {
	c.DryRun = true
	s, err := New(nil, c)
	if err != nil {
		return 0, err
	}
	s.offsets = new(offsets.File).Latest()
	s.loop.search(ctx)
	for _, f := range s.loop.files {
		f.queued = false
		if active {
			f.framer, f.grew = normalizers.NewFramer(normalizers.File{Source: c.Source}), time.Now()
		}
	}
	s.loop.queue, s.loop.searchTook = nil, took
	change()
	s.loop.rescan(ctx)
	return len(s.loop.queue), nil
}

// SetLockPatience sets how long a database may be unreadable before that is reported, until the test ends.
func SetLockPatience(tb testing.TB, d time.Duration) {
	tb.Helper()
	before := lockPatience
	lockPatience = d
	tb.Cleanup(func() { lockPatience = before })
}
