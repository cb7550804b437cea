package stream_test

import (
	"net/netip"
	"testing"
	"time"

	"vitrine/affinity/capture"
	"vitrine/affinity/stream"
)

// traffic makes segments of many connections. Each connection begins, sends 20
// segments, and ends. Each fourth segment arrives after the next one.
type traffic struct {
	packet capture.Packet
	n      int
}

const (
	perConnection = 24
	segmentSize   = 500
)

var segmentOctets = make([]byte, segmentSize)

func (g *traffic) next() *capture.Packet {
	p, step := &g.packet, g.n%perConnection
	connection := g.n / perConnection
	*p = capture.Packet{Time: int64(g.n) * int64(time.Millisecond), Dst: server, Flags: ack, Ack: 500}
	p.Src = netip.AddrPortFrom(client.Addr(), uint16(1024+connection%60000))
	at := func(segment int) uint32 { return 100 + uint32(segment*segmentSize) }
	switch {
	case step == 0:
		p.Flags, p.Seq = syn, at(0)-1
	case step <= 20:
		i := step - 1
		switch i % 4 {
		case 2:
			i++
		case 3:
			i--
		}
		p.Seq, p.Payload = at(i), segmentOctets
	case step == 21:
		p.Flags, p.Seq = fin|ack, at(20)
	default:
		p.Src, p.Dst = p.Dst, p.Src
		p.Flags, p.Seq, p.Ack = fin|ack, 500, at(20)+1
	}
	g.n++
	return p
}

// discard counts bytes, and takes memory for each connection until it is removed.
type discard struct{ bytes int }

func (d *discard) Data(h *stream.Half, _ int64, b []byte) {
	d.bytes += len(b)
	h.Memory = 256 << 10
}

func (d *discard) Gap(*stream.Half, int64, int)    {}
func (d *discard) End(*stream.Half, stream.Reason) {}

// TestSteadyStateDoesNotAllocate checks segments in order, early segments, and new
// connections in place of old ones.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	var g traffic
	d := &discard{}
	a := stream.NewAssembler(d, stream.Options{Linger: time.Second, Idle: time.Second})
	const segments = 1000 * perConnection
	several := func() {
		for range segments {
			a.Add(g.next())
		}
	}
	several()
	if n := testing.AllocsPerRun(5, several); n > segments/1000 {
		t.Errorf("got %v allocations for %d segments", n, segments)
	}
	if c := a.Counts(); c.Early == 0 || c.Lost != (stream.Lost{}) || c.Evicted != 0 || d.bytes != 7*1000*20*segmentSize {
		t.Errorf("got counts %+v, %d bytes", c, d.bytes)
	}
}

// BenchmarkAssembler reassembles short connections, an eighth of whose segments are
// early.
func BenchmarkAssembler(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(segmentSize * 20 / perConnection)
	var g traffic
	a := stream.NewAssembler(&discard{}, stream.Options{})
	for b.Loop() {
		a.Add(g.next())
	}
}
