package ship

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/pipeline/streams"
)

// offsetsVersion is the format version of the offsets file. Version 1 had the files of one
// broker and did not know the stream. Version 2 was one JSON value, which was written again
// with every change.
const offsetsVersion = 3

// maxStreams is how many streams the offsets file remembers: the latest.
const maxStreams = 8

// The offsets file is compacted when it has many times as many entries as there are files.
const (
	compactRatio = 2
	compactMin   = 1000
)

// offsetsHeader is the first line of the offsets file. Earlier versions had everything in it.
type offsetsHeader struct {
	Version int `json:"version"`
	Streams []struct {
		streamEntry `json:",embed"`

		Files []offset `json:"files"`
	} `json:"streams,omitempty"` // of version 2
	Files []offset `json:"files,omitempty"` // of version 1
}

// offsetsChange is any further line of the offsets file, behind its checksum. What belongs
// together is in one line: a line that is cut off by a crash counts as not written.
type offsetsChange struct {
	Stream *streamEntry `json:"stream,omitzero"` // of this line and those behind it, replaces what was stored of it
	Files  []offset     `json:"files,omitempty"` // new or changed ones
	Gone   []inode      `json:"gone,omitempty"`  // files without an offset from now on
}

// streamEntry is a raw stream with the offsets in it, or the raw streams of all cells.
type streamEntry struct {
	Name    string    `json:"stream"`
	Created time.Time `json:"created"` // identifies the stream, together with its name; of the youngest cell
	Broker  string    `json:"broker"`  // digest of Config.Broker when it was used last
	Used    time.Time `json:"used"`    // when it was used last

	cellEntry `json:",embed"`

	More []cellEntry `json:"cells,omitempty"` // of cells 1 and up

	files map[inode]offset
}

// cellEntry is what is known about the raw stream of a cell.
type cellEntry struct {
	First        uint64      `json:"first,omitzero"` // first sequence that was noticed last
	Acknowledged checkpoints `json:"acknowledged,omitempty"`
}

// in returns what is known about a cell.
func (e streamEntry) in(cell int) cellEntry {
	switch {
	case cell == 0:
		return e.cellEntry
	case cell <= len(e.More):
		return e.More[cell-1]
	default:
		return cellEntry{}
	}
}

// with returns e with something else about a cell. The two share nothing that changes.
func (e streamEntry) with(cell int, is cellEntry) streamEntry {
	if cell == 0 {
		e.cellEntry = is
		return e
	}
	more := make([]cellEntry, max(cell, len(e.More)))
	copy(more, e.More)
	more[cell-1] = is
	e.More = more
	return e
}

// is reports whether both are of one stream.
func (e streamEntry) is(other streamEntry) bool {
	return e.Name == other.Name && e.Created.Equal(other.Created)
}

// offsetsFile is the offsets file: a log of changes, which is compacted by writing it again.
// Its path is empty for offsets that stay in memory.
type offsetsFile struct {
	path    string
	broker  string        // digest of Config.Broker
	streams []streamEntry // but for the one in use; in the order of the file

	size    int64 // bytes of the file that are known to be good; -1 when it must be written again
	entries int   // that the file has of the stream in use

	// Of an offsets file of version 1, which is not of a known stream yet.
	inherited []offset
	written   time.Time // when that file was written
	remove    string    // its path, when it is another file: removed when its content is stored here
}

// readOffsetsFile reads the offsets file of c, if there is one, or else the one that it
// inherits. What is damaged counts as lost; a file that cannot be read, or has a later
// version, is an error.
func readOffsetsFile(ctx context.Context, c Config) (*offsetsFile, error) {
	broker := sha256.Sum256([]byte(c.Broker))
	f := &offsetsFile{path: c.Offsets, broker: hex.EncodeToString(broker[:8]), size: -1}
	if err := f.read(ctx, c.Logger); err != nil {
		return nil, err
	}
	if f.inherited == nil && c.Inherit != "" {
		earlier := &offsetsFile{path: c.Inherit}
		if err := earlier.read(ctx, c.Logger); err != nil {
			return nil, err
		}
		if f.inherited, f.written = earlier.inherited, earlier.written; f.inherited != nil {
			f.remove = c.Inherit
		}
	}
	return f, nil
}

func (f *offsetsFile) read(ctx context.Context, logger *slog.Logger) error {
	if f.path == "" {
		return nil
	}
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read offsets: %w", err)
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	first, err := in.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read offsets: %w", err)
	}
	var header offsetsHeader
	if json.Unmarshal(first, &header, jsontext.AllowInvalidUTF8(true)) != nil {
		logger.WarnContext(ctx, "offsets file is damaged: everything is shipped again, and dropped as duplicate", "path", f.path)
		return nil
	}
	switch header.Version {
	case offsetsVersion:
		if first[len(first)-1] != '\n' {
			return nil // a crash has cut off everything
		}
		return f.readChanges(ctx, in, int64(len(first)), logger)
	case 2:
		for _, e := range header.Streams {
			e.files = byInode(e.Files)
			f.streams = append(f.streams, e.streamEntry)
		}
		slices.Reverse(f.streams) // version 2 began with the latest
		return nil
	case 1:
		info, err := file.Stat()
		if err != nil {
			return fmt.Errorf("read offsets: %w", err)
		}
		f.inherited, f.written = header.Files, info.ModTime()
		return nil
	}
	return fmt.Errorf("read offsets: %s has version %d, this program reads %d: remove it to ship everything again",
		f.path, header.Version, offsetsVersion)
}

// readChanges reads the lines behind the header, which has size bytes, up to the first that
// is damaged: a crash cuts off the last one, and offsets that are too old lose nothing.
func (f *offsetsFile) readChanges(ctx context.Context, in *bufio.Reader, size int64, logger *slog.Logger) error {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read offsets: %w", err)
		}
		if len(line) == 0 {
			break
		}
		change, ok := decodeChange(line)
		if !ok || !f.apply(change) {
			logger.InfoContext(ctx, "end of the offsets file is damaged: what is behind is shipped again, and dropped as duplicate", "path", f.path, "offset", size)
			f.size = -1
			return nil
		}
		size += int64(len(line))
	}
	f.size = size
	return nil
}

// apply applies a change to the streams. It reports whether the change is of a stream.
func (f *offsetsFile) apply(c offsetsChange) bool {
	if c.Stream != nil {
		e := *c.Stream
		i := slices.IndexFunc(f.streams, e.is)
		if i < 0 {
			i, f.streams, f.entries = len(f.streams), append(f.streams, e), 0
			e.files = map[inode]offset{}
		} else {
			e.files = f.streams[i].files
		}
		f.streams = append(slices.Delete(f.streams, i, i+1), e)
	}
	if len(f.streams) == 0 {
		return false
	}
	files := f.streams[len(f.streams)-1].files
	for _, e := range c.Files {
		files[e.inode] = e
	}
	for _, id := range c.Gone {
		delete(files, id)
	}
	f.entries += c.entries()
	return true
}

// entries is how many entries a change adds to the file.
func (c offsetsChange) entries() int { return 1 + len(c.Files) + len(c.Gone) }

// castagnoli is the polynomial of the checksums, which processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumLength = 8 // of a checksum in hex

// encode returns the line of a change: a checksum, a space, JSON.
func (c offsetsChange) encode() ([]byte, error) {
	data, err := json.Marshal(c, jsontext.AllowInvalidUTF8(true)) // a path is any bytes
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(make([]byte, 0, len(data)+sumLength+2), "%0*x %s\n", sumLength, crc32.Checksum(data, castagnoli), data), nil
}

// decodeChange is the inverse of encode. It reports false for a line that is damaged.
func decodeChange(line []byte) (c offsetsChange, ok bool) {
	if len(line) < sumLength+2 || line[sumLength] != ' ' || line[len(line)-1] != '\n' {
		return c, false
	}
	data := line[sumLength+1 : len(line)-1]
	sum, err := strconv.ParseUint(string(line[:sumLength]), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(data, castagnoli) {
		return c, false
	}
	return c, json.Unmarshal(data, &c, jsontext.AllowInvalidUTF8(true)) == nil
}

// byInode returns the offsets by inode.
func byInode(files []offset) map[inode]offset {
	m := make(map[inode]offset, len(files))
	for _, e := range files {
		m[e.inode] = e
	}
	return m
}

// open returns the offsets in a stream. known is false for a stream that is not in the file.
func (f *offsetsFile) open(created time.Time) (o *offsets, known bool) {
	e := streamEntry{Name: streams.RawStream, Created: created}
	i := slices.IndexFunc(f.streams, e.is)
	if i != len(f.streams)-1 || i < 0 {
		f.size = -1 // changes are of the last stream of the file
	}
	if i < 0 {
		return newOffsets(e), false
	}
	e = f.streams[i]
	f.streams = slices.Delete(f.streams, i, i+1)
	return newOffsets(e), true
}

// close puts the offsets of a stream back, when another one is used.
func (f *offsetsFile) close(o *offsets) {
	f.streams, f.size = append(f.streams, f.entry(o)), -1
}

// latest returns the offsets in the stream that was used last at the broker: a guess, for a
// dry run, which does not ask the broker.
func (f *offsetsFile) latest() *offsets {
	latest := streamEntry{files: byInode(f.inherited)}
	for _, e := range f.streams {
		if e.Broker == f.broker && !e.Used.Before(latest.Used) {
			latest = e
		}
	}
	return newOffsets(streamEntry{files: latest.files})
}

// before returns the stream that was used last at the broker, when another one is there now.
func (f *offsetsFile) before() (created time.Time, ok bool) {
	var used time.Time
	for _, e := range f.streams {
		if e.Broker == f.broker && !e.Used.Before(used) {
			created, used, ok = e.Created, e.Used, true
		}
	}
	return created, ok
}

// entry returns the entry of the stream in use.
func (f *offsetsFile) entry(o *offsets) streamEntry {
	e := o.entry()
	e.Broker, e.Used = f.broker, time.Now().UTC()
	return e
}

// save stores what has changed. A crash leaves all of that or nothing. Only one goroutine
// may call it at a time.
func (f *offsetsFile) save(o *offsets) error {
	if f.path == "" {
		return nil
	}
	change, ok := o.changes()
	if !ok {
		return nil
	}
	err := f.append(change, o.size())
	if errors.Is(err, errCompact) {
		err = f.compact(o)
	}
	if err != nil {
		o.unsaved()
		f.size = -1 // nobody knows what the disk has
		return fmt.Errorf("save offsets: %w", err)
	}
	return nil
}

// errCompact: nothing was appended, because the offsets file is to be written again.
var errCompact = errors.New("the offsets file is to be compacted")

// append appends a change to the file, which has offsets of as many files then.
func (f *offsetsFile) append(c offsetsChange, files int) error {
	entries := f.entries + c.entries()
	if f.size < 0 || entries > compactRatio*files+compactMin {
		return errCompact
	}
	c.Stream.Broker, c.Stream.Used = f.broker, time.Now().UTC()
	line, err := c.encode()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return errCompact // it was removed, or the cause is in the next error
	}
	if info, err := file.Stat(); err != nil || info.Size() != f.size {
		_ = file.Close() // nothing was written
		return errCompact
	}
	_, err = file.Write(line)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	f.size += int64(len(line))
	f.entries = entries
	return nil
}

// compact writes the file again, without what was overwritten or dropped. A crash leaves the
// old file or the new one.
func (f *offsetsFile) compact(o *offsets) error {
	slices.SortStableFunc(f.streams, func(a, b streamEntry) int { return a.Used.Compare(b.Used) })
	f.streams = f.streams[max(0, len(f.streams)+1-maxStreams):]
	var size int64
	var entries int
	err := replace(f.path, func(w io.Writer) (err error) {
		size, entries, err = f.write(w, f.entry(o))
		return err
	})
	if err != nil {
		return err
	}
	f.size, f.entries = size, entries
	if f.remove == "" || f.inherited != nil { // nothing was taken over
		return nil
	}
	path := f.remove
	f.remove = ""
	return os.Remove(path)
}

// write writes the file, with the stream in use at its end. It returns the bytes, and the
// entries of that stream.
func (f *offsetsFile) write(w io.Writer, used streamEntry) (size int64, entries int, err error) {
	n, err := fmt.Fprintf(w, "{\"version\":%d}\n", offsetsVersion)
	if err != nil {
		return 0, 0, err
	}
	size = int64(n)
	for _, e := range append(slices.Clip(f.streams), used) {
		entries = 0
		for c := range e.changes() {
			line, err := c.encode()
			if err != nil {
				return 0, 0, err
			}
			if _, err := w.Write(line); err != nil {
				return 0, 0, err
			}
			size += int64(len(line))
			entries += c.entries()
		}
	}
	return size, entries, nil
}

// changes returns the lines of a stream that has no overwritten entries.
func (e streamEntry) changes() iter.Seq[offsetsChange] {
	const filesPerLine = 100
	return func(yield func(offsetsChange) bool) {
		c := offsetsChange{Stream: &e}
		for part := range slices.Chunk(slices.Collect(maps.Values(e.files)), filesPerLine) {
			c.Files = part
			if !yield(c) {
				return
			}
			c.Stream = nil
		}
		if c.Stream != nil {
			yield(c)
		}
	}
}

// replace writes a file atomically and durably.
func replace(path string, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(temp, 1<<20)
	err = errors.Join(write(w), w.Flush(), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncDir(dir)
}

// syncDir makes a rename in a folder durable. Systems that cannot sync a folder make it
// durable without.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}
