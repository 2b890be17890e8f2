package normalizers

import "tributary/envelopes"

// copilot normalizes the logs of Copilot CLI.
type copilot struct{}

// copilotState is what a session remembers beyond what all vendors do.
type copilotState struct{}

func (s *copilotState) size() int { return 0 }

// Normalize keeps every record as meta.
func (copilot) Normalize(s *Session, r Record) (Result, error) {
	if r.Origin.End {
		return Result{}, nil
	}
	f := s.begin(r, "")
	d := draft{on: envelopes.ChannelSystem}
	d.EventType = envelopes.Meta
	f.emit(d)
	return f.done(SkipDuplicate)
}
