package sctp

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// HeaderSize is the number of octets before the message of a record.
const HeaderSize = 12

// MaxMessage is the maximum length of a record's message, in octets.
const MaxMessage = 1 << 16

// usualMessage is the length up to which Records keeps the buffer of a message, in octets.
const usualMessage = 1 << 14

// Numbers of linux/sctp.h. Package unix does not have them.
const (
	rtoInfo      = 0  // SCTP_RTOINFO
	assocInfo    = 1  // SCTP_ASSOCINFO
	initMessage  = 2  // SCTP_INITMSG
	noDelay      = 3  // SCTP_NODELAY
	addressInfo  = 9  // SCTP_PEER_ADDR_PARAMS
	receiveInfo  = 32 // SCTP_RECVRCVINFO
	sendControl  = 2  // SCTP_SNDINFO
	infoControl  = 3  // SCTP_RCVINFO
	notification = 1 << 15
)

// The kernel's structs for a message (RFC 6458 sections 5.3.4 and 5.3.5): sizes, and
// offsets of fields.
const (
	sendSize      = 16 // struct sctp_sndinfo
	infoSize      = 28 // struct sctp_rcvinfo
	streamAt      = 0  // in both
	sendProtocol  = 4
	infoProtocol  = 8
	controlHeader = unix.SizeofCmsghdr
)

// Records sends and receives the messages of one socket as records, without blocking. It
// allocates only for a message that does not fit into the caller's buffer. One goroutine
// may send while another one receives. The zero value is ready to use.
type Records struct {
	out struct {
		header  unix.Msghdr
		vector  unix.Iovec
		control [controlHeader + sendSize]byte
	}
	in struct {
		header  unix.Msghdr
		vector  unix.Iovec
		control [controlHeader + infoSize + 4]byte // the kernel aligns to 8 octets
	}
	// long has a message that did not fit into the caller's buffer, or the part of a
	// message that has arrived. It begins with room for the record's header.
	long     []byte
	from, to int  // octets of long that Receive has not returned yet
	whole    bool // long has a whole record
}

// Send sends as many records from b as the socket takes now, and returns their length in
// octets. A message goes on a lower stream if the association lacks its own; the order within a
// stream stays. The error is unix.EAGAIN if the socket takes none. If b ends within a record, Send
// sends the whole records before it and returns unix.EINVAL.
func (r *Records) Send(fd int, b []byte) (n int, errno unix.Errno) {
	for n < len(b) {
		record := b[n:]
		if len(record) < HeaderSize {
			return n, unix.EINVAL
		}
		length := binary.BigEndian.Uint32(record)
		if length == 0 || length > MaxMessage || int(length) > len(record)-HeaderSize {
			return n, unix.EINVAL
		}
		record = record[:HeaderSize+int(length)]
		switch errno = r.send(fd, record); {
		case errno == unix.EINTR:
		case errno == 0:
			n += len(record)
		case n > 0:
			return n, 0 // the next call returns the error
		default:
			return 0, errno
		}
	}
	return n, 0
}

// send sends one record. The kernel takes the whole message or nothing. It refuses a stream that
// the association lacks. send then halves the number until the association has it, so stream 0
// gets such messages only if there is no other.
func (r *Records) send(fd int, record []byte) unix.Errno {
	o := &r.out
	control := (*unix.Cmsghdr)(unsafe.Pointer(&o.control))
	control.Level, control.Type = unix.IPPROTO_SCTP, sendControl
	control.SetLen(len(o.control))
	info := o.control[controlHeader:]
	copy(info[sendProtocol:], record[4:8]) // the kernel does not change its byte order
	o.vector = mmsg.Vector(record[HeaderSize:])
	o.header = unix.Msghdr{Iov: &o.vector, Control: &o.control[0]}
	o.header.SetIovlen(1)
	o.header.SetControllen(len(o.control))
	for stream := binary.BigEndian.Uint16(record[8:]); ; stream /= 2 {
		binary.NativeEndian.PutUint16(info[streamAt:], stream)
		_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&o.header)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if errno != unix.EINVAL || stream == 0 {
			return errno
		}
	}
}

// Receive receives as many whole records as have arrived and fit into b, and returns their
// length in octets. At the end of the association it returns 0 and no error. If b has no
// room for a whole record, it returns a part, and the next calls return the rest. The
// error is unix.EAGAIN if no whole message has arrived. It is unix.EMSGSIZE if a message
// is longer than MaxMessage; nothing can be received after that.
func (r *Records) Receive(fd int, b []byte) (n int, errno unix.Errno) {
	for n < len(b) {
		if r.whole {
			n += r.take(b[n:])
			continue
		}
		size, errno := r.receive(fd, b[n:])
		n += size
		switch {
		case errno == 0, errno == unix.EINTR:
		case n > 0:
			return n, 0 // the next call returns the error again
		case errno == ended:
			return 0, 0
		default:
			return 0, errno
		}
	}
	return n, 0
}

// take copies octets of a whole record from long to b.
func (r *Records) take(b []byte) int {
	n := copy(b, r.long[r.from:r.to])
	r.from += n
	if r.from == r.to {
		r.from, r.to, r.whole = 0, 0, false
		if len(r.long) > HeaderSize+usualMessage {
			r.long = make([]byte, HeaderSize+usualMessage)
		}
	}
	return n
}

// receive receives one message or a part of it. If the whole message fits into b, receive
// makes it a record in b and returns the record's size. Otherwise it puts the message into
// long and returns 0.
func (r *Records) receive(fd int, b []byte) (size int, errno unix.Errno) {
	long := r.to > 0 || len(b) <= HeaderSize
	var into []byte
	if long {
		into = r.room(1)
	} else {
		into = b[HeaderSize:min(len(b), HeaderSize+MaxMessage)]
	}
	if len(into) == 0 {
		return 0, unix.EMSGSIZE
	}
	got, flags, errno := r.message(fd, into)
	switch whole := flags&unix.MSG_EOR != 0; {
	case errno != 0:
		return 0, errno
	case whole && !long:
		r.head(b, got)
		return HeaderSize + got, 0
	case !long:
		copy(r.room(got), into[:got])
		fallthrough
	default:
		r.to = max(r.to, HeaderSize) + got
		if r.whole = whole; whole {
			r.head(r.long, r.to-HeaderSize)
		}
		return 0, 0
	}
}

// room returns the free part of long. It has at least need octets, or what MaxMessage leaves.
func (r *Records) room(need int) []byte {
	used := max(r.to, HeaderSize)
	if used+need > len(r.long) {
		size := max(used+need, 2*len(r.long), HeaderSize+usualMessage)
		larger := make([]byte, min(size, HeaderSize+MaxMessage))
		copy(larger, r.long)
		r.long = larger
	}
	return r.long[used:]
}

// ended is the error for the end of the association.
const ended = unix.ESHUTDOWN

// message calls recvmsg(2).
func (r *Records) message(fd int, into []byte) (n int, flags int32, errno unix.Errno) {
	i := &r.in
	i.vector = mmsg.Vector(into)
	i.header = unix.Msghdr{Iov: &i.vector, Control: &i.control[0]}
	i.header.SetIovlen(1)
	i.header.SetControllen(len(i.control))
	got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&i.header)), unix.MSG_DONTWAIT)
	switch {
	case errno != 0:
		return 0, 0, errno
	case got == 0:
		return 0, 0, ended
	case i.header.Flags&notification != 0:
		return 0, 0, unix.EINTR // a notification, not a message; nobody subscribes to any
	}
	return int(got), i.header.Flags, 0
}

// head writes the header of a record after its message was received.
func (r *Records) head(record []byte, length int) {
	info := mmsg.Control(r.in.control[:r.in.header.Controllen], unix.IPPROTO_SCTP, infoControl)
	binary.BigEndian.PutUint32(record, uint32(length))
	if len(info) < infoSize {
		clear(record[4:HeaderSize])
		return
	}
	copy(record[4:8], info[infoProtocol:infoProtocol+4])
	binary.BigEndian.PutUint16(record[8:], binary.NativeEndian.Uint16(info[streamAt:]))
	clear(record[10:HeaderSize])
}
