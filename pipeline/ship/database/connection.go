package database

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"
)

// Of a statement that a writer has disturbed.
const (
	patience = 250 * time.Millisecond // until the database counts as locked
	pause    = 200 * time.Microsecond // before the statement is tried again
)

// connection is a connection to a database, each statement of which is a transaction of its own.
type connection struct {
	path     string // of the database
	address  string // for the driver: of the database or of a copy
	pool     *sql.DB
	opened   *Stamp // its stamp when it was opened as a file that nobody writes; nil for another
	unlocked bool   // it is in rollback mode, and read without locks
}

// connect opens the connection, which has no pages of the database yet.
func (c *connection) connect() (err error) {
	if c.pool, err = sql.Open("sqlite", c.address); err == nil {
		c.pool.SetMaxOpenConns(1)
	}
	return err
}

// query runs a statement and passes its rows to read, which may be called again from the beginning.
func (c *connection) query(ctx context.Context, query string, args []any, read func(*sql.Rows) error) error {
	if !c.unlocked {
		err := c.queryOnce(ctx, query, args, read)
		return cmp.Or(c.check(), err)
	}
	for end := time.Now().Add(patience); ; {
		before, err := c.settled()
		if err == nil {
			err = c.queryOnce(ctx, query, args, read)
			if c.isStill(before) {
				return err
			}
			// The connection may keep pages of two transactions.
			if err = errors.Join(c.pool.Close(), c.connect()); err != nil {
				return err
			}
			err = ErrLocked
		}
		if !errors.Is(err, ErrLocked) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(pause): // no event says that a journal has gone
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// queryOnce runs a statement and passes its rows to read.
func (c *connection) queryOnce(ctx context.Context, query string, args []any, read func(*sql.Rows) error) error {
	rows, err := c.pool.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	return errors.Join(read(rows), rows.Err(), rows.Close())
}

// row runs a statement that finds at most one row, and stores its columns in into.
func (c *connection) row(ctx context.Context, query string, args []any, into ...any) (found bool, err error) {
	err = c.query(ctx, query, args, func(rows *sql.Rows) error {
		if found = rows.Next(); !found {
			return nil
		}
		return rows.Scan(into...)
	})
	return found, err
}

// check returns ErrLocked if what was read may be inconsistent, because another process has opened a file that nobody
// wrote.
func (c *connection) check() error {
	if c.opened == nil {
		return nil
	}
	if now, err := StampOf(c.path); err != nil || now != *c.opened {
		return ErrLocked
	}
	return nil
}

// state changes with every commit of a writer in rollback mode.
type state struct {
	Stamp
	changes uint32 // the counter of commits in the file
}

// settled returns the state of a database in rollback mode; ErrLocked if a writer may be in the midst of a commit.
func (c *connection) settled() (s state, err error) {
	if s, err = c.state(); err == nil && hasJournal(c.path) {
		err = ErrLocked
	}
	return s, err
}

// isStill reports whether nothing was written since the state was settled. A writer counts its commit before it ends
// its journal, so the journal is looked at first.
func (c *connection) isStill(before state) bool {
	if hasJournal(c.path) {
		return false
	}
	now, err := c.state()
	return err == nil && now == before
}

// state returns the present state of a database in rollback mode; ErrLocked if it has left that mode.
func (c *connection) state() (s state, err error) {
	head, err := headOf(c.path)
	if err != nil {
		return s, err
	}
	if head.writesAhead() {
		return s, ErrLocked
	}
	s.changes = head.changes()
	s.Stamp, err = StampOf(c.path)
	return s, err
}

// hasJournal reports whether a database has a rollback journal in use: a writer is writing into the file, or has ended in
// the midst of that. A journal begins with a zero before the file is written, and if it is kept after the commit.
func hasJournal(path string) bool {
	f, err := open(path + "-journal")
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	var first [1]byte
	_, err = io.ReadFull(f, first[:])
	return err == nil && first[0] != 0
}

// head is the header of a database file, see https://sqlite.org/fileformat2.html#the_database_header.
type head [100]byte

// headOf returns the header of a database file; ErrNoDatabase if it has none.
func headOf(path string) (h head, err error) {
	f, err := open(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	_, err = io.ReadFull(f, h[:])
	switch isShort := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); {
	case isShort, err == nil && !bytes.HasPrefix(h[:], []byte("SQLite format 3\x00")):
		return h, ErrNoDatabase
	default:
		return h, err
	}
}

// writesAhead reports whether the database has a write-ahead log, else it is in rollback mode.
func (h *head) writesAhead() bool { return h[19] == 2 }

// changes returns how often a transaction has changed the file.
func (h *head) changes() uint32 { return binary.BigEndian.Uint32(h[24:]) }
