package unikernel

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// TestFullDiskLosesOutput checks that all output is read if none of it can be written. A guest that
// nobody reads from would block its application.
func TestFullDiskLosesOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	port := strings.NewReader("output")
	if err := copyOutput(full, iotest.OneByteReader(port)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want the error of the first write", err)
	}
	if port.Len() > 0 {
		t.Errorf("%d bytes were not read", port.Len())
	}
}

// FuzzControl checks that control bears any lines, and notices an application that runs. The host
// must not trust a guest's lines.
func FuzzControl(f *testing.F) {
	f.Add("running\nexit 7\n")
	f.Add("running\nrunning\n")
	f.Add("failed no such program\nrunning")
	f.Add("failed \x1b]52;c;cm0gLXJm\a")
	f.Fuzz(func(t *testing.T, sent string) {
		g := &guest{builtHere: true, running: make(chan struct{})}
		g.control(strings.NewReader(sent))
		first, _, _ := strings.Cut(sent, "\n")
		select {
		case <-g.running:
		default:
			if first == "running" {
				t.Error("the message running did not mark the application as running")
			}
		}
		if strings.ContainsAny(g.cause, "\x1b\a") {
			t.Errorf("a terminal would obey the cause %q", g.cause)
		}
	})
}
