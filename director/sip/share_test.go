package sip

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vitrine"
)

// TestSlotsForInstances checks that silent clients cannot take the connection that an instance
// needs, nor more connections than the limit of one address.
func TestSlotsForInstances(t *testing.T) {
	server := newUAS(t, "127.0.0.2")
	d := direct(t, []string{"udp://127.0.0.1:0", "tcp://127.0.0.1:0"}, oneType(true), func(c *Config) { c.Connections, c.PerSource = 10, 5 }, instance(server))
	for _, from := range []string{"127.0.0.3", "127.0.0.4"} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		for range 10 {
			c, err := dialer.Dial("tcp", d.Addresses()[1].String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
	}
	s := d.until(t, "all connections are accepted or refused", func(s StreamCounters) bool { return s.Accepted+s.Refused == 20 })
	if s.Accepted != 9 || s.Crowded != 5 {
		t.Errorf("accepted %d of 20 connections, and the limit of one address refused %d, want 9 (5 of one address, 4 of the other) and 5", s.Accepted, s.Crowded)
	}
	p := newPhone(t, "udp", d.Addresses()[0])
	p.send(p.request("INVITE", "one", 0))
	if text := p.next(); !strings.HasPrefix(text, "SIP/2.0 200 ") {
		t.Errorf("got answer %s, want 200", text)
	}
}

// TestRefusalsByCause checks that only connections that a limit refuses count under that limit.
func TestRefusalsByCause(t *testing.T) {
	peer := netip.MustParseAddrPort("192.0.2.1:5060")
	st := &streams{log: slog.New(slog.DiscardHandler), conns: map[streamKey]*stream{{peer: peer}: {}}}
	for _, why := range []error{st.admit(peer, 0, nil), st.admit(peer, 1, nil), errTotal, errSource, errSource} {
		st.refuse(peer, why)
	}
	if c := st.counters(); c.Repeated != 1 || c.Refused != 3 || c.Crowded != 2 {
		t.Errorf("got %+v, want one repeated connection, and three over limits, two of them over that of one source", c)
	}
}

// TestSources checks that all addresses of one IPv6 network share the limit of one source.
func TestSources(t *testing.T) {
	st := &streams{maxConnections: 100, maxOthers: 100, maxPerSource: 2, others: map[netip.Addr]int{}}
	var all []*stream
	enter := func(text string, want bool) {
		t.Helper()
		a := netip.MustParseAddr(text)
		if got := st.roomFor(a, false) == nil; got != want {
			t.Errorf("%s: got room %v, want %v", a, got, want)
		}
		if want {
			all = append(all, &stream{peer: netip.AddrPortFrom(a, 1)})
			st.addCount(all[len(all)-1])
		}
	}
	for _, a := range []string{"2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2", "192.0.2.1"} {
		enter(a, true)
	}
	enter("2001:db8::3", false)
	enter("192.0.2.1", false)
	for _, c := range all {
		st.dropCount(c)
	}
	if st.count != 0 || len(st.others) != 0 {
		t.Errorf("%d connections and %d sources are left, want 0", st.count, len(st.others))
	}
}

// TestFirstMessage checks that a client is disconnected if it completes no message in time, with or
// without pings. A client that leaves a later message incomplete must be disconnected, too.
func TestFirstMessage(t *testing.T) {
	gone := vitrine.Instance{Name: "gone", Type: "all", Weight: 1, Address: netip.MustParseAddrPort("127.0.0.2:1")}
	d := direct(t, []string{"tcp://127.0.0.1:0"}, oneType(true), func(c *Config) { c.First = 50 * time.Millisecond }, gone)
	options := "OPTIONS sip:" + d.Addresses()[0].String() + " SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bKo\r\nFrom: <sip:a@x>;tag=1\r\nTo: <sip:b@x>\r\n" +
		"Call-ID: o\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
	for _, text := range []string{"", "\r\n\r\n", options[:20], options + options[:20]} {
		c, err := net.Dial("tcp", d.Addresses()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil { // reads until the director closes
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// TestHeaderIsReadOnce checks that take does not read a complete header again with each part of the
// body.
func TestHeaderIsReadOnce(t *testing.T) {
	st, c := &streams{}, &stream{}
	head := "OPTIONS sip:x SIP/2.0\r\nContent-Length: 5\r\n\r\n"
	rest, err := st.take(c, append(make([]byte, 0, 256), head+"ab"...))
	if err != nil {
		t.Fatal(err)
	}
	rest[bytes.IndexByte(rest, '5')] = 'x' // a second reading of the header would fail
	if rest, err = st.take(c, append(rest, 'c')); err != nil || len(rest) != len(head)+3 {
		t.Errorf("got %d bytes, %v", len(rest), err)
	}
}

// TestLineEndsBeginNothing checks that line ends between messages do not count as the begin of a
// message. Otherwise they would shorten the deadline.
func TestLineEndsBeginNothing(t *testing.T) {
	st := &streams{idle: time.Hour, first: time.Minute}
	soon, late := time.Now().Add(30*time.Minute), time.Now().Add(24*time.Hour)
	for _, c := range []struct {
		stream *stream
		rest   string
		next   bool
		idle   bool
	}{
		{&stream{accepted: true, handled: 1}, "", true, true},
		{&stream{accepted: true, handled: 1}, "\r\n", true, true},
		{&stream{accepted: true, handled: 1}, "\r", false, true},
		{&stream{accepted: true, handled: 1}, "\n\n\n", true, false},
		{&stream{accepted: true, handled: 1}, "\r\n\n", true, false},
		{&stream{accepted: true, handled: 1}, "\r\n\r", true, true},
		{&stream{known: true}, "\r\n", true, true},
		{&stream{accepted: true, handled: 1}, "\r\nO", true, false},
		{&stream{known: true}, "O", true, false},
	} {
		if got := st.extend(c.stream, late, c.next, []byte(c.rest)); got.After(soon) != c.idle || got.Equal(late) {
			t.Errorf("after %q: got deadline in %v", c.rest, time.Until(got))
		}
	}
	if got := st.extend(&stream{accepted: true}, late, true, []byte("\r\n")); !got.Equal(late) {
		t.Error("line ends count as the first message of a client")
	}
}

// TestQueuesShareTheirRoom checks that the queues of peers that do not read leave room for others.
func TestQueuesShareTheirRoom(t *testing.T) {
	st := &streams{room: 1 << 20}
	fill := func(c *stream, n int) (queued int) {
		for st.mayQueue(c, n) {
			c.queued.Add(int64(n))
			st.queued.Add(int64(n))
			queued += n
		}
		return queued
	}
	hogs := make([]stream, 100)
	for range 2 {
		for i := range hogs {
			fill(&hogs[i], 1000)
		}
	}
	for _, c := range []*stream{{}, {known: true}} {
		if n := fill(c, 500); n == 0 {
			t.Errorf("nothing was left unsent, %d of %d bytes are queued", st.queued.Load(), st.room)
		}
	}
	if st.queued.Load() > st.room {
		t.Errorf("%d bytes are queued, want at most %d", st.queued.Load(), st.room)
	}
}

// TestQueuesCountWhatTheyHold checks that queues count the capacity of buffers. Otherwise small
// messages in large buffers would exceed the budget.
func TestQueuesCountWhatTheyHold(t *testing.T) {
	const room, large = 1 << 20, 64 << 10
	st := &streams{room: room, conns: map[streamKey]*stream{}}
	for port := range uint16(100) {
		at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)
		st.conns[streamKey{peer: at}] = &stream{peer: at, known: true, queue: make(chan *[]byte, queueLength)}
		for ok := true; ok; {
			held := make([]byte, 100, large)
			_, ok = st.push(&Outgoing{Flow: at}, &held)
		}
	}
	held := 0
	for _, c := range st.conns {
		for len(c.queue) > 0 {
			b := <-c.queue
			held += cap(*b)
			st.release(c, b)
		}
	}
	if held == 0 || held > room || st.queued.Load() != 0 {
		t.Errorf("the queues held %d bytes, want at most %d; %d bytes are left, want 0", held, room, st.queued.Load())
	}
	st.buffers.New = func() any { b := make([]byte, 0, 100); return &b }
	if b := st.buffers.Get().(*[]byte); cap(*b) > maxBuffer {
		t.Errorf("a buffer of %d bytes was put back into the pool", cap(*b))
	}
}

// TestReadingRoom checks that trim frees the room of a large message and keeps the data.
func TestReadingRoom(t *testing.T) {
	large := append(make([]byte, 0, 64<<10), "OPTIONS"...)
	if got := trim(large); string(got) != "OPTIONS" || cap(got) > 2*maxBuffer {
		t.Errorf("got %q in %d bytes", got, cap(got))
	}
	full := append(large, make([]byte, maxBuffer)...)
	if got := trim(full); len(got) != len(full) || &got[0] != &full[0] {
		t.Errorf("got %d of %d bytes, want no copy", len(got), len(full))
	}
	small := make([]byte, 10, maxBuffer)
	if got := trim(small); &got[0] != &small[0] {
		t.Error("trim copied a small buffer")
	}
}
