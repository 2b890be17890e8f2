package core

// State is what a session of one vendor remembers between two records, beyond what the
// sessions of all vendors do. It is a pointer to a struct of JSON fields: a Session is
// encoded with it, and [Vendor.NewState] makes the one that it is decoded into. Every
// part of it is bounded.
type State interface {
	// Clone returns a copy that later changes of the state do not reach. What the state
	// refers to is never changed in place, so that a shallow copy is one.
	Clone() State
	// Size returns about how many bytes the state takes in memory. JSON takes at most six
	// times as many.
	Size() int
	// Shrink drops the oldest of what can be dropped. It reports false when nothing is left
	// to drop.
	Shrink() bool
}
