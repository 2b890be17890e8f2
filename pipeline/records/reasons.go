package records

import (
	"errors"
	"fmt"

	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/redact"
)

// ErrMisplaced means that a producer chose another partition than the one of the session.
var ErrMisplaced = fmt.Errorf("%w: not the partition of the session", errSubject)

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
	// ErrUnpublishable: an event of the record does not fit a message.
	ErrUnpublishable = errors.New("event does not fit a message")
)

// ErrCrashed is the permanent error of a record that ended the process each time that it
// was tried. It makes the record a dead letter.
var ErrCrashed = errors.New("record ended the process")

// ErrTimeout is the permanent error of a record that took longer than a record may, each time
// that it was tried.
var ErrTimeout = errors.New("record took too long")

// Fatal reports whether a record ended workers, or took too long or too much work for them.
func Fatal(err error) bool {
	return errors.Is(err, ErrCrashed) || errors.Is(err, ErrTimeout) || errors.Is(err, redact.ErrUnsearched)
}

// permanentErrors are the reasons of the permanent errors that no normalizer sees.
var permanentErrors = []struct {
	err    error
	reason string
}{
	{errSubject, "bad_subject"},
	{errSession, "bad_session"},
	{errHeader, "bad_header"},
	{claims.ErrMalformed, "bad_claim"},
	{claims.ErrMissing, "claim_missing"},
	{claims.ErrSize, "claim_size"},
	{claims.ErrDigest, "claim_digest"},
	{ErrUnpublishable, "unpublishable"},
	{ErrCrashed, "crashed"},
	{ErrTimeout, "timeout"},
	{redact.ErrUnsearched, "unsearched"},
	{core.ErrSession, "state"},
}

// Reason returns the reason under which a record that failed with err is counted and
// dead-lettered, and whether err is permanent. The set of reasons is bounded: those of
// [core.Reason] and those of this package.
func Reason(err error) (reason string, permanent bool) {
	for _, p := range permanentErrors {
		if errors.Is(err, p.err) {
			return p.reason, true
		}
	}
	return core.Reason(err)
}

// Reasons lists the reasons that [Reason] returns.
func Reasons() []string {
	list := core.Reasons()
	for _, p := range permanentErrors {
		list = append(list, p.reason)
	}
	return list
}

// ErrRedacted is the error of a record that the raw stream has unredacted, and that was asked
// for through a generation that redacts its records.
var ErrRedacted = errors.New("record is redacted")
