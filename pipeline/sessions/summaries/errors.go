package summaries

import "errors"

var (
	// errDamaged: a stored checkpoint, record or fold cannot be read.
	errDamaged = errors.New("stored message cannot be read")
	// errInterrupted: the events that were read may have changed since.
	errInterrupted = errors.New("reading of events is interrupted")
	// errNewer: a program of a newer revision keeps the records.
	errNewer = errors.New("records are of a newer revision of this program")
)
