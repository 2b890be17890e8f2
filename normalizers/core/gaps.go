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

// files is how far the files of a session have been read.
type files struct {
	First   uint64               `json:"first,omitzero"` // raw sequence of the first record that came from a file
	Files   Window[filePosition] `json:"files,omitzero"`
	Missing Window[Gap]          `json:"gaps,omitzero"`
}

func (f *files) size() int { return 32*len(f.Files) + 32*len(f.Missing) }

// filePosition is how far a file has been read.
type filePosition struct {
	File     Fingerprint `json:"f"`
	Position int64       `json:"p,omitzero"` // the highest of all records
	Digest   Fingerprint `json:"d,omitzero"` // of a document that is rewritten in place

	Rewritten uint32 `json:"w,omitzero"` // records at passed places that were others
	Undecided uint32 `json:"u,omitzero"` // records at passed places before Expired
	Expired   int64  `json:"x,omitzero"` // the raw stream once lacked records before this place
}

// positionOf returns the place of a record.
func positionOf(o Origin) filePosition {
	is := filePosition{File: FingerprintOf(o.File), Position: o.Position}
	if o.Digest != "" {
		is.Digest = FingerprintOf(o.Digest)
	}
	return is
}

// newerVersionOf reports whether a record is a document at the place of another version of it.
func (f filePosition) newerVersionOf(was filePosition) bool {
	return f.Position == was.Position && f.Digest != was.Digest
}

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
func (f *files) Rewrites() (all []Rewrite) {
	for _, p := range f.Files {
		if p.Rewritten+p.Undecided > 0 {
			all = append(all, Rewrite{p.File, int(p.Rewritten), int(p.Undecided)})
		}
	}
	return all
}

// Gaps returns the gaps in the files of the session, in the order in which they were found.
// The caller does not change the list.
func (f *files) Gaps() []Gap { return f.Missing }

// Passed reports whether the session has been at the place of a record. Then the record repeats
// an earlier one or the file was rewritten, and only the raw stream knows which: [Record.Earlier]
// is to be set before the record is given to [Apply] or [Session.Reject].
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

// advance notes the position of a record in its file, and returns where that is. A record
// without a file is always the next one. What the limits make it forget is added to lost.
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

// compare returns where a record is whose place the session may have passed, by what is known of
// earlier records.
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

// file returns the index of a file in f.Files, -1 when the session does not know it.
func (f *files) file(file Fingerprint) int {
	return slices.IndexFunc(f.Files, func(f filePosition) bool { return f.File == file })
}

// note makes a file the one that was noted last.
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

// gap returns the index of the gap that a place lies in, -1 when it lies in none.
func (f *files) gap(is filePosition) int {
	return slices.IndexFunc(f.Missing, func(g Gap) bool { return g.File == is.File && g.After < is.Position && is.Position <= g.Last })
}

// fill takes the place of a record out of the gap that it lies in; false when it lies in
// none. What is left of the gap are up to two gaps: one before the record, unless the record
// follows the one before the gap, and one behind it.
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
		f.Missing = nil // as it is decoded
	}
	return true
}
