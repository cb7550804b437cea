package s1ap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/director/meter"
	"vitrine/internal/sctp"
	"vitrine/wire/s1ap/frame"
)

// The limits of an association.
const (
	// maxQueued is how many octets may wait for an eNodeB, and instanceQueued for an
	// instance. A peer that does not read loses its association, because no message of
	// S1AP may get lost alone.
	maxQueued      = 1 << 20
	instanceQueued = 4 << 20
	// queueShare is the part of the free octets of all queues that one queue may hold.
	queueShare = 8
	// keptBuffer is the size of the largest empty buffer that an association keeps.
	keptBuffer = 64 << 10
	// firstBuffer and lastBuffer are the sizes of the receive buffer: most associations
	// are idle, and a frame has at most 16 KiB.
	firstBuffer = 4 << 10
	lastBuffer  = 32 << 10
	// stall is how long a write and the rest of a frame may take.
	stall = 10 * time.Second
)

// The reasons why the director ends an association.
var (
	errFull = errors.New("s1ap: too many octets wait for the peer")
	errLate = errors.New("s1ap: the eNodeB was not set up in time")
)

// An association is a connection with an eNodeB or with an instance that carries frames,
// over SCTP or TCP. Any goroutine may send; one reads.
type association struct {
	server *Server
	peer   netip.AddrPort
	known  bool // with an instance
	conn   net.Conn
	sctp   *sctp.Conn // conn, if it is one
	raw    syscall.RawConn
	write  func(fd uintptr) bool // for raw; made once, because a closure allocates

	mu       sync.Mutex
	out      []byte // frames to write
	sent     int    // octets of out that are written
	draining bool   // a goroutine writes
	err      error  // why nothing can be sent any more
}

// newAssociation returns the association of a connection.
func newAssociation(s *Server, conn net.Conn, known bool) (*association, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("use a connection: %w", err)
	}
	peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	a := &association{server: s, conn: conn, raw: raw, known: known, peer: netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())}
	a.sctp, _ = conn.(*sctp.Conn)
	a.write = a.writeSome
	return a, nil
}

// forward queues a whole frame, which it copies.
func (a *association) forward(whole []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.reserve(len(whole)) {
		return false
	}
	a.out = append(a.out, whole...)
	return true
}

// send queues a message of the director, which it copies.
func (a *association) send(stream uint16, message []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.reserve(frame.HeaderSize + len(message)) {
		return false
	}
	a.out = frame.Append(a.out, stream, message)
	return true
}

// reserve takes room for octets. All queues share one budget. A queue may hold an eighth of
// what is free, so that peers that do not read, or an eNodeB that sends more than its
// instance reads, never hold all of it (Choudhury and Hahne, Dynamic queue length
// thresholds for shared-memory packet switches, 1998). Without room the association ends.
func (a *association) reserve(n int) bool {
	if a.err != nil {
		return false
	}
	free, most := a.server.config.Queues-a.server.queued.Load(), int64(instanceQueued)
	if !a.known {
		most = maxQueued
	}
	if int64(len(a.out)-a.sent+n) > min(free/queueShare, most) {
		a.fail(errFull)
		return false
	}
	a.server.queued.Add(int64(n))
	return true
}

// fail ends the association: its reader returns.
func (a *association) fail(err error) {
	if a.err == nil {
		a.err = err
	}
	a.server.queued.Add(-int64(len(a.out) - a.sent))
	a.out, a.sent = nil, 0
	_ = a.conn.Close() // it may be closed already
}

// abort ends the association at once.
func (a *association) abort() { a.abortFor(net.ErrClosed) }

// abortFor ends the association for a reason, unless it has ended for another.
func (a *association) abortFor(reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail(reason)
}

// reason returns why the association ended.
func (a *association) reason() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// flush writes what is queued, without waiting. If the socket takes only a part, a
// goroutine writes the rest.
func (a *association) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil || a.draining || len(a.out) == 0 {
		return
	}
	if err := a.raw.Write(a.write); err != nil {
		a.fail(err)
		return
	}
	switch {
	case a.err != nil:
		a.fail(a.err)
	case a.sent == len(a.out):
		a.reuse()
	default:
		a.draining = true
		a.server.goroutines.Go(a.drain)
	}
}

// writeSome writes as much as the socket takes. It returns true in any case, because
// false would make the caller wait.
func (a *association) writeSome(fd uintptr) bool {
	for a.sent < len(a.out) {
		n, err := a.sendNow(fd)
		switch {
		case n > 0:
			a.sent += n
			a.server.queued.Add(-int64(n))
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return true
		default:
			a.err = fmt.Errorf("write: %w", err)
			return true
		}
	}
	return true
}

// sendNow sends octets of out, whole frames over SCTP.
func (a *association) sendNow(fd uintptr) (int, error) {
	if a.sctp == nil {
		return unix.SendmsgN(int(fd), a.out[a.sent:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	n, errno := a.sctp.SendNow(fd, a.out[a.sent:])
	if errno != 0 {
		return n, errno
	}
	return n, nil
}

// reuse empties the buffer after all of its octets are written.
func (a *association) reuse() {
	a.out, a.sent = a.out[:0], 0
	if cap(a.out) > keptBuffer {
		a.out = nil
	}
}

// drain writes until nothing is queued. It ends the association of a peer that takes
// nothing, which counts as one drop.
func (a *association) drain() {
	for {
		a.mu.Lock()
		if a.err != nil || a.sent == len(a.out) {
			if a.err == nil {
				a.reuse()
			}
			a.draining = false
			a.mu.Unlock()
			return
		}
		rest := a.out[a.sent:]
		a.mu.Unlock()
		// send only appends behind rest, and fail lets the garbage collector have it.
		_ = a.conn.SetWriteDeadline(time.Now().Add(stall)) // a closed connection fails below
		n, err := a.conn.Write(rest)
		a.mu.Lock()
		if a.err == nil {
			a.sent += n
			a.server.queued.Add(-int64(n))
			if err != nil {
				a.fail(err)
				a.server.drop(meter.Unsent, a.peer)
			} else {
				a.out, a.sent = a.out[:copy(a.out, a.out[a.sent:])], 0
			}
		}
		a.mu.Unlock()
	}
}

// A reading is the receive buffer of an association and its deadlines.
type reading struct {
	buffer   []byte
	to       int       // octets received
	first    time.Time // until when the peer has to be set up; zero: it is
	partial  time.Time // until when the frame that has begun has to be whole; zero: none has
	deadline time.Time // that is set
}

// read reads until the association ends, and hands on whole frames. received may keep
// nothing of them.
func (a *association) read(r *reading, received func(frames []byte)) error {
	r.buffer = make([]byte, firstBuffer)
	for {
		if r.to == len(r.buffer) { // a frame that does not fit, or a busy peer
			r.buffer = append(r.buffer, make([]byte, min(len(r.buffer), lastBuffer-len(r.buffer)))...)
		}
		if err := r.setDeadline(a.conn); err != nil {
			return err
		}
		n, err := a.conn.Read(r.buffer[r.to:])
		r.to += n
		if n > 0 {
			whole, wrong := r.whole()
			if whole > 0 {
				received(r.buffer[:whole:whole])
			}
			if wrong != nil {
				return wrong
			}
			r.keep(whole)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			if why := a.reason(); why != nil {
				return why
			}
			return err
		}
	}
}

// whole returns how many octets whole frames have.
func (r *reading) whole() (octets int, err error) {
	rest := r.buffer[:r.to]
	for {
		message, after, err := frame.Cut(rest)
		if err != nil || message == nil {
			return r.to - len(rest), err
		}
		rest = after
	}
}

// keep moves the octets behind whole frames to the front.
func (r *reading) keep(whole int) {
	r.to = copy(r.buffer, r.buffer[whole:r.to])
	switch {
	case r.to == 0:
		r.partial = time.Time{}
	case whole > 0 || r.partial.IsZero():
		r.partial = time.Now().Add(stall)
	}
}

// setDeadline sets the earlier of the two deadlines, unless it is set.
func (r *reading) setDeadline(conn net.Conn) error {
	want := r.first
	if want.IsZero() || !r.partial.IsZero() && r.partial.Before(want) {
		want = r.partial
	}
	if want.Equal(r.deadline) {
		return nil
	}
	r.deadline = want
	return conn.SetReadDeadline(want)
}
