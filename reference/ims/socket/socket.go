// Package socket reads and writes sockets without notifying the Go scheduler.
//
// Package net notifies the scheduler before each system call, because the call
// might block. In a mostly idle process each notification wakes the scheduler's
// monitor thread, which then polls every 20 us for a while. On a busy CPU the
// monitor thread hands the processor to another thread in the middle of a send.
// Calls on a non-blocking socket never block, so the notification is not needed.
// In a component of the IMS it costs a quarter of the CPU, and a larger share at
// lower rates.
package socket

import (
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// A Socket wraps any socket of package net. Its methods may be called
// concurrently. Like package net's errors, its errors wrap net.ErrClosed and
// os.ErrDeadlineExceeded.
type Socket struct{ raw syscall.RawConn }

// New returns the Socket of a connection.
func New(conn syscall.Conn) (Socket, error) {
	raw, err := conn.SyscallConn()
	return Socket{raw}, err
}

// Read reads the available bytes, as recv(2) does. n is 0 at the end of a stream.
func (s Socket) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	return s.call(s.raw.Read, "recvfrom", func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
		return n, errno
	})
}

// ReadMsg reads a datagram, its control messages and its sender, as recvmsg(2)
// does.
func (s Socket) ReadMsg(b, oob []byte) (n, oobn int, from netip.AddrPort, err error) {
	var name mmsg.Name
	vectors := []unix.Iovec{mmsg.Vector(b)}
	var msg mmsg.Message
	n, err = s.call(s.raw.Read, "recvmsg", func(fd uintptr) (uintptr, unix.Errno) {
		msg = mmsg.Message{}
		msg.SetName(&name, mmsg.NameSize)
		msg.SetVectors(vectors)
		msg.SetControl(oob)
		n, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&msg.Header)), 0)
		return n, errno
	})
	return n, int(msg.Header.Controllen), name.AddrPort(), err
}

// Write writes to the peer of a connected socket, as send(2) does.
func (s Socket) Write(b []byte) (int, error) { return s.send(b, nil, 0) }

// WriteTo sends a datagram to an IPv4 address, as sendto(2) does.
func (s Socket) WriteTo(b []byte, to netip.AddrPort) (int, error) {
	var name mmsg.Name
	return s.send(b, &name, name.Put(to))
}

func (s Socket) send(b []byte, to *mmsg.Name, size uint32) (int, error) {
	return s.call(s.raw.Write, "sendto", func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
			unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(to)), uintptr(size))
		return n, errno
	})
}

// call repeats the system call until it no longer returns EAGAIN.
func (s Socket) call(when func(func(fd uintptr) bool) error, name string, do func(fd uintptr) (uintptr, unix.Errno)) (int, error) {
	var n uintptr
	var errno unix.Errno
	err := when(func(fd uintptr) bool {
		for {
			if n, errno = do(fd); errno != unix.EINTR {
				return errno != unix.EAGAIN
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case errno != 0:
		return 0, os.NewSyscallError(name, errno)
	}
	return int(n), nil
}

// A conn is a TCP connection that reads and writes through a Socket.
type conn struct {
	*net.TCPConn
	socket Socket
}

// TCP returns a connection that reads and writes through a Socket. It returns any
// connection other than TCP unchanged.
func TCP(c net.Conn) (net.Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	socket, err := New(tcp)
	return conn{tcp, socket}, err
}

func (c conn) Read(b []byte) (int, error) {
	n, err := c.socket.Read(b)
	if n == 0 && err == nil && len(b) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write writes all of b.
func (c conn) Write(b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		n, err := c.socket.Write(b[sent:])
		if err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// WriteTo and ReadFrom hide the methods of net.TCPConn, which splice.
func (c conn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{c}) }

// ReadFrom copies r to the connection.
func (c conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{c}, r) }

// A Listener accepts connections that read and write through a Socket.
type Listener struct{ net.Listener }

// Accept waits for a connection.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return TCP(c)
}
