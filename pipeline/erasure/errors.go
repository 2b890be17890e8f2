package erasure

import (
	"errors"

	"tributary/pipeline/streams"
)

// Errors of [Run].
var (
	// ErrOldWorker: a worker of an earlier version runs. It would make events of records that arrive later for an erased
	// session.
	ErrOldWorker = errors.New("a worker of an earlier version does not know of erasures")

	// errBusy: a worker commits every few milliseconds at most, and was faster each time.
	errBusy = errors.New("a worker has stored its work first again and again: run the command again, near the broker")
	// errLogLost: the stream was restored from an older copy, and would use the sequences of the lost entries again.
	errLogLost = errors.New("the log of erasures has lost entries")
)

const cureLogLost = "restore the newest copy of stream " + streams.ErasuresStream +
	"; without one, remove the stream (nats stream rm " + streams.ErasuresStream + ") and erase the lost sessions again"
