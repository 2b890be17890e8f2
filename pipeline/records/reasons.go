package records

import (
	"errors"
	"fmt"

	"tributary/normalizers/core"
	"tributary/pipeline/claims"
	"tributary/pipeline/redact"
)

// ErrMisplaced means that a producer published the record to the wrong partition for its session.
var ErrMisplaced = fmt.Errorf("%w: not the partition of the session", errSubject)

// The permanent errors of a raw record that occur before normalization. Each makes the record a dead letter. Their
// texts repeat nothing of the record.
var (
	// errSubject: the subject is not raw.<partition>.<source>.<session> with a decodable session.
	errSubject = errors.New("bad subject")
	// errSession: the session id is not UTF-8, is too long, or does not match the hash in the subject.
	errSession = errors.New("bad session")
	// errHeader: a Tributary header has an unreadable value.
	errHeader = errors.New("bad header")
	// ErrUnpublishable: an event of the record does not fit a message.
	ErrUnpublishable = errors.New("event does not fit a message")
)

// ErrCrashed means that a record ended the process each time it was tried. The record becomes a dead letter.
var ErrCrashed = errors.New("record ended the process")

// ErrTimeout means that a record took longer than [worker.Config.RecordTimeout] allows each time it was tried.
var ErrTimeout = errors.New("record took too long")

// Fatal reports whether a record ended workers, took too long, or took too much work.
func Fatal(err error) bool {
	return errors.Is(err, ErrCrashed) || errors.Is(err, ErrTimeout) || errors.Is(err, redact.ErrUnsearched)
}

// permanentErrors maps the permanent errors of this package to their reasons.
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

// Reason returns the reason under which a record that failed with err is counted and dead-lettered, and whether err
// is permanent. The set of reasons is bounded: those of [core.Reason] and of this package.
func Reason(err error) (reason string, permanent bool) {
	for _, p := range permanentErrors {
		if errors.Is(err, p.err) {
			return p.reason, true
		}
	}
	return core.Reason(err)
}

// Reasons lists all reasons that [Reason] can return.
func Reasons() []string {
	list := core.Reasons()
	for _, p := range permanentErrors {
		list = append(list, p.reason)
	}
	return list
}

// ErrRedacted means that the raw stream has a record unredacted, but the requested generation redacts its records.
var ErrRedacted = errors.New("record is redacted")
