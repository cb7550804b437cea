// Package datagram moves UDP messages in batches: one worker a core, each with
// its own sockets (SO_REUSEPORT), recvmmsg(2) and sendmmsg(2), and messages
// sent as vectors of what was received and what was added, so that nothing is
// copied and nothing is allocated for a message.
//
// System calls that cannot block are made without telling the Go scheduler; a
// worker with nothing to do sleeps in ppoll(2), which is told.
package datagram

import (
	"net/netip"
	"time"
)

const (
	// batch is the most datagrams of one system call.
	batch = 64
	// Largest is the most bytes of a datagram's payload (RFC 768 over IPv4 and IPv6).
	Largest = 65535 - 8
	// RoomSize is how many bytes of a Sender's Room are there without allocation.
	RoomSize = 1024
)

// A Datagram is one message as it came.
type Datagram struct {
	// Data is the payload. It may be changed in place and be part of what is
	// sent; it is valid until Handle returns, and as part of a message passed to
	// Sender.Send until that is sent.
	Data []byte
	// From is the sender's address; an IPv6 address is without zone.
	From netip.AddrPort
	// Listener is the index, in Config.Addresses, of the address it came to.
	Listener int
	// At is when its batch was read, by Config.Now.
	At time.Duration
}

// A Handler takes the datagrams of one worker. It is called by that worker
// only; in is overwritten when Handle has returned.
type Handler interface {
	Handle(in *Datagram, out *Sender)
}

// Counters are totals since the sockets were opened (Dropped) and since Listen
// (all others).
type Counters struct {
	Received uint64 // datagrams read
	Sent     uint64 // datagrams that the kernel took
	Unsent   uint64 // datagrams that it refused: no route, too long, no room for long
	Dropped  uint64 // datagrams that the kernel threw away because a socket's buffer was full
	Reads    uint64 // recvmmsg calls that brought something
	Writes   uint64 // sendmmsg calls
}
