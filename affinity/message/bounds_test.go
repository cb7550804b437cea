package message

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"vitrine/affinity/capture"
	"vitrine/internal/capturetest"
	"vitrine/wire/gtpc"
)

// TestOnePacketOfManyMessages delivers many messages within one packet, as the end of a gap does. The
// queue must keep its limit.
func TestOnePacketOfManyMessages(t *testing.T) {
	most, handled := 0, 0
	var r *reading
	r = newReading(Options{MaxMemory: 1 << 20}, func(*Message) error {
		most, handled = max(most, r.hold.open), handled+1
		return nil
	})
	o := origin{at: start, src: ue, dst: proxy}
	const messages = 1000
	for range messages {
		r.commit(r.slot(&o, Redis))
	}
	if most > r.hold.limit+1 || handled < messages-r.hold.limit || r.hold.hurried == 0 {
		t.Errorf("%d messages were queued, the limit is %d; %d were handled, %d of them early", most, r.hold.limit, handled, r.hold.hurried)
	}
}

// TestResyncSkipsLineEnds looks for a SIP message behind many line ends. All of them must be
// dropped at once: looking at each of them again with the next segment would take quadratic time.
func TestResyncSkipsLineEnds(t *testing.T) {
	r := newReading(Options{}, nil)
	x := &half{conn: &conn{protocol: SIP}}
	ends := bytes.Repeat([]byte("\n"), 1<<16)
	if n, found := r.resync(x, ends); n != len(ends) || found {
		t.Errorf("got %d of %d line ends, found %t", n, len(ends), found)
	}
	if n, found := r.resync(x, append(ends, sipRequest("REGISTER", "a", 1)...)); n != len(ends) || !found {
		t.Errorf("before a message: got %d of %d line ends, found %t", n, len(ends), found)
	}
}

// TestHeaderIsReadOnce checks that the header of a SIP message on a stream is not read again with each
// part of its body. A second reading of the changed header would fail.
func TestHeaderIsReadOnce(t *testing.T) {
	r := newReading(Options{}, nil)
	x := &half{conn: &conn{protocol: SIP}}
	head := []byte("OPTIONS sip:x SIP/2.0\r\nContent-Length: 5\r\n\r\nab")
	if n, err := r.frameSIP(x, head); n != 0 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	head[bytes.IndexByte(head, '5')] = 'x'
	if n, err := r.frameSIP(x, append(head, 'c')); n != 0 || err != nil {
		t.Errorf("with another part of the body: got %d, %v", n, err)
	}
	r.drop(x)
	if n, err := r.frameSIP(x, head); err == nil {
		t.Errorf("another message is framed by the old length: got %d", n)
	}
}

// TestHeaderIsSearchedOnce checks that a SIP header is searched for its end only where new bytes
// are. A second search of the changed bytes would find an end.
func TestHeaderIsSearchedOnce(t *testing.T) {
	r := newReading(Options{}, nil)
	x := &half{conn: &conn{protocol: SIP}}
	header := []byte("OPTIONS sip:x SIP/2.0\r\nSubject: a long text\r\n")
	if n, err := r.frameSIP(x, header); n != 0 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	copy(header, "O\r\n\r\n")
	if n, err := r.frameSIP(x, append(header, "Subject: another\r\n"...)); n != 0 || err != nil {
		t.Errorf("with another line: got %d, %v", n, err)
	}
	r.drop(x)
	if n, err := r.frameSIP(x, header); n != len("O\r\n\r\n") || err == nil {
		t.Errorf("of another message: got %d, %v", n, err)
	}
}

// TestMalformedBytesAreReadOnce sends lines that look like the starts of messages. A search that
// goes on at the next line after an error would read the same bytes again, with an error for each
// line.
func TestMalformedBytesAreReadOnce(t *testing.T) {
	const http, sip, segment = "GET / HTTP/1.1\r\n", "OPTIONS sip:x SIP/2.0\r\n", 1460
	const good = "GET /good HTTP/1.1\r\n\r\n"
	for name, c := range map[string]struct {
		protocol Protocol
		text     string
		errors   uint64 // at most
		messages int
	}{
		"HTTP without an empty line": {HTTP, strings.Repeat(http, 1<<14), 4, 0}, // 256 KiB
		"HTTP with an empty line":    {HTTP, strings.Repeat(http, 4000) + "\r\n" + good, 1, 1},
		"HTTP with a long method":    {HTTP, strings.Repeat("A", 8000) + http + "bad\r\n\r\n" + good, 1, 1},
		"SIP without an empty line":  {SIP, strings.Repeat(sip, 100_000), 2, 0}, // 2.2 MiB
		"SIP with an empty line":     {SIP, strings.Repeat(sip, 4000) + "\r\n" + string(sipRequest("OPTIONS", "a", 1)), 1, 1},
	} {
		messages := 0
		r := newReading(Options{}, func(*Message) error { messages++; return nil })
		x := &half{conn: &conn{protocol: c.protocol}, src: client, dst: server}
		for rest := []byte(c.text); len(rest) > 0; {
			n := min(segment, len(rest))
			r.feed(x, rest[:n])
			rest = rest[n:]
		}
		r.drain()
		errors := uint64(0)
		for _, n := range r.counts.undecodable[c.protocol] {
			errors += n
		}
		if errors == 0 || errors > c.errors || messages != c.messages {
			t.Errorf("%s: got %d errors and %d messages, want 1 to %d errors and %d messages", name, errors, messages, c.errors, c.messages)
		}
	}
}

// TestUnfinishedStreamsKeepTheirOrder: the messages that end with a connection of HTTP/2 get the
// same IDs in each run.
func TestUnfinishedStreamsKeepTheirOrder(t *testing.T) {
	for name, end := range map[string]func(r *reading, c *conn){
		"all streams are forgotten": func(r *reading, c *conn) { r.forgetStreams(c) },
		"a direction ends":          func(r *reading, c *conn) { r.closeHTTP2(&c.halves[0]) },
	} {
		var got []int
		r := newReading(Options{}, func(m *Message) error { got = append(got, m.Bytes); return nil })
		c := &conn{protocol: HTTP2, client: -1, streams: map[uint32]h2Stream{}}
		c.halves[0].conn = c
		o := origin{at: start, src: client, dst: server}
		for i := range 20 {
			s := r.slot(&o, HTTP2)
			s.m.Bytes = i
			c.streams[uint32(i)] = h2Stream{open: [2]*slot{s}}
		}
		end(r, c)
		r.drain()
		if len(got) != 20 || !slices.IsSorted(got) {
			t.Errorf("%s: got the order %v", name, got)
		}
	}
}

// TestUserPlane checks interface types by their names in TS 29.274 clause 8.22.
func TestUserPlane(t *testing.T) {
	for name, of := range map[string]struct {
		user  bool
		types []gtpc.Interface
	}{
		"GTP-U":            {true, []gtpc.Interface{0, 1, 2, 3, 4, 5, 15, 16, 19, 20, 21, 22, 23, 28, 29, 31, 33, 34, 37, 38, 39, 41}},
		"GTP-C and PMIPv6": {false, []gtpc.Interface{6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 24, 25, 26, 27, 30, 32, 35, 36, 40}},
	} {
		for _, i := range of.types {
			if userPlane(i) != of.user {
				t.Errorf("type %d is %s", i, name)
			}
		}
	}
}

// TestAttributesTakeNoSlot reads replies of Redis that follow an attribute (RESP3). The reply
// and its attribute are one message.
func TestAttributesTakeNoSlot(t *testing.T) {
	handled := 0
	r := newReading(Options{}, func(*Message) error { handled++; return nil })
	x := &half{conn: &conn{protocol: Redis}, side: 1, src: server, dst: client}
	reply := []byte("|1\r\n+ttl\r\n:3600\r\n$5\r\nvalue\r\n")
	const replies = 3
	for range replies {
		if n, err := r.readRedis(x, reply); n != len(reply) || err != nil {
			t.Fatalf("read %d octets of %d, error %v", n, len(reply), err)
		}
	}
	r.drain()
	if r.hold.open != 0 || handled != replies {
		t.Errorf("%d slots are still in use, %d messages were delivered, want 0 and %d", r.hold.open, handled, replies)
	}
}

// TestManyConnectionsAtOnce opens many connections, which do not end. All of them are read if there is
// memory for what they take. Otherwise some are given up, and their requests in progress are delivered.
func TestManyConnectionsAtOnce(t *testing.T) {
	const settings, headers = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x03\x01\x04\x00\x00\x00\x01\x82\x84\x86"
	request := string(preface) + settings + headers
	requests := string(preface) + settings // 100 at once
	for stream := byte(1); stream < 200; stream += 2 {
		requests += headers[:8] + string([]byte{stream}) + headers[9:]
	}
	for name, c := range map[string]struct {
		payload             string
		number, memory, got int // connections; bytes; messages
		all                 bool
	}{
		"HTTP/2":                    {request, 200, 256 << 20, 200, true},
		"HTTP/2 with little memory": {request, 200, 1 << 20, 200, false},
		"HTTP/2 with many streams":  {requests, 50, 4 << 20, 5000, false},
		"an unknown protocol":       {"\x00\x00\x00\x05hello", 1000, 1 << 20, 0, false},
	} {
		lines, s := read(t, Options{MaxMemory: c.memory}, built(t, func(f *capturetest.File) {
			at := start
			add := func(frame []byte) {
				at += 1e6
				f.Add(at, frame)
			}
			var frames capturetest.Frames
			for i := range c.number {
				from := netip.AddrPortFrom(client.Addr(), uint16(1024+i))
				one := capturetest.Conn{Client: from, Server: end("192.0.2.4:9999"), Frames: &frames}
				one.Open(add)
				add(one.Send(false, []byte(c.payload)))
			}
		}))
		open := c.number - int(s.Streams.Evicted)
		if len(lines) != c.got || (open == c.number) != c.all || s.GivenUp.Streams != 0 {
			t.Errorf("%s: got %d messages, %d of %d connections stay open, given up %+v", name, len(lines), open, c.number, s.GivenUp)
		}
		if size := int(unsafe.Sizeof(conn{})) + c.got/c.number*slotSize; open*size > c.memory/4 {
			t.Errorf("%s: %d connections of %d bytes stay open, above %d bytes", name, open, size, c.memory/4)
		}
	}
}

// TestUserTrafficLeavesRoomForFunctions: what 70,000 UEs ask name servers through tunnels must not take the
// places of functions that send messages later.
func TestUserTrafficLeavesRoomForFunctions(t *testing.T) {
	names := map[string]string{"192.0.2.2": "P-CSCF", "192.0.2.9": "S-CSCF"}
	var got []string
	r := newReading(Options{Name: func(text string) string { return names[text] }}, func(m *Message) error {
		got = append(got, m.From+" > "+m.To)
		return nil
	})
	address := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 40000)
	}
	at := start
	send := func(src, dst netip.AddrPort, payload []byte) {
		at += 1000
		r.packet(&capture.Packet{Time: at, Transport: capture.UDP, Src: src, Dst: dst, Payload: payload})
	}
	const users = 70_000
	for n := range users {
		send(address(n), end("198.51.100.1:53"), []byte("question"))
	}
	send(ue, proxy, sipRequest("REGISTER", "a", 1))
	send(address(40_000), proxy, sipRequest("REGISTER", "b", 2)) // one of those without a place
	for n := range maxFunctions {
		r.functions.of(address(users+n), false, 0, maxFunctions) // until all places are taken
	}
	send(end("203.0.113.1:5060"), proxy, sipRequest("REGISTER", "c", 3))
	send(proxy, end("192.0.2.9:5060"), sipRequest("REGISTER", "c", 4))
	r.drain()
	want := []string{"192.0.2.1 > P-CSCF", "10.0.156.64 > P-CSCF", "others > P-CSCF", "P-CSCF > S-CSCF"}
	if !slices.Equal(got, want) {
		t.Errorf("got messages %q, want %q", got, want)
	}
	if s := r.summarise(nil); s.GivenUp.Functions != 1 || len(s.Functions) != 5 {
		t.Errorf("got %d messages from or to others, functions %+v", s.GivenUp.Functions, s.Functions)
	}
}

// TestLongTextsAreNotKept: a sender of long names and values must not fill the memory.
func TestLongTextsAreNotKept(t *testing.T) {
	var h hold
	s := h.take()
	s.text = make([]byte, 1<<20)
	h.recycle(s)
	if n := cap(h.take().text); n > slotSize {
		t.Errorf("a slot keeps %d bytes for text", n)
	}
	s = h.take()
	for range 2 { // a new identifier, and a known one
		s.add(CallID, 0, bytes.Repeat([]byte("x"), 1<<16))
		if n := cap(s.text); n > 2*slotSize || len(s.m.Identifiers) != 1 || len(s.m.Identifiers[0].Text) != maxText {
			t.Errorf("a message that waits has %d bytes for text, %d identifiers", n, len(s.m.Identifiers))
		}
	}
	var w words
	w.init()
	if name := w.intern(HTTP, bytes.Repeat([]byte("/a"), maxWord)); name != "(other)" || len(w.texts[HTTP]) != 0 || w.others != 1 {
		t.Errorf("interned a name of %d bytes", len(name))
	}
}

// TestManyNamesLeaveRoomForOthers: a sender of many codes or paths must not fill the memory, nor take the
// places of the names of other protocols.
func TestManyNamesLeaveRoomForOthers(t *testing.T) {
	const beyond = 10
	r := newReading(Options{}, nil)
	created := 0
	for n := range uint64(maxWords + beyond) {
		r.words.number(Diameter, n, func() string {
			created++
			return fmt.Sprint("Command-", n)
		})
		r.words.intern(HTTP, fmt.Append(nil, "GET /", n))
	}
	got := []string{r.words.intern(SIP, []byte("INVITE")), r.words.number(S1AP, 1, func() string { return "Paging" }), r.words.number(Diameter, 0, nil)}
	if want := []string{"INVITE", "Paging", "Command-0"}; !slices.Equal(got, want) {
		t.Errorf("got names %q, want %q", got, want)
	}
	if s := r.summarise(nil); created != maxWords || s.GivenUp.Names != 2*beyond {
		t.Errorf("made %d names of codes, %d names and causes are (other); want %d and %d", created, s.GivenUp.Names, maxWords, 2*beyond)
	}
}

// TestEmptyBuffersLeaveRoomForOthers: many connections stay open behind a message that came in two
// segments. Their buffers are empty, and must not count against later messages.
func TestEmptyBuffersLeaveRoomForOthers(t *testing.T) {
	messages := 0
	r := newReading(Options{MaxMemory: 1 << 20}, func(*Message) error { messages++; return nil })
	const connections = 1000
	for n := range connections {
		x := &half{conn: &conn{protocol: SIP}, src: client, dst: server}
		text := sipRequest("OPTIONS", "alice", n)
		r.feed(x, text[:200])
		r.feed(x, text[200:])
	}
	r.drain()
	if messages != connections || r.tcp.given != 0 {
		t.Errorf("got %d of %d messages, gave up %d pieces", messages, connections, r.tcp.given)
	}
}
