package database

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tributary/envelopes"
	"tributary/normalizers/core"
)

// Records yields the records of the database at a path in their order, and then the ends of its sessions.
// source is its agent; empty to find it by the tables. What is not a record is an error, as is a database that cannot
// be read.
func Records(ctx context.Context, path string, source envelopes.Source) iter.Seq2[core.Record, error] {
	return func(yield func(core.Record, error) bool) {
		err := read(ctx, path, source, func(r core.Record) bool { return yield(r, nil) })
		if err != nil {
			yield(core.Record{}, fmt.Errorf("database %s: %w", path, err))
		}
	}
}

// read passes the records of a database to each, until that returns false.
func read(ctx context.Context, path string, source envelopes.Source, each func(core.Record) bool) (err error) {
	d, err := Open(ctx, path, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	found, err := d.Scan(ctx, true, func(Key, *Row) bool { return true })
	if err != nil {
		return err
	}
	origin := strings.ToValidUTF8(filepath.Base(path), "\uFFFD")
	var sessions []string
	seen := map[string]bool{}
	for i := range found {
		data, err := d.Read(ctx, &found[i])
		if errors.Is(err, ErrNoRow) || errors.Is(err, ErrUnlisted) {
			continue
		}
		if err != nil {
			return fmt.Errorf("row of table %s: %w", d.Table(&found[i]), err)
		}
		r := d.Record(&found[i], data, origin, info.ModTime())
		if !seen[r.Session] {
			seen[r.Session], sessions = true, append(sessions, r.Session)
		}
		if !each(r) {
			return nil
		}
	}
	for _, id := range sessions {
		if !each(End(d.vendor.Source, id, origin, 0)) {
			return nil
		}
	}
	return nil
}

// Record returns the record of a row from what [DB.Read] returned. origin is the identity of the file, and written the
// time of a row that states none. Its place is the table and the rowid; the digest distinguishes its versions.
func (d *DB) Record(r *Row, data []byte, origin string, written time.Time) core.Record {
	sh, _, _ := core.NewShapeReader().Read(data) // the data is JSON
	t := d.vendor.Time(&sh)
	if t.IsZero() {
		t = written
	}
	record := core.Record{
		Source: d.vendor.Source, Session: d.vendor.Session(&sh), Data: data,
		Origin: core.Origin{File: identity(origin, d.Table(r)), Position: r.id, Digest: core.HexHash(data), Previous: -1, Time: t},
	}
	if record.Session == "" {
		name := filepath.Base(d.path)
		record.Session = strings.ToValidUTF8(strings.TrimSuffix(name, filepath.Ext(name)), "\uFFFD")
	}
	return record
}

// End returns the end of a session of a database. position is the number of versions of rows that were sent before.
func End(source envelopes.Source, session, origin string, position int64) core.Record {
	return core.Record{Source: source, Session: session, Origin: core.Origin{File: identity(origin, ""), Position: position, Previous: -1, End: true}}
}

// identity identifies a table of a database for the stage.
func identity(origin, table string) string {
	return core.HexHash("database\n" + origin + "\n" + table)[:32]
}
