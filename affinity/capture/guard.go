package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxFrame is the longest frame that is read, in bytes: MAXIMUM_SNAPLEN of libpcap.
const maxFrame = 256 << 10

// maxInterfaces bounds the interface descriptions of a file.
const maxInterfaces = 1 << 12

// A guard filters a file for pcapgo. It passes on one checked record at a time and drops
// data that packets do not need. So no length in the file makes pcapgo allocate, and no
// pcapng packet allocates for its options.
type guard struct {
	in     *bufio.Reader
	next   func() error // reads the next record into record
	record []byte
	unread []byte // of record
	err    error

	read  int64 // bytes taken from in
	start int64 // where the current record begins

	order binary.ByteOrder

	// pcapng
	links []LinkType // of the interfaces of the current section
	units []uint8    // units of those interfaces' times: n means 2^-n s, which the guard converts; 0: another unit
	first uint32     // snap length of the section's interface 0
	base  int        // interfaces of the earlier sections
}

// Damage is the error for a file that cannot be read to its end. Everything before
// Offset was delivered.
type Damage struct {
	File   string
	Offset int64 // where the record in question begins, in bytes of the uncompressed file
	What   error // io.ErrUnexpectedEOF: the file is truncated there
}

func (e *Damage) Error() string {
	if errors.Is(e.What, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("%s: truncated in the record at byte %d; the records before it were read", e.File, e.Offset)
	}
	return fmt.Sprintf("%s: record at byte %d: %v; the records before it were read", e.File, e.Offset, e.What)
}

func (e *Damage) Unwrap() error { return e.What }

// Read implements io.Reader. It never returns bytes of two records in one call, so pcapgo
// does not read ahead of the packet that it returns.
func (g *guard) Read(p []byte) (int, error) {
	for len(g.unread) == 0 {
		if g.err != nil {
			return 0, g.err
		}
		g.record, g.start = g.record[:0], g.read
		if g.err = g.next(); g.err == nil {
			g.unread = g.record
		}
	}
	n := copy(p, g.unread)
	g.unread = g.unread[n:]
	return n, nil
}

// take appends n bytes of the file to the record and returns them. The error is
// io.EOF at the end of the file, if the record is empty.
func (g *guard) take(n int) ([]byte, error) {
	at := len(g.record)
	if cap(g.record) < at+n {
		g.record = append(make([]byte, 0, max(2*cap(g.record), at+n)), g.record...)
	}
	g.record = g.record[:at+n]
	got, err := io.ReadFull(g.in, g.record[at:])
	g.read += int64(got)
	if err == io.EOF && at > 0 { //nolint:errorlint // io.ReadFull returns io.EOF itself
		err = io.ErrUnexpectedEOF
	}
	return g.record[at:], err
}

// skip drops n bytes of the file.
func (g *guard) skip(n int) error {
	got, err := g.in.Discard(n)
	g.read += int64(got)
	if err == io.EOF { //nolint:errorlint // bufio returns io.EOF itself
		err = io.ErrUnexpectedEOF
	}
	return err
}

// pcap reads the header of a pcap file, or one of its records
// (draft-ietf-opsawg-pcap).
func (g *guard) pcap() error {
	if g.order == nil {
		head, err := g.take(24)
		if err != nil {
			return err
		}
		g.order = binary.LittleEndian
		if head[0] == 0xa1 {
			g.order = binary.BigEndian
		}
		return nil
	}
	head, err := g.take(16)
	if err != nil {
		return err
	}
	captured := g.order.Uint32(head[8:])
	if captured > maxFrame {
		return fmt.Errorf("a frame of %d bytes: longer than %d", captured, maxFrame)
	}
	_, err = g.take(int(captured))
	return err
}
