package ship

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/pipeline"
)

// offsetsVersion is the format version of the offsets file. Version 1 had the files of one
// broker and did not know the stream.
const offsetsVersion = 2

// maxStreams is how many streams the offsets file remembers: the latest.
const maxStreams = 8

// offsetsContent is the content of the offsets file.
type offsetsContent struct {
	Version int           `json:"version"`
	Streams []streamEntry `json:"streams"`
	Files   []offset      `json:"files,omitempty"` // of version 1
}

// streamEntry is a raw stream with the offsets in it.
type streamEntry struct {
	Name         string         `json:"stream"`
	Created      time.Time      `json:"created"`        // identifies the stream, together with its name
	Broker       string         `json:"broker"`         // digest of Config.Broker when it was used last
	Used         time.Time      `json:"used"`           // when it was used last
	First        uint64         `json:"first,omitzero"` // first sequence that was noticed last
	Acknowledged checkpoints    `json:"acknowledged,omitempty"`
	Files        jsontext.Value `json:"files,omitempty"` // offsets; decoded only for the stream in use
}

// offsetsFile is the offsets file. Its path is empty for offsets that stay in memory.
type offsetsFile struct {
	path    string
	broker  string        // digest of Config.Broker
	streams []streamEntry // but for the one in use
	saved   int           // how many changes of the one in use are on the disk

	// Of an offsets file of version 1, which is not of a known stream yet.
	inherited []offset
	written   time.Time // when that file was written
	remove    string    // its path, when it is another file: removed when its content is stored here
}

// readOffsetsFile reads the offsets file of c, if there is one, or else the one that it
// inherits. A damaged file counts as lost; a file that cannot be read, or has another
// version, is an error.
func readOffsetsFile(ctx context.Context, c Config) (*offsetsFile, error) {
	broker := sha256.Sum256([]byte(c.Broker))
	f := &offsetsFile{path: c.Offsets, broker: hex.EncodeToString(broker[:8])}
	if err := f.read(ctx, c.Offsets, c.Logger); err != nil {
		return nil, err
	}
	if f.inherited == nil && c.Inherit != "" {
		if err := f.read(ctx, c.Inherit, c.Logger); err != nil {
			return nil, err
		}
		if f.inherited != nil {
			f.remove = c.Inherit
		}
	}
	return f, nil
}

func (f *offsetsFile) read(ctx context.Context, path string, logger *slog.Logger) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read offsets: %w", err)
	}
	var stored offsetsContent
	if json.Unmarshal(data, &stored, jsontext.AllowInvalidUTF8(true)) != nil {
		logger.WarnContext(ctx, "offsets file is damaged: everything is shipped again, and dropped as duplicate", "path", path)
		return nil //nolint:nilerr // a damaged file counts as lost
	}
	switch stored.Version {
	case offsetsVersion:
		f.streams = stored.Streams
		return nil
	case 1:
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("read offsets: %w", err)
		}
		f.inherited, f.written = stored.Files, info.ModTime()
		return nil
	}
	return fmt.Errorf("read offsets: %s has version %d, this program reads %d: remove it to ship everything again",
		path, stored.Version, offsetsVersion)
}

// open returns the offsets in a stream. known is false for a stream that is not in the file.
func (f *offsetsFile) open(created time.Time) (o *offsets, known bool, err error) {
	i := slices.IndexFunc(f.streams, func(e streamEntry) bool { return e.Name == pipeline.RawStream && e.Created.Equal(created) })
	if i < 0 {
		return newOffsets(streamEntry{Name: pipeline.RawStream, Created: created}, nil), false, nil
	}
	e := f.streams[i]
	files, err := e.files(f.path)
	if err != nil {
		return nil, false, err
	}
	f.streams = slices.Delete(f.streams, i, i+1)
	e.Files = nil
	return newOffsets(e, files), true, nil
}

// close puts the offsets of a stream back, when another one is used.
func (f *offsetsFile) close(o *offsets) error {
	e, err := f.encode(o)
	f.streams, f.saved = append(f.streams, e), -1
	return err
}

// latest returns the offsets in the stream that was used last at the broker: a guess, for a
// dry run, which does not ask the broker.
func (f *offsetsFile) latest() (*offsets, error) {
	var latest streamEntry
	for _, e := range f.streams {
		if e.Broker == f.broker && !e.Used.Before(latest.Used) {
			latest = e
		}
	}
	files := f.inherited
	if latest.Name != "" {
		var err error
		if files, err = latest.files(f.path); err != nil {
			return nil, err
		}
	}
	return newOffsets(streamEntry{}, files), nil
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

// files decodes the offsets of an entry of the file at path.
func (e streamEntry) files(path string) ([]offset, error) {
	if len(e.Files) == 0 {
		return nil, nil
	}
	var files []offset
	if err := json.Unmarshal(e.Files, &files, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("read offsets: %s: remove it to ship everything again: %w", path, err)
	}
	return files, nil
}

// encode returns the entry of the stream in use.
func (f *offsetsFile) encode(o *offsets) (streamEntry, error) {
	e, files, _ := o.entry()
	e.Broker, e.Used = f.broker, time.Now().UTC()
	var err error
	e.Files, err = json.Marshal(files, jsontext.AllowInvalidUTF8(true)) // a path is any bytes
	return e, err
}

// save writes the file if an offset has changed. A crash leaves the old file or the new one.
// Only one goroutine may call it at a time.
func (f *offsetsFile) save(o *offsets) error {
	changes := o.changed()
	if f.path == "" || changes == f.saved {
		return nil
	}
	e, err := f.encode(o)
	if err == nil {
		content := offsetsContent{Version: offsetsVersion, Streams: append(slices.Clone(f.streams), e)}
		slices.SortStableFunc(content.Streams, func(a, b streamEntry) int { return b.Used.Compare(a.Used) })
		content.Streams = content.Streams[:min(len(content.Streams), maxStreams)]
		err = f.write(content)
	}
	if err != nil {
		return fmt.Errorf("save offsets: %w", err)
	}
	f.saved = changes
	return nil
}

func (f *offsetsFile) write(content offsetsContent) error {
	data, err := json.Marshal(content, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	if err := replace(f.path, data); err != nil {
		return err
	}
	if f.remove == "" || f.inherited != nil { // nothing was taken over
		return nil
	}
	path := f.remove
	f.remove = ""
	return os.Remove(path)
}

// replace writes a file atomically and durably.
func replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Sync(), temp.Close())
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
