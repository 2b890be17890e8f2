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
	"tributary/normalizers/otlp"
)

// File describes the file that a [Framer] reads.
type File struct {
	Source   envelopes.Source // detected from the content if empty
	Assumed  bool             // Source comes from the folder: refuse a file whose content shows another agent
	Name     string           // without folders; its stem is the session of last resort; "stdin" for standard input
	Path     string           // below the vendor's root, with '/'; part of the file's identity; empty for Name
	Folder   string           // its folder, with '/': the last name is the session of last resort if every file has the same name
	Modified time.Time        // the time of last resort
	Session  string           // session of every record, unless empty

	// FirstLine returns the part of the first line that belongs to the file's identity; nil for the whole line.
	FirstLine func([]byte) []byte
}

// Framed is one record of a file.
type Framed struct {
	// Record has Source, Session, Origin and Data set; its Sequence is the line. The caller owns Data. Bytes that are
	// not JSON are a record, too, which the normalizer will refuse.
	Record core.Record
	Line   int   // of the first byte of the record, from 1; 0 for the end of input
	Err    error // [core.ErrTooLarge]: Data is nil, the bytes were dropped
	End    int64 // offset behind the record and its separator: everything up to here is done
}

// Framer cuts a file into records, detects its vendor, and determines the session and fallback time of each record
// (README.md, Time and Identity). It accepts the bytes in any chunks, so a whole file, a stream, and a growing file
// give the same records. Records come in file order.
//
// Printed text is cut into lines. A line that states its session decides it, and earlier lines wait for that line.
//
// A record is one JSON value: usually a line, but two values on one line are two records, and a value across several
// lines is one. Unreadable bytes end at the end of their line. In a stream of server-sent events a record is the data
// of an event. Memory is bounded by [core.MaxRecordBytes] plus what waits for a decision. A Framer is not safe for
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
	// File systems allow names that are not UTF-8, but ids must be.
	f.Name = strings.ToValidUTF8(f.Name, "\ufffd")
	f.Folder = strings.ToValidUTF8(f.Folder, "\ufffd")
	f.Session = strings.ToValidUTF8(f.Session, "\ufffd")
	return &Framer{
		assigner: newAssigner(f),
		buffer:   buffer{line: 1},
		shapes:   core.NewShapeReader(),
	}
}

// Source returns the source of the file; empty until detected.
func (f *Framer) Source() envelopes.Source { return f.file.Source }

// Recognition returns what identified the agent of the file so far. A file of an agent without a normalizer is
// refused: all of its records come at once, without a source.
func (f *Framer) Recognition() Recognition { return f.recognition }

// Held returns the approximate number of bytes in memory: of an incomplete record, and of records that were not
// taken.
func (f *Framer) Held() int { return len(f.buf) + len(f.events.data) + f.waitingBytes }

// Write takes the next bytes of the file. It never fails and does not retain p.
func (f *Framer) Write(p []byte) (int, error) {
	f.grow(p)
	f.cutLines()
	f.release()
	f.free()
	return len(p), nil
}

// Close ends the file: the rest is its last line, open decisions are made, and one End record follows for each
// session.
func (f *Framer) Close() {
	f.cutLines()
	switch {
	case f.form == formUnknown && len(bytes.TrimSpace(f.buf)) > 0:
		f.settleForm() // an incomplete mark
	case f.form == formTextOrLog:
		f.decideText(len(f.buf)) // the last line has no end, or was examined before
		f.settleForm()
	}
	for len(f.buf) > 0 && !f.dropping {
		if d := f.document; d != nil {
			if d.fed < len(f.buf) {
				f.growDocument(len(f.buf)) // the last line has no end
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

// Settle makes open decisions without ending the file: its name decides sessions, its time decides times, and
// possible plain text is plain text. Use it for an idle file.
func (f *Framer) Settle() {
	if f.form == formTextOrLog {
		f.settleForm()
	}
	f.settle()
	f.release()
}

// Ends returns an End record for each session seen in the file so far.
func (f *Framer) Ends() []core.Record {
	ends := make([]core.Record, 0, len(f.order))
	for _, of := range f.order {
		ends = append(ends, core.Record{
			Source:  of.source,
			Session: of.session,
			Origin:  core.Origin{File: f.identity, Position: f.offset, Previous: f.previous[of], End: true},
		})
	}
	return ends
}

// cutLines cuts all complete lines.
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
			f.scanned = end // a value may continue on further lines
		}
	}
}

// drop drops buf[:end], all or part of a line or document that is too long, to bound memory.
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

// cutMode is how to treat an unreadable first value.
type cutMode int

const (
	cutLine     cutMode = iota // it may continue on the next line, otherwise it is broken
	cutDocument                // it is not a document
	cutBroken                  // it is a record of its own that no normalizer can read
)

// cut cuts buf[:end], a line or a document, into records. It does nothing and returns false if, according to mode,
// the first value may continue on the next line, or is not a document.
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
		// Unreadable bytes extend to the next record of the vendor, or to the end.
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

// spaces returns the number of white space bytes at the start of b.
func spaces(b []byte) int {
	return len(b) - len(bytes.TrimLeft(b, " \t\r\n"))
}

// addValue adds the value buf[at:at+n]. In a list of prompts that name their sessions, of messages of a run, or of what
// agents export by OpenTelemetry, each element is a record.
func (f *Framer) addValue(at, n, end int, sh core.Shape) {
	v := f.buf[at : at+n]
	if otlp.Is(&sh) && !core.TooManyValues(v) {
		if parts := otlp.Split(v); parts != nil {
			f.addParts(at, n, end, parts)
			return
		}
	}
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
	_, _ = dec.ReadToken() // the value was read before, so this cannot fail
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

// addParts adds the records of a batch, the value buf[at:at+n].
func (f *Framer) addParts(at, n, end int, parts []otlp.Part) {
	for i, p := range parts {
		to := n + spaces(f.buf[at+n:end])
		if i+1 < len(parts) {
			to = parts[i+1].Offset
		}
		sh, _, _ := f.shapes.Read(p.Data)
		f.add(Framed{Record: core.Record{Data: p.Data}, End: f.offset + int64(at+to)}, at+p.Offset, end, sh)
	}
}

// resync finds the next record in bytes that begin with something unreadable: after a writer died within a line, the
// next record is on the same line. A part of the torn record never counts: a record must be complete, have the
// vendor's shape and state its session, and be followed only by records.
func resync(shapes *core.ShapeReader, b []byte) int {
	const candidates = 256
	at := 0
	// Each may be read to the end, which is too much for many on a long line.
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

// add adds a record that begins at buf[at] in a segment that ends at buf[end].
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
