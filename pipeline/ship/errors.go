package ship

import (
	"errors"
	"fmt"
)

var (
	// errNothingToShip is the error of a Config without Roots, Paths and Input.
	errNothingToShip = errors.New("nothing to ship: give files or folders")
	// errClosed ends a Ship whose connection is closed, which would wait without end.
	errClosed = errors.New("connection to the broker is closed")
	// errNoSession is the error of a Discovery that reached its timeout.
	errNoSession = errors.New("no log that is named after a session")

	// errNotAttached is why a Ship is not ready that has just begun.
	errNotAttached = errors.New("the raw stream is not compared with the offsets yet")

	// These stall a Ship until they heal.
	errNotConnected = errors.New("not connected to the broker")
	errNoStream     = errors.New("the broker has no raw stream")
	errNoRight      = errors.New("the broker does not let this edge read the state of the raw stream")
	errDiscards     = errors.New("nothing is sent")
)

// noStream adds the cure to the error of a broker without the raw stream.
func noStream(err error) error {
	return fmt.Errorf("%w: start a worker (tributary run, or tributary up), which creates it: %w", errNoStream, err)
}
