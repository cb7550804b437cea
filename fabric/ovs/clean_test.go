package ovs

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRunsAt checks that only a process that listens counts as running, even if its backlog is
// full. Any failure other than a missing listener must be an error.
func TestRunsAt(t *testing.T) {
	dir := t.TempDir()
	full, stale, long := filepath.Join(dir, "full"), filepath.Join(dir, "stale"), filepath.Join(dir, strings.Repeat("x", 120))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: full}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		socket     string
		runs, fail bool
	}{
		{socket: full, runs: true}, {socket: full, runs: true}, // the first connection fills the backlog
		{socket: stale}, {socket: filepath.Join(dir, "absent")},
		{socket: long, fail: true}, // longer than a socket's path may be
	} {
		if runs, err := runsAt(t.Context(), c.socket); runs != c.runs || (err != nil) != c.fail {
			t.Errorf("%s: got running %t, error %v", filepath.Base(c.socket), runs, err)
		}
	}
}
