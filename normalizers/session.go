package normalizers

import (
	"tributary/envelopes"
	"tributary/normalizers/core"
)

// NewSession returns the state of a session before its first record, with the state that the
// vendor of source keeps in it.
func NewSession(source envelopes.Source, id string) *core.Session {
	return core.NewSession(source, id, newState(source))
}

// DecodeSession is the inverse of [core.Session.Encode]. It does not retain data. An error is
// [core.ErrSession].
func DecodeSession(data []byte) (*core.Session, error) { return core.DecodeSession(data, newState) }

// DecodeChanged decodes a session from what [core.Session.Encode] wrote at a [core.Session.Mark]
// and what [core.Session.EncodeChange] wrote later. It retains neither, and the session has the
// same mark. An error is [core.ErrSession].
func DecodeChanged(whole, change []byte) (*core.Session, error) {
	return core.DecodeChanged(whole, change, newState)
}

// newState makes the empty state of a session of a source.
func newState(source envelopes.Source) core.State {
	if v := VendorOf(source); v != nil && v.NewState != nil {
		return v.NewState()
	}
	return nil
}
