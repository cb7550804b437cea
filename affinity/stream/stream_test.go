package stream_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vitrine/affinity/capture"
	"vitrine/affinity/stream"
)

var (
	client = netip.MustParseAddrPort("192.0.2.1:40000")
	server = netip.MustParseAddrPort("192.0.2.2:3868")
)

// A recorder writes down what it receives, by the sender.
type recorder struct {
	bytes map[netip.AddrPort][]byte
	lost  map[netip.AddrPort]int
	log   []string // what each call said
}

func newRecorder() *recorder {
	return &recorder{bytes: map[netip.AddrPort][]byte{}, lost: map[netip.AddrPort]int{}}
}

func (r *recorder) Data(h *stream.Half, at int64, b []byte) {
	r.bytes[h.Src] = append(r.bytes[h.Src], b...)
	if len(b) < 100 {
		r.log = append(r.log, fmt.Sprintf("%s@%d", b, at/int64(time.Second)))
	}
}

func (r *recorder) Gap(h *stream.Half, _ int64, n int) {
	r.lost[h.Src] += n
	r.log = append(r.log, fmt.Sprintf("gap %d", n))
}

func (r *recorder) End(h *stream.Half, why stream.Reason) {
	who := "client"
	if h.Src == server {
		who = "server"
	}
	r.log = append(r.log, fmt.Sprintf("%s %v", who, why))
}

// segment returns a segment of the client, some seconds after 1970.
func segment(seconds float64, flags capture.Flags, seq uint32, payload string) *capture.Packet {
	return &capture.Packet{
		Time: int64(seconds * float64(time.Second)), Transport: capture.TCP, Src: client, Dst: server,
		Flags: flags, Seq: seq, Ack: 500, Payload: []byte(payload),
	}
}

// reply returns a segment of the server.
func reply(seconds float64, flags capture.Flags, seq, ack uint32, payload string) *capture.Packet {
	p := segment(seconds, flags, seq, payload)
	p.Src, p.Dst, p.Ack = server, client, ack
	return p
}

func cutOff(p *capture.Packet, missing int) *capture.Packet {
	p.Missing = missing
	return p
}

const (
	syn, fin, rst, ack = capture.SYN, capture.FIN, capture.RST, capture.ACK
	wrap               = 0xffffffff
)

// TestAssembler checks what the handler receives for each way in which segments
// arrive.
func TestAssembler(t *testing.T) {
	tests := []struct {
		name     string
		options  stream.Options
		segments []*capture.Packet
		want     string // of the log, before Flush
		flushed  string // of the log, after it
	}{
		{name: "in order", segments: []*capture.Packet{
			segment(1, syn, 99, ""), reply(1, syn|ack, 499, 100, ""), segment(2, ack, 100, "ab"), reply(3, ack, 500, 102, "xy"),
			segment(4, fin|ack, 102, "c"), reply(5, fin|ack, 502, 104, ""),
		}, want: "ab@2, xy@3, c@4, client finished, server finished"},
		{name: "reordered: each byte has the time of its segment", segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, ack, 102, "cd"), segment(3, ack, 104, "ef"), segment(4, ack, 100, "ab"),
		}, want: "ab@4, cd@2, ef@3", flushed: "client flushed"},
		{name: "repeated and overlapping: the first copy counts", segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, ack, 100, "abc"), segment(3, ack, 100, "XYZ"), segment(4, ack, 101, "YZd"), segment(5, ack, 99, "W"),
		}, want: "abc@2, d@4", flushed: "client flushed"},
		{name: "overlap among early bytes", segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, ack, 102, "cd"), segment(2, ack, 106, "gh"), segment(3, ack, 101, "BCDEFGHI"), segment(3.5, ack, 100, "a"),
		}, want: "a@3, B@3, cd@2, EF@3, gh@2, I@3", flushed: "client flushed"},
		{name: "sequence numbers wrap", segments: []*capture.Packet{
			segment(1, syn, wrap-2, ""), segment(2, ack, 0, "cd"), segment(3, ack, wrap-1, "ab"), segment(3, fin|ack, 2, ""),
		}, want: "ab@3, cd@2, client finished", flushed: ""},
		{name: "begins in the middle", segments: []*capture.Packet{
			segment(1, ack, 100, "ab"), segment(2, ack, 98, "zz"), segment(3, ack, 102, "c"),
		}, want: "ab@1, c@3", flushed: "client flushed"},
		{name: "lost bytes after the timeout", options: stream.Options{GapTimeout: 2 * time.Second}, segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, ack, 105, "f"), reply(4, ack, 500, 0, "x"), reply(4.1, ack, 501, 0, "y"),
			segment(5, ack, 100, "abcde"), segment(6, ack, 106, "g"),
		}, want: "x@4, gap 5, f@2, y@4, g@6", flushed: "client flushed, server flushed"},
		{name: "lost bytes before FIN", options: stream.Options{GapTimeout: 2 * time.Second}, segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, fin|ack, 103, ""), reply(5, ack, 500, 0, "x"),
		}, want: "gap 3, client finished, x@5", flushed: "server flushed"},
		{name: "FIN before the bytes", segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, fin|ack, 102, "c"), segment(3, ack, 100, "ab"),
		}, want: "ab@3, c@2, client finished"},
		{name: "bytes after FIN are not delivered", segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, ack, 105, "zz"), segment(2, fin|ack, 102, "c"), segment(3, ack, 100, "ab"), segment(4, ack, 103, "d"),
		}, want: "ab@3, c@2, client finished"},
		{name: "RST ends both directions and gives what was held", segments: []*capture.Packet{
			segment(1, syn, 99, ""), reply(1, syn|ack, 499, 100, ""), segment(2, ack, 102, "c"), reply(3, rst, 500, 0, ""), segment(4, ack, 103, "d"),
		}, want: "gap 2, c@2, client reset, server reset"},
		{name: "the same ports are used again", segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, ack, 100, "ab"), segment(3, syn, 7999, ""), segment(4, ack, 8000, "cd"),
		}, want: "ab@2, client reused, server reused, cd@4", flushed: "client flushed, server flushed"},
		{name: "the same ports after FIN", segments: []*capture.Packet{
			segment(1, syn, 99, ""), reply(1, syn|ack, 499, 100, ""), segment(2, fin|ack, 100, "a"), reply(2, fin|ack, 500, 102, ""),
			segment(3, syn, 79, ""), reply(3, syn|ack, 599, 80, ""), segment(4, ack, 80, "b"),
		}, want: "a@2, client finished, server finished, b@4", flushed: "client flushed, server flushed"},
		{name: "bytes that were acknowledged before the capture began", segments: []*capture.Packet{
			segment(1, ack, 100, "ab"), reply(2, ack, 507, 102, "xy"), reply(3, ack, 500, 102, "1234567"),
		}, want: "ab@1, 1234567@3, xy@2", flushed: "client flushed, server flushed"},
		{name: "SYN is repeated, and arrives after the bytes", segments: []*capture.Packet{
			segment(1, ack, 100, "ab"), segment(2, syn, 99, ""), segment(2, syn, 99, ""), segment(3, ack, 102, "c"),
		}, want: "ab@1, c@3", flushed: "client flushed"},
		{name: "SYN ACK arrives before SYN", segments: []*capture.Packet{
			reply(1, syn|ack, 499, 100, ""), segment(1, syn, 99, ""), segment(2, ack, 101, "b"), segment(3, ack, 100, "a"),
		}, want: "a@3, b@2", flushed: "client flushed, server flushed"},
		{name: "bytes in SYN", segments: []*capture.Packet{
			segment(1, syn, 99, "ab"), segment(2, ack, 102, "c"),
		}, want: "ab@1, c@2", flushed: "client flushed"},
		{name: "late segments of an ended connection do not begin another", segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, rst, 100, ""), segment(3, ack, 100, "a"), segment(30, ack, 500, "b"),
		}, want: "client reset, b@30", flushed: "client flushed"},
		{name: "idle", options: stream.Options{Idle: time.Minute}, segments: []*capture.Packet{
			segment(1, syn, 99, ""), segment(2, ack, 100, "a"), segment(90, ack, 300, "b"),
		}, want: "a@2, client idle, server idle, b@90", flushed: "client flushed, server flushed"},
		{name: "the capture cut bytes off", segments: []*capture.Packet{
			segment(1, syn, 99, ""), cutOff(segment(2, ack, 100, "ab"), 3), segment(3, ack, 105, "f"),
			segment(4, ack, 108, "i"), cutOff(segment(5, ack, 106, ""), 4),
		}, want: "ab@2, gap 3, f@3, gap 2, i@4, gap 1", flushed: "client flushed"},
		{name: "segments without bytes begin nothing", segments: []*capture.Packet{
			segment(1, ack, 99, ""), segment(2, fin|ack, 99, ""), segment(3, rst, 99, ""),
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRecorder()
			a := stream.NewAssembler(r, test.options)
			for _, s := range test.segments {
				a.Add(s)
			}
			if got := strings.Join(r.log, ", "); got != test.want {
				t.Errorf("before the end:\n got %s\nwant %s", got, test.want)
			}
			r.log = nil
			a.Flush()
			if got := strings.Join(r.log, ", "); !strings.HasPrefix(got, test.flushed) {
				t.Errorf("at the end:\n got %s\nwant %s", got, test.flushed)
			}
		})
	}
}

// gapTimes has the time of the last gap, by the sender.
type gapTimes map[netip.AddrPort]int64

func (g gapTimes) Data(*stream.Half, int64, []byte)    {}
func (g gapTimes) Gap(h *stream.Half, at int64, _ int) { g[h.Src] = at }
func (g gapTimes) End(*stream.Half, stream.Reason)     {}

// TestAcknowledgedGapsAreReportedSoon: every 5 ms the bytes of another connection are
// missing. Each gap must be reported soon after its acknowledgement, although newer gaps are
// acknowledged meanwhile.
func TestAcknowledgedGapsAreReportedSoon(t *testing.T) {
	const connections, every, most = 100, 5 * time.Millisecond, 20 * time.Millisecond
	at := func(i int) int64 { return int64(i) * int64(every) }
	sender := func(i int) netip.AddrPort { return netip.AddrPortFrom(client.Addr(), uint16(1000+i)) }
	gaps := gapTimes{}
	a := stream.NewAssembler(gaps, stream.Options{})
	for i := range connections + int(most/every) {
		first, second, acknowledged := segment(0, ack, 100, "a"), segment(0, ack, 106, "b"), reply(0, ack, 500, 107, "")
		first.Src, second.Src, acknowledged.Dst = sender(i), sender(i), sender(i)
		for _, p := range []*capture.Packet{first, second, acknowledged} {
			p.Time = at(i)
			a.Add(p)
		}
	}
	for i := range connections {
		if reported, ok := gaps[sender(i)]; !ok || reported-at(i) > int64(most) {
			t.Fatalf("the gap of connection %d was reported %v after its acknowledgement (%t), want at most %v", i, time.Duration(reported-at(i)), ok, most)
		}
	}
}

// TestAnyArrivalGivesTheSameBytes checks that any split, order and repetition of a
// stream gives the same bytes, and that loss gives gaps of the right size.
func TestAnyArrivalGivesTheSameBytes(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		sent := make([]byte, 1+random.IntN(20_000))
		for i := range sent {
			sent[i] = byte(random.Uint32())
		}
		first := random.Uint32()
		segments, lost := arrival(random, sent, first)
		r := newRecorder()
		a := stream.NewAssembler(r, stream.Options{})
		a.Add(segment(0, syn, first-1, ""))
		for _, s := range segments {
			a.Add(s)
		}
		a.Add(segment(1, fin, first+uint32(len(sent)), ""))
		a.Flush()
		want := sent
		if lost != nil {
			want = nil
			for i, b := range sent {
				if !lost[i] {
					want = append(want, b)
				}
			}
		}
		if !bytes.Equal(r.bytes[client], want) || r.lost[client] != len(sent)-len(want) {
			t.Fatalf("seed %d: got %d bytes, %d lost, want %d, %d", seed, len(r.bytes[client]), r.lost[client], len(want), len(sent)-len(want))
		}
		if c := a.Counts(); int(c.Bytes) != len(want) {
			t.Fatalf("seed %d: counted %d bytes, want %d", seed, c.Bytes, len(want))
		}
	}
}

// arrival splits a stream into segments which overlap at times, repeats and swaps
// some, and for half of the streams loses some. It returns which bytes are lost.
func arrival(random *rand.Rand, sent []byte, first uint32) (segments []*capture.Packet, lost []bool) {
	loses := random.IntN(2) == 0
	arrived := make([]bool, len(sent))
	for at := 0; at < len(sent); {
		n := min(1+random.IntN(1460), len(sent)-at)
		from := max(0, at-random.IntN(2)*random.IntN(500))
		if !loses || random.IntN(10) > 0 {
			for copies := 1 + random.IntN(8)/7; copies > 0; copies-- {
				segments = append(segments, segment(0.5, ack, first+uint32(from), string(sent[from:at+n])))
			}
			for i := from; i < at+n; i++ {
				arrived[i] = true
			}
		}
		at += n
	}
	const distance = 20
	for i := range segments {
		j := min(len(segments)-1, i+random.IntN(distance))
		segments[i], segments[j] = segments[j], segments[i]
	}
	if !loses {
		return segments, nil
	}
	for i := range arrived {
		arrived[i] = !arrived[i]
	}
	return segments, arrived
}

// A lasting handler makes each connection lasting.
type lasting struct{ *recorder }

func (l lasting) Data(h *stream.Half, at int64, b []byte) {
	h.Lasting = true
	l.recorder.Data(h, at, b)
}

// TestLastingConnectionsStay: a connection that the handler wants to keep goes on after a silence.
func TestLastingConnectionsStay(t *testing.T) {
	r := newRecorder()
	a := stream.NewAssembler(lasting{r}, stream.Options{Idle: time.Minute})
	other := segment(30_000, ack, 100, "x")
	other.Src = netip.AddrPortFrom(client.Addr(), 1)
	for _, s := range []*capture.Packet{
		segment(1, syn, 99, ""), segment(2, ack, 100, "a"), segment(7200, ack, 101, "b"), segment(7201, ack, 102, "c"), segment(20_000, ack, 103, "d"), other,
	} {
		a.Add(s)
	}
	a.Flush()
	const want = "a@2, b@7200, c@7201, d@20000, x@30000, client flushed, server flushed, client flushed, server flushed"
	if got := strings.Join(r.log, ", "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// A keeper holds bytes for each connection until one direction ends.
type keeper struct{ held int }

func (k *keeper) Data(h *stream.Half, _ int64, _ []byte) {
	const each = 10 << 10
	k.held += each - h.Memory
	h.Memory, h.Lasting = each, true
}

func (k *keeper) Gap(*stream.Half, int64, int) {}

func (k *keeper) End(h *stream.Half, _ stream.Reason) {
	k.held -= h.Memory
	h.Memory = 0
}

// TestMemoryIsBounded checks that early bytes above a bound are dropped and counted.
func TestMemoryIsBounded(t *testing.T) {
	payload := strings.Repeat("x", 1000)
	t.Run("of a connection", func(t *testing.T) {
		r := newRecorder()
		a := stream.NewAssembler(r, stream.Options{MaxConnection: 64 << 10})
		a.Add(segment(0, syn, 99, ""))
		for i := range uint32(1000) {
			a.Add(segment(0, ack, 100+2000*i+1000, payload))
		}
		held := 1000*1000 - len(r.bytes[client])
		if held > 64<<10 || held == 0 {
			t.Errorf("%d bytes are held, want 1 to 65536", held)
		}
		if lost := a.Counts().Lost; lost.Connection == 0 || int(lost.Connection) != r.lost[client] {
			t.Errorf("lost %+v, reported %d", lost, r.lost[client])
		}
		a.Flush()
		if len(r.bytes[client]) != 1000*1000 || r.lost[client] != 1000*1000 {
			t.Errorf("got %d bytes, %d lost", len(r.bytes[client]), r.lost[client])
		}
	})
	t.Run("of all connections", func(t *testing.T) {
		r := newRecorder()
		a := stream.NewAssembler(r, stream.Options{MaxMemory: 256 << 10})
		for port := range uint16(2000) {
			s := segment(0, ack, 100, "a")
			s.Src = netip.AddrPortFrom(s.Src.Addr(), 1000+port)
			a.Add(s)
			s.Seq, s.Payload = 200, []byte(payload)
			a.Add(s)
		}
		a.Flush()
		if c := a.Counts(); c.Lost.Memory+c.Lost.End != 2000*99 || c.Lost.Memory < 1000*99 || c.Evicted == 0 || c.Bytes != 2000*1001 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("of what the handler holds", func(t *testing.T) {
		const most = 256 << 10
		k := &keeper{}
		a := stream.NewAssembler(k, stream.Options{MaxMemory: most})
		for port := range uint16(2000) {
			s := segment(60*float64(port), ack, 100, "a") // some are idle
			s.Src = netip.AddrPortFrom(s.Src.Addr(), 1000+port)
			if a.Add(s); k.held == 0 || k.held > most {
				t.Fatalf("the handler holds %d bytes, want 1 to %d", k.held, most)
			}
		}
		if a.Flush(); k.held != 0 || a.Counts().Evicted == 0 {
			t.Errorf("the handler holds %d bytes at the end: %+v", k.held, a.Counts())
		}
	})
	t.Run("one segment is larger than the bound", func(t *testing.T) {
		r := newRecorder()
		a := stream.NewAssembler(r, stream.Options{MaxConnection: 100})
		a.Add(segment(0, syn, 99, ""))
		a.Add(segment(0, ack, 105, payload))
		if len(r.bytes[client]) != 1000 || r.lost[client] != 5 {
			t.Errorf("got %d bytes, %d lost", len(r.bytes[client]), r.lost[client])
		}
	})
}
