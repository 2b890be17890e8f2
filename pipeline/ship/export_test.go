package ship

import "context"

// For tests of errors and names that no user of the package needs.
var (
	ErrNothingToShip = errNothingToShip
	ErrClosed        = errClosed
	ErrNoSession     = errNoSession
	StateNames       = stateNames[:]
)

// Find waits for the session.
func (d Discovery) Find(ctx context.Context) (string, error) { return d.find(ctx) }
