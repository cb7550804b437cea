package forwarder

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// addresses are what a forwarder needs to know of the link layer.
type addresses struct {
	own    [6]byte // of the interface that is read: only frames to it are forwarded
	source [6]byte // of the interface that is sent on
	next   [6]byte // of who comes next
}

// A verdict is what becomes of a frame. All but forwarded ones are left to the
// host's own stack, as they came.
type verdict uint8

const (
	forwarded verdict = iota
	short             // it ends inside its Ethernet header or VLAN tags
	notOurs           // to another address, or to many: ARP requests, flooded frames
	notIP             // ARP answers, LLDP and the like
	verdicts
)

const (
	macSize    = 6  // bytes
	headerSize = 14 // bytes: two addresses and a type
	tagSize    = 4  // bytes of a VLAN tag (IEEE 802.1Q)
	maxTags    = 2  // IEEE 802.1ad
)

// classify says what becomes of the frame, which begins with its Ethernet
// header and has no frame check sequence.
func (a *addresses) classify(frame []byte) verdict {
	if len(frame) < headerSize {
		return short
	}
	if [macSize]byte(frame) != a.own {
		return notOurs
	}
	kind := frame[2*macSize:]
	for range maxTags {
		if t := binary.BigEndian.Uint16(kind); t != unix.ETH_P_8021Q && t != unix.ETH_P_8021AD {
			break
		}
		if len(kind) < 2+tagSize {
			return short
		}
		kind = kind[tagSize:]
	}
	switch binary.BigEndian.Uint16(kind) {
	case unix.ETH_P_IP, unix.ETH_P_IPV6:
		return forwarded
	}
	return notIP
}

// rewrite puts the next hop's address and our own in place of those of the
// frame, which classify has called forwarded.
func (a *addresses) rewrite(frame []byte) {
	copy(frame, a.next[:])
	copy(frame[macSize:], a.source[:])
}

// retag puts a VLAN tag into the frame that follows tagSize free bytes.
func retag(free []byte, tag uint32) []byte {
	copy(free, free[tagSize:][:2*macSize])
	binary.BigEndian.PutUint32(free[2*macSize:], tag)
	return free
}
