package stream_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"vitrine/affinity/capture"
	"vitrine/affinity/stream"
)

// An auditor checks the guarantees that a Handler relies on.
type auditor struct {
	t     *testing.T
	ended map[*stream.Half]bool
	bytes uint64
	lost  uint64
}

func (a *auditor) Data(h *stream.Half, _ int64, b []byte) {
	a.begin(h)
	if len(b) == 0 {
		a.t.Fatal("got an empty piece")
	}
	a.bytes += uint64(len(b))
	h.Memory, h.Lasting = h.Memory+len(b), len(b)%2 == 0
}

func (a *auditor) Gap(h *stream.Half, _ int64, n int) {
	a.begin(h)
	if n <= 0 || n > 1<<31 {
		a.t.Fatalf("got a gap of %d bytes", n)
	}
	a.lost += uint64(n)
}

// begin checks that a half is reused after its end only for a new connection.
func (a *auditor) begin(h *stream.Half) {
	if h.State == nil {
		h.State = a
		delete(a.ended, h)
	}
	if a.ended[h] {
		a.t.Fatal("a callback after End")
	}
}

func (a *auditor) End(h *stream.Half, _ stream.Reason) {
	a.begin(h)
	a.ended[h] = true
}

// FuzzAssembler checks that no segments make the assembler panic, loop for ever, call
// the handler after the end, or lose count of bytes. Eight bytes of input make a
// segment: time, connection and side, flags, length and cut, sequence number.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 0, 0, 0, 99, 1, 0, 16, 9, 0, 0, 0, 100, 1, 0, 16, 9, 0, 0, 0, 120, 1, 1, 17, 9, 0, 0, 0, 120, 9, 0, 4, 0, 0, 0, 0, 1})
	f.Add([]byte{0, 0, 16, 200, 0xff, 0xff, 0xff, 0xf0, 0, 2, 16, 40, 0, 0, 0, 100, 1, 2, 16, 40, 0, 0, 2, 0, 200, 2, 1, 40, 0, 0, 3, 0})
	octets := make([]byte, 1<<12)
	f.Fuzz(func(t *testing.T, data []byte) {
		check := &auditor{t: t, ended: map[*stream.Half]bool{}}
		a := stream.NewAssembler(check, stream.Options{MaxMemory: 16 << 10, MaxConnection: 4 << 10, Idle: time.Minute})
		var now int64
		for ; len(data) >= 8; data = data[8:] {
			now += int64(int8(data[0])) * int64(time.Second) / 8
			p := &capture.Packet{Time: now, Src: client, Dst: server, Flags: capture.Flags(data[2]), Seq: binary.BigEndian.Uint32(data[4:]), Ack: uint32(data[1])}
			p.Src = netip.AddrPortFrom(client.Addr(), uint16(data[1]>>3))
			p.Payload = octets[:int(data[3])*int(data[3])/16]
			if data[1]&1 != 0 {
				p.Src, p.Dst = p.Dst, p.Src
			}
			if data[1]&6 == 6 {
				p.Missing = int(data[3])
			}
			a.Add(p)
		}
		a.Flush()
		c := a.Counts()
		if lost := c.Lost; c.Bytes != check.bytes || lost.Timeout+lost.Connection+lost.Memory+lost.Cut+lost.End != check.lost {
			t.Fatalf("got counts %+v, but %d bytes and %d lost bytes were reported", c, check.bytes, check.lost)
		}
	})
}
