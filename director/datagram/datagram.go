// Package datagram moves UDP messages in batches. There is one worker per core, each with
// its own sockets (SO_REUSEPORT), recvmmsg(2) and sendmmsg(2). A message is sent as
// vectors of received and added parts, so that no message is copied or allocated.
//
// System calls that cannot block bypass the Go scheduler. A worker that has been idle for a
// while sleeps in ppoll(2) through the scheduler, which can then run other goroutines.
package datagram

import (
	"net/netip"
	"time"
)

const (
	// batch is the maximum number of datagrams per system call.
	batch = 64
	// Largest is the maximum payload of a datagram in bytes (RFC 768 over IPv4 and IPv6).
	Largest = 65535 - 8
	// RoomSize is the capacity of a Sender's Room in bytes. Longer texts are allocated.
	RoomSize = 1024
)

// A Datagram is one received message.
type Datagram struct {
	// Data is the payload. The handler may change it in place and send parts of it. It is
	// valid until Handle returns; parts that were passed to Sender.Send are valid until
	// they are sent.
	Data []byte
	// From is the sender's address; an IPv6 address has no zone.
	From netip.AddrPort
	// Listener is the index, in Config.Addresses, of the receiving address.
	Listener int
	// At is the time when its batch was read, by Config.Now.
	At time.Duration
}

// A Handler handles the datagrams of one worker. Only that worker calls it. in is
// overwritten after Handle returns.
type Handler interface {
	Handle(in *Datagram, out *Sender)
}

// Counters are totals since the sockets were opened (Dropped) and since Listen (all
// others).
type Counters struct {
	Received uint64 // datagrams read
	Sent     uint64 // datagrams that the kernel accepted
	Unsent   uint64 // datagrams that the kernel refused: no route, too long, or no buffer space for long
	Dropped  uint64 // datagrams that the kernel discarded because a socket's buffer was full
	Reads    uint64 // recvmmsg calls that returned datagrams
	Writes   uint64 // sendmmsg calls
	Refused  Refusal
}

// A Refusal is the last datagram of a Group that the kernel refused.
type Refusal struct {
	To  netip.AddrPort
	Err error // a unix.Errno; nil: the kernel has refused none
}
