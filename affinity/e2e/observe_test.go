package e2e

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vitrine/affinity/capture"
	"vitrine/affinity/stream"
	"vitrine/internal/truth"
	"vitrine/wire/diameter"
	"vitrine/wire/http2"
	s1frame "vitrine/wire/s1ap/frame"
)

// An observed is a message between functions in a complete capture. It is found by the
// ports of the site, independent of the analysis.
type observed struct {
	at       int64 // when its last byte was captured
	began    int64 // when its first byte was captured
	src, dst netip.AddrPort
	protocol string
	key      string // as in truth.Line
	bytes    int
	class    string // of the truth; empty: it belongs to no network event
	kind     string // the event's type
	again    bool   // a retransmission
}

// The ports of the functions, by protocol.
var ports = map[uint16]string{
	5060: truth.SIP, 5054: truth.SIP, 5070: truth.SIP, 2123: truth.GTP, 3868: truth.Diameter, 36412: truth.S1AP,
	8888: truth.HTTP, 7888: truth.HTTP, 1080: truth.HTTP, 8070: http2Name,
}

// http2Name is the store's HTTP. Its lines are those of truth.HTTP.
const http2Name = "http/2"

// An observer finds the messages of a capture.
type observer struct {
	t        testing.TB
	messages []observed
	ordinals map[[2]netip.AddrPort]uint64
}

// A direction is the state of one direction of a connection.
type direction struct {
	protocol string
	buffer   []byte
	taken    int // bytes that were removed from the buffer
	segments []segmentTime
	decoder  http2.Decoder
	requests map[uint32]string // HTTP/2: marks by stream
	blocks   map[uint32]observed
}

// A segmentTime is the capture time of the bytes from an offset on.
type segmentTime struct {
	offset int
	at     int64
}

// observe returns the messages of captures in the order of time.
func observe(t testing.TB, files ...string) []observed {
	t.Helper()
	reader, err := capture.Open(files, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	o := &observer{t: t, ordinals: map[[2]netip.AddrPort]uint64{}}
	assembler := stream.NewAssembler(o, stream.Options{})
	for p := reader.Next(); p != nil; p = reader.Next() {
		switch {
		case p.Transport == capture.TCP:
			assembler.Add(p)
		case p.Transport == capture.UDP && len(p.Payload) > 0:
			o.datagram(p)
		}
	}
	assembler.Flush()
	if err := reader.Err(); err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(o.messages, func(a, b observed) int { return cmp.Compare(a.at, b.at) })
	return o.messages
}

// datagram notes a UDP datagram, which has one message.
func (o *observer) datagram(p *capture.Packet) {
	protocol := cmp.Or(ports[p.Dst.Port()], ports[p.Src.Port()])
	if protocol == "" || protocol == truth.SIP && len(bytes.Trim(p.Payload, "\r\n\x00")) == 0 {
		return
	}
	o.add(observed{at: p.Time, began: p.Time, src: p.Src, dst: p.Dst, protocol: protocol, key: truth.Hash(p.Payload), bytes: len(p.Payload)})
}

func (o *observer) add(m observed) {
	if m.protocol == http2Name {
		m.protocol = truth.HTTP
	}
	o.messages = append(o.messages, m)
}

// Data implements stream.Handler.
func (o *observer) Data(h *stream.Half, at int64, b []byte) {
	d, _ := h.State.(*direction)
	if d == nil {
		d = &direction{protocol: cmp.Or(ports[h.Dst.Port()], ports[h.Src.Port()]), requests: map[uint32]string{}, blocks: map[uint32]observed{}}
		h.State = d
	}
	if d.protocol == "" {
		return
	}
	d.segments = append(d.segments, segmentTime{d.taken + len(d.buffer), at})
	d.buffer = append(d.buffer, b...)
	if d.protocol == http2Name {
		o.frames(h, d)
		return
	}
	for {
		n, key := d.next()
		if n == 0 {
			return
		}
		if key != "" {
			m := observed{src: h.Src, dst: h.Dst, protocol: d.protocol, key: key, bytes: n}
			if d.protocol == truth.HTTP {
				of := [2]netip.AddrPort{h.Src, h.Dst}
				m.key = truth.Ordinal(o.ordinals[of])
				o.ordinals[of]++
			}
			m.began, m.at = d.time(0), d.time(n-1)
			o.add(m)
		}
		d.drop(n)
	}
}

// time returns when the byte at an index of the buffer was captured.
func (d *direction) time(index int) (at int64) {
	for _, s := range d.segments {
		if s.offset <= d.taken+index {
			at = s.at
		}
	}
	return at
}

// drop removes bytes from the front of the buffer.
func (d *direction) drop(n int) {
	d.buffer, d.taken = d.buffer[n:], d.taken+n
	for len(d.segments) > 1 && d.segments[1].offset <= d.taken {
		d.segments = d.segments[1:]
	}
}

// next returns the length of the first message of the buffer, or 0 if it is not
// complete, and its key. A message without a key is not of the functions.
func (d *direction) next() (n int, key string) {
	switch d.protocol {
	case truth.S1AP:
		message, rest, err := s1frame.Cut(d.buffer)
		if err != nil || message == nil {
			return 0, ""
		}
		return len(d.buffer) - len(rest), truth.Hash(message)
	case truth.Diameter:
		if len(d.buffer) < 20 {
			return 0, ""
		}
		n = int(binary.BigEndian.Uint32(d.buffer) & 0xffffff)
		var m diameter.Message
		if len(d.buffer) < n {
			return 0, ""
		}
		if _, err := m.Parse(d.buffer[:n]); err != nil || m.Application == 0 {
			return n, "" // the base protocol, which go-diameter speaks
		}
		return n, truth.Identifier(m.HopByHop, m.IsRequest())
	case truth.HTTP:
		return httpLength(d.buffer), "a message"
	}
	return 0, ""
}

// httpLength returns the length of the HTTP/1.1 message that a buffer begins with, or 0
// if it is not complete.
func httpLength(b []byte) int {
	head := bytes.Index(b, []byte("\r\n\r\n"))
	if head < 0 {
		return 0
	}
	length := 0
	for line := range strings.Lines(string(b[:head+2])) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(name) {
		case "content-length":
			length, _ = strconv.Atoi(strings.TrimSpace(value))
		case "transfer-encoding":
			end := bytes.Index(b[head:], []byte("\r\n0\r\n\r\n"))
			if end < 0 {
				return 0
			}
			return head + end + len("\r\n0\r\n\r\n")
		}
	}
	if total := head + 4 + length; total <= len(b) {
		return total
	}
	return 0
}

// frames reads HTTP/2. A message ends with its stream's direction.
func (o *observer) frames(h *stream.Half, d *direction) {
	for {
		began := d.time(0)
		n, e, err := d.decoder.Next(d.buffer)
		if err != nil {
			o.t.Fatalf("%v -> %v: %v", h.Src, h.Dst, err)
		}
		at := d.time(max(n-1, 0))
		d.drop(n)
		id := d.decoder.Stream
		switch e {
		case http2.More:
			return
		case http2.Head:
			m := &d.decoder.Message
			of := observed{began: began, src: h.Src, dst: h.Dst, protocol: http2Name}
			if m.Kind == http2.Request {
				of.key = string(m.Find(strings.ToLower(truth.MarkHeader)))
				d.requests[id] = of.key
			} else if peer, ok := h.Peer.State.(*direction); ok {
				of.key = peer.requests[id]
			}
			d.blocks[id] = of
		case http2.End:
			of := d.blocks[id]
			delete(d.blocks, id)
			of.at = at
			o.add(of)
		}
	}
}

// Gap implements stream.Handler. The capture has all packets.
func (o *observer) Gap(h *stream.Half, _ int64, n int) {
	if d, _ := h.State.(*direction); d != nil && d.protocol != "" {
		o.t.Errorf("%v -> %v: %d bytes are missing in the capture", h.Src, h.Dst, n)
	}
}

// End implements stream.Handler.
func (o *observer) End(h *stream.Half, _ stream.Reason) {
	if d, _ := h.State.(*direction); d != nil && d.protocol != "" && len(d.buffer) > 0 {
		o.t.Errorf("%v -> %v: %d bytes cannot be decoded", h.Src, h.Dst, len(d.buffer))
	}
}

func (m observed) String() string {
	return fmt.Sprintf("%s %v -> %v %s", m.protocol, m.src, m.dst, m.key)
}
