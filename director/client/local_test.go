package client

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"vitrine/internal/runstate"
)

// TestSocketThatComesLate checks that a client uses the socket as soon as the socket exists, even
// if the director has answered over TCP before. The name localhost means both loopback addresses.
func TestSocketThatComesLate(t *testing.T) {
	if err := runstate.MakeRoot(runstate.DefaultRoot()); err != nil {
		t.Skip(err)
	}
	for host, name := range map[string]string{"127.0.0.1": "127.0.0.1", "[::1]": "localhost"} {
		t.Run(name, func(t *testing.T) { testLateSocket(t, host, name) })
	}
}

// testLateSocket serves at the loopback address host, for a client that calls it name.
func testLateSocket(t *testing.T, host, name string) {
	ways := make(chan string, 2)
	serve := func(network, address string) net.Addr {
		t.Helper()
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			ways <- network
			_, _ = w.Write([]byte("{}"))
		}))
		s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
		return l.Addr()
	}
	at := netip.MustParseAddrPort(serve("tcp", host+":0").String())
	c, err := New(Access{URL: fmt.Sprintf("http://%s:%d", name, at.Port())})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(want string) {
		t.Helper()
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-ways; got != want {
			t.Errorf("client connected by %s, want %s", got, want)
		}
	}
	ask("tcp")
	path := SocketPath(at)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	serve("unix", path)
	ask("unix")
}

// TestSockets checks which sockets are found: those that answer, belong to this network namespace,
// and lie in a private folder of this user.
func TestSockets(t *testing.T) {
	root, err := os.MkdirTemp("", "vt") // t.TempDir is too long: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := socketFolder(root)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	serve := func(name string) string {
		path := filepath.Join(dir, name+socketEnd)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		if name == "dead" || name == namespace()+"dead" {
			l.Close()
		}
		return path
	}
	want := []string{serve(namespace() + "[::1]:1"), serve(namespace() + "127.0.0.1:1")}
	serve(namespace() + "dead")
	serve("1-127.0.0.1:1")
	slices.Sort(want)
	if got := sockets(t.Context(), root); !slices.Equal(got, want) {
		t.Errorf("found sockets %q, want %q", got, want)
	}
	if err := os.Chmod(root, 0o777); err != nil { //nolint:gosec // what it must not be
		t.Fatal(err)
	}
	if got := sockets(t.Context(), root); got != nil {
		t.Errorf("found sockets %q in a world-writable directory, want none", got)
	}
}
