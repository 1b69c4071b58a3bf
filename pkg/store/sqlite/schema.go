package sqlite

import (
	"errors"
	"fmt"
)

// appID marks a file as a ledger of ours ("DRGM"), in its header.
const appID = 0x4452474d

// migrations bring a file from version i to i+1. They only ever go forward, and
// one that was released is never changed: append another.
//
// Keys that are made of two numbers keep what belongs together side by side: a
// history row is (session << 32 | n), a step is (turn << 20 | n). The history
// row -id is row id after it was undone.
var migrations = []string{`
CREATE TABLE inbox (
	seq      INTEGER PRIMARY KEY,
	channel  TEXT NOT NULL,
	id       TEXT,             -- NULL: it has none and is never a duplicate
	chat     TEXT NOT NULL,
	session  TEXT NOT NULL,
	admitted INTEGER NOT NULL, -- times are microseconds since 1970
	turn     INTEGER,          -- the turn that took it
	done     INTEGER,          -- when it was done; NULL: open
	body     BLOB              -- JSON of the message; NULL: erased, only the id is remembered
) STRICT;
CREATE UNIQUE INDEX inbox_id ON inbox (channel, id);
CREATE INDEX inbox_open ON inbox (channel, chat) WHERE done IS NULL;

CREATE TABLE turns (
	n       INTEGER PRIMARY KEY,
	id      TEXT NOT NULL,
	channel TEXT NOT NULL,
	chat    TEXT NOT NULL,
	session TEXT NOT NULL,
	started INTEGER NOT NULL,
	inbound BLOB,              -- the rows it answers, see encodeSeqs
	strikes INTEGER,           -- this and the next two are its mark; NULL: it has none
	found   INTEGER,
	alone   INTEGER,
	ended   INTEGER            -- NULL: open
) STRICT;
CREATE INDEX turns_open ON turns (n) WHERE ended IS NULL;
CREATE TABLE steps (
	id   INTEGER PRIMARY KEY,  -- turn << 20 | n
	body BLOB NOT NULL         -- one or more steps, see encodeSteps
) STRICT;

CREATE TABLE sessions (
	id      INTEGER PRIMARY KEY,
	name    TEXT NOT NULL UNIQUE,
	start   INTEGER NOT NULL,  -- the history id that what is shown begins with
	skip    INTEGER NOT NULL,  -- how many entries of that row are not shown
	summary TEXT               -- what stands for all that came before; NULL: nothing
) STRICT;
CREATE TABLE history (
	id   INTEGER PRIMARY KEY,  -- session << 32 | n
	at   INTEGER NOT NULL,     -- when it was written
	body BLOB NOT NULL         -- entries that Undo takes back together, see encodeEntries
) STRICT;

CREATE TABLE outbox (
	seq        INTEGER PRIMARY KEY,
	key        TEXT NOT NULL UNIQUE,
	turn       TEXT NOT NULL,
	session    TEXT NOT NULL,  -- empty: that of its turn
	channel    TEXT NOT NULL,
	chat       TEXT NOT NULL,
	reply_to   TEXT NOT NULL,
	text       TEXT NOT NULL,
	created    INTEGER NOT NULL,
	ended      INTEGER,        -- when its receipt came; NULL: unsent
	message_id TEXT,
	received   INTEGER,
	failed     TEXT
) STRICT;
CREATE INDEX outbox_open ON outbox (seq) WHERE ended IS NULL;

CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE schedules (
	id      TEXT PRIMARY KEY,
	channel TEXT NOT NULL,
	chat    TEXT NOT NULL,
	due     INTEGER NOT NULL,
	body    BLOB NOT NULL      -- JSON
) STRICT;
CREATE INDEX schedules_due ON schedules (due, id);
CREATE INDEX schedules_chat ON schedules (channel, chat, due, id);

CREATE TABLE tasks (
	n       INTEGER PRIMARY KEY,
	id      TEXT NOT NULL UNIQUE,
	stage   INTEGER NOT NULL,  -- 0 pending, 1 done, 2 delivered
	started INTEGER NOT NULL,
	changed INTEGER NOT NULL,
	body    BLOB               -- JSON; NULL once delivered
) STRICT;
CREATE INDEX tasks_open ON tasks (started, id) WHERE stage < 2;

CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
`}

// migrate brings the file to the newest version, or says why it cannot.
func migrate(c *conn) error {
	version, err := c.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	app, err := c.number("PRAGMA application_id")
	if err != nil {
		return err
	}
	tables, err := c.number("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	switch {
	case app != appID && tables > 0:
		return reason{errors.New("the file is a database, but no ledger of dragoman: move it away"), ErrUnusable}
	case version > int64(len(migrations)):
		return reason{fmt.Errorf("a newer version of dragoman wrote the ledger (format %d, this one knows %d): upgrade, or restore an older backup",
			version, len(migrations)), ErrUnusable}
	}
	for ; version < int64(len(migrations)); version++ {
		script := fmt.Sprintf("%s; PRAGMA application_id = %d; PRAGMA user_version = %d", migrations[version], appID, version+1)
		if err := c.atomically(beginWrite, func() error { return c.script(script) }); err != nil {
			return fmt.Errorf("format %d: %w", version+1, err)
		}
	}
	return nil
}

const (
	beginWrite = "BEGIN IMMEDIATE"
	beginRead  = "BEGIN"
)

// script runs several statements.
func (c *conn) script(sql string) error {
	s, err := c.c.Prepare(sql)
	if err != nil {
		return explain(err)
	}
	_, err = s.Exec(nil) //nolint:staticcheck // a script has no arguments and no context to end it
	return explain(errors.Join(err, s.Close()))
}
