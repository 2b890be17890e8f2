package ship

import "errors"

var (
	// ErrNothingToShip is the error of a [Config] with neither paths nor roots.
	ErrNothingToShip = errors.New("nothing to ship: give files or folders")
	// ErrClosed ends a [Ship] whose connection was closed: it would wait for ever.
	ErrClosed = errors.New("connection to the broker is closed")

	// ErrNoSession is the error of a [Discovery] that has waited long enough.
	ErrNoSession = errors.New("no log of a session of Copilot")

	errNotConnected = errors.New("not connected to the broker")       // which heals
	errNoStream     = errors.New("the broker has no stream for them") // which heals, too
)
