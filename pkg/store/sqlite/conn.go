package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	engine "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// conn is one connection with its prepared statements. One goroutine at a time
// uses it. It speaks to the driver without database/sql, whose pool, locks and
// conversions would cost as much as the small statements of this package.
type conn struct {
	c     driver.Conn
	ctx   context.Context      // never ends: a statement takes microseconds, to watch a context a goroutine
	stmts map[string]statement // by their text
	args  []driver.NamedValue  // scratch
}

type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// dial opens a connection to an existing file, by its absolute path. mode is
// "rw" or "ro", busy how long its statements wait for another program.
func dial(file, mode string, busy time.Duration, pragmas ...string) (*conn, error) {
	pragmas = append(pragmas, fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()))
	query := url.Values{"mode": {mode}, "_pragma": pragmas}
	name := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(file))
	if !strings.HasPrefix(name, "/") {
		name = "/" + name // C:/...
	}
	c, err := (&engine.Driver{}).Open("file:" + name + "?" + query.Encode())
	if err != nil {
		return nil, explain(err)
	}
	return &conn{c: c, ctx: context.Background(), stmts: make(map[string]statement)}, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return explain(errors.Join(append(errs, c.c.Close())...))
}

func (c *conn) prepare(query string) (statement, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	p, err := c.c.Prepare(query)
	if err != nil {
		return nil, explain(err)
	}
	s, ok := p.(statement)
	if !ok {
		return nil, fmt.Errorf("the driver's %T cannot take a context", p)
	}
	c.stmts[query] = s
	return s, nil
}

func (c *conn) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

// exec runs one statement and returns how many rows it changed. Arguments are
// int64, string, []byte or nil.
func (c *conn) exec(query string, args ...any) (changed int64, err error) {
	s, err := c.prepare(query)
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(c.ctx, c.bind(args))
	if err != nil {
		return 0, explain(err)
	}
	changed, err = res.RowsAffected()
	return changed, explain(err)
}

// rows runs a query. The yielded slice is reused for the next row. After an
// error nothing more is yielded.
func (c *conn) rows(query string, args ...any) iter.Seq2[[]driver.Value, error] {
	return func(yield func([]driver.Value, error) bool) {
		s, err := c.prepare(query)
		if err != nil {
			yield(nil, err)
			return
		}
		rows, err := s.QueryContext(c.ctx, c.bind(args))
		if err != nil {
			yield(nil, explain(err))
			return
		}
		defer func() { _ = rows.Close() }() // it has nothing to say that a row has not said
		row := make([]driver.Value, len(rows.Columns()))
		for {
			switch err := rows.Next(row); {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(nil, explain(err))
				return
			case !yield(row, nil):
				return
			}
		}
	}
}

// number returns the first column of the first row, 0 if there is none.
func (c *conn) number(query string, args ...any) (n int64, err error) {
	for row, err := range c.rows(query, args...) {
		if err != nil {
			return 0, err
		}
		return num(row[0]), nil
	}
	return 0, nil
}

// atomically runs f in a transaction and commits it.
func (c *conn) atomically(begin string, f func() error) error {
	if _, err := c.exec(begin); err != nil {
		return err
	}
	err := f()
	if err == nil {
		if _, err = c.exec("COMMIT"); err == nil {
			return nil
		}
	}
	// After some errors SQLite has rolled back by itself, and says so here.
	_, _ = c.exec("ROLLBACK")
	return err
}

// The columns are of STRICT tables: each holds its type or NULL.

func num(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

func blob(v driver.Value) []byte {
	b, _ := v.([]byte)
	return b
}

// explain says in front of SQLite's words what an operator can do about it.
func explain(err error) error {
	var e *engine.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case codes.SQLITE_FULL:
		return fmt.Errorf("the disk is full: %w", err)
	case codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN, codes.SQLITE_PERM:
		return fmt.Errorf("the data directory cannot be written: %w", err)
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return fmt.Errorf("another program holds the ledger locked: %w", err)
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return reason{fmt.Errorf("the ledger is damaged, restore it from a backup or move it away: %w", err), ErrUnusable}
	case codes.SQLITE_IOERR:
		return fmt.Errorf("the disk reports an error: %w", err)
	}
	return err
}

// ours reports whether err is the fault of a change itself, so that the same
// change would fail again, and not of the disk or the file.
func ours(err error) bool {
	var e *engine.Error
	if !errors.As(err, &e) {
		return true
	}
	switch e.Code() & 0xff {
	case codes.SQLITE_TOOBIG, codes.SQLITE_CONSTRAINT, codes.SQLITE_MISMATCH, codes.SQLITE_RANGE, codes.SQLITE_ERROR:
		return true
	}
	return false
}
