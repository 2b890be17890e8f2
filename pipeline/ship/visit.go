package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tributary/normalizers"
	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
	"tributary/pipeline/ship/database"
	"tributary/pipeline/ship/offsets"
)

// readBytes is how much of a file is read at once.
const readBytes = 256 << 10

// visit is the work of one worker on one file, from the end of the previous visit to the end of the file.
type visit struct {
	*Ship
	f       *file
	log     log
	gone    bool   // do not open the file
	closing bool   // the framer was closed: its record may be a line without an end
	buf     []byte // read buffer
	taken   int64  // room taken, in bytes
	wide    bool   // took all room, because the packed file refers back further than freeWindow

	batch []outgoing
	bytes int
	rows  map[database.Key]offsets.Row // rows of a database in batch
	end   int64                        // offset behind the last record of batch, or behind a refused record
}

// run ships the new content of the file. An error ends the Ship; a problem with the file alone is a refusal.
func (v *visit) run(ctx context.Context) error {
	defer v.leave()
	v.f.retry = false
	switch {
	case database.Is(v.log.path):
		return databaseVisit{v}.visitDatabase(ctx)
	case v.gone:
		return v.finish(ctx)
	}
	r, err := offsets.Open(v.log.path)
	if err != nil {
		v.reportUnreadable(ctx, err)
		return nil
	}
	defer r.Close()
	readable, err := v.recognize(ctx, r)
	if err != nil || !readable {
		return err
	}
	if err := v.follow(ctx, r); err != nil {
		return err
	}
	return v.pause(ctx)
}

// startFramer prepares to read the file from its start, unless it is being read.
func (v *visit) startFramer(info fs.FileInfo) {
	f := v.f
	if f.framer != nil {
		return
	}
	f.read, f.tail = 0, nil
	f.framer = normalizers.NewFramer(normalizers.File{
		Source:   v.log.source,
		Assumed:  !v.log.forced,
		Name:     path.Base(f.offset.Origin),
		Path:     f.offset.Origin,
		Folder:   filepath.ToSlash(filepath.Dir(v.log.path)),
		Modified: info.ModTime(), FirstLine: v.redactLine,
	})
}

// follow reads the rest of the file and ships its records.
func (v *visit) follow(ctx context.Context, r *os.File) error {
	v.end = v.f.offset.Done
	in, err := v.log.unread(r, v.f.read, v.wide)
	if err != nil {
		v.reportUnreadable(ctx, err)
		return nil
	}
	defer in.Close()
	for !v.f.refused {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := in.Read(v.buf)
		if err := v.shipNext(ctx, v.buf[:n]); err != nil {
			return err
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			v.tally.reportReadable(v.f, v.log.path)
			return nil
		case errors.Is(err, normalizers.ErrWindow) && !v.wide:
			return v.widen(ctx, r)
		default:
			v.reportUnreadable(ctx, err)
			return nil
		}
	}
	return nil
}

// shipNext ships the records completed by the next bytes of the file.
func (v *visit) shipNext(ctx context.Context, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := v.reserve(ctx, len(p)); err != nil {
		return err
	}
	v.f.frame(p, !rewritable(v.log.path))
	if err := v.shipReady(ctx); err != nil {
		return err
	}
	v.limitUnknown(ctx)
	return v.settle(ctx)
}

// widen reads a packed file again from its start, with enough memory for all of its back references.
func (v *visit) widen(ctx context.Context, r *os.File) error {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		v.reportUnreadable(ctx, err)
		return nil
	}
	if err := v.flush(ctx); err != nil {
		return err
	}
	v.f.framer = nil
	v.leave()
	if err := v.take(ctx, roomBytes); err != nil {
		return err
	}
	v.wide = true
	v.startFramer(v.log.info)
	return v.follow(ctx, r)
}

// unread returns the content of a file behind the first read bytes, as of the beginning of the visit. A packed file
// is read in one visit or not at all; wide allows back references of any distance.
func (l log) unread(r *os.File, read int64, wide bool) (io.ReadCloser, error) {
	switch {
	case !packed(l.path):
		return io.NopCloser(io.NewSectionReader(r, read, max(l.info.Size()-read, 0))), nil
	case read > 0:
		return io.NopCloser(strings.NewReader("")), nil
	case wide:
		return normalizers.Unpack(l.path, r)
	default:
		return normalizers.UnpackWithin(l.path, r, freeWindow)
	}
}

// frame writes the next bytes of the file to the framer, and marks them if the file is a log of lines.
func (f *file) frame(p []byte, lines bool) {
	if lines {
		f.offset.Marks = f.offset.Marks.Extend(f.tail, p, f.read)
		f.tail = append(f.tail, p[max(0, len(p)-offsets.MarkBytes):]...)
		f.tail = slices.Clone(f.tail[max(0, len(f.tail)-offsets.MarkBytes):])
	}
	f.read += int64(len(p))
	if f.read > f.parked {
		f.grew = time.Now()
	}
	_, _ = f.framer.Write(p) // never fails
}

// limitUnknown refuses a file whose agent is still unknown after as many bytes as the longest record may have.
func (v *visit) limitUnknown(ctx context.Context) {
	if v.f.framer.Source() == "" && v.f.tooMuchUnknown() {
		v.refuseFile(ctx)
	}
}

// tooMuchUnknown reports whether the framer has too many bytes of a file of an unknown agent in memory.
func (f *file) tooMuchUnknown() bool {
	return f.read > core.MaxRecordBytes || f.framer.Held() > roomBytes
}

// pause ends a visit at the end of the file.
func (v *visit) pause(ctx context.Context) error {
	f := v.f
	switch {
	case f.refused:
		f.framer, f.parked = nil, 0
		return nil
	case f.unreadable:
		if packed(v.log.path) {
			f.framer = nil // if it is replaced, it is read from its start
		}
		return v.flush(ctx)
	}
	if rewritable(v.log.path) {
		if _, err := v.closeFramer(ctx); err != nil {
			return err
		}
	}
	if v.final() {
		return v.finish(ctx)
	}
	f.parked = 0
	if f.framer.Held() > largeBytes { // the next visit reads the file again from its start
		f.framer, f.parked = nil, f.read
	}
	return v.flush(ctx)
}

// final reports whether the file counts as complete: it is idle, or later writes are not waited for.
func (v *visit) final() bool {
	return v.config.Once || v.f.idle(v.log.info, v.config.Idle)
}

// finish ships the pending records of the framer, then the end of each session of the file, and drops the framer.
func (v *visit) finish(ctx context.Context) error {
	f := v.f
	if f.framer == nil {
		return nil
	}
	v.end = max(v.end, f.offset.Done)
	ends, err := v.closeFramer(ctx)
	if err != nil {
		return err
	}
	if f.framer.Source() == "" && f.read > 0 && !f.refused {
		v.refuseFile(ctx)
	}
	// Ends are sent once, unless a record follows them.
	if !f.refused && (!f.offset.Ended || v.end > f.offset.Done) {
		if err := v.shipEnds(ctx, ends); err != nil {
			return err
		}
	}
	f.framer, f.parked = nil, 0
	return nil
}

// closeFramer ships the pending records of the framer: records whose session or time is undecided, and a last line
// without an end. It returns the ends of the sessions that have a shipped record.
func (v *visit) closeFramer(ctx context.Context) (ends []core.Record, err error) {
	f := v.f
	f.framer.Settle()
	if err := v.shipReady(ctx); err != nil {
		return nil, err
	}
	ends = f.framer.Ends()
	f.framer.Close()
	v.closing = true
	err = v.shipReady(ctx)
	v.closing = false
	if !f.torn {
		ends = f.framer.Ends()
	}
	return ends, err
}

// shipEnds ships the ends of sessions behind all records of the file.
func (v *visit) shipEnds(ctx context.Context, ends []core.Record) error {
	for _, r := range ends {
		r.Origin = v.f.offset.Cut.Origin(r.Origin, r.Origin.Position)
		if err := v.add(ctx, r, 0, v.end); err != nil {
			return err
		}
	}
	if err := v.flush(ctx); err != nil {
		return err
	}
	v.f.offset.Ended = true
	v.remember()
	return nil
}

// shipReady ships the records that the framer has completed.
func (v *visit) shipReady(ctx context.Context) error {
	for !v.f.refused {
		framed, ok := v.f.framer.Next()
		if !ok {
			break
		}
		if !v.due(ctx, framed) {
			continue
		}
		r := framed.Record
		r.Origin = v.f.offset.Cut.Origin(r.Origin, framed.End)
		if err := v.add(ctx, r, framed.Line, framed.End); err != nil {
			return err
		}
	}
	return nil
}

// due reports whether to ship a record now. It reports the refusal of a record that is never shipped.
func (v *visit) due(ctx context.Context, framed normalizers.Framed) bool {
	r := framed.Record
	switch {
	case r.Origin.End || v.f.offset.Covers(r.Origin.Position, framed.End):
		return false
	case r.Source == "":
		v.refuseFile(ctx)
		return false
	case v.unfinished(r):
		v.f.torn = true
		return false
	case framed.Err != nil:
		v.refuse(ctx, Refusal{
			Reason: ReasonTooLarge, Path: v.log.path, Line: framed.Line,
			Size: framed.End - r.Origin.Position, Limit: core.MaxRecordBytes,
			Err: fmt.Errorf("record dropped: %w: longer than %d bytes", framed.Err, core.MaxRecordBytes),
		})
		v.end = framed.End
		return false
	default:
		return true
	}
}

// unfinished reports whether a record is part of a line that is still being written. Shipping it now would lose the
// rest of the line.
func (v *visit) unfinished(r core.Record) bool {
	if !v.closing || v.gone || packed(v.log.path) || v.config.Once && v.f.idle(v.log.info, v.config.Idle) {
		return false
	}
	return v.f.torn || !jsontext.Value(r.Data).IsValid(lenient.Options)
}

// refuseFile skips the whole file until its content is replaced or shows its agent.
func (v *visit) refuseFile(ctx context.Context) {
	f, r := v.f, v.f.framer.Recognition()
	reported := f.unshown
	f.refused, f.unshown = true, r.Agent == "" && !v.f.tooMuchUnknown()
	if reported && f.unshown {
		return
	}
	v.refuse(ctx, Refusal{
		Reason: ReasonUnknownSource, Path: v.log.path,
		Err: r.Err(),
	})
}

// reportUnreadable reports a file that cannot be read, once until it can be read. A missing file is no error: the
// next search finds out what happened to it.
func (v *visit) reportUnreadable(ctx context.Context, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	v.f.retry = !packed(v.log.path) // a packed file stays damaged until it is replaced
	if !v.f.unreadable {
		v.f.unreadable = true
		v.refuse(ctx, unreadable(v.log.path, err))
	}
}

// reportReadable ends the trouble that reportUnreadable has reported, because the file can be read again.
func (t *tally) reportReadable(f *file, path string) {
	if f.unreadable {
		f.unreadable = false
		t.trouble(path, nil)
	}
}

// remember stores the offset of the file.
func (v *visit) remember() {
	if !v.config.DryRun && !v.f.piped {
		v.offsets.Put(v.f.offset)
	}
}
