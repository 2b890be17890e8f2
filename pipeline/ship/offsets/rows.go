package offsets

import (
	"encoding/binary"
	"maps"
	"math"
	"sync"

	"tributary/pipeline/ship/database"
)

// Row is the version of a row that was sent last.
type Row struct {
	Digest  uint64 // of its record
	Version uint64 // as the scan found it
	At      int64  // how many versions of rows of the database had been sent then: an offset like those of a log
}

// Rows are the rows of a database that were sent. They belong to its offset: a row with a higher At than the
// offset counts as not sent. All methods may be called concurrently.
type Rows struct {
	mu      sync.Mutex
	rows    map[database.Key]Row
	changed map[database.Key]bool // since the last call of changes
	highest int64                 // of all At but never
}

// never is the At of a row whose versions were all lost.
const never = math.MaxInt64

// NewRows returns no rows.
func NewRows() *Rows {
	return &Rows{rows: map[database.Key]Row{}, changed: map[database.Key]bool{}}
}

// Clone returns an independent copy, all of which counts as changed.
func (s *Rows) Clone() *Rows {
	c := NewRows()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.rows, c.highest = maps.Clone(s.rows), s.highest
	for k := range c.rows {
		c.changed[k] = true
	}
	return c
}

// Get returns the version of a row that was sent.
func (s *Rows) Get(k database.Key) (r Row, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok = s.rows[k]
	return r, ok
}

// add adds a row. The caller has locked mu.
func (s *Rows) add(k database.Key, r Row) {
	s.rows[k] = r
	if r.At != never {
		s.highest = max(s.highest, r.At)
	}
}

// Set notes versions of rows.
func (s *Rows) Set(rows map[database.Key]Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range rows {
		s.add(k, r)
		s.changed[k] = true
	}
}

// Lose takes back the rows that were sent behind an offset, because the broker has lost them.
func (s *Rows) Lose(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.highest <= at {
		return
	}
	for k, r := range s.rows {
		if r.At > at {
			s.rows[k], s.changed[k] = Row{At: never}, true
		}
	}
	s.highest = at
}

// size returns the number of rows.
func (s *Rows) size() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

const (
	rowBytes    = 4 * 8  // of a row in the offsets file
	rowsPerLine = 10_000 // of the offsets file
)

// changes returns the rows that changed since the last call, as stored.
func (s *Rows) changes() []byte {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b []byte
	for k := range s.changed {
		b = appendRow(b, k, s.rows[k])
	}
	clear(s.changed)
	return b
}

// all returns all rows, as stored.
func (s *Rows) all() []byte {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := make([]byte, 0, rowBytes*len(s.rows))
	for k, r := range s.rows {
		b = appendRow(b, k, r)
	}
	return b
}

func appendRow(b []byte, k database.Key, r Row) []byte {
	for _, v := range [...]uint64{uint64(k), r.Digest, r.Version, uint64(r.At)} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// load adds stored rows.
func (s *Rows) load(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; len(b) >= rowBytes; b = b[rowBytes:] {
		var v [4]uint64
		for i := range v {
			v[i] = binary.BigEndian.Uint64(b[8*i:])
		}
		s.add(database.Key(v[0]), Row{v[1], v[2], int64(v[3])})
	}
}
