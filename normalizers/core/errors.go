package core

import (
	"errors"
	"fmt"

	"tributary/envelopes"
)

// The permanent errors of [Normalize]: the same record fails again, so it becomes a dead letter. Their texts contain
// nothing of the record.
var (
	// ErrMalformed: the record is not JSON, or its JSON does not fit its place.
	ErrMalformed = errors.New("malformed record")
	// ErrTooLarge: the record is longer than [MaxRecordBytes].
	ErrTooLarge = errors.New("record too large")
	// errTooDeep: the JSON of the record has more than [MaxDepth] levels.
	errTooDeep = errors.New("record nested too deep")
	// errTooManyValues: the JSON of the record has more than [MaxValues] values.
	errTooManyValues = errors.New("record has too many values")
	// ErrTooManyEvents: the record would yield more than [MaxEvents] events.
	ErrTooManyEvents = errors.New("record yields too many events")
	// ErrUnknownSource: no normalizer reads records of this source.
	ErrUnknownSource = errors.New("unknown source")
	// errPanic: the normalizer panicked; [PanicError] has the stack.
	errPanic = errors.New("normalizer panicked")
)

// PanicError is the panic of a normalizer, caught at the record that caused it.
type PanicError struct {
	Value any    // may contain parts of the record: for a debugger, never for a log
	Stack []byte // of the panicking goroutine, without the values of arguments
}

// Error names the kind of the panic value, never the value.
func (e *PanicError) Error() string { return fmt.Sprintf("%v: %T", errPanic, e.Value) }

// Unwrap returns [errPanic].
func (e *PanicError) Unwrap() error { return errPanic }

// reasons are the names of the permanent errors; the first match counts.
var reasons = []struct {
	err  error
	name string
}{
	{ErrTooLarge, "too_large"},
	{errTooDeep, "too_deep"},
	{errTooManyValues, "too_many_values"},
	{ErrTooManyEvents, "too_many_events"},
	{ErrMalformed, "malformed"},
	{ErrUnknownSource, "unknown_source"},
	{errPanic, "panic"},
	{envelopes.ErrInvalidEvent, "invalid_event"},
}

// Reason returns the name under which a record that failed with err is counted and
// dead-lettered, and whether err is permanent. The set of names is bounded.
func Reason(err error) (reason string, permanent bool) {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.name, true
		}
	}
	return "", false
}

// Reasons lists the names that [Reason] returns.
func Reasons() []string {
	names := make([]string, len(reasons))
	for i, r := range reasons {
		names[i] = r.name
	}
	return names
}
