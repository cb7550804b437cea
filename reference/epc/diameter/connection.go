package diameter

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

// The limits of a connection. go-diameter's time to read nested groups grows with
// the square of their length: 64 KiB take 2 s, 8 KiB some 20 ms. A subscription with
// two APNs has 0.7 KiB.
const (
	maxMessage   = 1 << 13 // octets of a message
	headerSize   = 20      // octets of a header (RFC 6733 clause 3)
	writeTimeout = 5 * time.Second
)

// errFraming ends a connection that does not carry Diameter, or whose messages are
// too long.
var errFraming = errors.New("diameter: not a message of version 1 and of 20 to 8,192 octets")

// A connection checks the lengths of messages before go-diameter allocates for them,
// limits the time of writes, and signals its end.
type connection struct {
	net.Conn
	framing framing
	once    sync.Once
	ended   chan struct{} // closed together with the connection
}

func newConnection(conn net.Conn) *connection {
	return &connection{Conn: conn, ended: make(chan struct{})}
}

// Read reads from the connection. Only one goroutine may read.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.framing.check(b[:n]) {
		return 0, errFraming
	}
	return n, err
}

// Write writes to the connection. A failed write ends the connection, because part of a
// message may have been sent.
func (c *connection) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := c.Conn.Write(b)
	if err != nil {
		c.Close()
	}
	return n, err
}

// Close closes the connection.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.ended) })
	return err
}

// over reports whether the connection was closed.
func (c *connection) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// framing tracks the message boundaries in a stream.
type framing struct {
	header [4]byte // version and length
	have   int     // octets of header received so far
	left   int     // octets of the message's rest still to come
}

// check reports whether the next octets of the stream belong to messages with a
// valid version and length.
func (f *framing) check(b []byte) bool {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			f.left -= n
			b = b[n:]
			continue
		}
		n := copy(f.header[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have < len(f.header) {
			return true
		}
		f.have = 0
		length := int(binary.BigEndian.Uint32(f.header[:]) & 0xffffff)
		if f.header[0] != 1 || length < headerSize || length > maxMessage {
			return false
		}
		f.left = length - len(f.header)
	}
	return true
}

// maxConnections limits the connections of a server.
const maxConnections = 256
