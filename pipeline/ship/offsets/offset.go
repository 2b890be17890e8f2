package offsets

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// HeadBytes is how many bytes at the start of a file identify it, together with its inode.
const HeadBytes = 1 << 10

// Inode identifies a file on this machine while it exists, whatever its path.
type Inode struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"inode"`
}

// Head is a digest of the first KiB of a file, or of all of a shorter one.
type Head struct {
	Bytes  int    `json:"bytes"`
	Digest string `json:"sha256"`
}

// HeadOf returns the head of a file that begins with b.
func HeadOf(b []byte) Head {
	sum := sha256.Sum256(b)
	return Head{len(b), hex.EncodeToString(sum[:])}
}

// Begins reports whether a file that starts with b still has the head h.
func (h Head) Begins(b []byte) bool { return len(b) >= h.Bytes && HeadOf(b[:h.Bytes]) == h }

// Offset is how far a file is shipped, and what identifies the file.
type Offset struct {
	Inode `json:",embed"`

	Head   Head   `json:"head"`
	Path   string `json:"path"`   // last known path
	Origin string `json:"origin"` // identity for the stage, unchanged by a rename
	Done   int64  `json:"done"`   // offset in the unpacked content: the broker acknowledged all records before it
	Ended  bool   `json:"ended"`  // the broker acknowledged the ends of the sessions, too
	Acks   Acks   `json:"acks,omitempty"`

	// Only for a log of lines: they show a truncation.
	Marks Marks `json:"marks,omitempty"`
	Cut   Cut   `json:"cut,omitzero"`

	// Only for a document or a packed log: modification time in Unix nanoseconds and size on disk when it was read.
	Modified int64 `json:"modified,omitempty"`
	Size     int64 `json:"size,omitempty"`

	// Only for a database, whose Modified and Size are its stamp, and whose Done counts the row versions that were sent.
	Source envelopes.Source `json:"source,omitempty"`
	Open   []string         `json:"open,omitempty"` // sessions with a record and no end behind it, least recent first
	Rows   *Rows            `json:"-"`              // nil for none; stored apart
}

// Covers reports whether the record from begin to end is shipped. A record across a truncation is not: its end is
// new.
func (o Offset) Covers(begin, end int64) bool {
	return begin < o.Done && (o.Done != o.Cut.At || end <= o.Cut.At)
}

// Unchanged reports whether the file still has the modification time and the size that it had when it was read.
func (o Offset) Unchanged(modified, size int64) bool { return o.Modified == modified && o.Size == size }

// Open opens a file for reading. It does not block if the path has become a pipe.
func Open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// moved reports whether the file is no longer at its path. If its folder is missing too, the file counts as present:
// the folder may be on a disk that returns.
func (o Offset) moved() bool {
	f, err := Open(o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(filepath.Dir(o.Path))
		return err == nil
	}
	if err != nil {
		return false
	}
	id, err := InodeOf(f)
	return errors.Join(err, f.Close()) == nil && id != o.Inode
}

// rewound returns the offset after the stream of a cell lost everything behind a sequence. It returns false when the
// stream lost nothing of the file.
func (o Offset) rewound(cell int, seq uint64) (Offset, bool) {
	kept := o.Acks.upTo(cell, seq)
	if len(kept) == len(o.Acks) && kept.end() >= o.Done { // earlier versions kept no ack of the end of a truncated log
		return o, false
	}
	o.Done, o.Ended, o.Acks = kept.end(), false, kept
	return o, true
}

// Cut is the last truncation of a log. The records behind it are published at places that were used before; the stage
// compares them with the earlier records.
type Cut struct {
	// Name is a suffix of the file identity of records behind At. Earlier versions gave one to each truncated log.
	// Those logs keep it, because their records would change places otherwise.
	Name string `json:"name,omitzero"`
	At   int64  `json:"at"` // 0 for a log that was never truncated
}

// Truncated returns the offset of a log of which only the first at bytes are unchanged.
func (o Offset) Truncated(at int64) Offset {
	next := Offset{Inode: o.Inode, Origin: o.Origin, Done: min(o.Done, at), Ended: o.Ended}
	if o.Cut.Name != "" {
		next.Done = min(next.Done, o.Cut.At) // the records behind it keep the name
	}
	next.Acks = o.Acks.before(next.Done)
	next.Cut = Cut{o.Cut.Name, next.Done}
	next.Marks = slices.DeleteFunc(slices.Clone(o.Marks), func(m Mark) bool { return m.At > at })
	return next
}

// Origin returns the origin of a record that ends at an offset.
func (c Cut) Origin(o core.Origin, end int64) core.Origin {
	if c.Name != "" && end > c.At {
		o.File += "." + c.Name
		if o.Previous < c.At {
			o.Previous = -1
		}
	}
	return o
}
