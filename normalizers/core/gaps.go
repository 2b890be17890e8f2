package core

import "slices"

// maxGaps is how many gaps a session remembers. A record in a forgotten gap counts as a duplicate.
const maxGaps = 64

// Gap is a part of a file of which the session has no record, although a later record states that there are some.
// Their offsets are above After, up to Last.
type Gap struct {
	File     Fingerprint `json:"f"`          // of [Origin.File]
	After    int64       `json:"a,omitzero"` // offset of the record before the gap; -1 for none
	Last     int64       `json:"l,omitzero"`
	Sequence uint64      `json:"s,omitzero"` // of the record that showed the gap, in the raw stream
}

// In reports whether the gap is in a file.
func (g Gap) In(file string) bool { return g.File == FingerprintOf(file) }

// files is how far the files of a session were read.
type files struct {
	First   uint64               `json:"first,omitzero"` // raw sequence of the first record from a file
	Files   Window[filePosition] `json:"files,omitzero"`
	Missing Window[Gap]          `json:"gaps,omitzero"`
}

func (f *files) size() int { return 32*len(f.Files) + 32*len(f.Missing) }

// filePosition is how far a file was read.
type filePosition struct {
	File     Fingerprint `json:"f"`
	Position int64       `json:"p,omitzero"` // highest position of all records
	Digest   Fingerprint `json:"d,omitzero"` // of a document rewritten in place

	Rewritten uint32 `json:"w,omitzero"` // records at passed places that differed
	Undecided uint32 `json:"u,omitzero"` // records at passed places before Expired
	Expired   int64  `json:"x,omitzero"` // the raw stream once lacked records before this position
}

// positionOf returns the position of a record.
func positionOf(o Origin) filePosition {
	is := filePosition{File: FingerprintOf(o.File), Position: o.Position}
	if o.Digest != "" {
		is.Digest = FingerprintOf(o.Digest)
	}
	return is
}

// newerVersionOf reports whether a record is another version of a document at the same place.
func (f filePosition) newerVersionOf(was filePosition) bool {
	return f.Position == was.Position && f.Digest != was.Digest
}

// place is the relation of a record to the session's other records of its file.
type place int

const (
	placeNext      place = iota // behind all of them
	placeBehindGap              // behind all of them, with missing records in between
	placeInGap                  // in a gap
	placeRepeated               // at a passed place, as a repetition
	placeUndecided              // at a passed place, unknown whether it is a repetition
	placeRewritten              // at a passed place, but another record
	placeVersion                // the same in a document that is rewritten in place
)

// describe sets the fields of the result that depend on the place.
func (p place) describe(res *Result) {
	res.Gap, res.Late = p == placeBehindGap, p == placeInGap
	res.Rewritten, res.Undecided = p == placeRewritten, p == placeUndecided
}

// Rewrite counts the records of a file at places that the session had passed.
type Rewrite struct {
	File      Fingerprint // of [Origin.File]
	Rewritten int         // records that differ from earlier ones at their places; they have events
	Undecided int         // records whose earlier records the raw stream has lost; taken for duplicates
}

// Rewrites returns the files of the session with records at passed places that were not known to repeat earlier ones.
func (f *files) Rewrites() (all []Rewrite) {
	for _, p := range f.Files {
		if p.Rewritten+p.Undecided > 0 {
			all = append(all, Rewrite{p.File, int(p.Rewritten), int(p.Undecided)})
		}
	}
	return all
}

// Gaps returns the gaps in the files of the session, in the order in which they were found. The caller must not
// change the list.
func (f *files) Gaps() []Gap { return f.Missing }

// Passed reports whether the session has passed the place of a record. The record then repeats an earlier one, or the
// file was rewritten. Only the raw stream has the earlier record to compare: set [Record.Earlier] before the record is
// passed to [Apply] or [Session.Reject].
func (f *files) Passed(r Record) bool {
	o := r.Origin
	if o.File == "" || o.End || o.Requeued != 0 {
		return false
	}
	is := positionOf(o)
	i := f.file(is.File)
	if i < 0 {
		return len(f.Files) == maxFiles // the session may have forgotten this file
	}
	was := f.Files[i]
	return is.Position <= was.Position && !is.newerVersionOf(was) && f.gap(is) < 0
}

// advance notes the position of a record in its file, and returns its place. A record without a file is always the
// next one. It adds to lost what it forgets because of limits.
func (f *files) advance(r Record, lost *uint64) place {
	o := r.Origin
	if o.File == "" {
		return placeNext
	}
	if f.First == 0 {
		f.First = r.Sequence
	}
	is := positionOf(o)
	if f.fill(is.File, o, lost) {
		return placeInGap
	}
	if f.Passed(r) {
		if at := f.compare(is, r.Earlier); at != placeNext {
			return at
		}
	}
	last := int64(-1)
	if i := f.file(is.File); i >= 0 {
		was := f.Files[i]
		last, is.Expired, is.Rewritten, is.Undecided = was.Position, was.Expired, was.Rewritten, was.Undecided
	} else if len(f.Files) == maxFiles {
		f.forgetFile(lost)
		last = o.Previous
	}
	f.note(is)
	before := min(o.Previous, o.Position-1)
	if before <= last {
		return placeNext
	}
	f.Missing = f.Missing.Push(Gap{is.File, last, before, r.Sequence}, maxGaps, lost)
	return placeBehindGap
}

// compare returns the place of a record whose position may have been passed, using what is known about earlier
// records.
func (f *files) compare(is filePosition, e Earlier) place {
	i := f.file(is.File)
	switch {
	case e.Same, i >= 0 && !e.Known:
		return placeRepeated
	case i < 0:
		return placeNext
	}
	was := f.Files[i]
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
	f.note(was)
	return at
}

// file returns the index of a file in f.Files; -1 if the session does not know it.
func (f *files) file(file Fingerprint) int {
	return slices.IndexFunc(f.Files, func(f filePosition) bool { return f.File == file })
}

// note makes a file the most recent one.
func (f *files) note(is filePosition) {
	others := f.Files.Without(func(f filePosition) bool { return f.File == is.File })
	f.Files = others.Push(is, maxFiles, nil) // [files.advance] has made room
}

// forgetFile drops the oldest file and its gaps.
func (f *files) forgetFile(lost *uint64) {
	oldest := f.Files[0].File
	f.Files = f.Files[1:]
	f.Missing = f.Missing.Without(func(g Gap) bool { return g.File == oldest })
	*lost++
}

// gap returns the index of the gap that contains a position; -1 for none.
func (f *files) gap(is filePosition) int {
	return slices.IndexFunc(f.Missing, func(g Gap) bool { return g.File == is.File && g.After < is.Position && is.Position <= g.Last })
}

// fill removes the place of a record from its gap; false if it is in none. Up to two gaps remain: one before the
// record, unless the record follows the one before the gap, and one behind it.
func (f *files) fill(file Fingerprint, o Origin, lost *uint64) bool {
	i := f.gap(filePosition{File: file, Position: o.Position})
	if i < 0 {
		return false
	}
	g := f.Missing[i]
	gaps := slices.Clone(f.Missing[:i])
	if before := min(o.Previous, o.Position-1); before > g.After {
		gaps = append(gaps, Gap{file, g.After, before, g.Sequence})
	}
	if o.Position < g.Last {
		gaps = append(gaps, Gap{file, o.Position, g.Last, g.Sequence})
	}
	gaps = append(gaps, f.Missing[i+1:]...)
	if over := len(gaps) - maxGaps; over > 0 {
		gaps = gaps[over:]
		*lost += uint64(over)
	}
	f.Missing = gaps
	if len(gaps) == 0 {
		f.Missing = nil // as decoded
	}
	return true
}
