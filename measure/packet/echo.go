package packet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/thread"
)

// Echo returns every datagram that arrives at the address unchanged to its sender, until the
// context ends. It is a bare loop, so a round trip contains little besides the network. It calls
// ready once the socket is bound; ready may be nil. Echo needs no privilege.
func Echo(ctx context.Context, at netip.AddrPort, ready func()) error {
	fd, err := openUDP(at)
	if err != nil {
		return fmt.Errorf("echo at %v: %w", at, err)
	}
	defer unix.Close(fd)
	if err := prepare(fd, defaultRoom); err != nil {
		return fmt.Errorf("echo at %v: %w", at, err)
	}
	if ready != nil {
		ready()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread and its preference end with the goroutine
		thread.Prefer()
		in := newInbox(fd)
		for ctx.Err() == nil {
			n, err := in.receive()
			if err == nil {
				err = in.reflect(n)
			}
			if err != nil {
				done <- fmt.Errorf("echo at %v: %w", at, err)
				return
			}
		}
		done <- nil
	}()
	return <-done
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
