package s1ap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
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
	// maxQueued bounds the send queue of an eNodeB, and instanceQueued that of an instance, in
	// octets. The director ends the association of a peer that does not read, because S1AP
	// does not tolerate the loss of single messages.
	maxQueued      = 1 << 20
	instanceQueued = 4 << 20
	// queueShare bounds one queue to 1/queueShare of the free octets of Config.Queues.
	queueShare = 8
	// keptBuffer is the size of the largest empty send buffer that an association keeps. These buffers do
	// not count as queued, and each eNodeB has an association with each instance.
	keptBuffer = 16 << 10
	// firstBuffer is the initial size of the receive buffer: most associations are idle. The buffer
	// grows for a frame that is longer: to shortFrame, and after S1 Setup to longFrame.
	firstBuffer = 4 << 10
	shortFrame  = frame.HeaderSize + shortMessage
	longFrame   = frame.HeaderSize + frame.MaxMessage
	// shortMessage is the longest message that names no UE, in octets. The director keeps some of
	// these messages. A UE's radio capability alone can be longer.
	shortMessage = 1<<14 + 64
	// stall is the timeout of a write, and of the rest of a frame.
	stall = 10 * time.Second
	// silence is how long a TCP peer may acknowledge nothing. Package sctp has limits of its own.
	silence = 30 * time.Second
)

// The reasons why the director ends an association.
var (
	errFull  = errors.New("s1ap: too many octets wait for the peer")
	errLate  = errors.New("s1ap: the eNodeB was not set up in time")
	errStuck = errors.New("s1ap: the peer does not read")
)

// The reasons why the director refuses an association. They are part of a log message. errStranger also
// ends an association after a change of the policy.
var (
	errTotal    = errors.New("the limit max_enodebs is reached")
	errSource   = errors.New("the limit associations_per_source is reached")
	errStranger = errors.New("its address is in no network of s1ap.enodebs")
)

// An association is a connection with an eNodeB or with an instance that carries frames,
// over SCTP or TCP. Any goroutine may send; one reads.
type association struct {
	server *Server
	peer   netip.AddrPort
	known  bool // the peer is an instance, not an eNodeB
	conn   net.Conn
	sctp   *sctp.Conn // conn, if it uses SCTP; otherwise nil
	raw    syscall.RawConn
	write  func(fd uintptr) bool // writeSome, for raw; stored because each closure allocates

	mu       sync.Mutex
	out      []byte // send queue: frames to write
	sent     int    // octets of out that are already written
	draining bool   // the goroutine drain is running
	err      error  // why the association has ended; nil: it has not
}

// newAssociation returns an association over a connection. It fails if the peer of a new SCTP
// association has ended the association already: the connection then has no peer address.
func newAssociation(s *Server, conn net.Conn, known bool) (*association, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("use a connection: %w", err)
	}
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("use a connection: %w", net.ErrClosed)
	}
	peer := remote.AddrPort()
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := limitSilence(tcp, raw, silence); err != nil {
			return nil, fmt.Errorf("use a connection: %w", err)
		}
	}
	a := &association{server: s, conn: conn, raw: raw, known: known, peer: netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())}
	a.sctp, _ = conn.(*sctp.Conn)
	a.write = a.writeSome
	return a, nil
}

// limitSilence ends a connection whose peer's host is gone. Probes find that out while nothing waits
// for an acknowledgement, and TCP_USER_TIMEOUT of tcp(7) does while something waits. Without it, the
// kernel would send for a quarter of an hour.
func limitSilence(conn *net.TCPConn, raw syscall.RawConn, limit time.Duration) error {
	probes := net.KeepAliveConfig{Enable: true, Idle: limit / 2, Interval: limit / 6, Count: 3}
	if err := conn.SetKeepAliveConfig(probes); err != nil {
		return err
	}
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
	return errors.Join(err, os.NewSyscallError("setsockopt", failed))
}

// forward queues a copy of a whole frame.
func (a *association) forward(whole []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.reserve(len(whole)) {
		return false
	}
	a.out = append(a.out, whole...)
	return true
}

// send queues a copy of a message as a frame.
func (a *association) send(stream uint16, message []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.reserve(frame.HeaderSize + len(message)) {
		return false
	}
	a.out = frame.Append(a.out, stream, message)
	return true
}

// reserve reserves n octets in the send queue. All queues share one budget. A queue may hold at
// most 1/queueShare of the free budget, so that peers that do not read, or an eNodeB that sends
// more than its instance reads, cannot exhaust it (Choudhury and Hahne, Dynamic queue length
// thresholds for shared-memory packet switches, 1998). Without room reserve ends the
// association.
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

// fail ends the association, so that read returns. The caller holds a.mu.
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

// abortFor ends the association. The first reason counts.
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

// flush writes the send queue without blocking. If the socket accepts only a part, a goroutine
// writes the rest.
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

// writeSome writes as much as the socket accepts. It always returns true, because
// RawConn.Write would block on false.
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

// sendNow sends from out without blocking. Over SCTP it sends only whole frames.
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

// reuse empties the send queue after all of it is written, and frees a large buffer.
func (a *association) reuse() {
	a.out, a.sent = a.out[:0], 0
	if cap(a.out) > keptBuffer {
		a.out = nil
	}
}

// drain writes until the send queue is empty. It ends the association if the peer does not read
// for the time stall, and counts that as one drop.
func (a *association) drain() {
	for {
		a.mu.Lock()
		if a.err != nil || a.sent == len(a.out) {
			if a.err == nil {
				a.reuse()
				_ = a.conn.SetWriteDeadline(time.Time{}) // otherwise flush fails once the deadline has passed
			}
			a.draining = false
			a.mu.Unlock()
			return
		}
		rest := a.out[a.sent:]
		a.mu.Unlock()
		// rest stays valid without the lock: send only appends to out, and fail only drops it.
		_ = a.conn.SetWriteDeadline(time.Now().Add(stall)) // a closed connection fails below
		n, err := a.conn.Write(rest)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errStuck
			if n > 0 { // the peer reads, but slowly
				err = nil
			}
		}
		a.mu.Lock()
		if a.err == nil {
			a.sent += n
			a.server.queued.Add(-int64(n))
			if err != nil {
				a.fail(err)
				a.server.drop(meter.Unsent, a.peer)
			} else {
				a.out, a.sent = bytes.Clone(a.out[a.sent:]), 0 // frees what is sent, which no longer counts
			}
		}
		a.mu.Unlock()
	}
}

// A reading is the receive buffer of an association and its deadlines.
type reading struct {
	buffer   []byte
	long     bool      // frames above shortFrame are admitted
	to       int       // octets in buffer
	first    time.Time // deadline of S1 Setup; zero: none
	partial  time.Time // deadline for the rest of a partial frame; zero: there is none
	deadline time.Time // the read deadline of the connection
}

// read reads until the association ends, and passes whole frames to received, which must not
// retain them.
func (a *association) read(r *reading, received func(frames []byte)) error {
	r.buffer = make([]byte, firstBuffer)
	for {
		if err := errors.Join(r.grow(), r.setDeadline(a.conn)); err != nil {
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

// grow makes room for a frame that is longer than the buffer.
func (r *reading) grow() error {
	size, most := len(r.buffer), shortFrame
	if r.long {
		most = longFrame
	}
	switch {
	case r.to < size:
		return nil
	case size >= most:
		return frame.ErrLength
	}
	larger := make([]byte, min(2*size, most)) // append would take more
	copy(larger, r.buffer)
	r.buffer = larger
	return nil
}

// whole returns the length of the whole frames in the buffer, in octets.
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

// keep moves the octets after the whole frames to the front of the buffer. It frees a long buffer that is
// empty.
func (r *reading) keep(whole int) {
	r.to = copy(r.buffer, r.buffer[whole:r.to])
	switch {
	case r.to == 0:
		r.partial = time.Time{}
		if len(r.buffer) > shortFrame {
			r.buffer = make([]byte, firstBuffer)
		}
	case whole > 0 || r.partial.IsZero():
		r.partial = time.Now().Add(stall)
	}
}

// setDeadline sets the read deadline to the earlier of first and partial.
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
