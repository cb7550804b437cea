package http2

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// fragment reads the frame's part of a header block (sections 6.2, 6.6 and
// 6.10).
func (d *Decoder) fragment(data []byte) (n int, e Event, err error) {
	b := &d.block
	if !b.isLost && d.left > maxHead-len(b.octets) {
		d.lose()
	}
	if b.isLost {
		d.state = inRest
		return 0, again, nil
	}
	if len(data) < d.left {
		return 0, More, nil
	}
	n = d.left
	part, ok := d.strip(data[:n:n])
	if !ok {
		return 0, More, fmt.Errorf("%w: padding in %d octets", ErrFrame, n)
	}
	d.left, d.state = 0, atFrame
	if b.isOpen || len(b.octets) > 0 {
		b.octets = append(b.octets, part...)
		part = b.octets
	}
	if b.isOpen {
		return n, again, nil
	}
	err = d.message(part)
	switch {
	case errors.Is(err, errCopied):
		d.state = inRest
		return n, again, nil
	case err != nil:
		return 0, More, err
	}
	return n, Head, nil
}

// strip removes padding, priority and the number of a promised stream.
func (d *Decoder) strip(part []byte) (rest []byte, ok bool) {
	if d.frame.kind == typeContinuation {
		return part, true
	}
	padding := 0
	rest = part[d.frame.overhead():]
	if d.frame.has(flagPadded) {
		padding, part = int(part[0]), part[1:]
	}
	if d.frame.kind == typePush {
		d.block.promised = streamID(part)
	}
	if padding > len(rest) {
		return nil, false
	}
	return rest[:len(rest)-padding], true
}

// message decodes a header block.
func (d *Decoder) message(octets []byte) error {
	b, m := &d.block, &d.Message
	d.state, d.Stream = atFrame, b.stream
	if err := d.blocks.decode(octets); err != nil {
		d.lose()
		return fmt.Errorf("%w: %w", ErrBlock, err)
	}
	m.read(d.blocks.fields, d.blocks.dropped)
	if b.isPush {
		d.Stream, m.Promised = b.promised, b.stream
		if m.Kind == Unclear {
			m.Kind = Request // a server promises only requests
		}
	} else {
		d.begin(m)
	}
	if b.ends {
		d.state = atEnd
	}
	d.count(m)
	return nil
}

// begin registers the stream of a final head. It also classifies a block of
// unknown fields on a known stream as trailers.
func (d *Decoder) begin(m *Message) {
	of := d.streams.find(d.Stream)
	isLater := of != nil // a block after the head
	switch {
	case m.Kind == Unclear && isLater:
		m.Kind = Trailers
		fallthrough
	case m.Kind == Trailers && isLater:
		m.IsMalformed = m.IsMalformed || !d.block.ends
		of.isWhole = of.isWhole && !m.IsPartial()
	case m.Kind != Trailers && m.Kind != Unclear && !m.IsInterim():
		of, forgot := d.streams.open(d.Stream)
		of.gap, of.isWhole = d.gap, !m.IsPartial()
		if forgot {
			d.Counts.Forgotten++
		}
	}
}

func (d *Decoder) count(m *Message) {
	c := &d.Counts
	c.Heads++
	c.Fields += uint64(len(m.Fields) + m.Dropped)
	c.Unknown += uint64(m.Unknown)
	c.Dropped += uint64(m.Dropped)
	c.Partial += one(m.IsPartial())
	c.Malformed += one(m.IsMalformed)
	c.Unclear += one(m.Kind == Unclear)
	c.UnknownMethods += one(m.lacks(m.Method, false))
	c.UnknownPaths += one(m.lacks(m.Path, true))
}

func one(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

// lose gives up the block. The block may have inserted entries into the dynamic
// table, so the indexes of all earlier entries are unknown.
func (d *Decoder) lose() {
	if d.block.isLost {
		return
	}
	d.block.isLost = true
	d.Counts.Undecoded++
	if !d.block.isPush {
		d.streams.cut(d.block.stream)
	}
	d.forget()
}

func (d *Decoder) forget() { d.blocks.table.forget() }

func streamID(b []byte) uint32 { return binary.BigEndian.Uint32(b) &^ (1 << 31) }

func code(b []byte) Code { return Code(binary.BigEndian.Uint32(b)) }
