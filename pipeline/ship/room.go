package ship

import (
	"context"

	"tributary/normalizers/core"
)

// A file with more than largeBytes in memory needs room. All files of a Ship share roomBytes, as much as the longest
// record needs, so each file gets room once the others have returned theirs. Until it is stored, a record takes up to
// five times its length, most of it during the search for secrets.
const (
	largeBytes = 1 << 20
	roomBytes  = core.MaxRecordBytes
)

// freeWindow is how far a packed file may refer back without taking room: the window of zstd with default settings.
const freeWindow = 2 << 20

// reserve takes room before the next n bytes of the file are framed, if they need it. It takes at once all that the
// rest of the visit may need, so that no file waits for room while it has some.
func (v *visit) reserve(ctx context.Context, n int) error {
	held := int64(v.f.framer.Held())
	if v.taken > 0 || held+int64(n) <= largeBytes {
		return nil
	}
	most := int64(roomBytes)
	if !packed(v.log.path) && v.f.framer.Source() != "" {
		most = min(most, held+v.log.info.Size()-v.f.read)
	}
	return v.take(ctx, most)
}

// take waits for room. It first sends what was read, because the wait may be long.
func (v *visit) take(ctx context.Context, n int64) error {
	if !v.room.TryAcquire(n) {
		if err := v.flush(ctx); err != nil {
			return err
		}
		if err := v.room.Acquire(ctx, n); err != nil {
			return err
		}
	}
	v.taken = n
	return nil
}

// settle sends what the file took room for, once the rest needs no room, and returns the room.
func (v *visit) settle(ctx context.Context) error {
	if v.taken == 0 || v.wide || v.f.framer.Held() > largeBytes {
		return nil
	}
	if err := v.flush(ctx); err != nil {
		return err
	}
	v.leave()
	return nil
}

// leave returns all room.
func (v *visit) leave() {
	v.room.Release(v.taken)
	v.taken = 0
}
