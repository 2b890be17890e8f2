package titles

import (
	"errors"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Errors of a call. Their texts name a session and versions, never a title.
var (
	// ErrInvalid: the call is invalid in any state of the server. The text says why.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound: no generation has an event of the session.
	ErrNotFound = errors.New("session not found")
	// ErrStorage: state cannot be read or stored. Nothing was stored, unless the text says that the outcome is
	// unknown.
	ErrStorage = errors.New("storage error")
	// ErrEmptyTitle is an [ErrStorage]: the title is empty or white space.
	ErrEmptyTitle = fmt.Errorf("%w: title cannot be empty", ErrStorage)
	// errTooLarge is an [ErrStorage]: the title does not fit a message.
	errTooLarge = fmt.Errorf("%w: title is too large", ErrStorage)
)

// VersionConflictError is the error of a call with [IfMatch] if the metadata has another version.
type VersionConflictError struct{ Expected, Current uint64 }

// Error names both versions.
func (e *VersionConflictError) Error() string {
	return fmt.Sprintf("version conflict: expected %d, current %d", e.Expected, e.Current)
}

// errDamaged means that a stored record or change cannot be decoded.
var errDamaged = errors.New("stored message cannot be read")

// notFound returns [ErrNotFound] for a session.
func notFound(k Key) error { return fmt.Errorf("%w: %s", ErrNotFound, printable(k.SessionID)) }

// invalid returns [ErrInvalid] with what is wrong.
func invalid(what string) error { return fmt.Errorf("%w: %s", ErrInvalid, what) }

// storage returns [ErrStorage] with what was being done.
func storage(doing string, err error) error { return fmt.Errorf("%w: %s: %w", ErrStorage, doing, err) }

// printable returns an id unchanged, or quoted if it has characters that a terminal or a header would interpret.
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
