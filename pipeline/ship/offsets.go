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

// headBytes is how much of a file tells it from another one on the same inode.
const headBytes = 1 << 10

// offsetsVersion is the version of the offsets file.
const offsetsVersion = 1

// inode names a file while it exists.
type inode struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"inode"`
}

// head is the begin of a file: its first KiB, or less where the file was shorter.
type head struct {
	Bytes  int    `json:"bytes"`
	Digest string `json:"sha256"`
}

func headOf(b []byte) head {
	sum := sha256.Sum256(b)
	return head{len(b), hex.EncodeToString(sum[:])}
}

// begins reports whether a file that begins with b is the one that h was taken of.
func (h head) begins(b []byte) bool { return len(b) >= h.Bytes && headOf(b[:h.Bytes]) == h }

// offset is how far a file is shipped.
type offset struct {
	inode `json:",embed"`

	Head   head   `json:"head"`
	Path   string `json:"path"`   // where it was last
	Origin string `json:"origin"` // under which its records are known, wherever it is moved
	Done   int64  `json:"done"`   // the records before it are acknowledged by the broker; of what is packed, unpacked
	Ended  bool   `json:"ended"`  // and the end after them

	// Of a log of lines: what it was when it was read, by which it is seen that it was cut
	// back and went on otherwise.
	Marks marks `json:"marks,omitempty"`
	Cut   cut   `json:"cut,omitzero"`

	// Of a file that is written as a whole when it was, in Unix nanoseconds, and its bytes on
	// the disk; 0 for a log of lines.
	Modified int64 `json:"modified,omitempty"`
	Size     int64 `json:"size,omitempty"`
}

// covers reports whether the record from begin to end is shipped. One that a cut goes
// through is not what it was.
func (e offset) covers(begin, end int64) bool {
	return begin < e.Done && (e.Done != e.Cut.At || end <= e.Cut.At)
}

// offsets remembers how far each file is shipped, also beyond the process. It runs
// behind the broker, never ahead of it: what is lost of it is shipped again, and known
// as a duplicate by message id or by position. All methods may be called concurrently.
type offsets struct {
	path string // of the file that keeps them; empty when none does

	mu      sync.Mutex
	known   map[inode]offset
	paths   map[string]inode // where they were last
	claims  map[inode]*file
	changes int // since the process began
	saved   int // changes that are on disk
}

// openOffsets reads the offsets at path, or begins new ones. A file that cannot be
// understood counts as lost; one that cannot be read, or is of a later version, is an
// error.
func openOffsets(ctx context.Context, path string, logger *slog.Logger) (*offsets, error) {
	o := &offsets{path: path, known: map[inode]offset{}, paths: map[string]inode{}, claims: map[inode]*file{}}
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
		logger.WarnContext(ctx, "offsets file is damaged: all is shipped again, and known as duplicate", "path", path)
		return o, nil //nolint:nilerr // what is damaged counts as lost
	}
	if stored.Version != offsetsVersion {
		return nil, fmt.Errorf("read offsets: %s is of version %d, this program reads %d: remove it to ship all again",
			path, stored.Version, offsetsVersion)
	}
	for _, e := range stored.Files {
		o.known[e.inode], o.paths[e.Path] = e, e.inode
	}
	return o, nil
}

// offsetsFile is the form of the offsets on disk.
type offsetsFile struct {
	Version int      `json:"version"`
	Files   []offset `json:"files"`
}

// claim makes f the one that ships the file on an inode; false when another does: the
// same file under another name.
func (o *offsets) claim(id inode, f *file) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if other, ok := o.claims[id]; ok {
		return other == f
	}
	o.claims[id] = f
	return true
}

// release gives up the claim of f. When the file is gone for good its offset goes too.
func (o *offsets) release(f *file) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.claims[f.offset.inode] != f {
		return
	}
	delete(o.claims, f.offset.inode)
	if e, ok := o.known[f.offset.inode]; ok && e.gone() {
		o.forget(e)
	}
}

// forget drops an offset. The caller holds mu.
func (o *offsets) forget(e offset) {
	delete(o.known, e.inode)
	if o.paths[e.Path] == e.inode {
		delete(o.paths, e.Path)
	}
	o.changes++
}

// gone reports whether the file is no longer where it was last. Where its folder is gone
// too it counts as there: that may be a disk that comes back.
func (e offset) gone() bool {
	f, err := open(e.Path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(filepath.Dir(e.Path))
		return err == nil
	}
	if err != nil {
		return false
	}
	id, err := inodeOf(f)
	return errors.Join(err, f.Close()) == nil && id != e.inode
}

// get returns the offset of the file on an inode, zero when it is not known. Whether it
// is still the same file its head tells.
func (o *offsets) get(id inode) offset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[id]
}

// at returns the offset of the file that was last at path, zero when none was.
func (o *offsets) at(path string) offset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[o.paths[path]]
}

// set remembers an offset.
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

// prune forgets files that exist no more.
func (o *offsets) prune() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.known {
		if e.gone() {
			o.forget(e)
		}
	}
}

// save writes the offsets, if they have changed, in one step: a crash leaves the old
// ones or the new ones. It is called by one goroutine at a time.
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

	data, err := json.Marshal(stored, jsontext.AllowInvalidUTF8(true)) // a path may be any bytes
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

// replace puts data at path in one step that survives a crash.
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

// syncDir makes a rename in a folder survive a crash. Systems that cannot sync a folder
// keep it anyway.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}
