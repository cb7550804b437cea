package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// The blocks of pcapng that packets need (draft-ietf-opsawg-pcapng).
const (
	sectionHeader   = 0x0a0d0d0a
	interfaceBlock  = 1
	obsoletePacket  = 2
	simplePacket    = 3
	enhancedPacket  = 6
	byteOrderMagic  = 0x1a2b3c4d
	blockEdges      = 12 // type, length, and the length again at the end
	endOfOptions    = 0
	timeResolution  = 9  // option if_tsresol, 1 byte
	timeOffset      = 14 // option if_tsoffset, 8 bytes
	privateLinkType = 147
)

// pcapng reads blocks up to one that packets need, and passes it on without the options
// that they do not need.
func (g *guard) pcapng() error {
	for {
		g.record, g.start = g.record[:0], g.read
		head, err := g.take(8)
		if err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(head) == sectionHeader { // a palindrome
			return g.section()
		}
		if g.order == nil {
			return errors.New("the file does not begin with a section header")
		}
		kind, length := g.order.Uint32(head), g.order.Uint32(head[4:])
		if length < blockEdges || length%4 != 0 {
			return fmt.Errorf("a block of %d bytes", length)
		}
		body := int(length) - blockEdges
		switch kind {
		case interfaceBlock:
			return g.describe(body)
		case enhancedPacket, obsoletePacket:
			return g.packet(kind, body)
		case simplePacket:
			return g.simple(body)
		}
		if err := g.skip(body + 4); err != nil {
			return err
		}
	}
}

// section reads a section header. Interface numbers restart at zero.
func (g *guard) section() error {
	rest, err := g.take(16) // byte order, version, length of the section
	if err != nil {
		return err
	}
	switch {
	case binary.LittleEndian.Uint32(rest) == byteOrderMagic:
		g.order = binary.LittleEndian
	case binary.BigEndian.Uint32(rest) == byteOrderMagic:
		g.order = binary.BigEndian
	default:
		return errors.New("a section header without byte order")
	}
	if minor := rest[6:]; g.order.Uint16(minor) == 2 { // the same as 0 (draft-ietf-opsawg-pcapng section 4.1)
		g.order.PutUint16(minor, 0)
	}
	const fixed = 16
	length := g.order.Uint32(g.record[4:])
	if length < blockEdges+fixed || length%4 != 0 {
		return fmt.Errorf("a section header of %d bytes", length)
	}
	g.base += len(g.links)
	g.links, g.units, g.first = g.links[:0], g.units[:0], 0
	if err := g.skip(int(length) - blockEdges - fixed); err != nil {
		return err
	}
	return g.end(length)
}

// describe reads an interface description. It keeps only the options that affect times.
func (g *guard) describe(body int) error {
	const fixed = 8
	if body < fixed {
		return errors.New("an interface description that is too short")
	}
	if g.base+len(g.links) == maxInterfaces {
		return fmt.Errorf("more than %d interfaces", maxInterfaces)
	}
	length := uint32(body + blockEdges)
	head, err := g.take(fixed)
	if err != nil {
		return err
	}
	link := LinkType(g.order.Uint16(head))
	if len(g.links) == 0 {
		g.first = g.order.Uint32(head[4:])
	}
	g.links, g.units = append(g.links, link), append(g.units, 0)
	if link > 0xff {
		// For each packet, pcapgo converts the link type to an interface value, which
		// allocates for numbers above 255. The true link type is in links.
		g.order.PutUint16(head, privateLinkType)
	}
	if err := g.options(body - fixed); err != nil {
		return err
	}
	return g.end(length)
}

// options reads the options of an interface. It keeps only those that affect times.
func (g *guard) options(left int) error {
	for left > 0 {
		at := len(g.record)
		head, err := g.take(4)
		if err != nil {
			return err
		}
		code, length := g.order.Uint16(head), int(g.order.Uint16(head[2:]))
		if left -= 4; code == endOfOptions {
			g.record = g.record[:at]
			break
		}
		padded := length + padding(length)
		if padded > left {
			return fmt.Errorf("option %d of %d bytes is longer than its block", code, length)
		}
		left -= padded
		if code == timeResolution && length == 1 || code == timeOffset && length == 8 {
			var value []byte
			if value, err = g.take(padded); err == nil && code == timeResolution {
				g.unit(value)
			}
		} else {
			g.record = g.record[:at]
			err = g.skip(padded)
		}
		if err != nil {
			return err
		}
	}
	g.record = append(g.record, 0, 0, 0, 0) // endOfOptions
	return g.skip(left)
}

// unit notes the unit of an interface's times. pcapgo is wrong by up to 7% for powers of two, so it
// gets nanoseconds in their place.
func (g *guard) unit(value []byte) {
	const power, largest, nano = 0x80, 63, 9 // power: of two; nano: 10^-9 s
	of := &g.units[len(g.units)-1]
	*of = 0
	if n := value[0] &^ power; value[0]&power != 0 && 0 < n && n <= largest {
		*of, value[0] = n, nano
	}
}

// nanosecondsOf converts a time in units of 2^-n s.
func nanosecondsOf(t uint64, n uint8) uint64 {
	high, low := bits.Mul64(t&(1<<n-1), 1e9)
	return (t>>n)*1e9 + (high<<(64-n) | low>>n)
}

// packet reads an enhanced packet, or an obsolete packet, which has the same layout except for a
// shorter interface number, and drops its options.
func (g *guard) packet(kind uint32, body int) error {
	const fixed = 20
	if body < fixed {
		return errors.New("a packet block that is too short")
	}
	head, err := g.take(fixed)
	if err != nil {
		return err
	}
	index := g.order.Uint32(head)
	if kind == obsoletePacket {
		index = uint32(g.order.Uint16(head))
	}
	if index < uint32(len(g.units)) && g.units[index] > 0 {
		at := nanosecondsOf(uint64(g.order.Uint32(head[4:]))<<32|uint64(g.order.Uint32(head[8:])), g.units[index])
		g.order.PutUint32(head[4:], uint32(at>>32))
		g.order.PutUint32(head[8:], uint32(at))
	}
	captured := g.order.Uint32(head[12:])
	if captured > maxFrame {
		return fmt.Errorf("a frame of %d bytes: longer than %d", captured, maxFrame)
	}
	padded := int(captured) + padding(int(captured))
	if padded > body-fixed {
		return fmt.Errorf("a frame of %d bytes is longer than its block", captured)
	}
	if _, err := g.take(padded); err != nil {
		return err
	}
	if err := g.skip(body - fixed - padded); err != nil {
		return err
	}
	return g.end(uint32(body + blockEdges))
}

// simple reads a simple packet. Its captured length is not stored, but follows from the
// length of the packet and the snap length of interface 0.
func (g *guard) simple(body int) error {
	if body < 4 {
		return errors.New("a packet block that is too short")
	}
	head, err := g.take(4)
	if err != nil {
		return err
	}
	captured := g.order.Uint32(head)
	if g.first != 0 {
		captured = min(captured, g.first)
	}
	if captured > maxFrame {
		return fmt.Errorf("a frame of %d bytes: longer than %d", captured, maxFrame)
	}
	padded := int(captured) + padding(int(captured))
	if padded != body-4 {
		return fmt.Errorf("a frame of %d bytes in a block of %d", captured, body+blockEdges)
	}
	if _, err := g.take(padded); err != nil {
		return err
	}
	return g.end(uint32(body + blockEdges))
}

// end reads the length at the end of a block, and sets both lengths to the length of the
// record.
func (g *guard) end(length uint32) error {
	tail, err := g.take(4)
	if err != nil {
		return err
	}
	if again := g.order.Uint32(tail); again != length {
		return fmt.Errorf("a block of %d bytes that ends as one of %d", length, again)
	}
	g.order.PutUint32(tail, uint32(len(g.record)))
	g.order.PutUint32(g.record[4:], uint32(len(g.record)))
	return nil
}

// padding returns the number of bytes up to a multiple of four.
func padding(length int) int { return -length & 3 }
