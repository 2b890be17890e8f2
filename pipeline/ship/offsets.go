package ship

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// headBytes is how much of the start of a file identifies it, together with its inode.
const headBytes = 1 << 10

// offsetsVersion is the format version of the offsets file.
const offsetsVersion = 1

// inode identifies a file on this machine while it exists, whatever its path.
type inode struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"inode"`
}

// head is a digest of the first KiB of a file, or of all of a shorter one.
type head struct {
	Bytes  int    `json:"bytes"`
	Digest string `json:"sha256"`
}

func headOf(b []byte) head {
	sum := sha256.Sum256(b)
	return head{len(b), hex.EncodeToString(sum[:])}
}

// begins reports whether a file that starts with b still has the head h.
func (h head) begins(b []byte) bool { return len(b) >= h.Bytes && headOf(b[:h.Bytes]) == h }

// offset is how far a file is shipped, and by what the file is recognized.
type offset struct {
	inode `json:",embed"`

	Head   head   `json:"head"`
	Path   string `json:"path"`   // the last known one
	Origin string `json:"origin"` // its identity for the stage, which a rename does not change
	Done   int64  `json:"done"`   // offset in the unpacked content: the broker has acknowledged all records before it
	Ended  bool   `json:"ended"`  // the broker has acknowledged the ends of the sessions, too

	// Only of a log of lines: by them a truncation is recognized.
	Marks marks `json:"marks,omitempty"`
	Cut   cut   `json:"cut,omitzero"`

	// Only of a document or a packed log: its time of modification in Unix nanoseconds and its
	// bytes on the disk, when it was read.
	Modified int64 `json:"modified,omitempty"`
	Size     int64 `json:"size,omitempty"`
}

// covers reports whether the record from begin to end is shipped. A record that a cut goes
// through is not: its end is new.
func (o offset) covers(begin, end int64) bool {
	return begin < o.Done && (o.Done != o.Cut.At || end <= o.Cut.At)
}

// moved reports whether the file is no longer at its path. If its folder is gone too, it
// counts as being there: that may be a disk that comes back.
func (o offset) moved() bool {
	f, err := open(o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(filepath.Dir(o.Path))
		return err == nil
	}
	if err != nil {
		return false
	}
	id, err := inodeOf(f)
	return errors.Join(err, f.Close()) == nil && id != o.inode
}

// offsets keeps the offset of each file, and in a file beyond the process. It lags behind
// the broker and is never ahead: what it loses is shipped again, and dropped as a duplicate
// by message id or by position. All methods but save may be called concurrently.
type offsets struct {
	path string // of the offsets file; empty for none

	mu      sync.Mutex
	known   map[inode]offset
	paths   map[string]inode // by last known path
	owners  map[inode]*file
	changes int // since the process began
	saved   int // how many of the changes are on disk
}

// openOffsets reads the offsets file at path, if there is one. A damaged file counts as
// lost; a file that cannot be read, or has another version, is an error.
func openOffsets(ctx context.Context, path string, logger *slog.Logger) (*offsets, error) {
	o := &offsets{path: path, known: map[inode]offset{}, paths: map[string]inode{}, owners: map[inode]*file{}}
	if path == "" {
		return o, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read offsets: %w", err)
	}
	var stored offsetsFile
	if json.Unmarshal(data, &stored) != nil {
		logger.WarnContext(ctx, "offsets file is damaged: everything is shipped again, and dropped as duplicate", "path", path)
		return o, nil //nolint:nilerr // a damaged file counts as lost
	}
	if stored.Version != offsetsVersion {
		return nil, fmt.Errorf("read offsets: %s has version %d, this program reads %d: remove it to ship everything again",
			path, stored.Version, offsetsVersion)
	}
	for _, e := range stored.Files {
		o.known[e.inode], o.paths[e.Path] = e, e.inode
	}
	return o, nil
}

// offsetsFile is the content of the offsets file.
type offsetsFile struct {
	Version int      `json:"version"`
	Files   []offset `json:"files"`
}

// acquire makes f the owner of an inode. False means that another file owns it: the same
// log under another name.
func (o *offsets) acquire(id inode, f *file) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if owner, ok := o.owners[id]; ok {
		return owner == f
	}
	o.owners[id] = f
	return true
}

// release ends the ownership of f. The offset of a file that has moved or is deleted is
// dropped.
func (o *offsets) release(f *file) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owners[f.offset.inode] != f {
		return
	}
	delete(o.owners, f.offset.inode)
	if e, ok := o.known[f.offset.inode]; ok && e.moved() {
		o.drop(e)
	}
}

// drop drops an offset. The caller has locked mu.
func (o *offsets) drop(e offset) {
	delete(o.known, e.inode)
	if o.paths[e.Path] == e.inode {
		delete(o.paths, e.Path)
	}
	o.changes++
}

// get returns the offset of an inode, zero for an unknown one. The inode may have been
// reused since: only the head shows whether the file is the same.
func (o *offsets) get(id inode) offset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[id]
}

// at returns the offset of the file whose last known path is path, zero for none.
func (o *offsets) at(path string) offset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[o.paths[path]]
}

// set stores an offset.
func (o *offsets) set(e offset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if reflect.DeepEqual(o.known[e.inode], e) {
		return
	}
	if was := o.known[e.inode].Path; was != e.Path && o.paths[was] == e.inode {
		delete(o.paths, was)
	}
	o.known[e.inode], o.paths[e.Path] = e, e.inode
	o.changes++
}

// prune drops the offsets of files that are not at their path. It is for the end of a run
// that has visited every log: a file that was renamed has its new path by then.
func (o *offsets) prune() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.known {
		if e.moved() {
			o.drop(e)
		}
	}
}

// save writes the offsets file if an offset has changed. A crash leaves the old file or the
// new one. Only one goroutine may call it at a time.
func (o *offsets) save() error {
	o.mu.Lock()
	changes := o.changes
	if o.path == "" || changes == o.saved {
		o.mu.Unlock()
		return nil
	}
	stored := offsetsFile{Version: offsetsVersion, Files: slices.SortedFunc(maps.Values(o.known), func(a, b offset) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Number, b.Number))
	})}
	o.mu.Unlock()

	data, err := json.Marshal(stored, jsontext.AllowInvalidUTF8(true)) // a path is any bytes
	if err == nil {
		err = replace(o.path, data)
	}
	if err != nil {
		return fmt.Errorf("save offsets: %w", err)
	}
	o.mu.Lock()
	o.saved = changes
	o.mu.Unlock()
	return nil
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
