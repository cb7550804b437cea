// Package sipudp carries SIP over UDP from one node to the next: sockets that
// report when each datagram reached the kernel, and the transactions of a proxy
// (RFC 3261 sections 16 and 17). Messages are sipgo's. The package does not use
// sipgo's transport and transaction layers, because they hide the arrival time
// and cost about three times the CPU per message (see README).
package sipudp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"vitrine/internal/truth"
	"vitrine/reference/ims/socket"
)

// maxDatagram is the largest UDP payload.
const maxDatagram = 65535

// receiveQueue is the requested size of the kernel's receive queue, in bytes. The kernel may
// grant less, and drops datagrams that do not fit.
const receiveQueue = 1 << 20

// A Socket is a UDP socket, connected or not. Its methods may be called
// concurrently.
type Socket struct {
	conn   *net.UDPConn
	raw    socket.Socket
	local  netip.AddrPort
	remote netip.AddrPort // zero if not connected

	// Messages logs sent messages; nil: no log. It is set before the first message is
	// sent.
	Messages *truth.Log

	// SentBy is the node's address in the Via of requests; zero: the address that the
	// socket is bound to. Answers go to the source port in any case (RFC 3581 section 4).
	// It is set before the first message is sent.
	SentBy netip.AddrPort
}

// Listen returns a socket bound to an address.
func Listen(local netip.AddrPort) (*Socket, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
	if err != nil {
		return nil, err
	}
	return newSocket(conn, netip.AddrPort{})
}

// Dial returns a socket from a free port of local to remote. It receives from
// remote only.
func Dial(local netip.Addr, remote netip.AddrPort) (*Socket, error) {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)), net.UDPAddrFromAddrPort(remote))
	if err != nil {
		return nil, err
	}
	return newSocket(conn, remote)
}

func newSocket(conn *net.UDPConn, remote netip.AddrPort) (*Socket, error) {
	if err := conn.SetReadBuffer(receiveQueue); err != nil {
		conn.Close()
		return nil, fmt.Errorf("set the receive queue of %s to %d bytes: %w", conn.LocalAddr(), receiveQueue, err)
	}
	if err := stampArrivals(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask for arrival times on %s: %w", conn.LocalAddr(), err)
	}
	raw, err := socket.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	return &Socket{conn: conn, raw: raw, local: netip.AddrPortFrom(local.Addr().Unmap(), local.Port()), remote: remote}, nil
}

// Local returns the address that the socket is bound to.
func (s *Socket) Local() netip.AddrPort { return s.local }

// sentBy returns the address for the Via of requests.
func (s *Socket) sentBy() netip.AddrPort {
	if s.SentBy.IsValid() {
		return s.SentBy
	}
	return s.local
}

// Close closes the socket, which ends Serve.
func (s *Socket) Close() error { return s.conn.Close() }

// An Arrival is the source and time of a datagram. At is when the kernel received
// the datagram, so that the time in the receive queue can be measured. If the
// kernel does not report it, At is the time of the read. At has a monotonic clock
// reading: a step of the host's clock has no effect on later datagrams.
type Arrival struct {
	From, To netip.AddrPort
	At       time.Time
}

// Serve calls handle for each datagram, one at a time, until the socket is
// closed. data is valid until handle returns. refused, which may be nil, is
// called for each ICMP error about a datagram to the connected remote: nobody
// listens there, or a router drops what goes there.
func (s *Socket) Serve(handle func(data []byte, a Arrival), refused func()) error {
	buf := make([]byte, maxDatagram)
	oob := make([]byte, oobSize)
	for {
		n, oobn, from, err := s.raw.ReadMsg(buf, oob)
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		case fromICMP(err):
			if refused != nil {
				refused()
			}
			continue
		default:
			return fmt.Errorf("receive on %s: %w", s.local, err)
		}
		at := time.Now()
		if stamp, ok := arrivalTime(oob[:oobn]); ok {
			at = arrivedAt(at, stamp)
		}
		handle(buf[:n], Arrival{From: from, To: s.local, At: at})
	}
}

// A Peer is a destination of messages: an address reached through a socket or,
// with a zero address, the remote of a connected socket.
type Peer struct {
	Socket *Socket
	To     netip.AddrPort
}

// Send sends one datagram, and logs it with an event of this node.
func (p Peer) Send(data []byte, of truth.Event) error {
	var err error
	to := p.To
	if to.IsValid() {
		_, err = p.Socket.raw.WriteTo(data, to)
	} else {
		_, err = p.Socket.raw.Write(data)
		to = p.Socket.remote
	}
	if log := p.Socket.Messages; log != nil && err == nil {
		log.Write(truth.Line{Src: p.Socket.local, Dst: to, Protocol: truth.SIP, Name: name(data), Event: of, Key: truth.Hash(data)})
	}
	return err
}

// Received logs a received datagram with an event of this node.
func Received(log *truth.Log, data []byte, a Arrival, of truth.Event) {
	if log != nil {
		log.Write(truth.Line{Src: a.From, Dst: a.To, Received: true, Protocol: truth.SIP, Name: name(data), Event: of, Key: truth.Hash(data)})
	}
}

// name returns the first line of a message.
func name(data []byte) string {
	line, _, _ := bytes.Cut(data, []byte("\r\n"))
	return string(line)
}
