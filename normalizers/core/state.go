package core

// State is what a session of one vendor remembers between two records, in addition to what all sessions do. It is a
// pointer to a struct of JSON fields: a Session is encoded with it, and [Vendor.NewState] makes the value to decode
// into. Every part of it must be bounded.
type State interface {
	// Clone returns a copy that later changes of the state do not affect. What the state refers to must not be
	// changed in place, so a shallow copy suffices.
	Clone() State
	// Size returns the approximate memory of the state in bytes. JSON may take at most six times as many.
	Size() int
	// Shrink drops the oldest entry that can be dropped. It returns false if nothing is left to drop.
	Shrink() bool
}
