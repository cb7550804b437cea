// Package stream reassembles the byte streams of TCP connections from captured
// segments, which may be lost, repeated, in another order, or begin in the middle of
// a connection.
//
// It delivers bytes in order, without copying bytes that arrive in order. It holds early
// bytes, within bounds. If the missing bytes do not arrive in time, or a bound is hit, it
// reports the number of lost bytes and continues after them. The decoder above then has to
// find the start of a message again.
package stream

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// A Handler receives the streams. Its methods must not call the Assembler.
type Handler interface {
	// Data receives the next bytes of a direction. at is the time of the segment that
	// carried them, in nanoseconds since 1970; it may be earlier than in a previous call. b
	// is valid until Data returns.
	Data(h *Half, at int64, b []byte)
	// Gap reports that the next n bytes of a direction are lost. n may be wrong by a
	// multiple of 2^32.
	Gap(h *Half, at int64, n int)
	// End reports the end of a direction. It is called once for each direction in which
	// something was sent or acknowledged. After the second End of a connection, its halves
	// are reused for other connections.
	End(h *Half, why Reason)
}

// A Half is one direction of a connection.
type Half struct {
	Src, Dst netip.AddrPort
	Peer     *Half // the other direction
	Opened   bool  // its sender opened the connection
	State    any   // for the Handler. It is nil at first.

	*Shared

	connection *connection
	started    bool   // start and next are known
	ended      bool   // End was called
	finished   bool   // fin is known
	start      uint32 // sequence number of the first byte
	next       uint32 // sequence number of the byte that Data or Gap begins with next
	fin        uint32 // sequence number after the last byte
	early      *chunk // bytes after next, in order and disjoint
	last       *chunk // of early

	// A list of halves that wait for bytes, the longest waiting first.
	waiting    bool
	acked      bool  // the receiver has acknowledged the missing bytes
	since      int64 // when it began to wait, or when the acknowledgement came
	prev, succ *Half
}

// Shared is what the Handler sets for both directions of a connection, in any of its methods. It is
// zero at first.
type Shared struct {
	Memory  int  // bytes that the Handler holds for the connection
	Lasting bool // the connection is kept while it is idle, as long as there is memory
}

// A Reason says why a direction ended.
type Reason uint8

// Reasons of an end.
const (
	Finished Reason = iota // FIN, after all bytes
	Reset                  // RST of either side
	Reused                 // another connection has the same ports
	Idle                   // no segment for Options.Idle
	Evicted                // Options.MaxMemory is used up
	Flushed                // the captures ended
)

func (r Reason) String() string {
	switch r {
	case Finished:
		return "finished"
	case Reset:
		return "reset"
	case Reused:
		return "reused"
	case Idle:
		return "idle"
	case Evicted:
		return "evicted"
	case Flushed:
		return "flushed"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Options configure an Assembler. The zero value has the defaults. Times are those of
// the capture.
type Options struct {
	// MaxMemory bounds the bytes of early segments and connections, with Shared.Memory. Zero
	// means 256 MiB.
	MaxMemory int
	// MaxConnection bounds the bytes of early segments of one connection. Zero means 4 MiB.
	MaxConnection int
	// GapTimeout is how long early bytes wait for missing bytes before them. Zero means 3
	// s.
	GapTimeout time.Duration
	// Idle is how long a connection is kept without a segment, unless it is Lasting. Zero
	// means 15 min.
	Idle time.Duration
	// Linger is how long an ended connection is kept, so that its late segments do not
	// begin a new one. Zero means 10 s.
	Linger time.Duration
}

// withDefaults returns the options with defaults in place of zeros.
func (o Options) withDefaults() Options {
	o.MaxMemory = cmp.Or(o.MaxMemory, 256<<20)
	o.MaxConnection = cmp.Or(o.MaxConnection, 4<<20)
	o.GapTimeout = cmp.Or(o.GapTimeout, 3*time.Second)
	o.Idle = cmp.Or(o.Idle, 15*time.Minute)
	o.Linger = cmp.Or(o.Linger, 10*time.Second)
	return o
}

// Counts says what was delivered, and what was not.
type Counts struct {
	Segments    uint64
	Connections uint64

	Bytes    uint64 // delivered
	Early    uint64 // bytes of segments that were held because others before them were missing
	Repeated uint64 // bytes that had been delivered or held before
	Late     uint64 // bytes after the end of their direction

	Lost Lost

	Evicted uint64 // connections ended because memory was used up
}

// Lost counts bytes that Gap reported, by the cause.
type Lost struct {
	Timeout    uint64 // they did not arrive in time
	Connection uint64 // the connection held as much as it may
	Memory     uint64 // all connections together held as much as they may
	Cut        uint64 // the capture cut them off
	End        uint64 // the connection or the capture ended
}
