package offsets

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

// fileVersion is the format version of the offsets file. Version 2 was one JSON value, rewritten with every change.
const fileVersion = 3

// maxStreams is how many streams the offsets file remembers; the least recently used are dropped.
const maxStreams = 8

// The offsets file is compacted when it has many times more entries than files.
const (
	compactRatio = 2
	compactMin   = 1000
)

// fileHeader is the first line of the offsets file. Version 2 stored everything in it.
type fileHeader struct {
	Version int `json:"version"`
	Streams []struct {
		streamEntry `json:",embed"`

		Files []Offset `json:"files"`
	} `json:"streams,omitempty"`
}

// fileChange is every further line of the offsets file, behind its checksum. Related changes share one line: a
// line that a crash cut off counts as not written.
type fileChange struct {
	Stream *streamEntry `json:"stream,omitzero"` // stream of this line and the following ones; replaces its stored description
	Files  []Offset     `json:"files,omitempty"` // new or changed offsets
	Gone   []Inode      `json:"gone,omitempty"`  // files that no longer have an offset
	Rows   []rowsChange `json:"rows,omitempty"`  // new or changed rows of databases with an offset
}

// rowsChange has rows of a database that were sent.
type rowsChange struct {
	Inode `json:",embed"`

	Rows []byte `json:"rows"`
}

// streamEntry is a raw stream, or the raw streams of all cells, with the offsets in it.
type streamEntry struct {
	Name    string    `json:"stream"`
	Created time.Time `json:"created"` // identifies the stream, together with its name; for cells, the youngest
	Broker  string    `json:"broker"`  // digest of Config.Broker at the last use
	Used    time.Time `json:"used"`    // time of the last use

	cellEntry `json:",embed"`

	More []cellEntry `json:"cells,omitempty"` // cells 1 and up

	files map[Inode]Offset
}

// cellEntry describes the raw stream of a cell.
type cellEntry struct {
	First        uint64      `json:"first,omitzero"` // first sequence as last seen
	Acknowledged Checkpoints `json:"acknowledged,omitempty"`
}

// in returns the entry of a cell.
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

// with returns e with another entry for a cell. The two share nothing that changes.
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

// is reports whether both entries describe the same stream.
func (e streamEntry) is(other streamEntry) bool {
	return e.Name == other.Name && e.Created.Equal(other.Created)
}

// Config says where offsets are stored.
type Config struct {
	Path   string // path of the offsets file; empty to keep offsets in memory
	Broker string // the user's name for the broker

	Logger *slog.Logger
}

// File is a log of changes on disk, which is compacted by rewriting it. It belongs to one goroutine, except for
// [File.Save].
type File struct {
	path    string        // empty for offsets kept in memory
	broker  string        // digest of Config.Broker
	streams []streamEntry // all but the one in use, in the order of the file

	size    int64 // bytes of the file known to be good; -1 when it must be rewritten
	entries int   // entries in the file for the stream in use
}

// Read reads the offsets file of c. Damaged entries count as lost. A file that cannot be read, or has a version that
// this program does not read, is an error.
func Read(ctx context.Context, c Config) (*File, error) {
	broker := sha256.Sum256([]byte(c.Broker))
	f := &File{path: c.Path, broker: hex.EncodeToString(broker[:8]), size: -1}
	if err := f.read(ctx, c.Logger); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) read(ctx context.Context, logger *slog.Logger) error {
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
	var header fileHeader
	if json.Unmarshal(first, &header, jsontext.AllowInvalidUTF8(true)) != nil {
		logger.WarnContext(ctx, "offsets file is damaged: everything is shipped again, and dropped as duplicates", "path", f.path)
		return nil
	}
	switch header.Version {
	case fileVersion:
		if first[len(first)-1] != '\n' {
			return nil // a crash cut off everything
		}
		return f.readChanges(ctx, in, int64(len(first)), logger)
	case 2:
		for _, e := range header.Streams {
			e.files = byInode(e.Files)
			f.streams = append(f.streams, e.streamEntry)
		}
		slices.Reverse(f.streams) // in version 2 the latest came first
		return nil
	}
	return fmt.Errorf("read offsets: %s has version %d, this program reads %d: remove it to ship everything again",
		f.path, header.Version, fileVersion)
}

// readChanges reads the lines behind the header of size bytes, up to the first damaged one. A crash cuts off the last
// line; the older offsets that remain lose nothing.
func (f *File) readChanges(ctx context.Context, in *bufio.Reader, size int64, logger *slog.Logger) error {
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
			logger.InfoContext(ctx, "end of the offsets file is damaged: its logs are shipped again, and dropped as duplicates", "path", f.path, "offset", size)
			f.size = -1
			return nil
		}
		size += int64(len(line))
	}
	f.size = size
	return nil
}

// apply applies a change to the streams. It returns false if the change names no stream.
func (f *File) apply(c fileChange) bool {
	if c.Stream != nil {
		e := *c.Stream
		i := slices.IndexFunc(f.streams, e.is)
		if i < 0 {
			i, f.streams, f.entries = len(f.streams), append(f.streams, e), 0
			e.files = map[Inode]Offset{}
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
		e.Rows = files[e.Inode].Rows
		files[e.Inode] = e
	}
	for _, r := range c.Rows {
		e := files[r.Inode]
		if e.Rows == nil {
			e.Rows = NewRows()
			files[r.Inode] = e
		}
		e.Rows.load(r.Rows)
	}
	for _, id := range c.Gone {
		delete(files, id)
	}
	f.entries += c.entries()
	return true
}

// entries returns how many entries a change adds to the file.
func (c fileChange) entries() int {
	n := 1 + len(c.Files) + len(c.Gone)
	for _, r := range c.Rows {
		n += len(r.Rows) / rowBytes
	}
	return n
}

// castagnoli is the table of the checksums; processors compute these in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumLength = 8 // length of a checksum in hex

// encode returns the line of a change: a checksum, a space, JSON.
func (c fileChange) encode() ([]byte, error) {
	data, err := json.Marshal(c, jsontext.AllowInvalidUTF8(true)) // paths may have any bytes
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(make([]byte, 0, len(data)+sumLength+2), "%0*x %s\n", sumLength, crc32.Checksum(data, castagnoli), data), nil
}

// decodeChange is the inverse of encode. It returns false for a damaged line.
func decodeChange(line []byte) (c fileChange, ok bool) {
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
func byInode(files []Offset) map[Inode]Offset {
	m := make(map[Inode]Offset, len(files))
	for _, e := range files {
		m[e.Inode] = e
	}
	return m
}

// Open returns the offsets in the stream that was created at a time. known is false for a stream not in the file.
func (f *File) Open(created time.Time) (o *Store, known bool) {
	e := streamEntry{Name: streams.RawStream, Created: created}
	i := slices.IndexFunc(f.streams, e.is)
	if i != len(f.streams)-1 || i < 0 {
		f.size = -1 // changes belong to the last stream of the file
	}
	if i < 0 {
		return newStore(e), false
	}
	e = f.streams[i]
	f.streams = slices.Delete(f.streams, i, i+1)
	return newStore(e), true
}

// PutBack stores the offsets of a stream when another one is used.
func (f *File) PutBack(o *Store) {
	f.streams, f.size = append(f.streams, f.entry(o)), -1
}

// Latest returns the offsets in the stream last used at the broker: a guess for a dry run, which does not ask the
// broker.
func (f *File) Latest() *Store {
	var latest streamEntry
	for _, e := range f.streams {
		if e.Broker == f.broker && !e.Used.Before(latest.Used) {
			latest = e
		}
	}
	return newStore(streamEntry{files: latest.files})
}

// Before returns the creation time of the stream last used at the broker, when another one has replaced it.
func (f *File) Before() (created time.Time, ok bool) {
	var used time.Time
	for _, e := range f.streams {
		if e.Broker == f.broker && !e.Used.Before(used) {
			created, used, ok = e.Created, e.Used, true
		}
	}
	return created, ok
}

// entry returns the entry of the stream in use.
func (f *File) entry(o *Store) streamEntry {
	e := o.entry()
	e.Broker, e.Used = f.broker, time.Now().UTC()
	return e
}

// Save stores what has changed. A crash leaves all of it or nothing. Only one goroutine may call it at a time.
func (f *File) Save(o *Store) error {
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
		f.size = -1 // the content on disk is unknown
		return fmt.Errorf("save offsets: %w", err)
	}
	return nil
}

// errCompact means that nothing was appended, because the offsets file must be rewritten.
var errCompact = errors.New("the offsets file is to be compacted")

// append appends a change to the file. files is the number of files with an offset afterwards.
func (f *File) append(c fileChange, files int) error {
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
		return errCompact // the file was removed, or the next error shows the cause
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

// compact rewrites the file without overwritten and dropped entries. A crash leaves the old file or the new one.
func (f *File) compact(o *Store) error {
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
	return nil
}

// write writes the file, with the stream in use at its end. It returns the bytes written and the entries of that
// stream.
func (f *File) write(w io.Writer, used streamEntry) (size int64, entries int, err error) {
	n, err := fmt.Fprintf(w, "{\"version\":%d}\n", fileVersion)
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

// changes yields the lines of a stream without overwritten entries.
func (e streamEntry) changes() iter.Seq[fileChange] {
	const filesPerLine = 100
	return func(yield func(fileChange) bool) {
		c := fileChange{Stream: &e}
		for part := range slices.Chunk(slices.Collect(maps.Values(e.files)), filesPerLine) {
			c.Files = part
			if !yield(c) {
				return
			}
			c.Stream = nil
		}
		if c.Stream != nil && !yield(c) {
			return
		}
		for id, o := range e.files {
			for part := range slices.Chunk(o.Rows.all(), rowsPerLine*rowBytes) {
				if !yield(fileChange{Rows: []rowsChange{{id, part}}}) {
					return
				}
			}
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

// syncDir makes a rename in a folder durable. Systems that cannot sync a folder make the rename durable by
// themselves.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}
