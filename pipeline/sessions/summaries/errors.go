package summaries

import "errors"

// ErrAnew ends [View.Follow]: the records were made again, some were erased, or they went back in time with the broker.
// The caller opens another view and follows that.
var ErrAnew = errors.New("the records of sessions were made again")

var (
	// errDamaged: a stored checkpoint, record or fold cannot be decoded.
	errDamaged = errors.New("stored message cannot be read")
	// errInterrupted: the stream may have changed behind the events that were read.
	errInterrupted = errors.New("reading of events is interrupted")
	// errNewer: a newer revision of this program keeps the records.
	errNewer = errors.New("records belong to a newer revision of this program")
)
