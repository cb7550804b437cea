package datagram

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

const (
	// front is the number of bytes of each datagram that are stored next to the fronts of
	// its neighbours. The rest of a longer datagram goes to separate pages.
	front = 4096
	// spread is the distance of the fronts: one cache line more than front, so that the
	// start lines of a batch do not all fall into the same cache set.
	spread = front + 64
	tail   = front + Largest // room for a front, then for the rest of a long datagram
)

// An inbox is the buffers of one batch.
type inbox struct {
	messages [batch]mmsg.Message
	vectors  [batch][2]unix.Iovec
	names    [batch]mmsg.Name
	controls [batch]control
	fronts   []byte
	tails    []byte // touched by long datagrams only
}

// A control is the buffer of the UDP_GRO control message: the size, as a 32-bit number, of
// the datagrams that the kernel delivers in one piece.
type control [unix.SizeofCmsghdr + 8]byte

func newInbox() *inbox {
	b := &inbox{fronts: make([]byte, batch*spread), tails: make([]byte, batch*tail)}
	for i := range batch {
		b.vectors[i][0] = mmsg.Vector(b.fronts[i*spread : i*spread+front])
		b.vectors[i][1] = mmsg.Vector(b.tails[i*tail+front : (i+1)*tail])
		b.messages[i].SetVectors(b.vectors[i][:])
		b.reset(i)
	}
	return b
}

// reset prepares the i-th message for the next datagram.
func (b *inbox) reset(i int) {
	b.messages[i].SetName(&b.names[i], mmsg.NameSize)
	b.messages[i].SetControl(b.controls[i][:])
}

// segment returns the size of the datagrams in the i-th piece, at least 1; the last datagram
// may be shorter.
func (b *inbox) segment(i int) int {
	n := max(int(b.messages[i].Length), 1)
	data := mmsg.Control(b.controls[i][:b.messages[i].Header.Controllen], unix.SOL_UDP, unix.UDP_GRO)
	if len(data) < 4 {
		return n
	}
	if size := int32(binary.NativeEndian.Uint32(data)); size > 0 {
		return int(size)
	}
	return n
}

// receive reads up to batch datagrams and returns their number.
func (b *inbox) receive(fd int) int { return mmsg.Receive(fd, b.messages[:]) }

// data returns the i-th piece, which consists of datagrams of the given size, in one or two
// parts. No datagram spans both parts. far is empty if near holds the whole piece.
func (b *inbox) data(i, size int) (near, far []byte) {
	n := int(b.messages[i].Length)
	near = b.fronts[i*spread : i*spread+min(n, front)]
	if n <= front {
		return near, nil
	}
	whole := front / size * size // the datagrams that fit into the front
	far = b.tails[i*tail+whole : i*tail+n]
	copy(far, near[whole:]) // the beginning of the datagram that does not fit
	if whole == 0 {
		return far, nil
	}
	return near[:whole], far
}

// A worker reads its sockets and passes the datagrams to its handler.
type worker struct {
	sockets []socket
	inbox   *inbox
	out     *Sender
	count   counts
	fds     []unix.PollFd // the sockets, then the wake-up descriptor
}

// run reads and handles batches until stopped returns true.
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

// lingerTime is how long an idle worker keeps its place in the Go scheduler. To release the
// place and to take it again costs one or two thread switches. On a busy core, each switch
// may take some milliseconds.
const lingerTime = time.Millisecond

// linger waits for a datagram or a wake-up for at most lingerTime, without a call to the Go
// scheduler. It reports whether one of them may have arrived.
func (w *worker) linger() bool {
	wait := unix.NsecToTimespec(lingerTime.Nanoseconds()) // the kernel writes the rest of the time into it
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.fds[0])), uintptr(len(w.fds)),
		uintptr(unsafe.Pointer(&wait)), 0, 0, 0)
	return n > 0 || errno != 0
}

// turn reads one batch from a socket, sends the results, and returns the number of pieces
// read.
func (w *worker) turn(s *socket, in *Datagram, now func() time.Duration, handler Handler) int {
	n := w.inbox.receive(s.fd)
	if n == 0 {
		return 0
	}
	w.count.reads.Add(1)
	in.At, in.Listener = now(), s.listener
	received := 0
	for i := range n {
		in.From = w.inbox.names[i].AddrPort()
		size := w.inbox.segment(i)
		near, far := w.inbox.data(i, size)
		received += w.handle(in, near, size, handler)
		if len(far) > 0 {
			received += w.handle(in, far, size, handler)
		}
		w.inbox.reset(i)
	}
	w.count.received.Add(uint64(received))
	w.out.Flush()
	return n
}

// handle splits data into datagrams of the given size, passes them to the handler and
// returns their number. The last datagram may be shorter, even empty.
func (w *worker) handle(in *Datagram, data []byte, size int, handler Handler) (n int) {
	for n = 1; len(data) > size; n++ {
		in.Data, data = data[:size:size], data[size:]
		handler.Handle(in, w.out)
	}
	in.Data = data[:len(data):len(data)]
	handler.Handle(in, w.out)
	return n
}
