package sip

import (
	"fmt"
	"strings"
	"testing"

	"vitrine/director/datagram"
	"vitrine/wire/sip"
)

// TestNoAllocation checks that the proxy allocates nothing for requests, retransmissions, requests
// within a dialog, responses and its own answers.
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
				t.Fatalf("%s: the director sent nothing", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// asPhone returns a request with the headers and the size of requests in public captures of phones.
func asPhone(method, more, body string) string {
	return fmt.Sprintf("%[1]s sip:97239287044@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bKnp104984053-44ce4a41192.0.2.7;rport\r\n"+
		"From: <sip:voi18062@example.com>;tag=6433ef9\r\nTo: <sip:97239287044@example.com>\r\nCall-ID: 105090259-446faf7a@578222732-4665d772\r\n"+
		"CSeq: 1 %[1]s\r\nContact: <sip:voi18062@192.0.2.7:5060;line=9c7d2dbd8822013c>;expires=1200;q=0.500\r\nMax-Forwards: 70\r\n"+
		"User-Agent: Nero SIPPS IP Phone Version 2.0.51.16\r\n%[2]sContent-Length: %[3]d\r\n\r\n%[4]s", method, more, len(body), body)
}

func BenchmarkHandle(b *testing.B) {
	s := newStage(b, rulesConfig())
	r, _ := s.must(register, client, udp4)
	_, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	routes := elements(m, sip.RecordRoute)
	sdp := "Expires: 120\r\nAccept: application/sdp\r\nContent-Type: application/sdp\r\nAllow: INVITE, ACK, CANCEL, BYE, REFER, OPTIONS, NOTIFY, INFO\r\n"
	for _, c := range []struct{ name, text string }{
		{"request", register}, {"response", respond(r.text, 200, "")},
		{"phone REGISTER", asPhone("REGISTER", `Authorization: Digest username="voi18062",realm="sip.example.com",uri="sip:192.0.2.7",nonce="1701b22972b90f440c3e4eb250842bb",opaque="1701a1351f70795",nc="00000001",response="79a0543188495d288c9ebbe0c881abdc"`+"\r\n", "")},
		{"phone INVITE", asPhone("INVITE", sdp, strings.Repeat("a=rtpmap:97 iLBC/8000\r\n", 12))},
		{"phone CANCEL", asPhone("CANCEL", "", "")},
		{"phone BYE", lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: "+routes[1]+", "+routes[0], "To: <sip:b@x>;tag=2")},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := make([]byte, len(c.text))
			room := make([]byte, 0, datagram.RoomSize)
			var out Outgoing
			in := datagram.Datagram{From: client, At: s.now}
			for b.Loop() {
				in.Data = data[:copy(data, c.text)]
				s.proxy.Handle(&in, room, &out)
			}
		})
	}
}
