package pipeline

import (
	"errors"
	"fmt"
	"strings"

	"tributary/normalizers"
)

// Errors that end a [Stage], or one partition of it: none of them heals by trying again.
var (
	// ErrTopology: what exists on the server contradicts the [Topology]. A
	// [TopologyError] has the differences.
	ErrTopology = errors.New("topology does not match")
	// ErrNoCheckpoint: a partition has no checkpoint. To start it from the beginning
	// would store every event a second time, so nothing is done.
	ErrNoCheckpoint = errors.New("no checkpoint")
	// ErrRevision: the generation was made by another revision of the normalizers.
	ErrRevision = errors.New("generation of another revision")
	// ErrRawLost: the raw stream no longer holds what a checkpoint says was read from
	// it. Its sequences would be used again, and new records skipped.
	ErrRawLost = errors.New("raw stream has lost its tail")
	// ErrState: a stored checkpoint or session state cannot be read.
	ErrState = errors.New("stored state cannot be read")
)

// The permanent errors of a raw record that no normalizer sees. Each makes the record a
// dead letter. Their texts hold no part of the record.
var (
	// ErrSubject: the subject is not raw.<partition>.<source>.<session> with a session
	// that can be decoded.
	ErrSubject = errors.New("bad subject")
	// ErrSession: the session id is not UTF-8, is too long, or does not hash to the
	// token in the subject.
	ErrSession = errors.New("bad session")
	// ErrHeader: a header of ours has a value that cannot be read.
	ErrHeader = errors.New("bad header")
	// ErrClaim: the reference to the bytes of a large record is not one of a [Claim], or
	// it comes with a body of its own.
	ErrClaim = errors.New("bad claim")
	// ErrClaimMissing: the bytes that a claim names are not in the bucket.
	ErrClaimMissing = errors.New("claimed object is missing")
	// ErrClaimSize: the object that a claim names has another size than it says.
	ErrClaimSize = errors.New("claimed object has another size")
	// ErrClaimDigest: the object that a claim names has other bytes than it says.
	ErrClaimDigest = errors.New("claimed object has another digest")
	// ErrUnpublishable: an event of the record does not fit a message.
	ErrUnpublishable = errors.New("event does not fit a message")
	// ErrCrashed: the record ended the process each time that it was tried.
	ErrCrashed = errors.New("record ended the process")
)

// Reason returns the name under which a record that failed with err is counted and
// dead-lettered, and whether err is permanent. The set of names is bounded: those of
// [normalizers.Reason] and those of this package.
func Reason(err error) (reason string, permanent bool) {
	switch {
	case errors.Is(err, ErrSubject):
		return "bad_subject", true
	case errors.Is(err, ErrSession):
		return "bad_session", true
	case errors.Is(err, ErrHeader):
		return "bad_header", true
	case errors.Is(err, ErrClaim):
		return "bad_claim", true
	case errors.Is(err, ErrClaimMissing):
		return "claim_missing", true
	case errors.Is(err, ErrClaimSize):
		return "claim_size", true
	case errors.Is(err, ErrClaimDigest):
		return "claim_digest", true
	case errors.Is(err, ErrUnpublishable):
		return "unpublishable", true
	case errors.Is(err, ErrCrashed):
		return "crashed", true
	}
	return normalizers.Reason(err)
}

// TopologyError says how what exists differs from what is wanted. It is [ErrTopology].
type TopologyError struct {
	Name        string // of the stream or bucket
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
