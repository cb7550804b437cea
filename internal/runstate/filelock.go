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
// error is a *BusyError. To unlock the file, close it.
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
	if err := errors.Join(f.Truncate(0), writeAt(f, text)); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: write its owner: %w", path, err), f.Close())
	}
	return f, nil
}
