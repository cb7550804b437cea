package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vitrine/flex/config"
	"vitrine/flex/hold"
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

// TestStateFolderOfOthersIsRefused: another user who can write to the state folder could name a holder
// of its own there, whose instances would get the traffic.
func TestStateFolderOfOthersIsRefused(t *testing.T) {
	file := &config.Config{State: filepath.Join(t.TempDir(), "flex.yaml.flex")}
	lock, err := lockFlex(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lock.Close(), os.Chmod(file.State, 0o777)); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		if lock, err := lockFlex(file); err == nil {
			t.Errorf("an orchestrator uses %s", what)
			_ = lock.Close() // nothing is buffered
		}
		if _, err := hold.Find(t.Context(), file.State); err == nil || errors.Is(err, hold.ErrNone) {
			t.Errorf("a holder in %s: got error %v", what, err)
		}
	}
	refused("a folder that all may write to")
	if err := os.Chmod(file.State, 0o700); err != nil {
		t.Fatal(err)
	}
	folder := file.State
	file.State += ".link"
	if err := os.Symlink(folder, file.State); err != nil {
		t.Fatal(err)
	}
	refused("a symbolic link")
	if file.State = folder; os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(file.State, 65534, -1); err != nil {
		t.Fatal(err)
	}
	refused("the folder of another user")
}

// TestHolderOfAnotherRootIsEnded checks that a holder is known to be alive, and is ended, although its
// run is not in this process's folder of runs. It was started with another XDG_RUNTIME_DIR.
func TestHolderOfAnotherRootIsEnded(t *testing.T) {
	root, err := os.MkdirTemp("", "vt") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // in the temporary folder
	run, err := runstate.New(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() }) // the holder closes the run unless the test has failed
	l, err := hold.Listen(t.Context(), run.Dir())
	if err != nil {
		t.Fatal(err)
	}
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/holder", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(hold.About{Version: hold.Version, Run: run.ID}) // without an answer, Find fails
	})
	m.HandleFunc("POST /v1/end", func(http.ResponseWriter, *http.Request) { _ = run.Close() }) // the test looks at the run
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }() // ends with server.Close
	t.Cleanup(func() { _ = server.Close() })
	file := &config.Config{State: filepath.Join(t.TempDir(), "flex.yaml.flex")}
	err = os.Mkdir(file.State, 0o700)
	if err == nil {
		err = hold.Record{Run: run.ID, Root: root, Socket: l.Addr().String(), PID: os.Getpid()}.Save(file.State)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := hold.Find(t.Context(), file.State)
	if err != nil {
		t.Fatal(err)
	}
	r := &holderRunner{file: file, client: c}
	refused := errors.New("the order is refused")
	if err := r.with(t.Context(), func(*hold.Client) error { return refused }); !errors.Is(err, refused) || r.client != c {
		t.Errorf("after an error of a live holder: %v, client %p, want %v and %p", err, r.client, refused, c)
	}
	if err := r.end(t.Context()); err != nil || c.Alive() {
		t.Errorf("after the end: error %v, the holder is alive: %t", err, c.Alive())
	}
}
