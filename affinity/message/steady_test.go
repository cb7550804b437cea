package message

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"vitrine/affinity/capture"
	"vitrine/internal/capturetest"
)

// traffic makes packets of many protocols, of a call after another.
type traffic struct {
	frames capturetest.Frames
	conns  map[string]*capturetest.Conn
	walker *capture.Walker
	at     int64
	each   func(p *capture.Packet)
}

func newTraffic(each func(p *capture.Packet)) *traffic {
	x := &traffic{walker: capture.NewWalker(capture.Options{}), at: start, each: each, conns: map[string]*capturetest.Conn{}}
	for i, name := range []string{"diameter", "http", "redis", "s1ap", "mongo", "unknown"} {
		c := &capturetest.Conn{Client: end(fmt.Sprintf("192.0.2.3:%d", 40000+i)), Server: end(fmt.Sprintf("192.0.2.4:%d", 7000+i)), Frames: &x.frames}
		c.Open(x.add)
		x.conns[name] = c
	}
	return x
}

func (x *traffic) add(frame []byte) {
	x.at += 1e6
	x.walker.Walk(capture.Ethernet, x.at, capture.Where{}, frame)
	for p := x.walker.Next(); p != nil; p = x.walker.Next() {
		x.each(p)
	}
}

// ask sends a request and its answer over a connection.
func (x *traffic) ask(name, request, answer string) {
	c := x.conns[name]
	x.add(c.Send(false, []byte(request[:len(request)/2])))
	x.add(c.Send(false, []byte(request[len(request)/2:])))
	x.add(c.Send(true, []byte(answer)))
}

// call sends one exchange of each protocol.
func (x *traffic) call(n int) {
	x.add(x.frames.UDP(ue, proxy, sipRequest("INVITE", "alice", n)))
	x.add(x.frames.UDP(proxy, ue, sipAnswer(200, "INVITE", "alice", n)))
	x.add(x.frames.UDP(ue, proxy, sipRequest("ACK", "alice", n)))
	x.ask("diameter", string(diameterMessage(302, true, uint32(n), "alice")), string(diameterMessage(302, false, uint32(n), "alice")))
	x.ask("http", "PUT /kv/alice%40ims.test?ttl=9 HTTP/1.1\r\nContent-Length: 25\r\n\r\n{\"impu\":\"alice@ims.test\"}", "HTTP/1.1 204 No Content\r\n\r\n")
	x.ask("redis", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n", "+OK\r\n")
	x.ask("s1ap", frame(s1Setup), frame(s1SetupResponse))
	x.ask("mongo", mongoFind, mongoReply)
	x.ask("unknown", "\x00\x00\x00\x05hello", "\x00\x00\x00\x05hello")
	x.add(x.frames.SCTP(end("192.0.2.7:36412"), end("192.0.2.8:36412"), uint32(2*n+1), 18, []byte(s1Setup)))
	x.add(x.frames.SCTP(end("192.0.2.8:36412"), end("192.0.2.7:36412"), uint32(2*n+2), 18, []byte(s1SetupResponse)))
}

// TestSteadyStateDoesNotAllocate checks reading, matching and delivering messages. Batches and
// durations of Vitrine's store allocate, because only keys of state need them.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	messages := 0
	r := newReading(Options{Repeated: 1e9}, func(*Message) error { messages++; return nil })
	var packets []capture.Packet
	x := newTraffic(func(p *capture.Packet) {
		one := *p
		one.Payload = bytes.Clone(p.Payload)
		packets = append(packets, one)
	})
	// An Uplink NAS Transport with a ciphered message of an unknown type.
	const uplink = "\x00\x0d\x40\x10\x00\x00\x01" + "\x00\x1a\x00\x09\x08\x27\x01\x02\x03\x04\x05\x07\x6f"
	const calls = 4000
	for n := range calls {
		x.call(n)
		x.add(x.frames.SCTP(end("192.0.2.9:36412"), end("192.0.2.8:36412"), uint32(n+1), ppidS1AP, []byte(uplink)))
	}
	i := 0
	several := func() {
		for range len(packets) / 8 {
			r.packet(&packets[i])
			i++
		}
	}
	several() // buffers and tables grow
	several()
	messages = 0
	const runs = 4
	n := testing.AllocsPerRun(runs, several)
	if each := messages / (runs + 1); each < 5000 || n > float64(each)/1000 {
		t.Errorf("got %v allocations for %d messages", n, each)
	}
}

// BenchmarkScan compares scan with a decoder of JSON on the body of a registration.
func BenchmarkScan(b *testing.B) {
	body := []byte(`{"reqtype":"reg","server_name":"sip:sprout.ims.test:5054;transport=TCP","impi":"alice@ims.test",` +
		`"impus":["sip:alice@ims.test","tel:+15550100"],"bindings":[{"contact":"sip:alice@192.0.2.1:5060","expires":300}]}`)
	b.Run("scan", func(b *testing.B) {
		var s slot
		b.ReportAllocs()
		for b.Loop() {
			s.text, s.m.Identifiers = s.text[:0], s.m.Identifiers[:0]
			s.scan(body)
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d := json.NewDecoder(bytes.NewReader(body))
			for _, err := d.Token(); err == nil; _, err = d.Token() {
			}
		}
	})
}

// BenchmarkMessages reads messages of all protocols, each iteration one packet.
func BenchmarkMessages(b *testing.B) {
	var packets []capture.Packet
	x := newTraffic(func(p *capture.Packet) {
		one := *p
		one.Payload = bytes.Clone(p.Payload)
		packets = append(packets, one)
	})
	for n := range 1000 {
		x.call(n)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		r := newReading(Options{}, func(*Message) error { return nil })
		for i := range packets {
			r.packet(&packets[i])
		}
		n += len(packets)
	}
}
