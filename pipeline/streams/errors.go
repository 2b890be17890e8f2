package streams

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that end a [worker.Stage] or one partition of it. Trying again does not help, except after ErrRawLost,
// because the stream may be restored.
var (
	// ErrTopology: the server contradicts the [Topology]. A [TopologyError] has the differences.
	ErrTopology = errors.New("topology does not match")
	// ErrNoCheckpoint: a partition has no checkpoint. It is not started, because starting from the beginning would
	// store every event a second time.
	ErrNoCheckpoint = errors.New("no checkpoint")
	// ErrRevision: another revision of the normalizers made the generation.
	ErrRevision = errors.New("generation of another revision")
	// ErrRetired: another generation has become live, or this one was dropped.
	ErrRetired = errors.New("generation is retired")
	// ErrRawLost: the raw stream lacks records that were read from it according to a checkpoint. It would reuse their
	// sequences, and the new records would be skipped.
	ErrRawLost = errors.New("raw stream has lost its tail")
	// ErrState: a stored checkpoint or key cannot be read.
	ErrState = errors.New("stored state cannot be read")
)

// Fault is why a partition cannot go on, with the cure for the operator.
type Fault struct {
	Err  error
	Cure string
}

// Error returns the reason and the cure.
func (e *Fault) Error() string { return e.Err.Error() + ": " + e.Cure }

// Unwrap returns the reason.
func (e *Fault) Unwrap() error { return e.Err }

// The cures of faults.
const (
	CureReplay = "restore the stream, or replay into a new generation: TRIBUTARY_GENERATION=NAME tributary run"
	// CureExpired is the cure for records that left the raw stream before they were read.
	CureExpired = "raise TRIBUTARY_RAW_MAX_AGE or start more workers, ship the logs that still exist again (tributary ship --again), then tributary doctor acknowledge"
	cureRawLost = "restore the raw stream as it was, and the workers go on by themselves; else ship the logs again first (tributary ship --again), " +
		"then replay into a new generation (tributary replay start NAME, then tributary replay promote NAME --wait): this one stores nothing more"
)

// ErrKeysLost says that the bucket has lost the name of the live generation.
var ErrKeysLost = fmt.Errorf("bucket %s has lost the key %s: restore the bucket, or put the key back: nats kv put %[1]s %[2]s NAME", ControlBucket, currentKey)

// Errors of the commands that build and promote generations.
var (
	// ErrNoGeneration: the broker has no generation of the name.
	ErrNoGeneration = errors.New("no generation")
	// ErrLive: the operation is not possible on the live generation.
	ErrLive = errors.New("generation is live")
	// ErrExpired: the raw stream lacks some records of a replay.
	ErrExpired = errors.New("records have expired")
	// ErrNotReady: a generation cannot be promoted yet, or never.
	ErrNotReady = errors.New("generation cannot be promoted")
	// ErrStarting: a start of the generation was interrupted.
	ErrStarting = errors.New("the start of the generation was interrupted")
	// ErrDropping: a drop of the generation was interrupted.
	ErrDropping = errors.New("generation is being dropped")
	// ErrChanged: another process changed the generation at the same time.
	ErrChanged = errors.New("another process has just changed the generation: try again")
)

// Errors of the commands that build and promote generations.
var (
	// ErrInterrupted: a [Cutover] is open.
	ErrInterrupted = errors.New("a change of the live generation is not finished")
)

// TopologyError is [ErrTopology] with the differences between what exists and what is wanted.
type TopologyError struct {
	Name        string // of the stream, bucket or server
	Differences []Difference
	Cure        string // what the operator can do
}

// Difference is one setting with two values.
type Difference struct{ Setting, Have, Want string }

// Error names all differences and the cure.
func (e *TopologyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s", ErrTopology, e.Name)
	for i, d := range e.Differences {
		sep := ", "
		if i == 0 {
			sep = " "
		}
		fmt.Fprintf(&b, "%shas %s %s, want %s", sep, d.Setting, d.Have, d.Want)
	}
	fmt.Fprintf(&b, ": %s", e.Cure)
	return b.String()
}

// Unwrap returns [ErrTopology].
func (e *TopologyError) Unwrap() error { return ErrTopology }
