package offsets

import "time"

// OpenLast opens the offsets of the last stream of the file.
func (f *File) OpenLast() *Store {
	var created time.Time
	if n := len(f.streams); n > 0 {
		created = f.streams[n-1].Created
	}
	s, _ := f.Open(created)
	return s
}

// Done returns how far each log is shipped, by its path.
func (o *Store) Done() map[string]int64 {
	done := map[string]int64{}
	for _, e := range o.known {
		done[e.Path] = e.Done
	}
	return done
}
