// Package normalizers turns the raw records of coding agents into events.
//
// Start with [Normalize], [Framer] and the table of vendors. The one invariant: events are a pure function of the
// records of a session in order. They depend on no clock, random number or map order; time and the end of input enter
// only as data. What must be remembered between two records is in the [core.Session], which can be encoded, compared
// and continued after any record.
//
// A [Framer] cuts a vendor's file into records; [Normalize] turns them into events, one session at a time. Each
// vendor has a folder and a row in the table; package core has what they share.
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
const Revision = 15

// Normalize turns one record into the events of its session. It keeps the rules common to all vendors: a record at a
// place in its file that the session has passed may be a duplicate ([core.Record.Earlier]), and so is a requeued
// record whose original is not open. A record that fails leaves s unchanged, even if the normalizer panics
// ([core.Session.Reject] then notes it in the session). Every returned event is valid.
//
// Every error is permanent ([core.Reason] returns its name) except one: passing a record of another session than s is
// a mistake of the caller.
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
