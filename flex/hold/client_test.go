package hold_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/flex/hold"
	"vitrine/internal/runstate"
)

// TestAHolderWithoutItsFolderIsFound removes the folder of a holder's run, as the system does at the end of the user's
// last session. Find must say how to end the instances. It must not take the holder that starts next for that one.
func TestAHolderWithoutItsFolderIsFound(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	run, err := runstate.New(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close() // its folder is gone
	err = hold.Record{Run: run.ID, Root: run.Root, PID: os.Getpid()}.Save(state)
	if err := errors.Join(err, os.RemoveAll(run.Dir())); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]string{os.Getpid(): fmt.Sprint("kill ", os.Getpid()), os.Getpid() + 1: hold.ErrNone.Error()} {
		lock, err := runstate.LockFile(filepath.Join(state, hold.LockFile), runstate.Owner{PID: pid})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hold.Find(t.Context(), state); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("while pid %d has the lock: got error %v, want one with %q", pid, err, want)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := hold.Find(t.Context(), state); !errors.Is(err, hold.ErrNone) {
		t.Errorf("while nobody has the lock: got error %v, want ErrNone", err)
	}
}
