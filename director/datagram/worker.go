package datagram

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// front is how many bytes of a datagram lie close to those of its
	// neighbours; the rest of a longer one goes to pages of its own.
	front = 4096
	// spread moves each front by a cache line, so that the start lines of a
	// batch do not all fall into the same cache set.
	spread = front + 64
	tail   = front + Largest // room for front, then what is longer
)

// An inbox is the buffers of one batch.
type inbox struct {
	headers  [batch]mmsghdr
	vectors  [batch][2]unix.Iovec
	names    [batch]name
	controls [batch]control
	fronts   []byte
	tails    []byte // touched by long datagrams only
}

// A control is room for the control message that says of what size the
// datagrams are that the kernel gave in one piece (UDP_GRO).
type control struct {
	header unix.Cmsghdr
	size   int32
	_      [4]byte
}

func newInbox() *inbox {
	b := &inbox{fronts: make([]byte, batch*spread), tails: make([]byte, batch*tail)}
	for i := range batch {
		b.vectors[i][0].Base = &b.fronts[i*spread]
		b.vectors[i][0].SetLen(front)
		b.vectors[i][1].Base = &b.tails[i*tail+front]
		b.vectors[i][1].SetLen(tail - front)
		h := &b.headers[i].header
		h.Iov = &b.vectors[i][0]
		h.SetIovlen(2)
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Control = (*byte)(unsafe.Pointer(&b.controls[i]))
		b.reset(i)
	}
	return b
}

// reset prepares the i-th header for the next datagram.
func (b *inbox) reset(i int) {
	h := &b.headers[i].header
	h.Namelen = unix.SizeofSockaddrInet6
	h.SetControllen(int(unsafe.Sizeof(control{})))
}

// segment is the size of the datagrams in the i-th piece of n bytes; the last
// one may be shorter.
func (b *inbox) segment(i, n int) int {
	c := &b.controls[i]
	if b.headers[i].header.Controllen < uint64(unsafe.Offsetof(c.size)+unsafe.Sizeof(c.size)) ||
		c.header.Level != unix.SOL_UDP || c.header.Type != unix.UDP_GRO || c.size <= 0 {
		return n
	}
	return int(c.size)
}

// receive reads up to batch datagrams and says how many.
func (b *inbox) receive(fd int) int {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.headers)), batch, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case unix.EINTR, unix.ECONNREFUSED:
		default:
			return 0
		}
	}
}

// data is the i-th datagram read, in one piece.
func (b *inbox) data(i int) []byte {
	n := int(b.headers[i].length)
	if n <= front {
		return b.fronts[i*spread : i*spread+n : i*spread+n]
	}
	whole := b.tails[i*tail : i*tail+n : i*tail+n]
	copy(whole, b.fronts[i*spread:i*spread+front])
	return whole
}

// A worker reads its sockets and hands what came to its handler.
type worker struct {
	sockets []socket
	inbox   *inbox
	out     *Sender
	count   counts
	fds     []unix.PollFd // the sockets, then what wakes it to stop
}

// run works until stopped says so.
func (w *worker) run(now func() time.Duration, handler Handler, stopped func() bool) {
	in := new(Datagram)
	for !stopped() {
		more := false // a batch was full: there may be another
		for i := range w.sockets {
			more = w.turn(&w.sockets[i], in, now, handler) == batch || more
		}
		if !more && !w.linger() {
			_, _ = unix.Ppoll(w.fds, nil, nil) // an error is EINTR: look again
		}
	}
}

// lingering is how long a worker that has nothing to do keeps its place in the
// Go scheduler. To give it up and to take it again costs a change of threads or
// two, each a delay of up to some milliseconds on a core that is in use.
const lingering = time.Millisecond

// linger waits for something to do, but not for long, without the Go scheduler
// knowing. It says whether something may have come.
func (w *worker) linger() bool {
	wait := unix.NsecToTimespec(lingering.Nanoseconds()) // what is left is written into it
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.fds[0])), uintptr(len(w.fds)),
		uintptr(unsafe.Pointer(&wait)), 0, 0, 0)
	return n > 0 || errno != 0
}

// turn reads one batch from a socket, sends what came of it, and says how much was read.
func (w *worker) turn(s *socket, in *Datagram, now func() time.Duration, handler Handler) int {
	n := w.inbox.receive(s.fd)
	if n == 0 {
		return 0
	}
	w.count.reads.Add(1)
	in.At, in.Listener = now(), s.listener
	received := 0
	for i := range n {
		data := w.inbox.data(i)
		in.From = getName(&w.inbox.names[i])
		size := w.inbox.segment(i, len(data))
		for len(data) > size {
			in.Data, data = data[:size:size], data[size:]
			handler.Handle(in, w.out)
			received++
		}
		in.Data = data
		handler.Handle(in, w.out)
		received++
		w.inbox.reset(i)
	}
	w.count.received.Add(uint64(received))
	w.out.Flush()
	return n
}
