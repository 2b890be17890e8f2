package sessions

import "errors"

// errDamaged: an encoded fold cannot be read.
var errDamaged = errors.New("stored fold cannot be read")
