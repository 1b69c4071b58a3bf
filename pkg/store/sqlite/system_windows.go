package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// sharingViolation is what Windows says of a file that somebody else has open
// and does not share.
const sharingViolation syscall.Errno = 32

// openLocked opens path and takes it for this process, or reports that another
// has it: others may read it, but not open it to write as we do, until the
// process ends.
func openLocked(path string) (f *os.File, taken bool, err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, false, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, syscall.FILE_SHARE_READ,
		nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	switch {
	case errors.Is(err, sharingViolation):
		return nil, false, nil
	case err != nil:
		return nil, false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), true, nil
}

// syncDir does nothing: Windows keeps directories in a journal of its own.
func syncDir(string) error { return nil }

// giveToOwner does nothing: who makes a file here lets others at it by the
// rights of the directory.
func giveToOwner(string, ...string) error { return nil }
