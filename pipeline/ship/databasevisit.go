package ship

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"tributary/normalizers/core"
	"tributary/pipeline/ship/database"
	"tributary/pipeline/ship/offsets"
)

const (
	pollRatio    = 20        // a database rests this many times as long as its last read took
	comparedSize = 256 << 20 // bytes of a database up to which all rows are compared while it is in use
	lockWait     = 50 * time.Millisecond
	maxOpen      = 64 // sessions of a database without an end
)

// lockPatience is how long a database may be unreadable before that is reported.
var lockPatience = 5 * time.Second

// polls are the reads of a database since the start of the Ship.
type polls struct {
	stamp      database.Stamp // before the last read
	next, full time.Time      // when the next read may begin, and the next that compares all rows
	waits      bool           // the last read left out rows that may not be complete
	failing    time.Time      // since when it cannot be read; zero when it can
	reason     Reason         // why it cannot be read, as was reported last
}

// databaseVisit is the visit of a database instead of a log.
type databaseVisit struct{ *visit }

// visitDatabase ships the rows of a database that changed since the previous visit.
func (v databaseVisit) visitDatabase(ctx context.Context) error {
	if v.gone {
		return v.endSessions(ctx, 0)
	}
	if !v.recognizeDatabase(ctx) {
		return nil
	}
	for {
		failed, err := v.poll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failed == nil || err != nil || v.reportDatabase(ctx, failed) || !v.config.Once {
			return err
		}
		select {
		case <-time.After(lockWait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recognizeDatabase finds the offset of the database that is now at the path of the visit. It returns false if this
// visit does not read it.
func (v databaseVisit) recognizeDatabase(ctx context.Context) bool {
	r, err := offsets.Open(v.log.path)
	if err != nil {
		v.reportUnreadable(ctx, err)
		return false
	}
	seen, err := examine(r, v.buf[:16])
	if err = errors.Join(err, r.Close()); err != nil {
		v.reportUnreadable(ctx, err)
		return false
	}
	f := v.f
	if !os.SameFile(seen.info, v.log.info) || v.log.strayed {
		return false
	}
	v.log.info = seen.info
	if !v.offsets.Acquire(seen.id, f) {
		f.retry = true
		return false
	}
	if f.offset.Inode != seen.id {
		f.offset = v.offsets.Get(seen.id)
	}
	if f.offset.Inode != seen.id || f.offset.Rows == nil {
		// The file is new, or has replaced the one that was here: most of its rows may be the same.
		f.offset = offsets.Offset{Rows: offsets.NewRows()}
		if p := f.prior; p.Rows != nil {
			f.offset = offsets.Offset{Done: p.Done, Acks: p.Acks, Open: p.Open, Source: p.Source, Rows: p.Rows.Clone()}
		}
	}
	o := &f.offset
	o.Inode, o.Head, o.Path = seen.id, offsets.HeadOf(seen.head), v.log.path
	o.Origin = v.log.origin
	o.Rows.Lose(o.Done)
	v.end = o.Done
	return true
}

// poll reads the database if it changed, and ends its sessions if it is idle. failed is why the database could not be
// read; err ends the Ship.
func (v databaseVisit) poll(ctx context.Context) (failed, err error) {
	o, p := &v.f.offset, &v.f.polls
	now := time.Now()
	stamp, failed := database.StampOf(v.log.path)
	if failed != nil {
		return failed, nil
	}
	idle := v.config.Once || now.Sub(v.f.grew) >= v.config.Idle && now.Sub(stamp.Written) >= v.config.Idle
	full := v.config.Once || (idle || stamp.Size <= comparedSize) && !now.Before(p.full)
	switch {
	case o.Unchanged(stamp.Modified, stamp.Size):
	case !full && p.stamp == stamp, !v.config.Once && now.Before(p.next):
		v.f.retry = true
	default:
		if failed, err = v.ship(ctx, full, idle); failed != nil || err != nil {
			return failed, err
		}
		took := time.Since(now)
		p.stamp, p.next = stamp, time.Now().Add(pollRatio*took)
		if v.f.retry = !full || p.waits; full {
			p.full = p.next
		}
		if !v.f.retry {
			o.Modified, o.Size = stamp.Modified, stamp.Size
		}
		v.remember()
	}
	p.failing = time.Time{}
	v.tally.reportReadable(v.f, v.log.path)
	if idle && (o.Unchanged(stamp.Modified, stamp.Size) || p.stamp == stamp) {
		return nil, v.endSessions(ctx, 0)
	}
	return nil, nil
}

// ship ships the changed rows of the database. With full, the contents of all rows are compared with what was sent.
func (v databaseVisit) ship(ctx context.Context, full, idle bool) (failed, err error) {
	o := &v.f.offset
	d, failed := database.Open(ctx, v.log.path, v.log.source)
	if failed != nil {
		return failed, nil
	}
	o.Source = d.Source()
	found, failed := d.Scan(ctx, idle, func(k database.Key, r *database.Row) bool {
		was, ok := o.Rows.Get(k)
		return full || !ok || was.At > o.Done || was.Version != r.Version
	})
	if failed != nil {
		return errors.Join(failed, d.Close()), nil
	}
	v.f.polls.waits = d.Waits()
	for {
		read, failed := v.readRows(ctx, d, found)
		if err := d.Close(); err != nil {
			return err, nil
		}
		for i := range read {
			if err := v.addRow(ctx, d, &found[i], read[i]); err != nil {
				return nil, err
			}
		}
		if err := v.flush(ctx); err != nil {
			return nil, err
		}
		if err := v.endSessions(ctx, maxOpen); err != nil {
			return nil, err
		}
		if found = found[len(read):]; failed != nil || len(found) == 0 {
			return failed, ctx.Err()
		}
		if d, failed = database.Open(ctx, v.log.path, o.Source); failed != nil {
			return failed, nil
		}
	}
}

// readRow is the record of a row, or why it has none.
type readRow struct {
	data []byte
	err  error // [core.ErrTooLarge], database.ErrNoRow or database.ErrUnlisted
}

// readRows reads the first of the rows that a scan has found, about as many as fit in a batch.
func (v databaseVisit) readRows(ctx context.Context, d *database.DB, found []database.Row) (read []readRow, failed error) {
	size := 0
	for i := range found {
		if len(read) > 0 && (len(read) == v.config.BatchRecords || size+int(min(found[i].Size, core.MaxRecordBytes)) > batchBytes) {
			break
		}
		data, err := d.Read(ctx, &found[i])
		if err != nil && !errors.Is(err, core.ErrTooLarge) && !errors.Is(err, database.ErrNoRow) && !errors.Is(err, database.ErrUnlisted) {
			return read, err
		}
		read = append(read, readRow{data, err})
		size += len(data)
	}
	return read, nil
}

// addRow adds the record of a row to the batch, unless the same version was sent.
func (v databaseVisit) addRow(ctx context.Context, d *database.DB, r *database.Row, read readRow) error {
	if errors.Is(read.err, database.ErrNoRow) {
		return nil
	}
	o, k := &v.f.offset, d.Key(r)
	was, ok := o.Rows.Get(k)
	ok = ok && was.At <= o.Done
	now := offsets.Row{Digest: database.Digest(read.data), Version: r.Version, At: max(v.end, o.Done) + 1}
	switch {
	case errors.Is(read.err, database.ErrUnlisted):
		if !ok {
			was = offsets.Row{At: o.Done}
		}
		if was.Version != now.Version {
			was.Version = now.Version
			o.Rows.Set(map[database.Key]offsets.Row{k: was})
		}
		return nil
	case ok && was.Digest == now.Digest && read.err == nil:
		if was.Version != now.Version {
			now.At = was.At
			o.Rows.Set(map[database.Key]offsets.Row{k: now})
		}
		return nil
	case ok && was.Version == now.Version && read.err != nil:
		return nil // was refused
	}
	if v.rows == nil {
		v.rows = map[database.Key]offsets.Row{}
	}
	v.rows[k] = now
	if read.err != nil {
		v.refuse(ctx, Refusal{
			Reason: ReasonTooLarge, Path: v.log.path, Size: r.Size, Limit: core.MaxRecordBytes,
			Err: fmt.Errorf("row of table %s dropped: %w: longer than %d bytes", d.Table(r), read.err, core.MaxRecordBytes),
		})
		v.end = now.At
		return nil
	}
	record := d.Record(r, read.data, v.log.origin, v.log.info.ModTime())
	v.f.grew = time.Now()
	o.Open = append(slices.DeleteFunc(slices.Clone(o.Open), func(id string) bool { return id == record.Session }), record.Session)
	if len(read.data) <= largeBytes {
		return v.add(ctx, record, 0, now.At)
	}
	defer v.leave()
	if err := v.take(ctx, int64(len(read.data))); err != nil {
		return err
	}
	return errors.Join(v.add(ctx, record, 0, now.At), v.flush(ctx))
}

// endSessions ends the sessions of the database, except a number of those with the most recent records.
func (v databaseVisit) endSessions(ctx context.Context, except int) error {
	o := &v.f.offset
	n := len(o.Open) - except
	if n <= 0 {
		return nil
	}
	v.end = o.Done
	for _, id := range o.Open[:n] {
		if err := v.add(ctx, database.End(o.Source, id, o.Origin, o.Done), 0, o.Done); err != nil {
			return err
		}
	}
	if err := v.flush(ctx); err != nil {
		return err
	}
	o.Open = slices.Clone(o.Open[n:])
	v.remember()
	return nil
}

// sent notes that the rows of the batch are stored.
func (v databaseVisit) sent() {
	if v.rows != nil && !v.config.DryRun {
		v.f.offset.Rows.Set(v.rows)
	}
	v.rows = nil
}

// reportDatabase reports why a database cannot be read, once until it can be read or another reason is found behind
// its lock. It returns false while the reason may still be over soon.
func (v databaseVisit) reportDatabase(ctx context.Context, failed error) bool {
	f := v.f
	if errors.Is(failed, fs.ErrNotExist) {
		return true // the next search finds out what happened to it
	}
	if f.polls.failing.IsZero() {
		f.polls.failing = time.Now()
	}
	f.retry = true
	waits := !v.config.Once || errors.Is(failed, database.ErrLocked)
	if waits && time.Since(f.polls.failing) < lockPatience {
		return false
	}
	r := Refusal{Reason: ReasonUnreadable, Path: v.log.path, Err: fmt.Errorf("cannot be read: trying again: %w", failed)}
	switch {
	case errors.Is(failed, database.ErrLocked):
		r.Reason = ReasonLocked
	case errors.Is(failed, database.ErrDamaged):
		r.Reason = ReasonDamaged
	case errors.Is(failed, database.ErrUnknownSchema) && v.log.source != "":
		r.Reason = ReasonUnknownSchema
	case errors.Is(failed, database.ErrUnknownSchema), errors.Is(failed, database.ErrNoDatabase):
		r.Reason = ReasonUnknownSource
	}
	if !f.unreadable || r.Reason != f.polls.reason && r.Reason != ReasonLocked {
		f.unreadable, f.polls.reason = true, r.Reason
		v.refuse(ctx, r)
	}
	return true
}
