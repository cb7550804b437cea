package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/thread"
)

// An Echo returns every datagram that arrives at its address unchanged to the sender. It is a bare
// loop, so a round trip contains little besides the network. It needs no privilege.
type Echo struct {
	at  netip.AddrPort
	fd  int
	cpu int
}

// OpenEcho opens the socket of an echo that runs on the CPU; below 0: on any CPU of the process. It
// returns a *vitrine.BadInput if another program uses the address.
func OpenEcho(at netip.AddrPort, cpu int) (*Echo, error) {
	fd, err := openUDP(at)
	if err != nil {
		return nil, fmt.Errorf("echo at %v: %w", at, err)
	}
	if err := prepare(fd, defaultRoom); err != nil {
		return nil, fmt.Errorf("echo at %v: %w", at, errors.Join(err, unix.Close(fd)))
	}
	return &Echo{at, fd, cpu}, nil
}

// Run returns datagrams until the context ends.
func (e *Echo) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread, its affinity and its preference end with the goroutine
		if err := thread.Pin(e.cpu); err != nil {
			done <- fmt.Errorf("echo at %v: %w", e.at, err)
			return
		}
		thread.Prefer()
		in := newInbox(e.fd)
		for ctx.Err() == nil {
			n, err := in.receive()
			if err == nil {
				err = in.reflect(n)
			}
			if err != nil {
				done <- fmt.Errorf("echo at %v: %w", e.at, err)
				return
			}
		}
		done <- nil
	}()
	return <-done
}

// Dropped returns how many datagrams the kernel has dropped so far because the socket's buffer was
// full. These datagrams are no loss of the network.
func (e *Echo) Dropped() (uint32, error) { return drops(e.fd) }

// Close closes the socket. Run must have ended.
func (e *Echo) Close() error {
	if err := unix.Close(e.fd); err != nil {
		return fmt.Errorf("close the echo at %v: %w", e.at, err)
	}
	return nil
}

// reflect sends the first n packets back to their senders.
func (in *inbox) reflect(n int) error {
	for i := range n {
		in.vectors[i].SetLen(int(in.messages[i].Length))
		h := &in.messages[i].Header
		h.SetControllen(0)
		if in.messages[i].Length > MaxSize || h.Namelen != unix.SizeofSockaddrInet4 {
			continue
		}
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(in.fd), uintptr(unsafe.Pointer(h)), 0)
		switch errno {
		case 0, unix.EINTR, unix.ENOBUFS, unix.EAGAIN, unix.ECONNREFUSED, unix.EPERM, unix.EINVAL, unix.EHOSTUNREACH, unix.ENETUNREACH:
			// The packet is lost. Its sender counts the loss.
		default:
			return os.NewSyscallError("sendmsg", errno)
		}
	}
	return nil
}
