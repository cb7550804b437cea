package forwarder

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// addresses holds the link-layer addresses of a forwarder.
type addresses struct {
	own    [6]byte // incoming interface: only frames to this address are forwarded
	source [6]byte // outgoing interface
	next   [6]byte // next hop
}

// A verdict is the treatment of a frame. All frames but forwarded ones are left
// unchanged to the host's own stack.
type verdict uint8

const (
	forwarded verdict = iota
	short             // the frame ends inside its Ethernet header or VLAN tags
	notOurs           // to another, multicast or broadcast address: ARP requests, flooded frames
	notIP             // ARP answers, LLDP and similar
	verdicts
)

const (
	macSize    = 6  // bytes
	headerSize = 14 // bytes: two addresses and a type
	tagSize    = 4  // bytes of a VLAN tag (IEEE 802.1Q)
	maxTags    = 2  // IEEE 802.1ad
)

// classify returns the verdict on a frame. The frame begins with its Ethernet
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

// rewrite sets the frame's destination to the next hop and its source to our own
// address. classify must have returned forwarded for the frame.
func (a *addresses) rewrite(frame []byte) {
	copy(frame, a.next[:])
	copy(frame[macSize:], a.source[:])
}

// retag inserts a VLAN tag into the frame that follows tagSize free bytes.
func retag(free []byte, tag uint32) []byte {
	copy(free, free[tagSize:][:2*macSize])
	binary.BigEndian.PutUint32(free[2*macSize:], tag)
	return free
}
