package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	engine "modernc.org/sqlite"
)

// Backup writes the ledger, as it is at this moment, into a new file that only
// its owner can read. It reads beside the daemon, which goes on meanwhile; the
// daemon's log grows until the copy is made. The file appears under its name
// only when it is whole and on disk. An existing file is not replaced.
func (r *Reader) Backup(file string) error {
	if err := r.backup(file); err != nil {
		return fmt.Errorf("store: back up to %s: %w", file, err)
	}
	return nil
}

func (r *Reader) backup(file string) (err error) {
	if _, err := os.Lstat(file); err == nil {
		return fs.ErrExist
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// SQLite fills an empty file and leaves its mode as it is.
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*")
	if err != nil {
		return err
	}
	part := f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	defer func() { err = errors.Join(err, ignoreClosed(f.Close())) }()
	if _, err := r.c.exec("VACUUM INTO ?", part); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(part, file); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Restore puts a backup in the place of the ledger in dir, and returns where the
// ledger that was there is now ("" if there was none) and what the restored one
// holds unfinished. The backup is read through and checked first, and copied,
// so that it stays what it is. Restore is refused while a process uses dir; at
// any moment either the old ledger or the new one is in place. For root, the new
// one belongs to whom dir belongs.
func Restore(dir, file string) (aside string, u Unfinished, err error) {
	if aside, u, err = restore(dir, file); err != nil {
		return "", u, fmt.Errorf("store: restore %s: %w", file, err)
	}
	return aside, u, nil
}

func restore(dir, file string) (aside string, u Unfinished, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", u, forbidden(dir, fmt.Errorf("the data directory cannot be made: %w", err))
	}
	lockFile := filepath.Join(dir, lockName)
	l, err := acquire(lockFile)
	if err != nil {
		return "", u, forbidden(dir, err)
	}
	defer func() { err = errors.Join(err, l.release()) }()

	target := filepath.Join(dir, fileName)
	part := target + ".restore"
	defer func() {
		if err != nil {
			_ = os.Remove(part) // if it is there at all
		}
	}()
	if err := copyFile(part, file); err != nil {
		return "", u, err
	}
	if u, err = check(part); err != nil {
		return "", u, fmt.Errorf("the backup cannot be used: %w", err)
	}
	if err := giveToOwner(dir, lockFile, part); err != nil {
		return "", u, err
	}
	if aside, err = putAside(target); err != nil {
		return "", u, err
	}
	if err := os.Rename(part, target); err != nil {
		return aside, u, err
	}
	return aside, u, syncDir(dir)
}

// copyFile makes a copy that only its owner can read, on disk.
func copyFile(to, from string) (err error) {
	if _, err := os.Stat(from + "-wal"); err == nil {
		return errors.New("it is a ledger in use, with a log beside it: make a backup of it instead")
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	if info, err := in.Stat(); err == nil && info.IsDir() {
		return errors.Join(errors.New("it is a directory: name the file that \"dragoman backup\" has made"), in.Close())
	}
	defer func() { _ = in.Close() }() // it was only read
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return forbidden(filepath.Dir(to), err)
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// check reads a whole ledger and says what is wrong with it. Nobody else has it.
func check(file string) (Unfinished, error) {
	u, err := readThrough(file)
	if e, ok := errors.AsType[*engine.Error](err); ok && errors.Is(err, ErrUnusable) {
		err = reason{fmt.Errorf("it is damaged, try an older one: %w", e), ErrUnusable}
	}
	return u, err
}

func readThrough(file string) (u Unfinished, err error) {
	r, err := openReader(file, "rw", 0, "journal_mode(DELETE)")
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for row, err := range r.c.rows("PRAGMA integrity_check(1)") {
		if err != nil {
			return u, err
		}
		if said := text(row[0]); said != "ok" {
			return u, reason{fmt.Errorf("it is damaged, try an older one: %s", said), ErrUnusable}
		}
	}
	return r.Unfinished()
}

// putAside gives the ledger a second name beside its own, which is free to be
// overwritten then, and takes its log away, which belongs to it alone.
func putAside(file string) (aside string, err error) {
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return "", removeLogs(file)
	}
	// A ledger that was not closed has changes in its log; whoever opens and
	// closes it moves them to the file. If it is too damaged for that, the log
	// is kept with it.
	if c, err := dial(file, "rw", time.Second, "journal_mode(WAL)"); err == nil {
		_, _ = c.exec("PRAGMA wal_checkpoint(TRUNCATE)")
		_ = c.close()
	}
	aside = file + ".before-" + time.Now().UTC().Format("20060102T150405.000")
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(file + suffix); suffix != "" && (err != nil || info.Size() == 0) {
			continue // all is in the file
		}
		if os.Link(file+suffix, aside+suffix) == nil {
			continue
		}
		if err := os.Rename(file+suffix, aside+suffix); err != nil { // a file system without second names
			return "", err
		}
	}
	return aside, removeLogs(file)
}

func removeLogs(file string) error {
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(file + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
