package normalizers

import "tributary/envelopes"

// cursor normalizes the streams and transcripts of Cursor.
type cursor struct{}

// cursorState is what a session remembers beyond what all vendors do.
type cursorState struct{}

func (s *cursorState) size() int { return 0 }

// Normalize keeps every record as meta.
func (cursor) Normalize(s *Session, r Record) (Result, error) {
	if r.Origin.End {
		return Result{}, nil
	}
	f := s.begin(r, "")
	d := draft{on: envelopes.ChannelSystem}
	d.EventType = envelopes.Meta
	f.emit(d)
	return f.done(SkipDuplicate)
}
