package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"vitrine/store"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/timer"
	"vitrine/store/service"
)

// TestClientsFindTheStore checks that a client made from an OpenAPI document asks, by default, the
// address that a store listens on by default.
func TestClientsFindTheStore(t *testing.T) {
	listen := (&app{}).storeRunCommand().Flags().Lookup("listen").DefValue
	want := `{default: "http://` + strings.Trim(listen, "[]") + `"}`
	for root, document := range map[string][]byte{nudsf.Root: nudsf.OpenAPI, timer.Root: timer.OpenAPI} {
		if !strings.Contains(string(document), want) {
			t.Errorf("the OpenAPI document of %s lacks the server %s", root, want)
		}
	}
}

// A brokenEngine keeps records on this host and takes no more writes, as after a disk error.
type brokenEngine struct{ store.Engine }

func (brokenEngine) Promises() store.Promises { return store.Promises{Engine: "embedded"} }

func (brokenEngine) Probe(context.Context) error { return errors.New("a disk error ended writing") }

// TestBrokenEngineIsDown checks that the health of a store says that its engine takes no more writes. Reads
// still have the fast path.
func TestBrokenEngineIsDown(t *testing.T) {
	w := httptest.NewRecorder()
	writeHealth(w, brokenEngine{}.Promises(), service.NewProber(brokenEngine{}).IsUp(t.Context()), nil)
	if body := w.Body.String(); !strings.Contains(body, `"engine_up":false`) {
		t.Errorf("got the health %s, want that the engine is down", body)
	}
	if quickOn(brokenEngine{}) == nil {
		t.Error("requests for records on this host are not quick")
	}
}

// TestHangUpDoesNotEndAStoreThatStarts sends SIGHUP while a store waits for its engine. The signal would end this
// test.
func TestHangUpDoesNotEndAStoreThatStarts(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // the store sets it
	signal.Reset(syscall.SIGHUP)              // the test of the holder leaves it handled
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer l.Close() // then the store gives up
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if err := sendHangUp(); err != nil {
			t.Error(err)
		}
	}()
	c := (&app{stdout: io.Discard, stderr: io.Discard}).storeRunCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs([]string{"--engine", "redis", "--engine-server", l.Addr().String()})
	if err := c.ExecuteContext(t.Context()); err == nil {
		t.Error("a store without an engine was started")
	}
}

// TestASignalEndsAStore checks that a signal ends a store that waits for its engine without a failure. The failure of a store
// stays one, although there was a signal.
func TestASignalEndsAStore(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // the store sets it
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String() // no engine answers here, and no store can listen here
	for want, given := range map[int][]string{
		exitDone:   {"--engine", "redis", "--engine-server", taken},
		exitFailed: {"--dir", t.TempDir(), "--listen", taken},
	} {
		var errs bytes.Buffer
		if code := run(ctx, append([]string{"store", "run"}, given...), io.Discard, &errs); code != want {
			t.Errorf("%q: got exit code %d, want %d: %s", given, code, want, &errs)
		}
	}
}
