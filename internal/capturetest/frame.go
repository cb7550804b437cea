package capturetest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/netip"
	"os"
)

// A File is a pcap file that frames are written to.
type File struct {
	out    *bufio.Writer
	closer io.Closer
	err    error
	record [16]byte
}

// Create creates a pcap file of Ethernet frames, with times in nanoseconds.
func Create(name string) (*File, error) {
	out, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	f := NewFile(out)
	f.closer = out
	return f, nil
}

// NewFile is like Create, for any writer.
func NewFile(out io.Writer) *File {
	f := &File{out: bufio.NewWriterSize(out, 1<<20)}
	header := binary.LittleEndian.AppendUint32(nil, 0xa1b23c4d)
	header = append(header, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	header = binary.LittleEndian.AppendUint32(header, 1<<18) // snapshot length
	header = binary.LittleEndian.AppendUint32(header, 1)     // Ethernet
	_, f.err = f.out.Write(header)
	return f
}

// Add writes a frame that was captured at a time, in ns since 1970.
func (f *File) Add(at int64, frame []byte) {
	if f.err != nil {
		return
	}
	binary.LittleEndian.PutUint32(f.record[0:], uint32(at/1e9))
	binary.LittleEndian.PutUint32(f.record[4:], uint32(at%1e9))
	binary.LittleEndian.PutUint32(f.record[8:], uint32(len(frame)))
	binary.LittleEndian.PutUint32(f.record[12:], uint32(len(frame)))
	if _, f.err = f.out.Write(f.record[:]); f.err == nil {
		_, f.err = f.out.Write(frame)
	}
}

// Close completes the file. It returns the first error of all writes.
func (f *File) Close() error {
	if err := f.out.Flush(); f.err == nil {
		f.err = err
	}
	if f.closer != nil {
		if err := f.closer.Close(); f.err == nil {
			f.err = err
		}
	}
	return f.err
}

// Frames makes Ethernet frames with IPv4 packets. Each packet has its own identification. A frame
// is valid until the next one is made. Checksums are zero.
type Frames struct {
	id    uint16
	frame []byte
}

// The protocols above IPv4.
const (
	tcp  = 6
	udp  = 17
	sctp = 132
)

// begin begins a frame for a payload of n bytes above IPv4.
func (f *Frames) begin(protocol byte, src, dst netip.Addr, n int) {
	f.id++
	b := append(f.frame[:0], 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+n))
	b = binary.BigEndian.AppendUint16(b, f.id)
	b = append(b, 0, 0, 64, protocol, 0, 0)
	from, to := src.As4(), dst.As4()
	f.frame = append(append(b, from[:]...), to[:]...)
}

// ports appends the ports of a transport.
func (f *Frames) ports(src, dst netip.AddrPort) {
	f.frame = binary.BigEndian.AppendUint16(f.frame, src.Port())
	f.frame = binary.BigEndian.AppendUint16(f.frame, dst.Port())
}

// UDP returns a datagram.
func (f *Frames) UDP(src, dst netip.AddrPort, payload []byte) []byte {
	f.begin(udp, src.Addr(), dst.Addr(), 8+len(payload))
	f.ports(src, dst)
	f.frame = binary.BigEndian.AppendUint16(f.frame, uint16(8+len(payload)))
	f.frame = append(append(f.frame, 0, 0), payload...)
	return f.frame
}

// The control bits of TCP.
const (
	SYN = 2
	ACK = 16
)

// TCP returns a segment.
func (f *Frames) TCP(src, dst netip.AddrPort, seq, ack uint32, flags byte, payload []byte) []byte {
	f.begin(tcp, src.Addr(), dst.Addr(), 20+len(payload))
	f.ports(src, dst)
	f.frame = binary.BigEndian.AppendUint32(f.frame, seq)
	f.frame = binary.BigEndian.AppendUint32(f.frame, ack)
	f.frame = append(f.frame, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	f.frame = append(f.frame, payload...)
	return f.frame
}

// SCTP returns a packet with one unfragmented user message.
func (f *Frames) SCTP(src, dst netip.AddrPort, tsn, ppid uint32, payload []byte) []byte {
	padding := -len(payload) & 3
	f.begin(sctp, src.Addr(), dst.Addr(), 12+16+len(payload)+padding)
	f.ports(src, dst)
	from, to := src.Addr().As4(), dst.Addr().As4()
	f.frame = append(f.frame, from[2], from[3], to[2], to[3], 0, 0, 0, 0) // verification tag, one for each pair; checksum
	f.frame = append(f.frame, 0, 3)                                       // DATA, first and last fragment
	f.frame = binary.BigEndian.AppendUint16(f.frame, uint16(16+len(payload)))
	f.frame = binary.BigEndian.AppendUint32(f.frame, tsn)
	f.frame = append(f.frame, 0, 1, 0, 0)
	f.frame = binary.BigEndian.AppendUint32(f.frame, ppid)
	f.frame = append(f.frame, payload...)
	f.frame = append(f.frame, make([]byte, padding)...)
	return f.frame
}

// A Conn is a TCP connection for which Open and Send make the segments in order.
type Conn struct {
	Client, Server netip.AddrPort
	Frames         *Frames
	next           [2]uint32 // next sequence number of the client and of the server
}

// Open calls each with the frames that open the connection: SYN and SYN-ACK.
func (c *Conn) Open(each func(frame []byte)) {
	const first = 1000
	c.next = [2]uint32{first + 1, first + 1}
	each(c.Frames.TCP(c.Client, c.Server, first, 0, SYN, nil))
	each(c.Frames.TCP(c.Server, c.Client, first, first+1, SYN|ACK, nil))
}

// Send returns a segment with the payload as the next bytes of one direction.
func (c *Conn) Send(server bool, payload []byte) []byte {
	src, dst, from, to := c.Client, c.Server, 0, 1
	if server {
		src, dst, from, to = c.Server, c.Client, 1, 0
	}
	seq := c.next[from]
	c.next[from] += uint32(len(payload))
	return c.Frames.TCP(src, dst, seq, c.next[to], ACK, payload)
}
