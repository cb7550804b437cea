package runstate_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/internal/runstate"
)

func TestFileIsLockedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := runstate.Owner{PID: 7, Command: []string{"vitrine", "flex"}}
	f, err := runstate.LockFile(path, first)
	if err != nil {
		t.Fatal(err)
	}
	_, err = runstate.LockFile(path, runstate.Owner{PID: 8})
	if busy, ok := errors.AsType[*runstate.BusyError](err); !ok || busy.Owner.PID != 7 || !strings.Contains(err.Error(), `"vitrine" "flex"`) {
		t.Errorf("error %v does not name the first owner", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := runstate.LockFile(path, runstate.Owner{PID: 9})
	if err != nil {
		t.Fatalf("the lock remains after the file was closed: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestFullDiskRefusesNoLock locks a file that cannot be written, as on a full disk. The lock must hold, although
// nobody can say whose it is.
func TestFullDiskRefusesNoLock(t *testing.T) {
	const full = "/dev/full"
	f, err := runstate.LockFile(full, runstate.Owner{PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // nothing was written
	_, err = runstate.LockFile(full, runstate.Owner{PID: 8})
	if _, ok := errors.AsType[*runstate.BusyError](err); !ok || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got error %v, want one that says that another process holds the file", err)
	}
}
