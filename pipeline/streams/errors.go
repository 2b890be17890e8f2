package streams

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that end a [worker.Stage], or one partition of it. Trying again does not help, but for ErrRawLost, behind
// which a restore may come.
var (
	// ErrTopology: what exists on the server contradicts the [Topology]. A
	// [TopologyError] has the differences.
	ErrTopology = errors.New("topology does not match")
	// ErrNoCheckpoint: a partition has no checkpoint. Starting it from the beginning
	// would store every event a second time, so it is not started.
	ErrNoCheckpoint = errors.New("no checkpoint")
	// ErrRevision: another revision of the normalizers made the generation.
	ErrRevision = errors.New("generation of another revision")
	// ErrRetired: the generation was live, and another one is since; or it was dropped.
	ErrRetired = errors.New("generation is retired")
	// ErrRawLost: the raw stream no longer holds records that a checkpoint says were
	// read from it. It would use their sequences again, and the new records would be
	// skipped.
	ErrRawLost = errors.New("raw stream has lost its tail")
	// ErrState: a stored checkpoint cannot be read.
	ErrState = errors.New("stored state cannot be read")
)

// Fault is the reason why a partition cannot go on, with what an operator does about
// it.
type Fault struct {
	Err  error
	Cure string
}

// Error ends in the cure.
func (e *Fault) Error() string { return e.Err.Error() + ": " + e.Cure }

// Unwrap returns the reason.
func (e *Fault) Unwrap() error { return e.Err }

// The cures of faults.
const (
	CureReplay = "restore the stream, or replay into a new generation: TRIBUTARY_GENERATION=NAME tributary run"
	// CureExpired is what an operator does about records that left the raw stream before they were read.
	CureExpired = "raise TRIBUTARY_RAW_MAX_AGE or start more workers, ship the logs that still exist again (tributary ship --again), then tributary doctor acknowledge"
	cureRawLost = "restore the raw stream as it was, and the workers go on by themselves; else ship the logs again first (tributary ship --again), " +
		"then replay into a new generation (tributary replay start NAME, then tributary replay promote NAME --wait): this one stores nothing more"
)

// ErrKeysLost means that the bucket has lost the name of the live generation.
var ErrKeysLost = fmt.Errorf("bucket %s has lost the key %s: restore the bucket, or put the key back: nats kv put %[1]s %[2]s NAME", ControlBucket, currentKey)

// Errors of the commands that build and promote generations.
var (
	// ErrNoGeneration: the broker has no generation of the name.
	ErrNoGeneration = errors.New("no generation")
	// ErrLive: what was asked for cannot be done to the live generation.
	ErrLive = errors.New("generation is live")
	// ErrExpired: the raw stream no longer has all records of a replay.
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

// TopologyError is [ErrTopology] with the differences between what exists and what is
// wanted.
type TopologyError struct {
	Name        string // of the stream, bucket or server
	Differences []Difference
	Cure        string // what the operator can do
}

// Difference is one setting with two values.
type Difference struct{ Setting, Have, Want string }

// Error spells every difference out.
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
