package figures

import "errors"

// ErrColumn is the error of a query that sorts by an unknown column.
var ErrColumn = errors.New("no such column")
