package titles

import (
	"errors"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// The errors of a call. Their texts name a session and versions, never a title.
var (
	// ErrInvalid is the error of a call that no state of the server could make valid. It
	// says what is wrong.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound is the error of a session that no generation has an event of.
	ErrNotFound = errors.New("session not found")
	// ErrStorage is the error of a call whose state cannot be read or stored. Nothing is
	// stored, unless the text says that the outcome is unknown.
	ErrStorage = errors.New("storage error")
	// ErrEmptyTitle is the [ErrStorage] of a title without any character but white space.
	ErrEmptyTitle = fmt.Errorf("%w: title cannot be empty", ErrStorage)
	// errTooLarge is the [ErrStorage] of a title that does not fit a message.
	errTooLarge = fmt.Errorf("%w: title is too large", ErrStorage)
)

// VersionConflictError is the error of a call with [IfMatch] that names another version than
// that of the metadata.
type VersionConflictError struct{ Expected, Current uint64 }

// Error names both versions.
func (e *VersionConflictError) Error() string {
	return fmt.Sprintf("version conflict: expected %d, current %d", e.Expected, e.Current)
}

// errDamaged: a stored record or change cannot be read.
var errDamaged = errors.New("stored message cannot be read")

// notFound is the [ErrNotFound] of a session.
func notFound(k Key) error { return fmt.Errorf("%w: %s", ErrNotFound, printable(k.SessionID)) }

// invalid is [ErrInvalid] with what is wrong.
func invalid(what string) error { return fmt.Errorf("%w: %s", ErrInvalid, what) }

// storage is [ErrStorage] with what was being done.
func storage(doing string, err error) error { return fmt.Errorf("%w: %s: %w", ErrStorage, doing, err) }

// printable returns an id as it is, or quoted when it has characters that a terminal or a
// header would interpret.
func printable(id string) string {
	if !utf8.ValidString(id) {
		return strconv.QuoteToASCII(id)
	}
	for _, r := range id {
		if !unicode.IsPrint(r) {
			return strconv.QuoteToASCII(id)
		}
	}
	return id
}
