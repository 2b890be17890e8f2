// Package database reads the sessions that an agent keeps in a SQLite database, while the agent writes it.
//
// Start with [Open], then [DB.Scan] and [DB.Read]; [Records] reads a whole database at once.
//
// The invariant: nothing is written or created in the folder of a database, and only the tables, columns and keys that
// the vendor's [core.Database] lists are read: other tables hold tokens.
//
// A record is {"table": ..., "row": {column: value}}, behind that of its parent; the version of a row is its digest. No
// writer ever waits: in rollback mode rows are read without locks, and a statement counts only if nobody has written
// meanwhile (connection.go). Another database is the [core.Database] of its vendor, with a test in the room of the vendor;
// cases_test.go makes a database of the rows in its cases.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// Is reports whether a file is read as a database, by its name.
func Is(path string) bool {
	return slices.Contains([]string{".db", ".sqlite", ".sqlite3", ".vscdb"}, filepath.Ext(path))
}

// DB is an open database that can only be read. It is open only while rows are read, because its agent may repair or
// replace the file at any time. It belongs to one goroutine.
type DB struct {
	connection

	vendor *core.Vendor
	copied string              // folder of the copy that is read; empty for none
	have   map[string][]string // its columns, by table
	limit  int                 // rows of the next statement
	waits  bool                // the last scan left out rows that may not be complete
}

// Stamp changes with every change of a database, which is in its file or in the log of its writers.
type Stamp struct {
	Modified int64     // digest of when both were written, and of their sizes
	Size     int64     // bytes of both
	Written  time.Time // when either was last written
}

// StampOf returns the present stamp of the database at a path.
func StampOf(path string) (s Stamp, err error) {
	h := fnv.New64a()
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		switch {
		case err == nil:
			fmt.Fprintln(h, info.ModTime().UnixNano(), info.Size())
			s.Size += info.Size()
			if info.ModTime().After(s.Written) {
				s.Written = info.ModTime()
			}
		case name == path || !errors.Is(err, fs.ErrNotExist):
			return s, err
		}
	}
	s.Modified = int64(h.Sum64() >> 1)
	return s, nil
}

// Open opens the database at a path, which the caller closes. source is the agent in whose folder it is; empty for any.
// Its error is [ErrLocked], [ErrDamaged], [ErrUnknownSchema], [ErrNoDatabase], or one of the file system.
func Open(ctx context.Context, path string, source envelopes.Source) (*DB, error) {
	path, err := filepath.Abs(path) // the address of a database has no folder to start from
	if err != nil {
		return nil, err
	}
	d := &DB{connection: connection{path: path}, limit: firstRows}
	d.address, err = d.prepare()
	if err == nil {
		err = d.connect()
	}
	if err == nil {
		err = d.findVendor(ctx, source)
	}
	if err != nil {
		return nil, errors.Join(reason(err), d.Close())
	}
	return d, nil
}

// open opens a file for reading. It does not block if the path has become a pipe.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// prepare decides how the database is opened so that nothing is created or changed beside it, and returns its
// address: without locks in rollback mode, and while no other process has it open; as a copy if the index of its
// write-ahead log is missing; else with the locks of every reader, for which no writer waits.
func (d *DB) prepare() (address string, err error) {
	path, query := d.path, "?mode=ro&_pragma=query_only(1)&_pragma=busy_timeout(0)"
	head, err := headOf(path)
	if err != nil {
		return "", err
	}
	if head.writesAhead() {
		wal, _ := os.Stat(path + "-wal")
		_, noIndex := os.Stat(path + "-shm")
		switch {
		case noIndex == nil:
		case wal == nil || wal.Size() == 0:
			stamp, err := StampOf(path)
			if err != nil {
				return "", err
			}
			d.opened, query = &stamp, query+"&immutable=1"
		default:
			if path, err = d.copy(); err != nil {
				return "", err
			}
		}
	} else {
		d.unlocked, query = true, query+"&nolock=1"
	}
	if path = filepath.ToSlash(path); !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + query, nil
}

// copy copies the database and its write-ahead log, and returns the path of the copy.
func (d *DB) copy() (path string, err error) {
	before, err := StampOf(d.path)
	if err != nil {
		return "", err
	}
	if d.copied, err = os.MkdirTemp("", "tributary-database-"); err != nil {
		return "", err
	}
	path = filepath.Join(d.copied, "copy.db")
	for _, end := range []string{"", "-wal"} {
		if err := copyFile(path+end, d.path+end); err != nil {
			return "", err
		}
	}
	if after, err := StampOf(d.path); err != nil || after != before {
		return "", ErrLocked
	}
	return path, nil
}

// copyFile copies a file.
func copyFile(to, from string) error {
	in, err := open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Source returns the agent of the database.
func (d *DB) Source() envelopes.Source { return d.vendor.Source }

// Close closes the database and removes the copy.
func (d *DB) Close() (err error) {
	if d.pool != nil {
		err = d.pool.Close()
	}
	if d.copied != "" {
		err = errors.Join(err, os.RemoveAll(d.copied))
	}
	return err
}

// findVendor finds the agent by the tables of the database, and by its name if the tables are those of several agents.
func (d *DB) findVendor(ctx context.Context, source envelopes.Source) error {
	have, err := d.columns(ctx)
	if err != nil {
		return err
	}
	d.have = have
	lacking := errors.New("no table of a known agent")
	longest := -1
	for _, v := range normalizers.Vendors() {
		if v.Database == nil || source != "" && v.Source != source {
			continue
		}
		missing := missingColumn(v.Database, have)
		fits := missing == "" || source != "" && v.Database.Later && !hasTable(v.Database, have)
		switch end := nameEnd(v.Database, d.path); {
		case fits && end > longest:
			d.vendor, longest = v, end
		case !fits && source != "":
			lacking = fmt.Errorf("%s is missing in a database of %s", missing, v.Name)
		}
	}
	if d.vendor != nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnknownSchema, lacking)
}

// nameEnd returns the length of the longest end of a name that an agent gives to its databases and this one has.
func nameEnd(is *core.Database, path string) (longest int) {
	for _, end := range is.Names {
		if strings.HasSuffix(filepath.Base(path), end) {
			longest = max(longest, len(end))
		}
	}
	return longest
}

// missingColumn returns the name of a table or column that the database should have; empty if it has all.
func missingColumn(is *core.Database, have map[string][]string) string {
	for i := range is.Tables {
		t := &is.Tables[i]
		for _, column := range append([]string{t.Key}, t.Columns...) {
			if !slices.Contains(have[t.Name], column) {
				return t.Name + "." + column
			}
		}
	}
	return ""
}

// hasTable reports whether a database has a table of its vendor.
func hasTable(is *core.Database, have map[string][]string) bool {
	return slices.ContainsFunc(is.Tables, func(t core.Table) bool { return have[t.Name] != nil })
}

// columns returns the columns of all tables, by table.
func (d *DB) columns(ctx context.Context) (have map[string][]string, err error) {
	const query = `SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'`
	err = d.query(ctx, query, nil, func(rows *sql.Rows) error {
		have = map[string][]string{}
		for rows.Next() {
			var table, column string
			if err := rows.Scan(&table, &column); err != nil {
				return err
			}
			have[table] = append(have[table], column)
		}
		return nil
	})
	return have, err
}
