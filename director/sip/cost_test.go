package sip

import (
	"strings"
	"testing"

	"vitrine/director/datagram"
	"vitrine/wire/sip"
)

// TestNoAllocation checks that requests, retransmissions, requests in a dialog, responses
// and the director's own answers allocate nothing.
func TestNoAllocation(t *testing.T) {
	c := rulesConfig()
	c.Options = map[string]TypeOptions{"registration": {Stream: true}}
	s := newStage(t, c)
	r, _ := s.must(register, client, udp4)
	invite, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	routes, instance := elements(m, sip.RecordRoute), s.targetOf(invite.to).Address
	for name, text := range map[string]string{
		"REGISTER":                    register,
		"INVITE":                      lines("INVITE sip:b@example.com SIP/2.0", "Via: SIP/2.0/UDP 192.0.2.9;rport;branch=z9hG4bK1"),
		"BYE":                         lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: "+routes[1]+", "+routes[0], "To: <sip:b@x>;tag=2"),
		"without length, to a stream": lines("SUBSCRIBE sip:b@example.com SIP/2.0", "Event: reg"),
		"response":                    respond(r.text, 200, ""),
		"a call's beginning":          respond(invite.text, 200, ""),
		"an instance's BYE":           lines("BYE sip:a@192.0.2.7 SIP/2.0", "To: <sip:a@x>;tag=2"),
		"483":                         lines("INVITE sip:b@example.com SIP/2.0", "Max-Forwards: 0"),
	} {
		data := make([]byte, len(text))
		room := make([]byte, 0, datagram.RoomSize)
		var out Outgoing
		in := datagram.Datagram{From: client, At: s.now}
		if strings.HasPrefix(name, "a") {
			in.From = instance
		}
		if n := testing.AllocsPerRun(500, func() {
			in.Data = data[:copy(data, text)]
			if !s.proxy.Handle(&in, room, &out) {
				t.Fatalf("%s: nothing came of it", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkHandle(b *testing.B) {
	s := newStage(b, rulesConfig())
	r, _ := s.must(register, client, udp4)
	for name, text := range map[string]string{"request": register, "response": respond(r.text, 200, "")} {
		b.Run(name, func(b *testing.B) {
			data := make([]byte, len(text))
			room := make([]byte, 0, datagram.RoomSize)
			var out Outgoing
			in := datagram.Datagram{From: client, At: s.now}
			for b.Loop() {
				in.Data = data[:copy(data, text)]
				s.proxy.Handle(&in, room, &out)
			}
		})
	}
}
