// Package normalizers turns the raw records of coding agents into events.
//
// Start with [Normalize], [Framer] and the table of vendors. The one invariant: events are
// a pure function of the records of a session in their order. No clock, no random number,
// no order of a map enters; time and the end of input enter only as data. What must be
// remembered between two records is in the [core.Session], which can be encoded, compared and
// carried on after any record.
//
// A file of a vendor is cut into records by a [Framer]; [Normalize] turns them into events,
// one session at a time. Each vendor has a folder of its own and a row in the table; what
// they share is in package core.
package normalizers

import (
	"fmt"
	"unicode/utf8"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// Revision is the number of this mapping from records to events. Raise it by one with a change
// after which the same records yield other events or skips, or a stored session cannot be carried
// on: workers of one revision take over each other's sessions, and events of another revision
// belong into a generation of their own. TestRevision finds such a change in the cases of testdata,
// but not that an unknown record becomes more than a meta event.
const Revision = 8

// Normalize turns one record into the events of its session. It keeps the rules that all
// vendors share: a record that the session has passed by its position in its file is a
// duplicate, and so is one that repeats a record which is not open; a record that fails
// leaves s as it was, also when the normalizer panics ([core.Session.Reject] notes what the
// session shall know of it); and every event that leaves is valid.
//
// Every error is permanent ([core.Reason] has its name) but one: a record that belongs to
// another session than s is a mistake of the caller.
func Normalize(s *core.Session, r core.Record) (core.Result, error) {
	if r.Source != s.Source() || r.Session != s.ID() {
		return core.Result{}, fmt.Errorf("record of another session than %s of %s", s.ID(), s.Source())
	}
	if s.ID() == "" || len(s.ID()) > envelopes.MaxIDBytes || !utf8.ValidString(s.ID()) {
		return core.Result{}, fmt.Errorf("%w: session_id is empty, not UTF-8, or longer than %d bytes", envelopes.ErrInvalidEvent, envelopes.MaxIDBytes)
	}
	v := VendorOf(r.Source)
	if v == nil {
		return core.Result{}, fmt.Errorf("%w: %s has no normalizer", core.ErrUnknownSource, r.Source)
	}
	return core.Apply(v.Normalize, s, r)
}
