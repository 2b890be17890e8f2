package normalizers

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// File describes the file that a [Framer] reads.
type File struct {
	Source   envelopes.Source // detected by the content when empty
	Assumed  bool             // Source is that of the folder: a file whose content shows another agent is refused
	Name     string           // without folders; its stem is the session of last resort; "stdin" for standard input
	Path     string           // below the vendor's root, with '/'; part of the identity of the file; Name when empty
	Folder   string           // name of the folder it lies in: the session of last resort where every file is named alike
	Modified time.Time        // the time of last resort
	Session  string           // the session of every record, when not empty

	// FirstLine returns what of the first line is part of the identity of the file; nil for all of it.
	FirstLine func([]byte) []byte
}

// Framed is one record of a file.
type Framed struct {
	// Record has Source, Session, Origin and Data set; its Sequence is the line. The
	// caller owns Data. Bytes that are not JSON come as a record too: it is the
	// normalizer that refuses them.
	Record core.Record
	Line   int   // of the first byte of the record, from 1; 0 for the end of input
	Err    error // [core.ErrTooLarge]: Data is nil, the bytes were dropped
	End    int64 // offset behind the record and what separates it from the next: done up to here
}

// Framer cuts a file into records, detects its vendor, and settles the session and the
// fallback time of each record (README.md, Time and Identity). It takes the bytes in any chunks,
// so that a whole file, a stream, and a file that is still being written give the same
// records. Records come in the order of the file.
//
// Printed text is framed by lines; its session is settled by the line that states it, and
// the lines before wait for that line.
//
// A record is one JSON value: usually a line, but two on one line are two records, and
// one value over several lines is one. What cannot be read is cut off at the end of its
// line. In a stream of server-sent events a record is the data of an event. Memory is
// bounded by [core.MaxRecordBytes] and what waits for a decision. A Framer is not safe for
// concurrent use.
type Framer struct {
	assigner
	buffer

	dropping bool // within a line that is too long
	document *documentScan
	events   serverEvents
	form     form
	shapes   *core.ShapeReader
}

// NewFramer returns a framer at the start of f.
func NewFramer(f File) *Framer {
	if f.Path == "" {
		f.Path = f.Name
	}
	// A file system knows names that are no text, but an id is one.
	f.Name = strings.ToValidUTF8(f.Name, "\ufffd")
	f.Folder = strings.ToValidUTF8(f.Folder, "\ufffd")
	f.Session = strings.ToValidUTF8(f.Session, "\ufffd")
	return &Framer{
		assigner: newAssigner(f),
		buffer:   buffer{line: 1},
		shapes:   core.NewShapeReader(),
	}
}

// Source returns the vendor of the file, empty until it is detected.
func (f *Framer) Source() envelopes.Source { return f.file.Source }

// Recognition returns by what the agent of the file is known so far. A file of an agent without a
// normalizer is refused: all of its records come at once, without a source.
func (f *Framer) Recognition() Recognition { return f.recognition }

// Held is about how many bytes the Framer has in memory: of a record that is not complete, and of records
// that are not taken.
func (f *Framer) Held() int { return len(f.buf) + len(f.events.data) + f.waitingBytes }

// Write takes the next bytes of the file. It never fails and does not retain p.
func (f *Framer) Write(p []byte) (int, error) {
	f.grow(p)
	f.cutLines()
	f.release()
	f.free()
	return len(p), nil
}

// Close ends the file: what is left is its last line, what is undecided is decided, and
// one End record follows for each session.
func (f *Framer) Close() {
	f.cutLines()
	switch {
	case f.form == formUnknown && len(bytes.TrimSpace(f.buf)) > 0:
		f.settleForm() // a part of a mark, and no more
	case f.form == formTextOrLog:
		f.decideText(len(f.buf)) // its last line has no end, or was looked at before
		f.settleForm()
	}
	for len(f.buf) > 0 && !f.dropping {
		if d := f.document; d != nil {
			if d.fed < len(f.buf) {
				f.growDocument(len(f.buf)) // its last line has no end
				continue
			}
			f.abandonDocument()
			f.cutLines()
			continue
		}
		switch f.form {
		case formText:
			f.cutText(len(f.buf))
		case formUndecided:
			if !f.decideEvents(len(f.buf)) {
				f.form = formJSON // there is no data
			}
			f.scanned = 0
			f.cutLines()
		case formEvents:
			f.takeEventLine(len(f.buf))
		case formUnknown, formTextOrLog, formJSON:
			f.cut(len(f.buf), cutBroken)
		}
	}
	f.endEvent()
	f.Settle()
	f.releaseAll()
	for _, r := range f.Ends() {
		f.records = append(f.records, assigned{Framed: Framed{Record: r, End: f.offset}})
	}
	f.ready = len(f.records)
	f.free()
}

// Settle decides what is undecided without ending the file: the sessions by its name,
// the times by its own, and what may be plain text is. It is for a file that has been idle.
func (f *Framer) Settle() {
	if f.form == formTextOrLog {
		f.settleForm()
	}
	f.settle()
	f.release()
}

// Ends returns an End record for each session that the file has shown so far.
func (f *Framer) Ends() []core.Record {
	ends := make([]core.Record, 0, len(f.order))
	for _, id := range f.order {
		ends = append(ends, core.Record{
			Source:  f.file.Source,
			Session: id,
			Origin:  core.Origin{File: f.identity, Position: f.offset, Previous: f.previous[id], End: true},
		})
	}
	return ends
}

// cutLines cuts every line that is complete.
func (f *Framer) cutLines() {
	if !f.detectForm() {
		return
	}
	for {
		nl := bytes.IndexByte(f.buf[f.scanned:], '\n')
		end := f.scanned + nl + 1
		switch {
		case f.form == formTextOrLog && (end > maxWaiting || nl < 0 && len(f.buf) > maxWaiting):
			f.form, f.scanned = formText, 0
		case nl < 0 && (f.dropping || len(f.buf) > core.MaxRecordBytes):
			f.drop(len(f.buf))
			return
		case nl < 0:
			f.scanned = len(f.buf)
			return
		case f.dropping || end > core.MaxRecordBytes:
			f.drop(end)
			f.dropping = f.document != nil
		case f.form == formText:
			f.cutText(end)
		case f.form == formTextOrLog:
			f.decideText(end)
		case f.form == formUndecided:
			if f.scanned = end; f.decideEvents(end) {
				f.scanned = 0
			}
		case f.form == formEvents:
			f.takeEventLine(end)
		case f.document != nil:
			f.scanned = end
			f.growDocument(end)
		case !f.cut(end, cutLine):
			f.scanned = end // one value may go on over further lines
		}
	}
}

// drop drops buf[:end], all or a part of a line or document that is too long, so that
// neither grows without bounds.
func (f *Framer) drop(end int) {
	if !f.dropping {
		f.identify(f.buf)
		f.add(Framed{Err: core.ErrTooLarge, End: f.offset + core.MaxRecordBytes}, 0, 0, core.Shape{})
		f.dropping = true
	}
	if d := f.document; d != nil {
		if ok, done := d.feed(f.buf[d.fed:end]); !ok || done {
			f.document = nil
		}
		d.fed = 0
	}
	f.consume(end)
}

// cutMode is what becomes of a first value that cannot be read.
type cutMode int

const (
	cutLine     cutMode = iota // it may go on in the next line, else it is broken
	cutDocument                // it is no document
	cutBroken                  // it is a record of its own, which no normalizer will read
)

// cut cuts buf[:end], a line or a document, into records. It does nothing and reports false
// where the first value may go on in the next line, or is no document, as mode says.
func (f *Framer) cut(end int, mode cutMode) bool {
	seg := f.buf[:end]
	at := 0
	if f.offset == 0 {
		at = len(seg) - len(bytes.TrimPrefix(seg, []byte("\xef\xbb\xbf")))
	}
	for first := true; ; first = false {
		at += spaces(seg[at:])
		if at == len(seg) {
			break
		}
		f.identify(seg[at:])
		sh, n, err := f.shapes.Read(seg[at:])
		if err == nil && (first || sh.IsStructured()) {
			f.addValue(at, n, end, sh)
			at += n
			continue
		}
		if first && mode == cutDocument {
			return false
		}
		if first && mode == cutLine && errors.Is(err, io.ErrUnexpectedEOF) {
			d := &documentScan{}
			if ok, done := d.feed(seg[at:]); ok && !done {
				d.fed = end
				f.document = d
				return false
			}
		}
		// What cannot be read goes up to the next record of the vendor, or to the end.
		bad := len(bytes.TrimRight(seg[at:], " \t\r\n"))
		if next := resync(f.shapes, seg[at:]); next > 0 {
			bad = next
		}
		f.add(Framed{Record: core.Record{Data: f.own(at, bad)}}, at, end, core.Shape{})
		at += bad
	}
	f.consume(end)
	return true
}

// spaces is the number of bytes of white space at the start of b.
func spaces(b []byte) int {
	return len(b) - len(bytes.TrimLeft(b, " \t\r\n"))
}

// addValue takes the value buf[at:at+n]. A list of prompts that name their sessions, and
// one of messages of a run, is one record for each element.
func (f *Framer) addValue(at, n, end int, sh core.Shape) {
	v := f.buf[at : at+n]
	vendor := f.vendor
	if vendor == nil {
		vendor = VendorOf(recognize(&sh, v).Source)
	}
	var isDocument, isList bool
	if vendor != nil {
		isDocument = vendor.Framing.IsDocument != nil && vendor.Framing.IsDocument(&sh)
		isList = vendor.Framing.IsList != nil && vendor.Framing.IsList(&sh) && !core.TooManyValues(v)
	}
	origin := func(b []byte) core.Origin {
		if !isDocument {
			return core.Origin{}
		}
		return core.Origin{Digest: core.HexHash(b)}
	}
	if !isList {
		f.add(Framed{Record: core.Record{Data: f.own(at, n), Origin: origin(v)}}, at, end, sh)
		return
	}
	var elements []jsontext.Value
	var starts []int
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), lenient.Options)
	_, _ = dec.ReadToken() // the value has been read once, and cannot fail
	for dec.PeekKind() != ']' {
		e, _ := dec.ReadValue()
		elements = append(elements, bytes.Clone(e))
		starts = append(starts, int(dec.InputOffset())-len(e))
	}
	starts = append(starts, n+spaces(f.buf[at+n:end]))
	for i, e := range elements {
		sh, _, _ := f.shapes.Read(e)
		f.add(Framed{Record: core.Record{Data: e, Origin: origin(e)}, End: f.offset + int64(at+starts[i+1])}, at+starts[i], end, sh)
	}
}

// resync finds the next record in bytes that begin with something unreadable: a writer
// that died within a line leaves its next record on the same line. A part of the torn
// record is never taken for one: a record is complete, has the vendor's shape and states
// its session, and only records stand behind it.
func resync(shapes *core.ShapeReader, b []byte) int {
	const candidates = 256
	at := 0
	// Each of them may be read to the end: of a long line that is too much for many.
	budget := 16 * len(b)
	for range candidates {
		i := bytes.Index(b[at+1:], []byte(`{"`))
		if i < 0 || budget < 0 {
			return 0
		}
		at += 1 + i
		sh, n, err := shapes.Read(b[at:])
		if broken, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			n = int(broken.ByteOffset)
		}
		budget -= n
		if err != nil || !isWholeRecord(&sh) {
			continue
		}
		rest := bytes.TrimSpace(b[at+n:])
		if len(rest) == 0 || rest[0] == '{' {
			return at
		}
	}
	return 0
}

// add takes a record that begins at buf[at] of a segment that ends at buf[end].
func (f *Framer) add(r Framed, at, end int, sh core.Shape) {
	r.Line = f.line + bytes.Count(f.buf[:at], []byte{'\n'})
	r.Record.Origin.Position = f.offset + int64(at)
	if r.End == 0 {
		next := at + len(r.Record.Data)
		next += spaces(f.buf[next:end])
		r.End = f.offset + int64(next)
	}
	sh.Describe(&r.Record)
	f.assign(r, sh)
}
