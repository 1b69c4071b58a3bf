package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// What errors.Is finds in an error of Open, of OpenReader and of Restore, where
// trying again does not help.
var (
	ErrInUse    = errors.New("another process uses the data directory")
	ErrReadOnly = errors.New("this user may not write into the data directory")
	ErrUnusable = errors.New("the file is damaged, from a newer version, or no ledger")
)

// reason gives an error one of them, without another word.
type reason struct {
	error
	is error
}

func (r reason) Is(target error) bool { return target == r.is }

func (r reason) Unwrap() error { return r.error }

// forbidden gives err its reason if the system does not let this user write
// into dir. What SQLite says of a file it cannot open does not tell that from a
// full disk, so the system is asked.
func forbidden(dir string, err error) error {
	if _, known := errors.AsType[reason](err); known {
		return err
	}
	no := isForbidden(err)
	if !no {
		f, probe := os.CreateTemp(dir, ".probe-*")
		if no = isForbidden(probe); probe == nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}
	if !no {
		return err
	}
	return reason{fmt.Errorf("%w: give the directory to the user that dragoman runs as, or set another data_dir", err), ErrReadOnly}
}

func isForbidden(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}
