package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"vitrine/flex/config"
	"vitrine/internal/runstate"
)

// TestSecondHolderIsRefused checks that a holder is refused while another one starts. That one has
// the lock and is not yet on record.
func TestSecondHolderIsRefused(t *testing.T) {
	c := &config.Config{State: t.TempDir()}
	first, err := runstate.LockFile(filepath.Join(c.State, holderLock), runstate.Owner{PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close() // nothing is buffered
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // ends a holder that is not refused
	err = (&app{stdout: io.Discard, stderr: io.Discard}).hold(ctx, c)
	if busy := (*runstate.BusyError)(nil); !errors.As(err, &busy) || busy.Owner.PID != 7 {
		t.Errorf("got error %v, want one that names the first holder", err)
	}
}
