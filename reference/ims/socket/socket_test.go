package socket_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"vitrine/reference/ims/socket"
)

// pair returns two ends of a TCP connection, both wrapped by this package.
func pair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	plain, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := socket.TCP(plain)
	if err != nil {
		t.Fatal(err)
	}
	b, err := socket.Listener{Listener: l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// TestStream checks that more data than the kernel's buffers hold arrives
// complete, and that the stream then ends.
func TestStream(t *testing.T) {
	a, b := pair(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	sent := make(chan error, 1)
	go func() {
		n, err := a.Write(want)
		if err == nil && n != len(want) {
			err = io.ErrShortWrite
		}
		sent <- errors.Join(err, a.Close())
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("received %d bytes of %d, error %v", len(got), len(want), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestDeadlineAndClose(t *testing.T) {
	a, b := pair(t)
	if err := a.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after the deadline: got %v", err)
	}
	if err := a.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	reading := make(chan error, 1)
	go func() {
		_, err := a.Read(make([]byte, 1))
		reading <- err
	}()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-reading; !errors.Is(err, net.ErrClosed) {
		t.Errorf("close during a read: got %v", err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read after the peer closed: got %v, want EOF", err)
	}
	for range 3 { // the kernel may still accept the first
		if _, err := b.Write([]byte("x")); err != nil {
			return
		}
	}
	t.Error("a write to a closed peer did not fail")
}

func TestDatagrams(t *testing.T) {
	listen := func() (*net.UDPConn, socket.Socket, netip.AddrPort) {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		s, err := socket.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		return conn, s, conn.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	_, a, from := listen()
	conn, b, to := listen()
	for _, text := range []string{"one", "", "three"} {
		if _, err := a.WriteTo([]byte(text), to); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		n, oobn, sender, err := b.ReadMsg(buf, make([]byte, 64))
		if err != nil || string(buf[:n]) != text || sender != from || oobn != 0 {
			t.Errorf("received %q from %s with %d bytes of control messages, error %v; want %q from %s", buf[:n], sender, oobn, err, text, from)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := b.ReadMsg(make([]byte, 1), nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read from a closed socket: got %v", err)
	}
}
