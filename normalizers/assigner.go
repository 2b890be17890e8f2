package normalizers

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// maxWaiting is how many bytes of records wait for a session or a time that may still follow in the file. Beyond it
// the file's name and time decide.
const maxWaiting = 8 << 20

// framedBytes is the approximate memory of a record beside its data; lines of text can be short.
const framedBytes = 256

// assigner gives the records of a file their vendor, session, time, and the place of the previous record. A record
// without a session or time of its own gets the last one stated before it in the file, else the first one after it,
// else that of the file itself.
type assigner struct {
	file     File
	forced   bool         // the caller has named the source, for all records
	vendor   *core.Vendor // nil until detected
	identity string       // of the file; empty before its first line
	parent   string       // session of which that of the file is a subagent; empty for none

	recognition Recognition // what identified the vendor
	shared      bool        // all records so far are [core.Framing.IsShared], so that another agent may follow
	printed     bool        // [core.Framing.IsPrinted]

	last     string             // last session stated by a record
	lastTime time.Time          // last time stated by a record
	timed    map[string]bool    // sessions with a record that stated a time
	previous map[ofSource]int64 // per session, position of its last readable record; -1 before the first
	order    []ofSource         // sessions in order of their first records

	records      []assigned // not taken yet: first the ready ones, then the waiting ones
	ready        int        // number of ready records
	taken        int        // number of ready records that were taken
	waitingBytes int
}

// assigned is a record, which may wait for its vendor, session or time.
type assigned struct {
	Framed
	readable bool // its session will take its position
	printed  bool // a record before it shows that the file was printed
	front    bool // it waited for its session until a record showed that the file was printed
}

// ofSource is a session of a file. What agents export may be of several sources.
type ofSource struct {
	source  envelopes.Source
	session string
}

// waiting returns the records that are not ready.
func (a *assigner) waiting() []assigned { return a.records[a.ready:] }

// Next returns the next record with a decided session and time. It returns false if the [Framer] needs more bytes, or
// Close.
func (a *assigner) Next() (Framed, bool) {
	if a.taken == a.ready {
		a.records = slices.Delete(a.records, 0, a.ready)
		a.ready, a.taken = 0, 0
		a.freeList()
		return Framed{}, false
	}
	r := &a.records[a.taken]
	a.taken++
	framed := r.Framed
	*r = assigned{} // the caller has it
	return framed, true
}

// recordLists pools lists, because an assigner needs one only while it has records.
var recordLists = sync.Pool{New: func() any { return new([]assigned) }}

// maxRecordList is the length of the longest pooled list.
const maxRecordList = 1024

// freeList returns an empty list to the pool.
func (a *assigner) freeList() {
	if list := a.records; list != nil && len(list) == 0 && cap(list) <= maxRecordList {
		a.records = nil
		recordLists.Put(&list)
	}
}

func newAssigner(f File) assigner {
	a := assigner{
		file:     f,
		forced:   f.Source != "" && !f.Assumed,
		vendor:   VendorOf(f.Source),
		timed:    make(map[string]bool),
		previous: make(map[ofSource]int64),
	}
	if a.vendor != nil {
		a.recognition = Recognition{Source: a.vendor.Source}
		if !f.Assumed {
			a.recognition.Agent = a.vendor.Name
		}
	}
	a.place()
	return a
}

// place gives the records of the file the session and the parent that its path shows.
func (a *assigner) place() {
	a.parent = ""
	if a.vendor != nil && a.vendor.Framing.ParentOfPath != nil {
		a.parent = a.vendor.Framing.ParentOfPath(path.Join(a.file.Folder, a.file.Name))
	}
	if a.file.Session == "" && a.vendor != nil && a.vendor.Framing.SessionOfPath != nil {
		a.file.Session = a.vendor.Framing.SessionOfPath(path.Join(a.file.Folder, a.file.Name))
	}
}

// identify sets the identity of the file once its first line is there.
func (a *assigner) identify(first []byte) {
	if a.identity != "" {
		return
	}
	if i := bytes.IndexByte(first, '\n'); i >= 0 {
		first = first[:i]
	}
	first = bytes.TrimSpace(first[:min(len(first), 64<<10)])
	if a.file.FirstLine != nil {
		first = a.file.FirstLine(first)
	}
	a.identity = core.HexHash(a.file.Path + "\n" + string(first))[:32]
}

// assign adds the next record of the file, whose line, position and end are set. What the record states also applies
// to waiting records.
func (a *assigner) assign(r Framed, sh core.Shape) {
	a.detect(&sh, r)
	if is := a.isPrinted(); is != nil && is(&sh) {
		a.printed = true
		waiting := a.waiting()
		for i := range waiting { // which may not depend on when others were released
			waiting[i].front = waiting[i].Record.Session == ""
		}
	}
	r.Record.Sequence = uint64(r.Line)
	is, isExported := a.exportedOf(&sh)
	r.Record.Source = is.Source
	r.Record.Session = a.sessionOf(&sh, is)
	r.Record.Origin.Time = cmp.Or(a.timeOf(&sh, is), r.Record.Origin.Time)
	if a.records == nil {
		a.records = *recordLists.Get().(*[]assigned)
	}
	a.records = append(a.records, assigned{Framed: r, readable: a.isReadable(&sh, r.Record.Data, isExported), printed: a.printed})
	a.waitingBytes += framedBytes + len(r.Record.Data)
	if a.waitingBytes > maxWaiting {
		a.release()
	}
	if a.waitingBytes > maxWaiting {
		a.settle()
	}
}

// exportedOf returns what the next record exports; false if it exports nothing, or is of no agent that the file may have.
func (a *assigner) exportedOf(sh *core.Shape) (exported, bool) {
	is, ok := exportedOf(sh)
	if !ok || a.forced && is.Source != a.vendor.Source {
		return exported{}, false
	}
	return is, true
}

// detect sets the agent of the file at the first record that shows it.
func (a *assigner) detect(sh *core.Shape, r Framed) {
	if a.recognition.Agent != "" && !a.shared {
		return
	}
	is := recognize(sh, r.Record.Data)
	if is.Agent == "" {
		return
	}
	is.Line = r.Line
	switch v := a.vendor; {
	case v == nil:
		v = VendorOf(is.Source)
		a.shared = v != nil && v.Framing.IsShared != nil && v.Framing.IsShared(sh)
	case a.shared:
		if is.Source == v.Source {
			a.shared = v.Framing.IsShared(sh)
			return
		}
		if by := VendorOf(is.Source); by == nil || !slices.Contains(by.LogOf, v.Source) {
			return
		}
		a.shared = false
	case is.Source == v.Source:
	case slices.Contains(v.LogOf, is.Source):
		is.Source, is.Agent = v.Source, v.Name
	default:
		is.Source, is.Folder = "", v.Name
	}
	a.recognition = is
	a.file.Source = a.recognition.Source
	a.vendor = VendorOf(a.file.Source)
	a.place()
}

// sessionOf returns the session of the next record; empty while none is known. A session stated in the record also
// applies to waiting records without one.
func (a *assigner) sessionOf(sh *core.Shape, is exported) string {
	stated := a.file.Session
	switch {
	case stated != "":
	case is.Source != "":
		stated = is.Session
	case a.vendor == nil:
		stated = sh.Session()
	case a.vendor.Framing.OneSession && a.last != "":
	default:
		stated = a.vendor.Session(sh)
	}
	if stated == "" {
		return a.last
	}
	a.last = stated
	waiting := a.waiting()
	for i := range waiting {
		if r := &waiting[i].Record; r.Session == "" {
			r.Session = stated
		}
	}
	return stated
}

// timeOf returns the time of the next record; zero while none is known. A time stated in the record also applies to
// waiting records without one.
func (a *assigner) timeOf(sh *core.Shape, is exported) time.Time {
	var stated time.Time
	switch {
	case is.Source != "":
		stated = is.record.Time
	case a.vendor != nil:
		stated = a.vendor.Time(sh)
	default:
		stated = sh.Time([]string{"timestamp"})
	}
	if stated.IsZero() {
		if a.timed[a.last] {
			return a.lastTime
		}
		return time.Time{}
	}
	a.lastTime = stated
	a.timed[a.last] = a.last != ""
	waiting := a.waiting()
	for i := range waiting {
		if r := &waiting[i].Record; r.Origin.Time.IsZero() {
			r.Origin.Time = stated
		}
	}
	return stated
}

// isReadable reports whether its vendor can read a record, so that its session will advance past it.
func (a *assigner) isReadable(sh *core.Shape, data []byte, isExported bool) bool {
	if !sh.Readable || sh.Deep(data) {
		return false
	}
	return isExported || a.vendor == nil || a.vendor.Framing.IsReadable == nil || a.vendor.Framing.IsReadable(data)
}

// isPrinted returns the function that decides whether a file was printed by a run; nil if that is decided or cannot
// be.
func (a *assigner) isPrinted() func(*core.Shape) bool {
	if a.vendor == nil || a.printed {
		return nil
	}
	return a.vendor.Framing.IsPrinted
}

// settle gives the waiting records the session and time of the file itself, and the agent that is known so far.
func (a *assigner) settle() {
	a.shared = false
	waiting := a.waiting()
	for i := range waiting {
		r := &waiting[i].Record
		if r.Session == "" {
			r.Session = a.stem()
		}
		if r.Origin.Time.IsZero() {
			r.Origin.Time = a.file.time()
		}
	}
}

// release makes the leading records ready that wait for nothing.
func (a *assigner) release() {
	if a.recognition.refused() {
		a.ready, a.waitingBytes = len(a.records), 0
		return
	}
	for ; a.ready < len(a.records); a.ready++ {
		w := &a.records[a.ready]
		if a.vendor == nil || a.shared || w.Record.Session == "" || w.Record.Origin.Time.IsZero() {
			return
		}
		w.Record.Source = cmp.Or(w.Record.Source, a.vendor.Source)
		w.Record.Origin.File, w.Record.Origin.Parent = a.identity, a.parent
		a.chain(w)
		a.waitingBytes -= framedBytes + len(w.Record.Data)
	}
}

// chain sets the place of the previous record of w in its session.
func (a *assigner) chain(w *assigned) {
	r := &w.Record
	of := ofSource{r.Source, r.Session}
	previous, known := a.previous[of]
	if !known {
		previous = -1
		a.previous[of] = previous
		a.order = append(a.order, of)
	}
	r.Origin.Previous = previous
	if w.readable || w.Err == nil && a.isText(w) {
		a.previous[of] = r.Origin.Position
	}
}

// isText reports whether a record is a line of text of its session.
func (a *assigner) isText(w *assigned) bool {
	data := w.Record.Data
	switch {
	case a.vendor.Framing.PlainLines:
		return core.Depth(data) <= core.MaxDepth
	case w.front:
		return core.IsFrontText(data)
	default:
		return w.printed && core.IsPlainText(data)
	}
}

// releaseAll makes all records ready, even if the vendor of the file was not detected.
func (a *assigner) releaseAll() {
	a.release()
	waiting := a.waiting()
	for i := range waiting {
		w := &waiting[i]
		w.Record.Origin.Previous = -1
		if w.readable {
			w.Record.Origin.Previous = 0
		}
	}
	a.ready = len(a.records)
}

// time returns the time of last resort.
func (f File) time() time.Time {
	if f.Modified.IsZero() {
		return time.Unix(0, 0)
	}
	return f.Modified
}

// stem returns the session of last resort: the name of the file without extensions, or the name of its folder if the
// vendor names the folder after the session.
func (a *assigner) stem() string {
	name := stem(a.file.Name)
	if a.file.Folder != "" && a.vendor != nil && slices.Contains(a.vendor.Framing.FolderNamed, name) {
		return path.Base(a.file.Folder)
	}
	return name
}

// stem returns the name of a file without extensions.
func stem(name string) string {
	name = Unpacked(name)
	if s := strings.TrimSuffix(name, path.Ext(name)); s != "" {
		return s
	}
	return name
}
