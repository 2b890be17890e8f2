package sessions

import "errors"

// errDamaged means that an encoded fold cannot be decoded.
var errDamaged = errors.New("stored fold cannot be read")
