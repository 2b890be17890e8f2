package figures

import "errors"

// ErrColumn is the error of a query that sorts by a column that its list does not have.
var ErrColumn = errors.New("no such column")
