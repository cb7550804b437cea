package capture

import (
	"bytes"
	"testing"
	"time"
)

// sighted returns what a Finder says about a segment with some payload and no identification.
func sighted(f *Finder, milliseconds int64, where Where, payload string) Sighting {
	return f.Find(&Packet{Time: milliseconds * int64(time.Millisecond), Where: where, Transport: TCP, Payload: []byte(payload)})
}

// TestFinder checks which packets count as new, as copies and as retransmissions.
func TestFinder(t *testing.T) {
	sender, router, receiver := Where{}, Where{Interface: 1}, Where{File: 1}
	f := NewFinder(50*time.Millisecond, 100)
	steps := []struct {
		at      int64 // milliseconds
		where   Where
		payload string
		want    Sighting
	}{
		{0, sender, "a", Sighting{Kind: New}},
		{1, router, "a", Sighting{Kind: Copy, Delay: time.Millisecond}},
		{2, sender, "b", Sighting{Kind: New}},
		{5, receiver, "a", Sighting{Kind: Copy, Delay: 5 * time.Millisecond}},
		{6, receiver, "a", Sighting{Kind: Retransmission, Delay: 6 * time.Millisecond}},
		{20, sender, "a", Sighting{Kind: Retransmission, Delay: 20 * time.Millisecond}},
		{21, router, "a", Sighting{Kind: Copy, Delay: time.Millisecond}},
		{53, receiver, "b", Sighting{Kind: New}}, // after the window
		{69, receiver, "a", Sighting{Kind: Copy, Delay: 49 * time.Millisecond}},
	}
	for _, s := range steps {
		if got := sighted(f, s.at, s.where, s.payload); got != s.want {
			t.Errorf("%q at %d ms: got %+v, want %+v", s.payload, s.at, got, s.want)
		}
	}
}

// TestDuplicatesAreNoRetransmissions: a mirror port has each packet when it comes in and when it goes
// out. The copy at the receiver counts from the first of them.
func TestDuplicatesAreNoRetransmissions(t *testing.T) {
	for _, test := range []struct {
		transport Transport
		id        uint16
		again     Kind
		delay     time.Duration // of the copy at the receiver
	}{
		{UDP, 7, Duplicate, 5 * time.Millisecond},
		{UDP, 0, Duplicate, 5 * time.Millisecond},
		{TCP, 7, Duplicate, 5 * time.Millisecond},
		{SCTP, 7, Duplicate, 5 * time.Millisecond},
		{TCP, 0, Retransmission, 4 * time.Millisecond}, // it may be one
		{SCTP, 0, Retransmission, 4 * time.Millisecond},
	} {
		f := NewFinder(50*time.Millisecond, 100)
		find := func(at time.Duration, file uint16) Sighting {
			return f.Find(&Packet{Time: int64(at), Where: Where{File: file}, Transport: test.transport, ID: test.id})
		}
		find(0, 0)
		if got, want := find(time.Millisecond, 0), (Sighting{test.again, time.Millisecond}); got != want {
			t.Errorf("%v, identification %d, at the same place: got %+v, want %+v", test.transport, test.id, got, want)
		}
		if got, want := find(5*time.Millisecond, 1), (Sighting{Copy, test.delay}); got != want {
			t.Errorf("%v, identification %d, at the receiver: got %+v, want %+v", test.transport, test.id, got, want)
		}
		if got := find(6*time.Millisecond, 1).Kind; got != test.again {
			t.Errorf("%v, identification %d, at the receiver again: got %d, want %d", test.transport, test.id, got, test.again)
		}
	}
}

// TestFinderIgnoresWhatRoutersChange checks which differences make another packet.
func TestFinderIgnoresWhatRoutersChange(t *testing.T) {
	frame := framed(udp4(t, "hi"), etherIPv4)
	edited := func(at int) []byte {
		b := join(frame)
		b[at] ^= 0x11
		return b
	}
	tests := []struct {
		name  string
		frame []byte
		want  Kind
	}{
		{"MAC address", edited(3), Copy},
		{"TTL", edited(14 + 8), Copy},
		{"checksum of IP", edited(14 + 10), Copy},
		{"VLAN", framed(udp4(t, "hi"), etherVLAN, etherIPv4), Copy},
		{"tunnel", framed(vxlan(t, frame), etherIPv4), Copy},
		{"identification", edited(14 + 5), New},
		{"address", edited(14 + 15), New},
		{"port", edited(14 + 21), New},
		{"payload", edited(len(frame) - 1), New},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, f := NewWalker(Options{}), NewFinder(50*time.Millisecond, 100)
			w.Walk(Ethernet, 0, Where{}, frame)
			f.Find(w.Next())
			w.Walk(Ethernet, 1, Where{File: 1}, test.frame)
			if got := f.Find(w.Next()).Kind; got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestFinderKnowsCutCopies: captures with different snap lengths have different parts of a payload.
func TestFinderKnowsCutCopies(t *testing.T) {
	tests := []struct {
		name          string
		transport     Transport
		first, second int // captured bytes of the payload
		number        uint32
		want          Kind
	}{
		{"TCP, then cut", TCP, 200, 64, 1, Copy},
		{"TCP, cut first", TCP, 64, 200, 1, Copy},
		{"TCP, the next segment", TCP, 200, 64, 2, New},
		{"TCP, too short", TCP, 200, 63, 1, New},
		{"SCTP, then cut", SCTP, 200, 64, 1, Copy},
		{"SCTP, cut first", SCTP, 64, 200, 1, New},
		{"SCTP, cut at both", SCTP, 64, 64, 1, Copy},
		{"SCTP, the next chunk", SCTP, 200, 64, 2, New},
		{"UDP, then cut", UDP, 200, 64, 1, New},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := NewFinder(50*time.Millisecond, 100)
			find := func(place uint16, captured int, number uint32) Kind {
				payload := bytes.Repeat([]byte("x"), 200)
				return f.Find(&Packet{Where: Where{File: place}, Transport: test.transport, ID: 7, Payload: payload[:captured],
					Missing: len(payload) - captured, Seq: number, TSN: number}).Kind
			}
			find(0, test.first, 1)
			if got := find(1, test.second, test.number); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestFinderIsBounded checks that a Finder forgets the oldest packets when there are
// too many, and old ones even if the clock jumps back.
func TestFinderIsBounded(t *testing.T) {
	f := NewFinder(time.Second, 10)
	for i := range 100 {
		sighted(f, 0, Where{}, string(rune('a'+i)))
	}
	if len(f.seen) != 10 || f.order.Len() != 10 || f.GivenUp() != 90 {
		t.Errorf("got %d packets, %d arrivals, %d given up", len(f.seen), f.order.Len(), f.GivenUp())
	}
	sighted(f, -5000, Where{}, "x")
	if len(f.seen) != 1 {
		t.Errorf("got %d packets after the clock jumped back, want 1", len(f.seen))
	}
}
