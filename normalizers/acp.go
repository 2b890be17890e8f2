package normalizers

import "tributary/envelopes"

// acp normalizes the runs and messages of the Agent Communication Protocol.
type acp struct{}

// acpState is what a session remembers beyond what all vendors do.
type acpState struct{}

func (s *acpState) size() int { return 0 }

// Normalize keeps every record as meta.
func (acp) Normalize(s *Session, r Record) (Result, error) {
	if r.Origin.End {
		return Result{}, nil
	}
	f := s.begin(r, "")
	d := draft{on: envelopes.ChannelSystem}
	d.EventType = envelopes.Meta
	f.emit(d)
	return f.done(SkipDuplicate)
}
