package runstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A BusyError is the error for a file that another process holds.
type BusyError struct {
	Path  string
	Owner Owner // zero: unknown
}

func (e *BusyError) Error() string {
	if e.Owner.PID == 0 {
		return e.Path + " is held by another process"
	}
	return fmt.Sprintf("%s is held by pid %d: %q", e.Path, e.Owner.PID, e.Owner.Command)
}

// LockFile locks a file for the owner, and creates the file if needed. The kernel drops the lock
// when the process ends, however it ends. The file stays. If another process has the lock, the
// error is a *BusyError. To unlock the file, close it. On a full disk, the file names no owner.
func LockFile(path string, owner Owner) (_ *os.File, err error) {
	text, err := json.Marshal(owner)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(&BusyError{Path: path, Owner: readOwner(f)}, f.Close())
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	writeOwner(f, text)
	return f, nil
}

// IsLockedBy reports whether a file is locked by a process that the file names as its owner. It tries the lock only
// if that process exists, because a try may keep another process from taking the lock at that moment.
func IsLockedBy(path string, pid int) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // nothing was written
	if readOwner(f).PID != pid || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return false
	}
	return errors.Is(flock(f, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
