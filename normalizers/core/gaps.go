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
	placeRepeated               // where the session has been, and so has this record
	placeUndecided              // where the session has been, and nobody knows whether this record has
	placeRewritten              // where the session has been with another record
	placeVersion                // the same, in a document that is rewritten in place
)

// describe notes in the result of a record where that is.
func (p place) describe(res *Result) {
	res.Gap, res.Late = p == placeBehindGap, p == placeInGap
	res.Rewritten, res.Undecided = p == placeRewritten, p == placeUndecided
}

// Rewrite is what a session noted of records of a file at places that it had passed.
type Rewrite struct {
	File      Fingerprint // of [Origin.File]
	Rewritten int         // records that were others than those before them at their places: they are events
	Undecided int         // records before which the raw stream had lost what it had: taken for duplicates
}

// Rewrites returns the files of the session with records at places that it had passed and that
// were not known to repeat earlier ones.
func (s *Session) Rewrites() (all []Rewrite) {
	for _, f := range s.Files {
		if f.Rewritten+f.Undecided > 0 {
			all = append(all, Rewrite{f.File, int(f.Rewritten), int(f.Undecided)})
		}
	}
	return all
}

// Gaps returns the gaps in the files of the session, in the order in which they were found.
// The caller does not change the list.
func (s *Session) Gaps() []Gap { return s.Missing }

// Passed reports whether the session has been at the place of a record. Then the record repeats
// an earlier one or the file was rewritten, and only the raw stream knows which: [Record.Earlier]
// is to be set before the record is given to [Apply] or [Session.Reject].
func (s *Session) Passed(r Record) bool {
	o := r.Origin
	if o.File == "" || o.End || o.Requeued != 0 {
		return false
	}
	is := positionOf(o)
	i := s.file(is.File)
	if i < 0 {
		return len(s.Files) == maxFiles // the session may have forgotten this file
	}
	was := s.Files[i]
	return is.Position <= was.Position && !is.newerVersionOf(was) && s.gap(is) < 0
}

// advance notes the position of a record in its file, and returns where that is. A record
// without a file is always the next one.
func (s *Session) advance(r Record) place {
	o := r.Origin
	if o.File == "" {
		return placeNext
	}
	if s.First == 0 {
		s.First = r.Sequence
	}
	is := positionOf(o)
	if s.fill(is.File, o) {
		return placeInGap
	}
	if s.Passed(r) {
		if at := s.compare(is, r.Earlier); at != placeNext {
			return at
		}
	}
	last := int64(-1)
	if i := s.file(is.File); i >= 0 {
		was := s.Files[i]
		last, is.Expired, is.Rewritten, is.Undecided = was.Position, was.Expired, was.Rewritten, was.Undecided
	} else if len(s.Files) == maxFiles {
		s.forgetFile()
		last = o.Previous
	}
	s.note(is)
	before := min(o.Previous, o.Position-1)
	if before <= last {
		return placeNext
	}
	s.Missing = s.Missing.Push(Gap{is.File, last, before, r.Sequence}, maxGaps, &s.Lost)
	return placeBehindGap
}

// compare returns where a record is whose place the session may have passed, by what is known of
// earlier records.
func (s *Session) compare(is filePosition, e Earlier) place {
	i := s.file(is.File)
	switch {
	case e.Same, i >= 0 && !e.Known:
		return placeRepeated
	case i < 0:
		return placeNext
	}
	was := s.Files[i]
	was.Expired = max(was.Expired, min(e.From, was.Position+1))
	at := placeVersion
	switch {
	case is.Position < was.Expired:
		at = placeUndecided
		was.Undecided++
	case is.Digest == Fingerprint{}:
		at = placeRewritten
		was.Rewritten++
	}
	s.note(was)
	return at
}

// file returns the index of a file in s.Files, -1 when the session does not know it.
func (s *Session) file(file Fingerprint) int {
	return slices.IndexFunc(s.Files, func(f filePosition) bool { return f.File == file })
}

// note makes a file the one that was noted last.
func (s *Session) note(is filePosition) {
	files := s.Files.Without(func(f filePosition) bool { return f.File == is.File })
	s.Files = files.Push(is, maxFiles, &s.Lost)
}

// forgetFile drops the oldest file and its gaps.
func (s *Session) forgetFile() {
	oldest := s.Files[0].File
	s.Files = s.Files[1:]
	s.Missing = s.Missing.Without(func(g Gap) bool { return g.File == oldest })
	s.Lost++
}

// gap returns the index of the gap that a place lies in, -1 when it lies in none.
func (s *Session) gap(is filePosition) int {
	return slices.IndexFunc(s.Missing, func(g Gap) bool { return g.File == is.File && g.After < is.Position && is.Position <= g.Last })
}

// fill takes the place of a record out of the gap that it lies in; false when it lies in
// none. What is left of the gap are up to two gaps: one before the record, unless the record
// follows the one before the gap, and one behind it.
func (s *Session) fill(file Fingerprint, o Origin) bool {
	i := s.gap(filePosition{File: file, Position: o.Position})
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
