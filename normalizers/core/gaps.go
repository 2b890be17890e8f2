package core

import "slices"

// maxGaps is how many gaps a session remembers. A record of one that it has forgotten is a
// duplicate.
const maxGaps = 64

// Gap is a part of a file of which the session has no record, although the record behind it
// states that there are some: their offsets are above After, and Last is that of the last.
type Gap struct {
	File     Fingerprint `json:"f"`          // of [Origin.File]
	After    int64       `json:"a,omitzero"` // offset of the record before the gap, -1 when there is none
	Last     int64       `json:"l,omitzero"`
	Sequence uint64      `json:"s,omitzero"` // of the record that showed the gap, in the raw stream
}

// In reports whether the gap is in a file.
func (g Gap) In(file string) bool { return g.File == FingerprintOf(file) }

// place is where a record stands in its file, against the records that the session has
// of it.
type place int

const (
	placeNext      place = iota // behind all of them
	placeBehindGap              // behind all of them, and records in between are missing
	placeInGap                  // where one is missing
	placePassed                 // where the session has been
)

// Gaps returns the gaps in the files of the session, in the order in which they were found.
// The caller does not change the list.
func (s *Session) Gaps() []Gap { return s.Missing }

// advance notes the position of a record in its file, and returns where that is. A record
// without a file is always the next one.
func (s *Session) advance(r Record) place {
	o := r.Origin
	if o.File == "" {
		return placeNext
	}
	is := filePosition{File: FingerprintOf(o.File), Position: o.Position}
	if o.Digest != "" {
		is.Digest = FingerprintOf(o.Digest)
	}
	if s.fill(is.File, o) {
		return placeInGap
	}
	last := int64(-1)
	if i := slices.IndexFunc(s.Files, func(f filePosition) bool { return f.File == is.File }); i >= 0 {
		was := s.Files[i]
		if is.Position < was.Position || is.Position == was.Position && is.Digest == was.Digest {
			return placePassed
		}
		last = was.Position
	} else if len(s.Files) == maxFiles {
		s.forgetFile()
		last = o.Previous // the session may have forgotten this file
	}
	files := s.Files.Without(func(f filePosition) bool { return f.File == is.File })
	s.Files = files.Push(is, maxFiles, &s.Lost)
	before := min(o.Previous, o.Position-1)
	if before <= last {
		return placeNext
	}
	s.Missing = s.Missing.Push(Gap{is.File, last, before, r.Sequence}, maxGaps, &s.Lost)
	return placeBehindGap
}

// forgetFile drops the oldest file and its gaps.
func (s *Session) forgetFile() {
	oldest := s.Files[0].File
	s.Files = s.Files[1:]
	s.Missing = s.Missing.Without(func(g Gap) bool { return g.File == oldest })
	s.Lost++
}

// fill takes the place of a record out of the gap that it lies in; false when it lies in
// none. What is left of the gap are up to two gaps: one before the record, unless the record
// follows the one before the gap, and one behind it.
func (s *Session) fill(file Fingerprint, o Origin) bool {
	i := slices.IndexFunc(s.Missing, func(g Gap) bool { return g.File == file && g.After < o.Position && o.Position <= g.Last })
	if i < 0 {
		return false
	}
	g := s.Missing[i]
	gaps := slices.Clone(s.Missing[:i])
	if before := min(o.Previous, o.Position-1); before > g.After {
		gaps = append(gaps, Gap{file, g.After, before, g.Sequence})
	}
	if o.Position < g.Last {
		gaps = append(gaps, Gap{file, o.Position, g.Last, g.Sequence})
	}
	gaps = append(gaps, s.Missing[i+1:]...)
	if over := len(gaps) - maxGaps; over > 0 {
		gaps = gaps[over:]
		s.Lost += uint64(over)
	}
	s.Missing = gaps
	if len(gaps) == 0 {
		s.Missing = nil // as it is decoded
	}
	return true
}
