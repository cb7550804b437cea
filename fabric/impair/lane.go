package impair

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A lane holds packets that leave in the order of their arrival. The bytes of
// all packets are in one ring. A lane does not allocate per packet.
type lane struct {
	bytes   []byte // mapped, so that unused parts take no memory
	packets []held // a ring; its length is a power of two
	first   int    // the packet that leaves next: packets[first&mask]
	after   int    // one past the latest
	write   int    // where the next packet goes in bytes
}

// A held packet is bytes[at:at+length]. It leaves at the time leaves.
type held struct {
	leaves     int64
	at, length int
}

// bytesPerPacket is the average packet length that a lane has room for. With
// shorter packets the list of packets fills before the bytes.
const bytesPerPacket = 128

// newLane makes a lane with room for so many bytes, rounded up to a power of
// two.
func newLane(room int) (*lane, error) {
	size := 1 << 16
	for size < room {
		size <<= 1
	}
	bytes, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("making room for %d bytes of packets: %w", size, err)
	}
	return &lane{bytes: bytes, packets: make([]held, size/bytesPerPacket)}, nil
}

func (l *lane) close() error { return unix.Munmap(l.bytes) }

func (l *lane) empty() bool { return l.first == l.after }

// peek returns the packet n after the head, or nil if there is none.
func (l *lane) peek(n int) *held {
	if l.first+n >= l.after {
		return nil
	}
	return &l.packets[(l.first+n)&(len(l.packets)-1)]
}

// pop drops the first n packets. Their bytes may be written over.
func (l *lane) pop(n int) { l.first += n }

// reserve returns room for a packet of length bytes, or nil if there is none.
// The packet counts only after commit, which may use fewer bytes.
func (l *lane) reserve(length int) []byte {
	if l.empty() {
		l.first, l.after, l.write = 0, 0, 0
	}
	if l.after-l.first == len(l.packets) || length > len(l.bytes) {
		return nil
	}
	oldest := l.write // in an empty lane all is free
	if !l.empty() {
		oldest = l.peek(0).at
	}
	switch {
	case l.empty() || l.write > oldest: // free: from write to the end, and from the start to oldest
		if l.write+length <= len(l.bytes) {
			return l.bytes[l.write : l.write+length]
		}
		if length < oldest { // strictly less: if write met oldest, a full lane would look empty
			l.write = 0
			return l.bytes[:length]
		}
	case l.write+length < oldest:
		return l.bytes[l.write : l.write+length]
	}
	return nil
}

// commit adds the packet that the caller wrote into the room from reserve.
func (l *lane) commit(length int, leaves int64) {
	l.packets[l.after&(len(l.packets)-1)] = held{leaves: leaves, at: l.write, length: length}
	l.after++
	l.write += length
}
