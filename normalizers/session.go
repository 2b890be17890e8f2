package normalizers

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
)

// NewSession returns the state of a session before its first record, with the empty state of its vendor.
func NewSession(source envelopes.Source, id string) *core.Session {
	return core.NewSession(source, id, newState(source))
}

// DecodeSession is the inverse of [core.Session.Encode]. It does not retain data. The error is [core.ErrSession].
func DecodeSession(data []byte) (*core.Session, error) { return core.DecodeSession(data, newState) }

// DecodeChanged decodes a session from the results of [core.Session.Encode] at a [core.Session.Mark] and of a later
// [core.Session.EncodeChange]. It retains neither, and the session has the same mark. The error is [core.ErrSession].
func DecodeChanged(whole, change []byte) (*core.Session, error) {
	return core.DecodeChanged(whole, change, newState)
}

// newState returns the empty state for a session of a source.
func newState(source envelopes.Source) core.State {
	if v := VendorOf(source); v != nil && v.NewState != nil {
		return v.NewState()
	}
	return nil
}
