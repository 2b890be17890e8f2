package claims

import (
	"context"
	"slices"
	"time"
)

// ChunksOf returns the names of the chunks of objects, given by their digests, without chunks that other objects name.
func ChunksOf(ctx context.Context, c *Store, digests []string) ([]string, error) {
	chunks, err := c.listChunks(ctx)
	if err != nil {
		return nil, err
	}
	described, err := c.listDescribed(ctx, chunks)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, digest := range digests {
		if o := described[metaSubject(digest)]; o != nil {
			names = append(names, o.chunks...)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Erase removes the objects with the digests of until, and the chunks that an interrupted Erase has left. It keeps an
// object that a record names, or that was put after its time in until, because its producer may be about to publish the
// record. It returns the digests of the objects that it has removed, and of those that it keeps.
func Erase(ctx context.Context, c *Store, until map[string]time.Time, chunks []string) (removed, kept []string, err error) {
	if len(until) == 0 {
		return nil, nil, nil
	}
	objects, err := c.list(ctx, func(o Object, _ time.Time) bool {
		if o.subject == "" {
			return slices.Contains(chunks, o.chunks[0])
		}
		_, is := until[o.Name]
		return is
	})
	if err != nil {
		return nil, nil, err
	}
	for _, o := range objects {
		keep := o.Records > 0 || o.subject != "" && o.Stored.After(until[o.Name])
		if !keep {
			is, err := c.Remove(ctx, o)
			if err != nil {
				return removed, kept, err
			}
			keep = !is
		}
		switch {
		case o.subject == "": // chunks alone
		case keep:
			kept = append(kept, o.Name)
		default:
			removed = append(removed, o.Name)
		}
	}
	return removed, kept, nil
}
