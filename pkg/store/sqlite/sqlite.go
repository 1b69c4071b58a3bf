// Package sqlite is the ledger in one SQLite file: the store a daemon runs on.
//
// # Who does what
//
// One goroutine, the writer, owns the only connection that writes. It takes
// whatever waits, of Apply and of Post, writes it in one transaction, and only
// when that is committed answers those who wait: so a commit, and with it a
// wait for the disk, is shared by all who came while the last one ran. Encoding
// is done before, in the caller's goroutine. Readers have a few connections of
// their own, opened when they are first needed; they see the last commit and
// never wait for the writer. The writer also cleans up, some rows at a time (see
// sweeper). Close ends it.
//
// # What is kept
//
//	inbox     messages: open ones, done ones with their text for 7 days, the ids for 30
//	turns     the open ones and those of the last 7 days, with their steps
//	sessions  names of histories, and where each now begins (Reset moves that on)
//	history   what was said, for ever: a row holds what one turn added
//	outbox    what is to be sent, and for 7 days what was sent, with its receipt
//	facts, schedules, tasks, and marks (how far cleaning up has come)
//
// Retention changes how long. schema.go says it to the column. Rows that belong
// together lie side by side, and what is open is found through indexes of open
// rows only, so that neither a long history nor a large file makes a turn
// slower. The ends of the histories that were read last are kept in memory, 8 MB
// at most (see tails).
//
// # What is promised
//
// The journal is a write-ahead log (journal_mode=WAL): a transaction counts once
// its commit record, checksummed together with all its pages, is in the log. A
// log that breaks off is read up to its last whole transaction, so nothing is
// ever half there, and transactions are there in their order.
//
// With Full (synchronous=FULL) the log is synced in each commit, before Apply
// returns, and the directory with it when the log is new; the log is synced
// again before its pages go to the file, and the file before the log is used
// anew. So what Apply returned for survives a power cut, as far as the disk does
// what it says when it is told to sync.
//
// With Fast (synchronous=NORMAL) the log is synced only before it is copied to
// the file. What Apply returned for is with the operating system and survives
// kill -9; a power cut may take the last few seconds, in order and whole
// transactions at a time, and never damages the file.
//
// When the disk is full or fails, Apply returns the error and nothing of its Tx
// is there. What was posted is held in memory, in order, and written as soon as
// the disk is cured, which is tried twice a second; until then Health and every
// Apply say what is wrong.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	engine "modernc.org/sqlite"

	"github.com/dragoman-chat/dragoman/pkg/store"
)

// The files in the data directory.
const (
	fileName = "ledger.db"
	lockName = "dragoman.lock"
)

// Durability says what a change survives once Apply has returned.
type Durability string

// The two durabilities.
const (
	Full Durability = "full" // a power cut
	Fast Durability = "fast" // the end of the process, however sudden
)

// Options are the choices of a ledger. The zero value is the default.
type Options struct {
	Durability Durability // "" is Full
	Retention  Retention
	Log        *slog.Logger // nil logs nothing

	busy time.Duration // how long to wait for another program; 0 is 5 s
}

// Retention says how long what is over is kept. 0 is the default, less than 0
// is for ever. Facts and summaries are always kept.
type Retention struct {
	Journal time.Duration // messages that are done, turns that ended, with their steps, and outbox rows that have their receipt; 7 days
	Dedupe  time.Duration // ids of messages and of delivered tasks; 30 days
	History time.Duration // what was said, shown or not; for ever
}

// Store is a ledger in a file. All methods are safe for concurrent use.
type Store struct {
	file    string
	busy    time.Duration
	lock    *lock
	writer  *writer
	readers chan *conn // one place each; nil is a connection not yet opened
	tails   *tails
	facts   *facts
	closing chan struct{}
	once    sync.Once
	closed  error // of the one Close that did it
}

var _ store.Store = (*Store)(nil)

// Open opens the ledger in dir and makes both if they are not there. It starts
// a goroutine, which Close ends. An error says in a sentence what is wrong:
// another daemon uses dir (and its process id; ErrInUse), dir cannot be written
// (ErrReadOnly, if that is forbidden), the file is damaged or from a newer version
// (ErrUnusable).
func Open(dir string, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Durability == "" {
		o.Durability = Full
	}
	if o.busy == 0 {
		o.busy = 5 * time.Second
	}
	s, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("store: open %s: %w", dir, forbidden(dir, err))
	}
	return s, nil
}

func open(dir string, o Options) (*Store, error) {
	dir, err := filepath.Abs(dir) // the process may go elsewhere before a reader is opened
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the data directory cannot be made: %w", err)
	}
	l, err := acquire(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, fileName)
	ledger, err := openLedger(file, o)
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	places := min(max(2, runtime.GOMAXPROCS(0)), 8)
	s := &Store{file: file, busy: o.busy, lock: l, readers: make(chan *conn, places), tails: ledger.tails, facts: ledger.facts, closing: make(chan struct{})}
	for range places {
		s.readers <- nil
	}
	s.writer = &writer{
		ledger: ledger, log: o.Log, queue: make(chan *job, queueSize),
		stop: s.closing, ended: make(chan struct{}), sweep: newSweeper(o.Retention),
	}
	go s.writer.run()
	return s, nil
}

// syncWord is what SQLite calls a durability.
var syncWord = map[Durability]string{Full: "FULL", Fast: "NORMAL"}

func openLedger(file string, o Options) (*ledger, error) {
	word, ok := syncWord[o.Durability]
	if !ok {
		return nil, fmt.Errorf("durability %q is unknown: write full or fast", o.Durability)
	}
	if err := private(file); err != nil {
		return nil, fmt.Errorf("the ledger cannot be written: %w", err)
	}
	// What is erased is overwritten (secure_delete), also where a row has moved
	// away from.
	//
	// The data of a file and what is needed to read it is what a commit has to
	// wait for; its time stamps are not. Where there is no such call, nothing
	// changes.
	_, _ = engine.Fdatasync(true)
	c, err := dial(file, "rw", o.busy, "journal_mode(WAL)", "synchronous("+word+")",
		"secure_delete(ON)", "cache_size(-4096)", "wal_autocheckpoint(2000)", "journal_size_limit(16777216)", "temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	l := &ledger{c: c, busy: o.busy, tails: &tails{}, facts: &facts{}}
	if err := migrate(c); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if err := l.load(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return l, nil
}

// private makes the file, or takes it away from everybody else. SQLite gives
// the files it makes beside it the same mode.
func private(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		// The directory may be new as well: a power cut must not take it.
		dir := filepath.Dir(file)
		return errors.Join(f.Close(), syncDir(dir), syncDir(filepath.Dir(dir)))
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Chmod(file+suffix, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Apply implements store.Writer.
func (s *Store) Apply(ctx context.Context, tx store.Tx) (store.Result, error) {
	if s.isClosed() {
		return store.Result{}, store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return store.Result{}, fmt.Errorf("store: apply: %w", err)
	}
	c, err := s.prepare(ctx, &tx)
	if err != nil {
		return store.Result{}, fmt.Errorf("store: apply: %w", err)
	}
	j := &job{change: c, done: make(chan struct{})}
	select {
	case s.writer.queue <- j:
	case <-ctx.Done():
		return store.Result{}, fmt.Errorf("store: apply: %w", ctx.Err())
	case <-s.closing:
		return store.Result{}, store.ErrClosed
	}
	select {
	case <-j.done:
	case <-s.writer.ended:
		select {
		case <-j.done:
		default: // it came too late for the writer to see it
			return store.Result{}, store.ErrClosed
		}
	}
	if j.err != nil {
		return store.Result{}, j.err
	}
	return j.result(&tx), nil
}

// prepare does all of a change that can be done outside the writer.
func (s *Store) prepare(ctx context.Context, tx *store.Tx) (*change, error) {
	c, err := encode(tx)
	if err != nil || len(c.forget) == 0 {
		return c, err
	}
	err = s.read(ctx, "find what to forget", func(r *conn) error {
		// All three tables as of one moment: a turn that began between two of
		// them would be missed with its rows.
		return r.atomically(beginRead, func() error { return c.belongings.find(r, c.forget) })
	})
	return c, err
}

// result says what the job's change made of tx.
func (j *job) result(tx *store.Tx) (res store.Result) {
	for i, seq := range j.admitted {
		if seq == 0 {
			res.Duplicates++
			continue
		}
		res.Admitted = append(res.Admitted, store.Inbound{Seq: seq, Admitted: j.at, Message: tx.Admit[i]})
	}
	res.Amended = j.amended
	for i, seq := range j.queued {
		if seq == 0 {
			continue
		}
		row := tx.Send[i]
		row.Seq = seq
		res.Queued = append(res.Queued, row)
	}
	return res
}

// Post implements store.Writer. While the disk takes nothing, what is posted is
// held and written when it is cured; Post blocks when that becomes too much.
func (s *Store) Post(tx store.Tx) {
	if s.isClosed() {
		return
	}
	j := &job{}
	if j.change, j.err = s.prepare(context.Background(), &tx); j.err != nil {
		j.change, j.err = &change{}, fmt.Errorf("store: post: %w", j.err)
	}
	select {
	case s.writer.queue <- j:
	case <-s.closing:
	}
}

func (s *Store) isClosed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// Health implements store.Writer. While it is not nil the store tries by itself
// whether the disk is cured.
func (s *Store) Health() error {
	if s.isClosed() {
		return store.ErrClosed
	}
	if err := s.writer.health.Load(); err != nil {
		return *err
	}
	return nil
}

// Close implements store.Writer.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closing)
		<-s.writer.ended
		errs := []error{s.writer.lost}
		for range cap(s.readers) {
			if c := <-s.readers; c != nil {
				errs = append(errs, c.close())
			}
		}
		// The last connection to close clears up the log, and a reading one may not.
		errs = append(errs, s.writer.ledger.c.close(), s.lock.release())
		s.closed = errors.Join(errs...)
	})
	return s.closed
}
