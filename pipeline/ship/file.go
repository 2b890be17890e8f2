package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/pipeline"
)

// file is a log that is being shipped. It is active while it has a framer, which is
// dropped when the file goes idle: then only its offset is remembered, and when it grows
// the framer is regained from the start of the file.
type file struct {
	// These belong to the loop of the Ship.
	log    log
	queued bool // waits for a worker
	busy   bool // a worker has it
	again  bool // something happened to it since
	gone   bool // from the disk: all that is left is in the framer

	// These belong to the worker that has it, and to the loop while none has.
	offset     offset // origin included: a file that is moved stays the same file
	framer     *normalizers.Framer
	prior      offset    // of the file that was in its place before; zero when none was
	read       int64     // bytes given to the framer
	tail       []byte    // the last of them, up to 1 KiB
	grew       time.Time // when the last of them were read
	refused    bool      // its source cannot be told
	unreadable bool      // and reported
	retry      bool      // each search visits it, although it has not changed
	piped      bool      // it is no file: it has come, and cannot be read again
	torn       bool      // ends in an unfinished record that was left for later
	share      *share    // of the backfill; nil when that is done
}

// visit is the work of one worker on one file, from where it was left to its end.
type visit struct {
	*Ship
	f    *file
	log  log
	gone bool   // do not open it
	tail bool   // what the framer gives is of a last line that has no end
	buf  []byte // to read with

	batch []outgoing
	bytes int
	end   int64 // offset after the last record of batch, or after a refused one
}

// run ships what is new in the file. The error is one that ends the Ship: what is wrong
// with the file itself is refused.
func (v *visit) run(ctx context.Context) error {
	f := v.f
	f.retry = false
	if v.gone {
		return v.finish(ctx)
	}
	r, err := open(v.log.path)
	if err != nil {
		v.unreadable(ctx, err)
		return nil
	}
	defer r.Close()
	fresh, err := v.recognize(ctx, r)
	if err != nil || !fresh {
		return err
	}
	if err := v.follow(ctx, r); err != nil {
		return err
	}
	if f.refused {
		f.framer = nil
		return nil
	}
	if f.unreadable {
		if v.packed() {
			f.framer = nil // when it is written anew it is read from its start
		}
		return v.flush(ctx)
	}
	if v.whole() {
		if _, err := v.close(ctx); err != nil {
			return err
		}
	}
	if v.config.Once || f.idle(v.log.info, v.config.Idle) {
		return v.finish(ctx)
	}
	return v.flush(ctx)
}

// open opens a file. Where a pipe has taken its place nobody is waited for.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// recognize finds out which file was opened and what of it is shipped. fresh is false
// when there is nothing to do for it.
func (v *visit) recognize(ctx context.Context, r *os.File) (fresh bool, err error) {
	f := v.f
	info, id, begin, err := examine(r, v.buf[:headBytes])
	if err != nil {
		v.unreadable(ctx, err)
		return false, nil
	}
	if !os.SameFile(info, v.log.info) {
		return false, nil // replaced since it was found: the next search finds the other
	}
	v.log.info = info
	if !v.offsets.claim(id, f) {
		f.retry = true // a second name of a file, until the first is given up
		return false, nil
	}
	var modified, size int64
	if v.whole() {
		modified, size = info.ModTime().UnixNano(), info.Size()
	}
	if f.offset.inode != id {
		if f.offset = v.offsets.get(id); f.offset.inode != id && f.prior.Done > 0 && !v.whole() {
			f.offset = f.prior
			f.offset.inode = id
			v.remember() // the other one is gone
		}
	}
	same := f.offset.Modified == modified && f.offset.Size == size && f.offset.Head.begins(begin) &&
		(v.whole() || info.Size() >= max(f.read, f.offset.Done) && f.offset.Marks.stand(r))
	if f.offset.inode == id && !same {
		if ok, err := v.anew(ctx, r, id, begin); !ok {
			return false, err
		}
		if v.log.strayed {
			return false, nil // nobody knows what it is: the log has gone
		}
	}
	f.offset.inode, f.offset.Head, f.offset.Path = id, headOf(begin), v.log.path
	f.offset.Modified, f.offset.Size = modified, size
	if f.offset.Origin == "" {
		f.offset.Origin = v.log.origin
	}
	if f.offset.Done > 0 {
		v.remember() // where it is now, also when nothing in it is new
	}
	if f.framer == nil {
		f.torn = false
	}
	if f.refused || f.framer == nil && f.offset.Ended && (v.packed() || f.offset.Done == info.Size()) {
		return false, nil
	}
	if f.framer == nil {
		f.read, f.tail = 0, nil
		f.framer = normalizers.NewFramer(normalizers.File{
			Source:   v.log.source,
			Name:     path.Base(f.offset.Origin),
			Path:     f.offset.Origin,
			Folder:   filepath.Base(filepath.Dir(v.log.path)),
			Modified: info.ModTime(),
		})
	}
	return true, nil
}

// undecided reports whether so little is there of a log that is written anew that nobody can
// tell whether it begins as it did.
func (v *visit) undecided(begin []byte) bool {
	m := v.f.offset.Marks
	return !v.whole() && len(m) > 0 && v.log.info.Size() < m[0].At && !bytes.Contains(begin, []byte("\n"))
}

// anew begins with a file that is not what it was. A log of lines that was cut back, or
// replaced by one that begins as it did, goes on where it differs. ok is false when it has
// to grow first.
func (v *visit) anew(ctx context.Context, r *os.File, id inode, begin []byte) (ok bool, err error) {
	f := v.f
	next := offset{inode: id}
	if !v.whole() {
		if err := v.finish(ctx); err != nil {
			return false, err
		}
		size := v.log.info.Size()
		undecided := v.undecided(begin)
		if undecided && (size == 0 || !v.config.Once && !f.idle(v.log.info, v.config.Idle)) {
			return false, nil
		}
		at := f.offset.Marks.common(r, size, f.offset.Head, begin)
		v.config.Logger.InfoContext(ctx, "log was cut back or written anew: shipped from where it differs", "path", v.log.path, "offset", at)
		if at > 0 || undecided {
			next.Origin = f.offset.Origin
			next.Done, next.Ended = min(f.offset.Done, at), f.offset.Ended
			next.Cut = f.offset.nextCut(next.Done)
			next.Marks = slices.DeleteFunc(slices.Clone(f.offset.Marks), func(m mark) bool { return m.At > at })
		}
	}
	f.framer, f.offset, f.refused = nil, next, false
	return true, nil
}

// examine reads what a file is told by; begin is in buf.
func examine(r *os.File, buf []byte) (info fs.FileInfo, id inode, begin []byte, err error) {
	if info, err = r.Stat(); err != nil {
		return nil, inode{}, nil, err
	}
	n, err := r.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, inode{}, nil, err
	}
	id, err = inodeOf(r)
	return info, id, buf[:n], err
}

// follow gives the framer what is new in the file and ships the records that come out.
func (v *visit) follow(ctx context.Context, r *os.File) error {
	f := v.f
	v.end = f.offset.Done
	in, err := v.content(r)
	if err != nil {
		v.unreadable(ctx, err)
		return nil
	}
	defer in.Close()
	for !f.refused {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := in.Read(v.buf)
		if n > 0 {
			if !v.whole() {
				f.offset.Marks = f.offset.Marks.read(f.tail, v.buf[:n], f.read)
				f.tail = append(f.tail, v.buf[max(0, n-markBytes):n]...)
				f.tail = slices.Clone(f.tail[max(0, len(f.tail)-markBytes):])
			}
			f.read += int64(n)
			f.grew = time.Now()
			_, _ = f.framer.Write(v.buf[:n]) // never fails
			if err := v.take(ctx); err != nil {
				return err
			}
			if f.framer.Source() == "" && f.read > normalizers.MaxRecordBytes {
				v.refuseFile(ctx) // it would be held in memory for ever
			}
		}
		if errors.Is(err, io.EOF) {
			f.unreadable = false
			return nil
		}
		if err != nil {
			v.unreadable(ctx, err)
			return nil
		}
	}
	return nil
}

// content is what of the file the framer has not been given yet. What is packed is read
// at once or not at all.
func (v *visit) content(r *os.File) (io.ReadCloser, error) {
	switch {
	case !v.packed():
		return io.NopCloser(io.NewSectionReader(r, v.f.read, math.MaxInt64-v.f.read)), nil
	case v.f.read > 0:
		return io.NopCloser(strings.NewReader("")), nil
	default:
		return normalizers.Unpack(v.log.path, r)
	}
}

// idle reports whether nothing has been written to the file for a time, by its own clock
// or by ours.
func (f *file) idle(info fs.FileInfo, limit time.Duration) bool {
	return time.Since(info.ModTime()) >= limit || time.Since(f.grew) >= limit
}

// whole reports whether the file is written anew with every change, as one JSON document
// is by its vendor, and what is packed by whoever packs it: then all of it is shipped again.
func (v *visit) whole() bool { return v.packed() || filepath.Ext(v.log.path) == ".json" }

// packed reports whether the file is packed.
func (v *visit) packed() bool { return packed(v.log.path) }

func packed(path string) bool { return normalizers.Unpacked(path) != path }

// close ships what the framer still holds: what is undecided, and a last line that has
// no end. It returns the ends of the sessions of what was shipped.
func (v *visit) close(ctx context.Context) (ends []normalizers.Record, err error) {
	f := v.f
	f.framer.Settle()
	if err := v.take(ctx); err != nil {
		return nil, err
	}
	ends = f.framer.Ends()
	f.framer.Close()
	v.tail = true
	err = v.take(ctx)
	v.tail = false
	if !f.torn {
		ends = f.framer.Ends()
	}
	return ends, err
}

// finish ships what the framer still holds, then the end of each session of the file,
// and drops the framer.
func (v *visit) finish(ctx context.Context) error {
	f := v.f
	if f.framer == nil {
		return nil
	}
	v.end = max(v.end, f.offset.Done)
	ends, err := v.close(ctx)
	if err != nil {
		return err
	}
	if f.framer.Source() == "" && f.read > 0 && !f.refused {
		v.refuseFile(ctx)
	}
	// The end was sent already unless a record came after it.
	if !f.refused && (!f.offset.Ended || v.end > f.offset.Done) {
		for _, r := range ends {
			r.Origin = f.offset.Cut.origin(r.Origin, r.Origin.Position)
			if err := v.add(ctx, r, 0, v.end); err != nil {
				return err
			}
		}
		if err := v.flush(ctx); err != nil {
			return err
		}
		f.offset.Ended = true
		v.remember()
	}
	f.framer = nil
	return nil
}

// take ships the records that the framer has ready.
func (v *visit) take(ctx context.Context) error {
	f := v.f
	for !f.refused {
		framed, ok := f.framer.Next()
		if !ok {
			break
		}
		r := framed.Record
		switch {
		case r.Origin.End || f.offset.covers(r.Origin.Position, framed.End):
			continue
		case r.Source == "":
			v.refuseFile(ctx)
			continue
		case v.unfinished(r):
			f.torn = true
			continue
		case framed.Err != nil:
			v.refuse(ctx, Refusal{
				Reason: ReasonTooLarge, Path: v.log.path, Line: framed.Line,
				Size: framed.End - r.Origin.Position, Limit: normalizers.MaxRecordBytes,
				Err: fmt.Errorf("left out: %w: longer than %d bytes", framed.Err, normalizers.MaxRecordBytes),
			})
			v.end = framed.End
			continue
		}
		r.Origin = f.offset.Cut.origin(r.Origin, framed.End)
		if err := v.add(ctx, r, framed.Line, framed.End); err != nil {
			return err
		}
	}
	return nil
}

// unfinished reports whether a record is part of a line that somebody may still be
// writing: to ship it now would lose what follows of it.
func (v *visit) unfinished(r normalizers.Record) bool {
	if !v.tail || v.gone || v.packed() || v.config.Once && v.f.idle(v.log.info, v.config.Idle) {
		return false
	}
	return v.f.torn || !jsontext.Value(r.Data).IsValid(vendorJSON)
}

// vendorJSON is what vendors are allowed to write.
var vendorJSON = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// add puts a record into the batch, which goes out when it is full. end is the offset
// after the record.
func (v *visit) add(ctx context.Context, r normalizers.Record, line int, end int64) error {
	limit := v.limit()
	o := v.outgoing(ctx, r, line, end)
	if size := wireSize(o.msg.Msg); size > limit {
		r := tooLarge(v.log.path, line, size, limit)
		o.close(&r)
		v.refuse(ctx, r)
		v.end = end
		return nil
	}
	v.batch = append(v.batch, o)
	v.bytes += len(r.Data)
	v.end = end
	if len(v.batch) >= v.config.BatchRecords || v.bytes >= v.config.BatchBytes {
		return v.flush(ctx)
	}
	return nil
}

// flush ships the batch and remembers how far the file is done.
func (v *visit) flush(ctx context.Context) error {
	if len(v.batch) > 0 {
		if err := v.send(ctx); err != nil {
			return err
		}
	}
	if v.end > v.f.offset.Done {
		if !v.packed() {
			v.tally.reached(v.f, v.end-v.f.offset.Done)
		}
		v.f.offset.Done, v.f.offset.Ended = v.end, false
		v.remember()
	}
	return nil
}

// send publishes the batch. On return it is empty.
func (v *visit) send(ctx context.Context) error {
	batch, bytes := v.batch, v.bytes
	v.batch, v.bytes = nil, 0
	var r receipt
	if !v.config.DryRun {
		msgs := make([]parcel, len(batch))
		for i, o := range batch {
			msgs[i] = o.msg
		}
		r = v.publisher.publish(msgs, bytes)
	}
	stored, known := batch[:0], 0
	for i, o := range batch {
		refused := r.refused[i]
		o.close(errors.Join(r.err, refused))
		if refused == nil {
			stored = append(stored, o)
			if r.known[i] && !o.end {
				known++
			}
			continue
		}
		v.refuse(ctx, tooLarge(v.log.path, o.line, wireSize(o.msg.Msg), v.limit()))
	}
	if r.err == nil {
		v.tally.count(stored, known)
	}
	return r.err
}

// limit is how many bytes of headers and data the broker takes in one message. Records over
// half of it travel by claim check.
func (s *Ship) limit() int64 {
	if s.config.DryRun && (s.publisher.nc == nil || s.publisher.nc.MaxPayload() == 0) {
		return usualPayload
	}
	return s.publisher.nc.MaxPayload()
}

// usualPayload is max_payload of a server that does not say otherwise.
const usualPayload = 1 << 20

func tooLarge(path string, line int, size, limit int64) Refusal {
	return Refusal{
		Reason: ReasonTooLarge, Path: path, Line: line, Size: size, Limit: limit,
		Err: fmt.Errorf("left out: its message has %d bytes, headers included, and the broker takes %d: raise max_payload of the server, or max_msg_size of stream %s",
			size, limit, pipeline.RawStream),
	}
}

// refuseFile leaves the whole file alone until it is written anew.
func (v *visit) refuseFile(ctx context.Context) {
	v.f.refused = true
	v.refuse(ctx, Refusal{
		Reason: ReasonUnknownSource, Path: v.log.path,
		Err: fmt.Errorf("cannot tell the agent from the content: pass --source with one of %v", envelopes.Sources),
	})
}

// unreadable reports a file that cannot be read, once until it can. One that is not
// there any more is no error: the next search finds out what became of it.
func (v *visit) unreadable(ctx context.Context, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	v.f.retry = !v.packed() // which is damaged until it is written anew
	if !v.f.unreadable {
		v.f.unreadable = true
		v.refuse(ctx, unreadable(v.log.path, err))
	}
}

// remember hands the offset of the file to the offsets.
func (v *visit) remember() {
	if !v.config.DryRun && !v.f.piped {
		v.offsets.set(v.f.offset)
	}
}
