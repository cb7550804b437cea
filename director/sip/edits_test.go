package sip

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"vitrine/director/datagram"
	"vitrine/wire/sip"
)

// TestJoin compares joined parts with their plain concatenation, for parts of many lengths, from the
// message and from the room, and for rooms that are more or less full.
func TestJoin(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	message := make([]byte, 4096)
	for i := range message {
		message[i] = byte(random.Uint32())
	}
	lengths := []int{1, 30, 60, 100, 280, maxJoined - 1, maxJoined, maxJoined + 1, 900}
	p, saved := new(Proxy), 0
	for range 20_000 {
		used := random.IntN(datagram.RoomSize + 1)
		p.room = make([]byte, 0, datagram.RoomSize)
		text := p.built(append(p.build(), message[:used]...))
		var parts [][]byte
		for range random.IntN(8) {
			from, n := message, lengths[random.IntN(len(lengths))]
			if random.IntN(2) == 0 && len(text) > n {
				from = text
			}
			at := random.IntN(len(from) - n)
			parts = append(parts, from[at:at+n])
		}
		want := bytes.Join(parts, nil)
		got := p.join(parts)
		if !bytes.Equal(bytes.Join(got, nil), want) || !bytes.Equal(text, message[:used]) {
			t.Fatalf("the text of %d parts changed, with %d bytes of room used", len(parts), used)
		}
		after := used
		if len(got) < len(parts) {
			after += len(got[0])
			saved += len(parts) - len(got)
		}
		if len(p.room) != after {
			t.Fatalf("%d parts became %d: %d bytes of room are used, want %d", len(parts), len(got), len(p.room), after)
		}
	}
	if saved == 0 {
		t.Error("no parts were joined")
	}
}

// TestJoinedParts checks which parts are joined.
func TestJoinedParts(t *testing.T) {
	usual := []int{60, 280, 100, 30, 600}
	for _, c := range []struct {
		lengths    []int
		room, want int
	}{
		{nil, datagram.RoomSize, 0},
		{[]int{500}, datagram.RoomSize, 1},
		{[]int{60, 500}, datagram.RoomSize, 2},
		{[]int{1, 2, 3}, datagram.RoomSize, 2},
		{[]int{maxJoined, maxJoined, 30}, 2 * maxJoined, 2},
		{[]int{60, 280, maxJoined + 1, 30, 600}, datagram.RoomSize, 4},
		{[]int{maxJoined + 1, 280, 100, 30, 600}, datagram.RoomSize, 5},
		{usual, 470, 2}, // the first four
		{usual, 469, 3},
		{usual, 340, 4}, // the first two
		{usual, 339, 5},
		{usual, 0, 5},
	} {
		p := &Proxy{room: make([]byte, 0, c.room)}
		var parts [][]byte
		for _, n := range c.lengths {
			parts = append(parts, make([]byte, n))
		}
		if got := len(p.join(parts)); got != c.want {
			t.Errorf("parts of %v bytes, %d bytes of room: got %d parts, want %d", c.lengths, c.room, got, c.want)
		}
	}
}

// TestRequestsHaveTwoParts checks that requests are joined, and that their text is the same as without
// room to join them.
func TestRequestsHaveTwoParts(t *testing.T) {
	s := newStage(t, rulesConfig())
	_, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	routes := elements(m, sip.RecordRoute)
	for name, text := range map[string]string{
		"REGISTER": register,
		"INVITE":   asPhone("INVITE", "", strings.Repeat("a=rtpmap:97 iLBC/8000\r\n", 12)),
		"BYE":      lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: "+routes[1]+", "+routes[0], "To: <sip:b@x>;tag=2"),
	} {
		send := func(room []byte) (sent string, parts int) {
			var out Outgoing
			if !s.proxy.Handle(&datagram.Datagram{Data: []byte(text), From: client, At: s.now}, room, &out) {
				t.Fatalf("%s: the director sent nothing", name)
			}
			return string(bytes.Join(out.Parts, nil)), len(out.Parts)
		}
		joined, parts := send(make([]byte, 0, datagram.RoomSize))
		plain, more := send(nil)
		s.same(name, joined, plain)
		if parts != 2 || more < 3 {
			t.Errorf("%s: got %d parts, and %d without room", name, parts, more)
		}
	}
}
