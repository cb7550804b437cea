package message

import (
	"bytes"
	"testing"

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
