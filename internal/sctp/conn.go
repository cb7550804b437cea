package sctp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// A Listener accepts associations. Its socket has the type SOCK_STREAM, so package net treats it
// as a TCP socket. Thanks to that, net's poller, deadlines and files work.
type Listener struct{ *net.TCPListener }

// Listen listens on an address. Without SCTP in the kernel the error is a
// *vitrine.Unsupported.
func Listen(at netip.AddrPort) (*Listener, error) {
	fd, err := open(family(at))
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "SCTP")
	defer f.Close() // net has its own duplicate
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, mmsg.Sockaddr(at))
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for SCTP: %w", err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen for SCTP: %w", err)
	}
	return &Listener{l.(*net.TCPListener)}, nil
}

// Inherit returns a listener with a duplicate of a file that another process opened. ok is
// false if the file is not an SCTP socket.
func Inherit(f *os.File) (l *Listener, ok bool) {
	if !Is(f) {
		return nil, false
	}
	inherited, err := net.FileListener(f)
	if err != nil {
		return nil, false
	}
	return &Listener{inherited.(*net.TCPListener)}, true
}

// Is reports whether a file is an SCTP socket. Package net would treat it as a TCP socket.
func Is(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	protocol := 0
	err = raw.Control(func(fd uintptr) { protocol, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL) })
	return err == nil && protocol == unix.IPPROTO_SCTP
}

// Dial makes an association with an address. It gives up when ctx ends.
func Dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	fd, err := Connect(to)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "SCTP")
	defer f.Close() // net has its own duplicate
	if err := connected(ctx, f); err != nil {
		return nil, fmt.Errorf("connect to %v by SCTP: %w", to, err)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("connect to %v by SCTP: %w", to, err)
	}
	return newConn(conn.(*net.TCPConn))
}

// connected waits until the association is established.
func connected(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) }) // ends the wait for the connection below
	defer stop()
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
			failed = err
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil // otherwise not established yet
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, failed)
}

// Accept returns a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return newConn(conn)
}

// A Conn is an association. Read returns records, and Write takes whole records. One goroutine may
// read while another one writes. SCTP has no half-closed state: once the peer has shut down the
// association, Write returns net.ErrClosed.
type Conn struct {
	net.Conn
	raw     syscall.RawConn
	records Records

	// State of the current Read and the current Write. receive and send are created once,
	// because each closure would allocate.
	receive, send func(fd uintptr) bool
	in, out       []byte
	got           int
	inErr, outErr unix.Errno
}

func newConn(conn *net.TCPConn) (*Conn, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use an SCTP socket: %w", err), conn.Close())
	}
	c := &Conn{Conn: conn, raw: raw}
	c.receive, c.send = c.receiveSome, c.sendSome
	return c, nil
}

// SyscallConn returns the socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// SendNow sends as many records from b as the socket takes now, and returns their length in
// octets. It is for functions that the RawConn of SyscallConn calls with a descriptor, where Write
// cannot be used.
func (c *Conn) SendNow(fd uintptr, b []byte) (int, unix.Errno) { return c.records.Send(int(fd), b) }

// receiveSome returns false if it must be called again when the socket is readable.
func (c *Conn) receiveSome(fd uintptr) bool {
	c.got, c.inErr = c.records.Receive(int(fd), c.in)
	return c.inErr != unix.EAGAIN
}

// sendSome sends until all is sent or the socket takes no more. It must not stop earlier,
// because the poller reports only once that a socket has become writable.
func (c *Conn) sendSome(fd uintptr) bool {
	for len(c.out) > 0 {
		n, errno := c.records.Send(int(fd), c.out)
		c.out, c.outErr = c.out[n:], errno
		if errno != 0 {
			return errno != unix.EAGAIN
		}
	}
	return true
}

// Read reads whole records, or part of one if b has no room for a whole record.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.in = b
	err := c.raw.Read(c.receive)
	c.in = nil
	switch {
	case err != nil:
		return 0, err
	case c.inErr != 0:
		return 0, os.NewSyscallError("recvmsg", c.inErr)
	case c.got == 0:
		return 0, io.EOF
	}
	return c.got, nil
}

// Write writes whole records.
func (c *Conn) Write(b []byte) (int, error) {
	c.out, c.outErr = b, 0
	err := c.raw.Write(c.send)
	n := len(b) - len(c.out)
	c.out = nil
	switch {
	case err != nil:
		return n, err
	case c.outErr == unix.EPIPE || c.outErr == unix.ESHUTDOWN:
		return n, fmt.Errorf("the peer has shut down the association: %w", net.ErrClosed)
	case c.outErr != 0:
		return n, os.NewSyscallError("sendmsg", c.outErr)
	}
	return n, nil
}
