package ship

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"tributary/normalizers"
)

// cut is the last truncation of a log. Behind it the log has other records at positions
// that were shipped before. They are published as records of a file of another name, so
// that the stage does not take them for duplicates.
type cut struct {
	Name string `json:"name"` // suffix of the file identity; empty for a log that was never truncated
	At   int64  `json:"at"`   // records that end behind it have the suffix
}

// truncated returns the offset of a log of which only the first at bytes are as before.
func (o offset) truncated(at int64) offset {
	next := offset{inode: o.inode, Origin: o.Origin, Done: min(o.Done, at), Ended: o.Ended}
	next.Acks = o.Acks.before(next.Done)
	next.Cut = o.nextCut(next.Done)
	next.Marks = slices.DeleteFunc(slices.Clone(o.Marks), func(m mark) bool { return m.At > at })
	return next
}

// nextCut returns the cut for a truncation to at. Its name is derived from the whole
// offset before: no other truncation has it, and after a crash the same one is found again.
func (o offset) nextCut(at int64) cut {
	sum := sha256.Sum256(fmt.Append(nil, o.Cut, o.Done, o.Marks))
	return cut{hex.EncodeToString(sum[:4]), at}
}

// origin returns the origin under which a record that ends at an offset is published.
func (c cut) origin(o normalizers.Origin, end int64) normalizers.Origin {
	if c.Name != "" && end > c.At {
		o.File += "." + c.Name
		if o.Previous < c.At {
			o.Previous = -1
		}
	}
	return o
}
