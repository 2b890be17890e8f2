package transcript

import (
	"fmt"
	"os"

	"github.com/go-json-experiment/json"
)

// spoolMemory is how many bytes of items stay in memory before they go to a file.
const spoolMemory = 4 << 20

// spool stores items, the last ones in memory and the others in a temporary file.
type spool struct {
	dir    string // folder of the file; empty for the system's
	file   *os.File
	stored int64  // bytes in the file
	recent []byte // what follows them
}

// place is the position of an item in a spool.
type place struct {
	offset int64
	length int
}

// put adds an item.
func (s *spool) put(i *Item) (place, error) {
	data, err := json.Marshal(i)
	if err != nil {
		return place{}, fmt.Errorf("keep an item: %w", err)
	}
	if len(s.recent) > 0 && len(s.recent)+len(data) > spoolMemory {
		if err := s.store(); err != nil {
			return place{}, fmt.Errorf("keep the conversation in a temporary file: %w", err)
		}
	}
	at := place{s.stored + int64(len(s.recent)), len(data)}
	s.recent = append(s.recent, data...)
	return at, nil
}

// store moves what is in memory to the file.
func (s *spool) store() error {
	if s.file == nil {
		var err error
		if s.file, err = os.CreateTemp(s.dir, "tributary-transcript-"); err != nil {
			return err
		}
	}
	n, err := s.file.Write(s.recent)
	s.stored += int64(n)
	s.recent = s.recent[:0]
	return err
}

// get returns the item at a place.
func (s *spool) get(at place) (*Item, error) {
	data := make([]byte, at.length)
	if begin := at.offset - s.stored; begin >= 0 {
		copy(data, s.recent[begin:])
	} else if _, err := s.file.ReadAt(data, at.offset); err != nil {
		return nil, fmt.Errorf("read the temporary file of the conversation: %w", err)
	}
	i := &Item{}
	if err := json.Unmarshal(data, i); err != nil {
		return nil, fmt.Errorf("read an item of the conversation: %w", err)
	}
	return i, nil
}

// close removes the file.
func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	err := f.Close()
	if gone := os.Remove(f.Name()); err == nil {
		err = gone
	}
	return err
}
