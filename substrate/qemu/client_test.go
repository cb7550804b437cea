package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/substrate"
	"vitrine/substrate/qemu/guest"
)

// TestClientCopiesNoLongerThanItsContext checks that a copy, and a request that waits for it, end
// with their contexts if the agent stalls in the middle of a file. After that, the client must
// refuse requests.
func TestClientCopiesNoLongerThanItsContext(t *testing.T) {
	near, far := net.Pipe()
	c := newClient(near, nil)
	t.Cleanup(c.close)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	copied := make(chan error)
	go func() { copied <- c.put(ctx, file, "/file") }()
	in := bufio.NewReader(far)
	if f, err := guest.ReadFrame(in); err != nil || f.Kind != guest.KindRequest {
		t.Fatalf("got a frame of kind %q, error %v, want a request", f.Kind, err)
	}
	waiting, stop := context.WithCancel(t.Context())
	stop()
	if err := c.ask(waiting, guest.Request{Op: guest.OpHas}); !errors.Is(err, context.Canceled) {
		t.Errorf("request during the copy: got %v, want Canceled", err)
	}
	cancel()
	if err := <-copied; !errors.Is(err, context.Canceled) {
		t.Errorf("the copy ended with %v, want Canceled", err)
	}
	<-c.ended
	if err := c.ask(t.Context(), guest.Request{Op: guest.OpHas}); err == nil {
		t.Error("a request after an interrupted one succeeded")
	}
}

// flood returns many copies of a frame.
func flood(t *testing.T, kind guest.Kind, number uint32, value any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := guest.NewWriter(&b).Value(kind, number, value); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(b.Bytes(), 1000)
}

// TestClientClosesDespiteRepeatedAnswers checks that a client can be closed if its guest repeats an
// answer while the request is still being sent, when nobody reads answers.
func TestClientClosesDespiteRepeatedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		c := newClient(near, nil)
		copied := make(chan error, 1)
		go func() { copied <- c.put(t.Context(), file, "/file") }()
		f, err := guest.ReadFrame(bufio.NewReader(far))
		if err != nil {
			t.Error(err)
		}
		if _, err := far.Write(flood(t, guest.KindAnswer, f.Number, guest.Answer{})); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		c.close()
		if err := <-copied; err == nil {
			t.Error("the copy succeeded although the guest read none of it")
		}
	})
}

// TestClientLimitsReadings checks that a guest cannot write as many readings as it likes.
func TestClientLimitsReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var written bytes.Buffer
		c := newClient(near, &written)
		for range 2 {
			if _, err := far.Write(flood(t, guest.KindUse, 0, guest.Reading{})); err != nil {
				t.Error(err)
			}
			time.Sleep(guest.ReadingInterval)
		}
		c.close()
		if n := bytes.Count(written.Bytes(), []byte("\n")); n != 2 {
			t.Errorf("got %d readings in two intervals, want 2", n)
		}
	})
}

// A fullDisk takes no byte.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestClientOutlivesAFullDisk checks that the client serves its machine if a reading cannot be written.
func TestClientOutlivesAFullDisk(t *testing.T) {
	near, far := net.Pipe()
	c := newClient(near, fullDisk{})
	t.Cleanup(c.close)
	out := guest.NewWriter(far)
	if err := errors.Join(out.Value(guest.KindUse, 0, guest.Reading{}), out.Frame(guest.Frame{Kind: guest.KindHello})); err != nil {
		t.Fatal(err)
	}
	if err := c.ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBeginLeavesNothingRunning checks that begin ends a command if its context ends while the
// command starts. It must do so whether or not the command has started in the end.
func TestBeginLeavesNothingRunning(t *testing.T) {
	for _, failed := range []string{"", "no such program"} {
		near, far := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan uint32, 1)
		go agentThatIsLate(far, cancel, guest.Answer{Error: failed}, ended)
		c := newClient(near, nil)
		in := &Instance{
			spec: substrate.Spec{Dir: t.TempDir()}, substrate: &Substrate{config: Config{Logger: slog.New(slog.DiscardHandler)}},
			guest: &running{agent: c, mirror: mirror{known: make(map[string]stamp)}},
		}
		r, err := in.begin(ctx, vitrine.Command{Args: []string{"program"}})
		if r != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("start: got error %v, want Canceled", err)
		}
		if number, started := <-ended, c.number-1; number != started {
			t.Errorf("got a request to end command %d, want %d", number, started)
		}
		c.close()
	}
}

// agentThatIsLate answers OpStart only when it receives OpEnd.
func agentThatIsLate(port net.Conn, cancel func(), start guest.Answer, ended chan<- uint32) {
	in, out := bufio.NewReader(port), guest.NewWriter(port)
	for {
		f, err := guest.ReadFrame(in)
		if err != nil {
			return
		}
		var r guest.Request
		err = json.Unmarshal(f.Payload, &r)
		switch r.Op {
		case guest.OpStart:
			cancel()
			continue
		case guest.OpEnd:
			ended <- r.Target
			err = errors.Join(err, out.Value(guest.KindAnswer, r.Target, start))
			if start.Error == "" {
				err = errors.Join(err, out.Value(guest.KindExit, r.Target, guest.Exit{Error: "signal: killed"}), out.Frame(guest.Frame{Kind: guest.KindClosed, Number: r.Target}))
			}
		}
		if err := errors.Join(err, out.Value(guest.KindAnswer, f.Number, guest.Answer{})); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			panic(err)
		}
	}
}
