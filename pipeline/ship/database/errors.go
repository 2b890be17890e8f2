package database

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"tributary/normalizers/core"
)

// Reasons why a database is not read now. A later attempt may succeed.
var (
	// ErrLocked means that its agent holds a lock, changes its tables, or has changed what was being read.
	ErrLocked = errors.New("its agent has locked it, or changes its tables")
	// ErrDamaged means that it violates the format of SQLite.
	ErrDamaged = errors.New("the database is damaged: let its agent repair it, or put back a copy")
	// ErrUnknownSchema means that no agent, or not the agent of its folder, is known to have such tables.
	ErrUnknownSchema = errors.New("the database has other tables than known: nothing of it is sent until a version of tributary reads them")
	// ErrNoDatabase means that the file is no SQLite database.
	ErrNoDatabase = errors.New("it is no SQLite database")
)

// ErrNoRow is the error of a row that was deleted since the scan.
var ErrNoRow = errors.New("the row was deleted")

// reason returns the reason for an error of the driver, without the text of the driver, which may have content.
func reason(err error) error {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return err
	}
	switch code := driver.Code(); code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL:
		return fmt.Errorf("%w (code %d)", ErrLocked, code)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w (code %d)", ErrDamaged, code)
	case sqlite3.SQLITE_TOOBIG:
		return core.ErrTooLarge
	default:
		return fmt.Errorf("the database cannot be read (code %d)", code)
	}
}

// ErrUnlisted is the error of a row that its parent does not list.
var ErrUnlisted = errors.New("the row is in no list")
