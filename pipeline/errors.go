package pipeline

import (
	"errors"
	"fmt"
	"strings"

	"tributary/normalizers"
	"tributary/pipeline/redact"
)

// Errors that end a [Stage], or one partition of it. Trying again does not help, but for errRawLost, behind
// which a restore may come.
var (
	// errTopology: what exists on the server contradicts the [Topology]. A
	// [topologyError] has the differences.
	errTopology = errors.New("topology does not match")
	// errNoCheckpoint: a partition has no checkpoint. Starting it from the beginning
	// would store every event a second time, so it is not started.
	errNoCheckpoint = errors.New("no checkpoint")
	// errRevision: another revision of the normalizers made the generation.
	errRevision = errors.New("generation of another revision")
	// errRetired: the generation was live, and another one is since; or it was dropped.
	errRetired = errors.New("generation is retired")
	// errRawLost: the raw stream no longer holds records that a checkpoint says were
	// read from it. It would use their sequences again, and the new records would be
	// skipped.
	errRawLost = errors.New("raw stream has lost its tail")
	// errState: a stored checkpoint cannot be read.
	errState = errors.New("stored state cannot be read")
)

// faultError is the reason why a partition cannot go on, with what an operator does about
// it.
type faultError struct {
	err  error
	cure string
}

// Error ends in the cure.
func (e *faultError) Error() string { return e.err.Error() + ": " + e.cure }

// Unwrap returns the reason.
func (e *faultError) Unwrap() error { return e.err }

// The cures of faults.
const (
	cureReplay = "restore the stream, or replay into a new generation: TRIBUTARY_GENERATION=NAME tributary run"
	// CureExpired is what an operator does about records that left the raw stream before they were read.
	CureExpired = "raise TRIBUTARY_RAW_MAX_AGE or start more workers, ship the logs that still exist again (tributary ship --again), then tributary doctor acknowledge"
	cureRawLost = "restore the raw stream as it was, and the workers go on by themselves; else ship the logs again first (tributary ship --again), " +
		"then replay into a new generation (TRIBUTARY_GENERATION=NAME tributary run): this one stores nothing more"
)

// The permanent errors of a raw record that no normalizer sees. Each makes the record a
// dead letter. Their texts repeat nothing of the record.
var (
	// errSubject: the subject is not raw.<partition>.<source>.<session> with a session
	// that can be decoded.
	errSubject = errors.New("bad subject")
	// errSession: the session id is not UTF-8, is too long, or does not hash to the
	// token in the subject.
	errSession = errors.New("bad session")
	// errHeader: a Tributary header has a value that cannot be read.
	errHeader = errors.New("bad header")
	// errClaim: the claim check of a large record is not one of [Claim.String], or
	// comes with a body.
	errClaim = errors.New("bad claim")
	// errClaimMissing: the bucket does not hold the object that a claim check names.
	errClaimMissing = errors.New("claimed object is missing")
	// errClaimSize: the object that a claim check names has another size.
	errClaimSize = errors.New("claimed object has another size")
	// errClaimDigest: the object that a claim check names has other bytes.
	errClaimDigest = errors.New("claimed object has another digest")
	// errUnpublishable: an event of the record does not fit a message.
	errUnpublishable = errors.New("event does not fit a message")
)

// errKeysLost means that the bucket has lost the name of the live generation.
var errKeysLost = fmt.Errorf("bucket %s has lost the key %s: restore the bucket, or put the key back: nats kv put %[1]s %[2]s NAME", controlBucket, currentKey)

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
	// ErrInterrupted: a [Cutover] is open.
	ErrInterrupted = errors.New("a change of the live generation is not finished")
	// errStarting: a start of the generation was interrupted.
	errStarting = errors.New("the start of the generation was interrupted")
	// errDropping: a drop of the generation was interrupted.
	errDropping = errors.New("generation is being dropped")
	// errChanged: another process changed the generation at the same time.
	errChanged = errors.New("another process has just changed the generation: try again")
)

// ErrCrashed is the permanent error of a record that ended the process each time that it
// was tried. It makes the record a dead letter.
var ErrCrashed = errors.New("record ended the process")

// errTimeout is the permanent error of a record that took longer than a record may, each time
// that it was tried.
var errTimeout = errors.New("record took too long")

// fatal reports whether a record ended workers, or took too long or too much work for them.
func fatal(err error) bool {
	return errors.Is(err, ErrCrashed) || errors.Is(err, errTimeout) || errors.Is(err, redact.ErrUnsearched)
}

// permanentErrors are the reasons of the permanent errors that no normalizer sees.
var permanentErrors = []struct {
	err    error
	reason string
}{
	{errSubject, "bad_subject"},
	{errSession, "bad_session"},
	{errHeader, "bad_header"},
	{errClaim, "bad_claim"},
	{errClaimMissing, "claim_missing"},
	{errClaimSize, "claim_size"},
	{errClaimDigest, "claim_digest"},
	{errUnpublishable, "unpublishable"},
	{ErrCrashed, "crashed"},
	{errTimeout, "timeout"},
	{redact.ErrUnsearched, "unsearched"},
	{normalizers.ErrSession, "state"},
}

// Reason returns the reason under which a record that failed with err is counted and
// dead-lettered, and whether err is permanent. The set of reasons is bounded: those of
// [normalizers.Reason] and those of this package.
func Reason(err error) (reason string, permanent bool) {
	for _, p := range permanentErrors {
		if errors.Is(err, p.err) {
			return p.reason, true
		}
	}
	return normalizers.Reason(err)
}

// reasons lists the reasons that [Reason] returns.
func reasons() []string {
	list := normalizers.Reasons()
	for _, p := range permanentErrors {
		list = append(list, p.reason)
	}
	return list
}

// topologyError is [errTopology] with the differences between what exists and what is
// wanted.
type topologyError struct {
	name        string // of the stream, bucket or server
	differences []difference
	cure        string // what the operator can do
}

// difference is one setting with two values.
type difference struct{ setting, have, want string }

// Error spells every difference out.
func (e *topologyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s", errTopology, e.name)
	for i, d := range e.differences {
		sep := ", "
		if i == 0 {
			sep = " "
		}
		fmt.Fprintf(&b, "%shas %s %s, want %s", sep, d.setting, d.have, d.want)
	}
	fmt.Fprintf(&b, ": %s", e.cure)
	return b.String()
}

// Unwrap returns [errTopology].
func (e *topologyError) Unwrap() error { return errTopology }
