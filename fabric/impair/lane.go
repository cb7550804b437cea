package impair

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A lane holds packets that leave in the order in which they came, each a run of
// bytes in one ring. It makes no garbage.
type lane struct {
	bytes   []byte // mapped, so that what is never used takes no memory
	packets []held // a ring; a power of two
	first   int    // the packet that leaves next: packets[first&mask]
	after   int    // one past the latest
	write   int    // where in bytes the next one goes
}

// A held packet is bytes[at:at+length], to leave at leaves.
type held struct {
	leaves     int64
	at, length int
}

// bytesPerPacket is what a lane has room for on average: packets shorter than
// that fill its list before its bytes.
const bytesPerPacket = 128

// newLane makes room for so many bytes, rounded up to a power of two.
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

// peek is the packet n after the head; nil when there are not so many.
func (l *lane) peek(n int) *held {
	if l.first+n >= l.after {
		return nil
	}
	return &l.packets[(l.first+n)&(len(l.packets)-1)]
}

// pop drops the first n packets. Their bytes may be written over.
func (l *lane) pop(n int) { l.first += n }

// reserve finds room for a packet of at most length bytes; nil when there is
// none. The packet counts once it is committed.
func (l *lane) reserve(length int) []byte {
	if l.empty() {
		l.first, l.after, l.write = 0, 0, 0
	}
	if l.after-l.first == len(l.packets) || length > len(l.bytes) {
		return nil
	}
	oldest := l.write // of an empty lane: all is free
	if !l.empty() {
		oldest = l.peek(0).at
	}
	switch {
	case l.empty() || l.write > oldest: // free: from write to the end, and from the start to oldest
		if l.write+length <= len(l.bytes) {
			return l.bytes[l.write : l.write+length]
		}
		if length < oldest { // strictly: were write to meet oldest, full would look empty
			l.write = 0
			return l.bytes[:length]
		}
	case l.write+length < oldest:
		return l.bytes[l.write : l.write+length]
	}
	return nil
}

// commit adds the packet that was written into what reserve gave.
func (l *lane) commit(length int, leaves int64) {
	l.packets[l.after&(len(l.packets)-1)] = held{leaves: leaves, at: l.write, length: length}
	l.after++
	l.write += length
}
