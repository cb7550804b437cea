package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/fabric/impair"
	"vitrine/flex/config"
	"vitrine/flex/hold"
	"vitrine/flex/unit"
	"vitrine/internal/runstate"
)

// TestSecondHolderIsRefused checks that a holder is refused while another one starts. That one has
// the lock and is not yet on record.
func TestSecondHolderIsRefused(t *testing.T) {
	c := &config.Config{State: t.TempDir()}
	first, err := runstate.LockFile(filepath.Join(c.State, hold.LockFile), runstate.Owner{PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close() // nothing is buffered
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // ends a holder that is not refused
	err = (&app{stdout: io.Discard, stderr: io.Discard}).hold(ctx, c)
	if busy, ok := errors.AsType[*runstate.BusyError](err); !ok || busy.Owner.PID != 7 {
		t.Errorf("got error %v, want one that names the first holder", err)
	}
}

// TestHolderRunsByTheLoadedFile starts a holder while half of an edited file is on the disk. The holder must
// get as far as the lock, which another one has.
func TestHolderRunsByTheLoadedFile(t *testing.T) {
	c := flexFile(t, t.TempDir(), "")
	err := os.MkdirAll(c.State, 0o700)
	if err == nil {
		err = os.WriteFile(c.Path, []byte("directors: ["), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	first, err := runstate.LockFile(filepath.Join(c.State, hold.LockFile), runstate.Owner{PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close() // nothing is buffered
	out, err := holderCommand(t.Context(), "vitrine", c).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitFailed || !strings.Contains(string(out), "is held by pid 7") {
		t.Errorf("got error %v and the output %q, want exit code %d and pid 7 of the first holder", err, out, exitFailed)
	}
}

// sendHangUp sends SIGHUP to this process, and returns when the process has taken it.
func sendHangUp() error {
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGWINCH)
	defer signal.Stop(taken)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGWINCH} {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			return err
		}
	}
	<-taken // the kernel delivers SIGHUP first
	return nil
}

// hangUp is an empty input. Reading it sends SIGHUP to this process.
type hangUp struct{}

func (hangUp) Read([]byte) (int, error) {
	if err := sendHangUp(); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

// TestHangUpDoesNotEndAHolder checks that SIGHUP to all processes of the orchestrator's unit does not end the
// instances: it ends neither the holder nor the link emulator. The signal would end this test.
func TestHangUpDoesNotEndAHolder(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard}
	for _, p := range []struct {
		verb    string
		command *cobra.Command
		given   []string
	}{
		{"flex " + holdVerb, a.flexHold(), []string{"flex.yaml"}},
		{impair.Verb, a.impairCommand(), []string{}},
	} {
		if slices.Contains(endingSignals(strings.Fields("-v "+p.verb+" flex.yaml")), os.Signal(syscall.SIGHUP)) {
			t.Errorf("SIGHUP ends %s in order", p.verb)
		}
		signal.Reset(syscall.SIGHUP) // an earlier command leaves it handled
		p.command.SilenceUsage, p.command.SilenceErrors = true, true
		p.command.SetArgs(p.given)
		p.command.SetIn(hangUp{})
		if err := p.command.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%s accepted an empty input", p.verb)
		}
	}
}

// TestTheLogOfTheLastHolderIsKept checks that the last words of a holder that crashed outlive the starts after it, although
// they fail.
func TestTheLogOfTheLastHolderIsKept(t *testing.T) {
	path := holderLog(&config.Config{State: t.TempDir()})
	if err := os.WriteFile(path, []byte("panic: last words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		log, err := openHolderLog(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = log.WriteString("no engine\n")
		if err := errors.Join(err, log.Close()); err != nil {
			t.Fatal(err)
		}
		if err := holderEnded(path, errors.New("exit status 1")); !strings.Contains(err.Error(), "no engine") {
			t.Errorf("the error of the start has no reason: %v", err)
		}
	}
	kept, err := os.ReadFile(path + ".1")
	if err != nil || string(kept) != "panic: last words\n" {
		t.Errorf("got the old log %q and error %v", kept, err)
	}
}

// TestHoldersThatEndAreStartedLessOften asks each second to start a holder, and each holder ends at once. During a pause, the
// error must say why the last start failed. After a holder that lived long, the next one must start at once.
func TestHoldersThatEndAreStartedLessOften(t *testing.T) {
	r := &holderRunner{file: &config.Config{}, failure: errors.New("no engine")}
	now, starts := time.Now(), []int{}
	for second := range 200 {
		err := r.mayStart(now.Add(time.Duration(second) * time.Second))
		if err == nil {
			starts = append(starts, second)
		} else if !strings.Contains(err.Error(), "no engine") {
			t.Errorf("the error of second %d does not have the reason: %v", second, err)
		}
	}
	if want := []int{0, 1, 3, 7, 15, 31, 63, 123, 183}; !slices.Equal(starts, want) {
		t.Errorf("holders were started at seconds %d, want %d", starts, want)
	}
	for _, later := range []time.Duration{time.Hour, time.Hour + time.Second} {
		if err := r.mayStart(now.Add(later)); err != nil {
			t.Errorf("after a holder that lived long: %v", err)
		}
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

// serveHolder serves a holder in a state folder, which it makes. The holder's run is not in this
// process's folder of runs, as after a start with another XDG_RUNTIME_DIR. end is called when the holder
// is asked to end.
func serveHolder(t *testing.T, state string, about hold.About, end func(*runstate.Run), units ...unit.Unit) *hold.Client {
	t.Helper()
	root, err := os.MkdirTemp("", "vt") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // in the temporary folder
	run, err := runstate.New(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() }) // end has ended the run unless the test has failed
	l, err := hold.Listen(t.Context(), run.Dir())
	if err != nil {
		t.Fatal(err)
	}
	about.Run = run.ID
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/holder", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(about) // without an answer, Find fails
	})
	m.HandleFunc("GET /v1/units", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(units) // without an answer, the test fails
	})
	m.HandleFunc("POST /v1/end", func(http.ResponseWriter, *http.Request) { end(run) })
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }() // ends with server.Close
	t.Cleanup(func() { _ = server.Close() })
	err = os.Mkdir(state, 0o700)
	if err == nil {
		err = hold.Record{Run: run.ID, Root: root, Socket: l.Addr().String(), PID: os.Getpid()}.Save(state)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := hold.Find(t.Context(), state)
	if vitrine.IsBadInput(err) != (about.Version != hold.Version) || c == nil {
		t.Fatal(err)
	}
	return c
}

// TestHolderOfAnotherRootIsEnded checks that a holder is known to be alive, and is ended, although its
// run is not in this process's folder of runs.
func TestHolderOfAnotherRootIsEnded(t *testing.T) {
	file := &config.Config{State: filepath.Join(t.TempDir(), "flex.yaml.flex")}
	c := serveHolder(t, file.State, hold.About{Version: hold.Version}, func(run *runstate.Run) { _ = run.Close() }) // the test looks at the run
	r := &holderRunner{file: file, client: c}
	refused := errors.New("the order is refused")
	if err := r.with(t.Context(), func(*hold.Client) error { return refused }); !errors.Is(err, refused) || r.client != c {
		t.Errorf("after an error of a live holder: %v, client %p, want %v and %p", err, r.client, refused, c)
	}
	if err := r.end(t.Context()); err != nil || c.Alive() {
		t.Errorf("after the end: error %v, the holder is alive: %t", err, c.Alive())
	}
}

// TestEndNamesAHolderWithoutItsFolder checks that flex run does not end with success while the instances of a holder
// whose run has lost its folder go on running.
func TestEndNamesAHolderWithoutItsFolder(t *testing.T) {
	file := &config.Config{State: filepath.Join(t.TempDir(), "flex.yaml.flex")}
	c := serveHolder(t, file.State, hold.About{Version: hold.Version}, func(run *runstate.Run) { _ = os.RemoveAll(run.Dir()) }) // and goes on
	lock, err := runstate.LockFile(filepath.Join(file.State, hold.LockFile), runstate.Owner{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // nothing is buffered
	r := &holderRunner{file: file, client: c}
	if err := c.End(t.Context()); err != nil || c.Alive() {
		t.Fatalf("the run still has its folder, error %v", err)
	}
	if err := r.end(t.Context()); err == nil || !strings.Contains(err.Error(), "kill") {
		t.Errorf("got error %v, want one that says how to end the holder", err)
	}
}

// TestStopLeavesTheDirectors checks that vitrine flex stop removes the instances from the directors and ends
// the holder, also one of another version. An instance with another address is another orchestrator's, and so is
// one that is up although the unit of its name has failed or has just been ordered.
func TestStopLeavesTheDirectors(t *testing.T) {
	for _, version := range []int{hold.Version, hold.Version + 1} {
		var removed []string
		m := http.NewServeMux()
		m.HandleFunc("GET /v1/instances", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `[{"name": "a-1", "type": "a", "address": "127.0.0.2:80", "state": "active"},
				{"name": "a-2", "type": "a", "address": "127.0.0.3:80", "state": "active"},
				{"name": "a-3", "type": "a", "address": "127.0.0.4:80", "state": "draining", "health": "away"},
				{"name": "a-4", "type": "a", "address": "127.0.0.5:80", "state": "active", "health": "up"},
				{"name": "a-5", "type": "a", "address": "127.0.0.6:80", "state": "active", "health": "up"}]`)
		})
		m.HandleFunc("DELETE /v1/instances/{name}", func(w http.ResponseWriter, r *http.Request) {
			removed = append(removed, r.PathValue("name"))
			_, _ = io.WriteString(w, "{}")
		})
		director := httptest.NewServer(m)
		file := flexFile(t, t.TempDir(), "")
		text := strings.Replace(string(file.Raw), "127.0.0.1:1", director.Listener.Addr().String(), 1)
		if err := os.WriteFile(file.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := serveHolder(t, file.State, hold.About{Version: version}, func(run *runstate.Run) { _ = run.Close() }, // the test looks at the run
			unit.Unit{Name: "a-1", Type: "a", Address: "127.0.0.2:80"}, unit.Unit{Name: "a-2", Type: "a", Address: "127.0.0.9:80"},
			unit.Unit{Name: "a-3", Type: "a", State: unit.Failed}, unit.Unit{Name: "a-4", Type: "a", State: unit.Failed},
			unit.Unit{Name: "a-5", Type: "a", State: unit.Starting})
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"flex", "stop", file.Path}, &out, &errs)
		if code != 0 || c.Alive() || !slices.Equal(removed, []string{"a-1", "a-3"}) {
			t.Errorf("version %d: got exit code %d, error %q, removed %v, want a-1 and a-3", version, code, &errs, removed)
		}
		director.Close()
	}
}

// TestTheEndNamesWhatIsLeft checks that vitrine flex stop, and vitrine flex run after a signal, fail if the holder could
// not remove everything. They must say what the holder could not remove, and how to remove it.
func TestTheEndNamesWhatIsLeft(t *testing.T) {
	for _, verb := range []string{"stop", "run"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		director := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if verb == "run" {
				cancel(errInterrupted)
			}
			_, _ = io.WriteString(w, "[]")
		}))
		file := flexFile(t, t.TempDir(), "")
		text := strings.Replace(string(file.Raw), "127.0.0.1:1", director.Listener.Addr().String(), 1)
		about := hold.About{Version: hold.Version, Digest: serversDigest(file)}
		c := serveHolder(t, file.State, about, func(run *runstate.Run) { _ = run.Abandon() }) // keeps the run on record
		const failure = "cannot remove the container front-1"
		err := errors.Join(os.WriteFile(file.Path, []byte(text), 0o600), os.WriteFile(holderLog(file), []byte(failure+"\n"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code := run(ctx, []string{"flex", verb, file.Path}, &out, &errs)
		if code != exitFailed || verb == "stop" && out.Len() > 0 {
			t.Errorf("flex %s: got exit code %d and the output %q, want %d and none", verb, code, &out, exitFailed)
		}
		for _, want := range []string{c.About.Run, failure, "vitrine clean"} {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("flex %s: got the error %q, want %q in it", verb, &errs, want)
			}
		}
		director.Close()
		cancel(nil)
	}
}
