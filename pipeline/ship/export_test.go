package ship

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers"
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

// Stored is an offsets file in use.
type Stored struct {
	file    *offsetsFile
	offsets *offsets
}

// OpenOffsets opens an offsets file for its last stream.
func OpenOffsets(ctx context.Context, path string) (*Stored, error) {
	f, err := readOffsetsFile(ctx, Config{Offsets: path, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	var created time.Time
	if n := len(f.streams); n > 0 {
		created = f.streams[n-1].Created
	}
	o, _ := f.open(created)
	return &Stored{f, o}, nil
}

// Done returns how far each log is shipped, by its path.
func (s *Stored) Done() map[string]int64 {
	done := map[string]int64{}
	for _, e := range s.offsets.known {
		done[e.Path] = e.Done
	}
	return done
}

// Seen returns the last sequence that the stream has acknowledged, and the highest that an
// offset relies on.
func (s *Stored) Seen() (acknowledged, relied uint64) {
	for _, e := range s.offsets.known {
		for _, a := range e.Acks {
			relied = max(relied, a.Seq.In(0))
		}
	}
	return s.offsets.stream.Acknowledged.last(), relied
}

// Advance stores that the n-th log is shipped up to an offset.
func (s *Stored) Advance(n uint64, path string, done int64) error {
	s.Set(n, path, done)
	return s.file.save(s.offsets)
}

// Set notes that the n-th log is shipped up to an offset.
func (s *Stored) Set(n uint64, path string, done int64) {
	s.offsets.set(offset{inode: inode{Number: n}, Path: path, Done: done})
}

// Forget stores that the n-th log is gone.
func (s *Stored) Forget(n uint64) error {
	s.offsets.drop(s.offsets.get(inode{Number: n}))
	return s.file.save(s.offsets)
}

// Downgraded returns the content of an offsets file in the format of version 1 or 2.
func Downgraded(ctx context.Context, path string, version int) ([]byte, error) {
	s, err := OpenOffsets(ctx, path)
	if err != nil {
		return nil, err
	}
	e := s.file.entry(s.offsets)
	files := slices.Collect(maps.Values(e.files))
	type stream struct {
		streamEntry `json:",embed"`

		Files []offset `json:"files"`
	}
	var content any = map[string]any{"version": 2, "streams": []stream{{e, files}}}
	if version == 1 {
		for i := range files {
			files[i].Acks = nil
		}
		content = map[string]any{"version": 1, "files": files}
	}
	return json.Marshal(content, jsontext.AllowInvalidUTF8(true))
}

// Rescanned returns how many of the logs of a Ship that are at a path are enqueued by the search
// that follows a change, on a machine where the last search took so long. The files are
// active when that is set.
func Rescanned(ctx context.Context, c Config, took time.Duration, active bool, change func()) (int, error) {
	c.DryRun = true
	s, err := New(nil, c)
	if err != nil {
		return 0, err
	}
	s.offsets = newOffsets(streamEntry{})
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
