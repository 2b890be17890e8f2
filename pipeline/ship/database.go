package ship

import (
	"bytes"
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
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"tributary/envelopes"
	"tributary/normalizers"
	"tributary/normalizers/core"
)

// IsDatabase reports whether a file is read as a database, by its name.
func IsDatabase(path string) bool {
	return slices.Contains([]string{".db", ".sqlite", ".sqlite3", ".vscdb"}, filepath.Ext(path))
}

// Reasons why a database is not read now. Each is tried again.
var (
	errLocked        = errors.New("its agent has locked it, or changes its tables")
	errDamaged       = errors.New("the database is damaged: let its agent repair it, or put back a copy")
	errUnknownSchema = errors.New("the database has other tables than known: nothing of it is sent until a version of tributary reads them")
	errNoDatabase    = errors.New("it is no SQLite database")
)

// database is an open database that can only be read. Each statement is a transaction of its own. It is open only
// while rows are read, because its agent may repair or replace the file at any time.
type database struct {
	path   string
	vendor *core.Vendor
	conn   *sql.DB
	opened *databaseStamp      // its stamp when it was opened without locks; nil with locks
	copied string              // folder of the copy that is read; empty for none
	have   map[string][]string // its columns, by table
	limit  int                 // rows of the next statement
}

// databaseStamp changes with every change of a database, which is in its file or in the log of its writers.
type databaseStamp struct {
	Modified int64     // digest of when both were written, and of their sizes
	Size     int64     // bytes of both
	Written  time.Time // when either was last written
}

// stampOf returns the present stamp of the database at a path.
func stampOf(path string) (s databaseStamp, err error) {
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

// openDatabase opens the database at a path. source is the agent in whose folder it is; empty for any.
func openDatabase(ctx context.Context, path string, source envelopes.Source) (*database, error) {
	d := &database{path: path, limit: firstRows}
	at, err := d.prepare()
	if err == nil {
		d.conn, err = sql.Open("sqlite", at)
	}
	if err == nil {
		d.conn.SetMaxOpenConns(1)
		err = d.findVendor(ctx, source)
	}
	if err != nil {
		return nil, errors.Join(d.reason(err), d.close())
	}
	return d, nil
}

// prepare decides how the database is opened so that nothing is created or changed beside it, and returns its
// address: without locks while no other process has it open, as a copy if the index of its write-ahead log is missing,
// else with the locks of every reader.
func (d *database) prepare() (address string, err error) {
	path, query := d.path, "?mode=ro&_pragma=query_only(1)&_pragma=busy_timeout(0)"
	head := make([]byte, 100)
	f, err := open(path)
	if err != nil {
		return "", err
	}
	_, err = io.ReadFull(f, head)
	err = errors.Join(err, f.Close())
	switch isShort := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); {
	case isShort, err == nil && !bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
		return "", errNoDatabase
	case err != nil:
		return "", err
	}
	const version, writeAhead = 19, 2
	if head[version] == writeAhead {
		wal, _ := os.Stat(path + "-wal")
		_, noIndex := os.Stat(path + "-shm")
		switch {
		case noIndex == nil:
		case wal == nil || wal.Size() == 0:
			stamp, err := stampOf(path)
			if err != nil {
				return "", err
			}
			d.opened, query = &stamp, query+"&immutable=1"
		default:
			if path, err = d.copy(); err != nil {
				return "", err
			}
		}
	}
	if path = filepath.ToSlash(path); !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + query, nil
}

// copy copies the database and its write-ahead log, and returns the path of the copy.
func (d *database) copy() (path string, err error) {
	before, err := stampOf(d.path)
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
	if after, err := stampOf(d.path); err != nil || after != before {
		return "", errLocked
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

// close closes the database and removes the copy.
func (d *database) close() (err error) {
	if d.conn != nil {
		err = d.conn.Close()
	}
	if d.copied != "" {
		err = errors.Join(err, os.RemoveAll(d.copied))
	}
	return err
}

// check returns errLocked if what was read may be inconsistent, because another process has opened a database that is
// read without locks.
func (d *database) check() error {
	if d.opened == nil {
		return nil
	}
	if now, err := stampOf(d.path); err != nil || now != *d.opened {
		return errLocked
	}
	return nil
}

// reason returns the reason for an error of the driver, without the text of the driver, which may have content.
func (d *database) reason(err error) error {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return err
	}
	if d.check() != nil {
		return errLocked // another process changed it meanwhile
	}
	switch code := driver.Code(); code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL:
		return fmt.Errorf("%w (code %d)", errLocked, code)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w (code %d)", errDamaged, code)
	case sqlite3.SQLITE_TOOBIG:
		return core.ErrTooLarge
	default:
		return fmt.Errorf("the database cannot be read (code %d)", code)
	}
}

// findVendor finds the agent by the tables of the database.
func (d *database) findVendor(ctx context.Context, source envelopes.Source) error {
	have, err := d.columns(ctx)
	if err != nil {
		return err
	}
	d.have = have
	lacking := errors.New("no table of a known agent")
	for _, v := range normalizers.Vendors() {
		if v.Database == nil || source != "" && v.Source != source {
			continue
		}
		missing := missingColumn(v.Database, have)
		if missing == "" {
			d.vendor = v
			return nil
		}
		if source != "" {
			lacking = fmt.Errorf("%s is missing in a database of %s", missing, v.Name)
		}
	}
	return fmt.Errorf("%w: %w", errUnknownSchema, lacking)
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

// columns returns the columns of all tables, by table.
func (d *database) columns(ctx context.Context) (map[string][]string, error) {
	rows, err := d.conn.QueryContext(ctx, `SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	have := map[string][]string{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, err
		}
		have[table] = append(have[table], column)
	}
	return have, errors.Join(rows.Err(), d.check())
}
