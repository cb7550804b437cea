package s1ap

import (
	"io"
	"net"
	"testing"
	"time"

	"vitrine/wire/s1ap/frame"
)

// batch is how many messages the benchmarks write at once. An eNodeB with many UEs writes as many.
const batch = 32

// BenchmarkThrough sends messages about a UE from an eNodeB through a director to an instance, over
// TCP on loopback. Compare it with BenchmarkForwarder.
func BenchmarkThrough(b *testing.B) {
	in := newInstance(b, attachType, 1)
	s := newSite(b, false, []*instance{in})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, attachRequest(1), nil, in)
	message := frame.Append(nil, frame.UE, e.AppendUplink(nil, ids, make([]byte, 40)))
	to := in.at(e.Cell).conn
	if err := to.SetReadDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	pump(b, message, e.conn, to)
}

// BenchmarkForwarder sends the same messages through a forwarder that only reads and writes.
func BenchmarkForwarder(b *testing.B) {
	up, at := pair(b)
	to, sink := pair(b)
	go func() {
		buffer := make([]byte, 32<<10)
		for {
			n, err := at.Read(buffer)
			if err != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	cell := newCell(5)
	message := frame.Append(nil, frame.UE, cell.AppendUplink(nil, connectionIDs(0), make([]byte, 40)))
	pump(b, message, up, sink)
}

// pair returns the ends of a TCP connection on loopback.
func pair(t testing.TB) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialed, err = net.Dial("tcp4", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return dialed, accepted
}

// window is the highest number of batches in flight.
const window = 64

// pump writes b.N messages and reads them at the other end.
func pump(b *testing.B, message []byte, from io.Writer, to io.Reader) {
	var many []byte
	for range batch {
		many = append(many, message...)
	}
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	b.ResetTimer()
	batches := (b.N + batch - 1) / batch
	underWay := make(chan struct{}, window)
	go func() {
		for range batches {
			underWay <- struct{}{}
			if _, err := from.Write(many); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	got := make([]byte, len(many))
	for range batches {
		if _, err := io.ReadFull(to, got); err != nil {
			b.Fatal(err)
		}
		<-underWay
	}
}
