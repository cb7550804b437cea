package message

import (
	"net/netip"
	"unsafe"

	"vitrine/affinity/capture"
	"vitrine/affinity/stream"
	"vitrine/wire/http2"
)

// The bounds on a connection.
const (
	maxTries  = 32      // unrecognised pieces before the search for a protocol stops
	maxFramed = 1 << 20 // bytes of a message
	pending   = 64      // last requests of a connection for which HEAD and CONNECT are remembered
	maxStray  = 8       // answers of a connection that were read before their requests
)

// tcp is the state that all connections share.
type tcp struct {
	limit  int // bytes of all buffers
	held   int
	given  uint64
	serial uint64
	free   []*conn
}

// A conn is a TCP connection.
type conn struct {
	protocol Protocol
	tries    int
	link     uint64
	client   int // index of the half that the client sends; -1: unknown
	halves   [2]half
	ended    int

	// HTTP/1 and Redis match answers to requests by their order.
	requests, answers uint64
	heads, connects   uint64 // requests by HEAD, and by CONNECT: one bit for each of the last 64
	strays            [maxStray]stray
	stray             int  // strays in use
	loose             bool // answers do not follow requests: publish and subscribe

	streams map[uint32]h2Stream // HTTP/2
	most    int                 // streams that the map had at once
	open    int                 // messages in progress in the map

	// While the protocol is not known.
	packets, bytes, turns uint64
	speaker               int // half that spoke last, plus one
}

// A stray is an answer without a waiting request: the request is lost, or delayed by a gap.
type stray struct {
	at  int64
	key uint64
}

// A half is one direction of a connection.
type half struct {
	conn     *conn
	side     int
	src, dst netip.AddrPort
	buffer   []byte // the start of a message, or data that is not recognised yet
	need     int    // length of the SIP message in the buffer, whose body is incomplete; 0: not known
	searched int    // bytes of the buffer in which a SIP header does not end
	at       int64  // time of the bytes in the buffer
	begun    bool   // its messages are being read
	lost     bool   // the start of the next message is unknown
	opened   bool   // it sent the first SYN

	slot    *slot // message in progress
	left    int   // bytes of a long MongoDB message that have not arrived
	scanned int   // bytes of its body that were searched for identities
	body    int   // bytes of its body

	http2 *http2.Decoder
	*ordered
}

// tcpHandler receives the streams.
type tcpHandler struct{ r *reading }

// half returns the state of a direction.
func (t *tcp) half(h *stream.Half) *half {
	if x, ok := h.State.(*half); ok {
		return x
	}
	var c *conn
	if n := len(t.free); n > 0 {
		c, t.free = t.free[n-1], t.free[:n-1]
	} else {
		c = &conn{}
	}
	kept := [2]*ordered{c.halves[0].ordered, c.halves[1].ordered}
	*c = conn{client: -1}
	t.serial++
	c.link = mix(t.serial)
	for i, h := range [2]*stream.Half{h, h.Peer} {
		x := &c.halves[i]
		*x = half{conn: c, side: i, src: h.Src, dst: h.Dst, opened: h.Opened, ordered: kept[i]}
		x.restart()
		h.State = x
	}
	h.Memory = c.memory()
	return &c.halves[0]
}

// memory returns the bytes that a connection takes. Its buffers have a bound of their own.
func (c *conn) memory() int {
	n := int(unsafe.Sizeof(*c)) + c.most*streamSize + c.open*slotSize
	for i := range c.halves {
		x := &c.halves[i]
		if x.slot != nil {
			n += slotSize
		}
		if x.ordered != nil {
			n += int(unsafe.Sizeof(*x.ordered))
		}
		if x.http2 != nil {
			n += x.http2.Memory()
		}
	}
	return n
}

// Data receives the next bytes of a direction.
func (t *tcpHandler) Data(h *stream.Half, at int64, b []byte) {
	r := t.r
	x := r.tcp.half(h)
	if len(x.buffer) == 0 && x.slot == nil {
		x.at = at
	}
	x.at = max(x.at, at)
	if x.conn.protocol == Unknown {
		b = r.recognise(x, b)
	}
	if len(b) > 0 {
		r.feed(x, b)
	}
	h.Memory, h.Lasting = x.conn.memory(), x.conn.protocol == HTTP2 // which cannot be read from the middle
}

// Gap handles lost bytes of a direction.
func (t *tcpHandler) Gap(h *stream.Half, at int64, n int) {
	r := t.r
	x := r.tcp.half(h)
	x.at = at
	c := x.conn
	if c.protocol == Unknown || !x.begun {
		r.drop(x)
		return
	}
	if r.skip(x, n) {
		return
	}
	r.counts.bad(c.protocol, "bytes lost")
	r.lose(x)
}

// End handles the end of a direction.
func (t *tcpHandler) End(h *stream.Half, _ stream.Reason) {
	x, ok := h.State.(*half)
	if !ok {
		return
	}
	r, c := t.r, x.conn
	switch {
	case c.protocol == Unknown && len(x.buffer) > 0:
		c.packets++
		c.bytes += uint64(len(x.buffer))
	case c.protocol != Unknown && x.begun:
		r.closeHalf(x)
	}
	r.abandon(x)
	r.tcp.held -= cap(x.buffer)
	x.buffer, x.http2 = nil, nil
	r.countEdge(c)
	h.Memory = c.memory()
	if c.ended++; c.ended == 2 {
		const keep = 1024
		c.streams, h.Memory = nil, 0
		if len(r.tcp.free) < keep {
			r.tcp.free = append(r.tcp.free, c)
		}
	}
}

// recognise finds the protocol of a connection. It returns the bytes to read, or nil while
// the protocol is unknown.
func (r *reading) recognise(x *half, b []byte) []byte {
	c := x.conn
	data := b
	if len(x.buffer) > 0 {
		if !r.keep(x, b) {
			return nil
		}
		data = x.buffer
	}
	p, v := Unknown, no
	if c.tries < maxTries {
		p, v = looksLike(data, x)
	}
	switch v {
	case yes:
		c.protocol, x.begun = p, true
		r.counts.late(p, c.bytes)
		c.packets, c.bytes, c.turns, c.speaker = 0, 0, 0, 0
		if len(x.buffer) > 0 { // feed reads it from there
			whole := x.buffer
			r.tcp.held -= cap(x.buffer)
			x.buffer = nil
			return whole
		}
		return b
	case more:
		if len(x.buffer) == 0 {
			r.keep(x, b)
		}
		return nil
	}
	c.tries++
	c.packets++
	c.bytes += uint64(len(data))
	if c.speaker == 2-x.side {
		c.turns++
	}
	c.speaker = x.side + 1
	r.drop(x)
	return nil
}

// countEdge counts what a connection of an unknown protocol carried.
func (r *reading) countEdge(c *conn) {
	if c.packets == 0 {
		return
	}
	client := r.clientOf(c)
	x := &c.halves[client]
	edge := r.edges.of(r.functions.of(x.src, false, 0, maxStrangers), r.functions.of(x.dst, true, 1, maxStrangers), capture.TCP, x.dst.Port())
	if edge == nil {
		r.edges.dropped += c.packets
	} else {
		edge.Packets += c.packets
		edge.Bytes += c.bytes
		edge.RoundTrips += c.turns / 2
		if c.turns%2 == 1 {
			edge.RoundTrips++
		}
	}
	c.packets, c.bytes, c.turns = 0, 0, 0
}

// clientOf returns the index of the half that the client sends: the half with the first
// SYN, or with requests, or from the port that looks less like a server port.
func (r *reading) clientOf(c *conn) int {
	switch {
	case c.halves[0].opened:
		return 0
	case c.halves[1].opened:
		return 1
	case c.client >= 0:
		return c.client
	case serves(c.halves[0].src, c.halves[1].src):
		return 1
	}
	return 0
}

// origin returns where a message of a half comes from.
func (r *reading) origin(x *half) origin {
	client := r.clientOf(x.conn)
	return origin{at: x.at, where: r.where, src: x.src, dst: x.dst, ports: [2]bool{x.side != client, x.side == client}, link: x.conn.link}
}

// feed reads the next bytes of a direction.
func (r *reading) feed(x *half, b []byte) {
	data := b
	if len(x.buffer) > 0 {
		if !r.keep(x, b) {
			return
		}
		data = x.buffer
	}
	if !x.begun {
		x.begun = true
		x.lost = begins(x.conn.protocol, data, x) == no
	}
	for len(data) > 0 && x.conn.protocol != Unknown {
		if x.lost {
			n, found := r.resync(x, data)
			if data = data[n:]; !found {
				break
			}
			x.lost = false
		}
		n, err := r.decode(x, data)
		data = data[n:]
		if err != nil {
			r.counts.bad(x.conn.protocol, reason(err))
			r.lose(x)
			continue
		}
		if n == 0 {
			break
		}
	}
	r.store(x, data)
}

// decode reads whole messages, and returns the number of bytes consumed. With an error, these
// include the malformed bytes, as far as their number is known, and at least one. Otherwise
// the search for the next message would read them again.
func (r *reading) decode(x *half, data []byte) (int, error) {
	switch x.conn.protocol {
	case HTTP:
		return r.readHTTP1(x, data)
	case HTTP2:
		return r.readHTTP2(x, data)
	case Redis:
		return r.readRedis(x, data)
	}
	return r.readFramed(x, data)
}

// skip continues after n lost bytes, if they are within the body of one message.
func (r *reading) skip(x *half, n int) bool {
	if x.lost {
		return false
	}
	switch x.conn.protocol {
	case HTTP:
		if len(x.buffer) == 0 && x.http1.Skip(int64(n)) {
			x.body += n
			if x.slot != nil {
				x.slot.m.Bytes += n
			}
			return true
		}
	case Redis:
		return len(x.buffer) == 0 && x.redis.Skip(int64(n))
	case Mongo:
		if x.slot != nil && n <= x.left {
			r.restMongo(x, n)
			return true
		}
	case HTTP2:
		if x.http2 != nil {
			missing := n + len(x.buffer)
			r.drop(x)
			x.http2.Lost(int64(missing))
			return true
		}
	}
	return false
}

// lose gives up the message in progress, because its end is unknown.
func (r *reading) lose(x *half) {
	r.drop(x)
	r.abandon(x)
	x.lost = true
	if x.http2 != nil {
		x.http2.Lost(-1)
	}
	x.restart()
	x.conn.answers = x.conn.requests // earlier requests are not matched any more
}

// abandon delivers the message in progress as far as it was read.
func (r *reading) abandon(x *half) {
	if x.slot != nil {
		r.commit(x.slot)
		x.slot = nil
	}
}

// closeHalf finishes a message that ends with its direction.
func (r *reading) closeHalf(x *half) {
	switch x.conn.protocol {
	case HTTP:
		if x.lost {
			return
		}
		if complete, err := x.http1.Close(); complete {
			r.endHTTP(x)
		} else if err != nil {
			r.counts.bad(HTTP, reason(err))
		}
	case HTTP2:
		r.closeHTTP2(x)
	default:
		if (len(x.buffer) > 0 || x.slot != nil) && !x.lost {
			r.counts.bad(x.conn.protocol, "connection ended within a message")
		}
	}
}

// keep appends bytes to a buffer. If there is no room, it drops the buffer and returns
// false.
func (r *reading) keep(x *half, b []byte) bool {
	need := len(x.buffer) + len(b)
	before := cap(x.buffer)
	if need > maxFramed+maxLine || r.tcp.held+max(need-before, 0) > r.tcp.limit {
		r.tcp.given++
		if x.conn.protocol != Unknown {
			r.lose(x)
		} else {
			r.drop(x)
		}
		return false
	}
	x.buffer = append(x.buffer, b...)
	r.tcp.held += cap(x.buffer) - before
	return true
}

// store keeps the unread rest, which may be the end of the buffer itself.
func (r *reading) store(x *half, rest []byte) {
	if len(rest) == 0 {
		r.drop(x)
		return
	}
	if len(x.buffer) > 0 { // rest is its end
		n := copy(x.buffer, rest)
		x.buffer = x.buffer[:n]
		return
	}
	r.keep(x, rest)
}

// drop empties a buffer. It releases a large one, and any if half of the limit is in use: otherwise
// the empty buffers of silent connections take all room.
func (r *reading) drop(x *half) {
	const largest = 16 << 10
	if cap(x.buffer) > largest || r.tcp.held > r.tcp.limit/2 {
		r.tcp.held -= cap(x.buffer)
		x.buffer = nil
	}
	x.buffer, x.need, x.searched = x.buffer[:0], 0, 0
}
