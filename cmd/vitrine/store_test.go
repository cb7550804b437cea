package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
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
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGWINCH)
	defer signal.Stop(taken)
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
		for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGWINCH} {
			if err := syscall.Kill(os.Getpid(), s); err != nil {
				t.Error(err)
				return
			}
		}
		<-taken // the kernel delivers SIGHUP first, so the store still took it
	}()
	c := (&app{stdout: io.Discard, stderr: io.Discard}).storeRunCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs([]string{"--engine", "redis", "--engine-server", l.Addr().String()})
	if err := c.ExecuteContext(t.Context()); err == nil {
		t.Error("a store without an engine was started")
	}
}
