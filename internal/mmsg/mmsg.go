// Package mmsg sends and receives batches of messages by sendmmsg(2) and recvmmsg(2), without
// allocation. The caller owns all memory: messages, vectors, names, control buffers and data.
//
// Send and Receive do not notify the Go scheduler of the system call. This saves time, but the
// call must not block: either the socket is non-blocking, or the flags have MSG_DONTWAIT.
package mmsg

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Message is the kernel's struct mmsghdr.
type Message struct {
	Header unix.Msghdr
	Length uint32 // bytes of data; set by Receive, Wait and Send
}

// SetVectors sets the parts of the data.
func (m *Message) SetVectors(v []unix.Iovec) {
	m.Header.Iov = unsafe.SliceData(v)
	m.Header.SetIovlen(len(v))
}

// SetName sets the destination of a message to send, or the buffer for the source of a received
// message. length is the result of Put, or NameSize.
func (m *Message) SetName(n *Name, length uint32) {
	m.Header.Name, m.Header.Namelen = (*byte)(unsafe.Pointer(n)), length
}

// SetControl sets the buffer of the control messages. The kernel shortens it to the length that it
// wrote, so a receiver sets it again before each call.
func (m *Message) SetControl(buffer []byte) {
	m.Header.Control = unsafe.SliceData(buffer)
	m.Header.SetControllen(len(buffer))
}

// Vector points at b.
func Vector(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}

// Send sends the messages in order and returns how many the kernel accepted. If it accepted none,
// the errno belongs to the first message.
func Send(fd int, messages []Message, flags int) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(messages))), uintptr(len(messages)), uintptr(flags), 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// Receive reads the waiting datagrams of a UDP socket, at most one into each message, and returns
// how many it read. It skips the ICMP errors that the socket reports for earlier sends. On any
// other error it returns 0, as if nothing were waiting.
func Receive(fd int, messages []Message) int {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(messages))), uintptr(len(messages)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case unix.EINTR, unix.ECONNREFUSED:
		default:
			return 0
		}
	}
}

// Wait is like Receive, but blocks for the first message as long as the socket does. It notifies
// the Go scheduler, and returns every error, including EINTR.
func Wait(fd int, messages []Message) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(messages))), uintptr(len(messages)), unix.MSG_WAITFORONE, 0, 0)
	return int(n), errno
}

// Control returns the data of a control message (cmsg(3)) in a control buffer that the kernel
// wrote. It returns nil if the buffer has no such message.
func Control(written []byte, level, kind int32) []byte {
	for len(written) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&written[0]))
		length := int(h.Len)
		if length < unix.CmsgLen(0) || length > len(written) {
			return nil
		}
		if h.Level == level && h.Type == kind {
			return written[unix.CmsgLen(0):length]
		}
		written = written[min(unix.CmsgSpace(length-unix.CmsgLen(0)), len(written)):]
	}
	return nil
}

// Nanoseconds converts a struct timespec of two 64-bit numbers.
func Nanoseconds(timespec []byte) int64 {
	return int64(binary.NativeEndian.Uint64(timespec))*1e9 + int64(binary.NativeEndian.Uint64(timespec[8:]))
}
