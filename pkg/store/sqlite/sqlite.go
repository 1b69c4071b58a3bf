// Package sqlite is the ledger in one SQLite file: the store a daemon runs on.
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
}

// Retention says how long what is over is kept. 0 is the default, less than 0
// is for ever. History and facts are always kept.
type Retention struct {
	Journal  time.Duration // messages that are done and turns that ended, with their steps; 7 days
	Dedupe   time.Duration // ids of messages and of delivered tasks; 30 days
	Outcomes time.Duration // outbox rows that have their receipt; 7 days
}

// Store is a ledger in a file. All methods are safe for concurrent use.
type Store struct {
	file    string
	lock    *lock
	writer  *writer
	readers chan *conn // one place each; nil is a connection not yet opened
	closing chan struct{}
	once    sync.Once
	closed  error // of the one Close that did it
}

var _ store.Store = (*Store)(nil)

// Open opens the ledger in dir and makes both if they are not there. It starts
// a goroutine, which Close ends. An error says in a sentence what is wrong:
// another daemon uses dir (and its process id), dir cannot be written, the file
// is damaged or from a newer version.
func Open(dir string, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	synchronous := map[Durability]string{"": "FULL", Full: "FULL", Fast: "NORMAL"}[o.Durability]
	if synchronous == "" {
		return nil, fmt.Errorf("store: open: durability %q is unknown: write full or fast", o.Durability)
	}
	s, err := open(dir, synchronous, o)
	if err != nil {
		return nil, fmt.Errorf("store: open %s: %w", dir, err)
	}
	return s, nil
}

func open(dir, synchronous string, o Options) (*Store, error) {
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
	ledger, err := openLedger(file, synchronous)
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	places := min(max(2, runtime.GOMAXPROCS(0)), 8)
	s := &Store{file: file, lock: l, readers: make(chan *conn, places), closing: make(chan struct{})}
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

// busy is how long a connection waits for another program, in milliseconds.
const busy = "busy_timeout(5000)"

func openLedger(file, synchronous string) (*ledger, error) {
	if err := private(file); err != nil {
		return nil, fmt.Errorf("the ledger cannot be written: %w", err)
	}
	// The data of a file and what is needed to read it is what a commit has to
	// wait for; its time stamps are not. Where there is no such call, nothing
	// changes.
	_, _ = engine.Fdatasync(true)
	c, err := dial(file, "rw", busy, "journal_mode(WAL)", "synchronous("+synchronous+")",
		"cache_size(-4096)", "journal_size_limit(16777216)", "temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	l := &ledger{c: c}
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
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
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
	c, err := encode(&tx)
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

// result says what the job's change made of tx.
func (j *job) result(tx *store.Tx) (res store.Result) {
	for i, seq := range j.admitted {
		if seq == 0 {
			res.Duplicates++
			continue
		}
		res.Admitted = append(res.Admitted, store.Inbound{Seq: seq, Admitted: j.at, Message: tx.Admit[i]})
	}
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
	j := &job{}
	if j.change, j.err = encode(&tx); j.err != nil {
		j.change, j.err = &change{}, fmt.Errorf("store: post: %w", j.err)
	}
	if s.isClosed() {
		return
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
