package ship

import (
	"slices"

	"tributary/normalizers/core"
)

// cut is the last truncation of a log. The records behind it are published at places that were published before; the
// stage compares them with the earlier ones.
type cut struct {
	// Name is a suffix of the file identity of records behind At. Earlier versions gave each truncated log one; it stays
	// for the logs that have it, whose records would change their places otherwise.
	Name string `json:"name,omitzero"`
	At   int64  `json:"at"` // 0 for a log that was never truncated
}

// truncated returns the offset of a log of which only the first at bytes are as before.
func (o offset) truncated(at int64) offset {
	next := offset{inode: o.inode, Origin: o.Origin, Done: min(o.Done, at), Ended: o.Ended}
	if o.Cut.Name != "" {
		next.Done = min(next.Done, o.Cut.At) // behind it records keep the name
	}
	next.Acks = o.Acks.before(next.Done)
	next.Cut = cut{o.Cut.Name, next.Done}
	next.Marks = slices.DeleteFunc(slices.Clone(o.Marks), func(m mark) bool { return m.At > at })
	return next
}

// origin returns the origin under which a record that ends at an offset is published.
func (c cut) origin(o core.Origin, end int64) core.Origin {
	if c.Name != "" && end > c.At {
		o.File += "." + c.Name
		if o.Previous < c.At {
			o.Previous = -1
		}
	}
	return o
}
