package ship

import "errors"

var (
	// errNothingToShip is the error of a Config without Roots, Paths and Input.
	errNothingToShip = errors.New("nothing to ship: give files or folders")
	// errClosed ends a Ship whose connection is closed, which would wait without end.
	errClosed = errors.New("connection to the broker is closed")
	// errNoSession is the error of a Discovery that reached its timeout.
	errNoSession = errors.New("no log that is named after a session")

	// These stall a Ship until they heal.
	errNotConnected = errors.New("not connected to the broker")
	errNoStream     = errors.New("the broker has no stream for them")
)
