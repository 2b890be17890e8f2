package ship

import (
	"errors"
	"fmt"
)

// Reason names why a file or a record is not shipped. The set is bounded.
type Reason string

// The reasons for which a file or a record is not shipped.
const (
	ReasonTooLarge      Reason = "too_large"      // the record is longer than any may be, or its message than the broker accepts
	ReasonUnknownSource Reason = "unknown_source" // the content of the file matches no agent, or one without a normalizer
	ReasonUnreadable    Reason = "unreadable"     // the file or folder cannot be read now
	ReasonLocked        Reason = "locked"         // the database has been locked for a while, or is being changed
	ReasonDamaged       Reason = "damaged"        // the database is damaged
	ReasonUnknownSchema Reason = "unknown_schema" // the database has other tables than those of a known agent
)

// Refusal is a file or a record that is not shipped. The rest of the file and the other
// files are shipped.
type Refusal struct {
	Reason Reason
	Path   string
	Line   int   // of the record, from 1; 0 for a whole file or folder
	Size   int64 // of a record that is too large, in bytes with headers
	Limit  int64 // limit that Size exceeds
	Err    error // what is wrong and how to cure it; contains no content of the file
}

// Error names the file, the line and the cure.
func (r *Refusal) Error() string {
	if r.Line > 0 {
		return fmt.Sprintf("%s:%d: %v", r.Path, r.Line, r.Err)
	}
	return fmt.Sprintf("%s: %v", r.Path, r.Err)
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// unreadable refuses a file or folder that cannot be read.
func unreadable(path string, err error) Refusal {
	return Refusal{Reason: ReasonUnreadable, Path: path, Err: fmt.Errorf("cannot be read: trying again when it changes: %w", err)}
}

var (
	// errNothingToShip is the error of a Config without Roots, Paths and Input.
	errNothingToShip = errors.New("nothing to ship: give files or folders")
	// errClosed ends a Ship whose connection is closed, which would wait without end.
	errClosed = errors.New("connection to the broker is closed")
	// errNoSession is the error of a Discovery that reached its timeout.
	errNoSession = errors.New("no log that is named after a session")

	// errNotAttached is why a Ship that has just begun is not ready.
	errNotAttached = errors.New("the raw stream has not been compared with the offsets yet")

	// These errors stall a Ship until their cause is gone.
	errNotConnected = errors.New("not connected to the broker")
	errNoStream     = errors.New("the broker has no raw stream")
	errNoRight      = errors.New("the broker does not let this edge read the state of the raw stream")
	errDiscards     = errors.New("nothing is sent")
)

// noStream adds the cure to the error of a missing raw stream.
func noStream(err error) error {
	return fmt.Errorf("%w: start a worker (tributary run, or tributary up), which creates it: %w", errNoStream, err)
}
