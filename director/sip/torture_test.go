package sip

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/director/datagram"
	"vitrine/wire/sip"
)

// usual has the mandatory headers except CSeq.
const usual = "To: sip:j.user@example.com\r\nFrom: sip:caller@example.net;tag=1\r\nCall-ID: a@b\r\n" +
	"Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bK1\r\nMax-Forwards: 9\r\n"

// TestTorture passes the messages of RFC 4475 through the proxy. Valid messages must be forwarded
// unchanged. Invalid requests must be answered, where an answer is possible.
func TestTorture(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       int // status of the answer; 0: forwarded; -1: dropped
	}{
		{"wsinv", "INVITE sip:vivekg@chair-dnrc.example.com;unknownparam SIP/2.0\r\nTO :\r\n sip:vivekg@chair-dnrc.example.com ;   tag    = 1918181833n\r\n" +
			"from   : \"J Rosenberg \\\\\\\"\"       <sip:jdrosen@example.com>\r\n  ;\r\n  tag = 98asjd8\r\nMaX-fOrWaRdS: 0068\r\nCall-ID: wsinv.ndaksdj@192.0.2.1\r\n" +
			"Content-Length   : 4\r\ncseq: 0009\r\n  INVITE\r\nVia  : SIP  /   2.0\r\n /UDP\r\n    192.0.2.7;branch=390skdjuw\r\ns :\r\nNewFangledHeader:   newfangled value\r\n continued newfangled value\r\n" +
			"UnknownHeaderWithUnusualValue: ;;,,;;,;\r\nContent-Type: application/sdp\r\nRoute:\r\n <sip:services.example.com;lr;unknownwith=value;unknown-no-value>\r\n" +
			"v:  SIP  / 2.0  / TCP     spindle.example.com   ;\r\n  branch  =   z9hG4bK9ikj8  ,\r\n SIP  /    2.0   / UDP  192.168.255.111   ; branch=\r\n z9hG4bK30239\r\n" +
			"m:\"Quoted string \\\"\\\"\" <sip:jdrosen@example.com> ; newparam =\r\n      newvalue ;\r\n  secondparam ; q = 0.33\r\n\r\nv=0\r", 0},
		{"intmeth", "!interesting-Method0123456789_*+`.%indeed'~ sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com SIP/2.0\r\n" + usual + "CSeq: 139122385 !interesting-Method0123456789_*+`.%indeed'~\r\nExtensionHeader-!.%*+_`'~: \xef\xbb\xbf\xe5\xa4\xa7\r\n\r\n", 0},
		{"esc01", "INVITE sip:sips%3Auser%40example.com@example.net SIP/2.0\r\n" + usual + "CSeq: 2 INVITE\r\n\r\n", 0},
		{"escnull", "REGISTER sip:example.com SIP/2.0\r\n" + usual + "CSeq: 14398234 REGISTER\r\nL:0\r\nContact: <sip:%00@host5.example.com>\r\nContact: <sip:%00%00@host5.example.com>\r\n\r\n", 0},
		{"esc02", "RE%47IST%45R sip:example.com SIP/2.0\r\n" + usual + "CSeq: 29344 RE%47IST%45R\r\n\r\n", 0},
		{"lwsdisp", "OPTIONS sip:user@example.com SIP/2.0\r\nTo: sip:user@example.com\r\nFrom: caller<sip:caller@example.com>;tag=323\r\nMax-Forwards: 70\r\nCall-ID: x\r\nCSeq: 60 OPTIONS\r\nVia: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKkdjuw\r\n\r\n", 0},
		{"longreq", "INVITE sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 3882340 INVITE\r\n" + strings.Repeat("Unknown-"+strings.Repeat("Long", 20)+"-Name: unknown-"+strings.Repeat("long", 30)+"-value; unknown\r\n", 30) +
			strings.Repeat("Via: SIP/2.0/TCP sip33.example.com, SIP/2.0/SCTP sip32.example.com\r\n", 20) + "\r\n", 0},
		{"dblreq", "REGISTER sip:example.com SIP/2.0\r\n" + usual + "CSeq: 8 REGISTER\r\nContent-Length: 0\r\n\r\nINVITE sip:joe@example.com SIP/2.0\r\nt: sip:joe@example.com\r\n", 0},
		{"semiuri", "OPTIONS sip:user;par=u%40example.net@example.com SIP/2.0\r\n" + usual + "CSeq: 8 OPTIONS\r\n\r\n", 0},
		{"transports", "OPTIONS sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 60 OPTIONS\r\nVia: SIP/2.0/SCTP t2.example.com;branch=z9hG4bKklasjdhf\r\nVia: SIP/2.0/TLS t3.example.com;branch=z9hG4bK2980unddj\r\nVia: SIP/2.0/UNKNOWN t4.example.com;branch=z9hG4bKasd0f3en\r\n\r\n", 0},
		{"mpart01", "MESSAGE sip:kumiko@example.org SIP/2.0\r\n" + usual + "CSeq: 60 MESSAGE\r\nContent-Type: multipart/mixed;boundary=7a9cbec02ceef655\r\nContent-Length: 9\r\n\r\n\x00\x01\r\n\r\n\xff\xfe\x80", 0},
		{"unreason", "SIP/2.0 200 = 2**3 * 5**2 \xd0\xbd\xd0\xbe\r\n" + usual + "CSeq: 35 INVITE\r\n\r\n", -1},
		{"noreason", "SIP/2.0 100 \r\n" + usual + "CSeq: 35 INVITE\r\n\r\n", -1},
		{"badinv01", "INVITE sip:user@example.com SIP/2.0\r\nTo: sip:j.user@example.com\r\nFrom: sip:caller@example.net;tag=134161461246\r\nMax-Forwards: 7\r\nCall-ID: a\r\nCSeq: 8 INVITE\r\nVia: SIP/2.0/UDP 192.0.2.7;;,;,,\r\nContact: \"Joe\" <sip:joe@example.org>;;;;\r\nContent-Length: 0\r\n\r\n", 0},
		{"clerr", "INVITE sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 8 INVITE\r\nContent-Length: 9999\r\n\r\nv=0\r\n", 400},
		{"ncl", "INVITE sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 8 INVITE\r\nContent-Length: -999\r\n\r\nv=0\r\n", 400},
		{"scalar02", "REGISTER sip:example.com SIP/2.0\r\n" + usual + "CSeq: 36893488147419103232 REGISTER\r\nExpires: 10000000000000000000000000000\r\n\r\n", 400},
		{"scalarlg", "SIP/2.0 503 Service Unavailable\r\n" + usual + "CSeq: 9292394834772304023312 OPTIONS\r\n\r\n", -1},
		{"quotbal", "INVITE sip:user@example.com SIP/2.0\r\nTo: \"Mr. J. User <sip:j.user@example.com>\r\nFrom: sip:caller@example.net;tag=93334\r\nMax-Forwards: 10\r\nCall-ID: x\r\nCSeq: 8 INVITE\r\nVia: SIP/2.0/UDP 192.0.2.59:5050;branch=z9hG4bKkdjuw39234\r\n\r\n", 0},
		{"ltgtruri", "INVITE <sip:user@example.com> SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", 400},
		{"lwsruri", "INVITE sip:user@example.com; lr SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", 400},
		{"lwsstart", "INVITE  sip:user@example.com  SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", 400},
		{"trws", "OPTIONS sip:remote-target@example.com SIP/2.0  \r\n" + usual + "CSeq: 1 OPTIONS\r\n\r\n", 400},
		{"escruri", "INVITE sip:user@example.com?Route=%3Csip:example.com%3E SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", 0},
		{"badvers", "OPTIONS sip:t.watson@example.org SIP/7.0\r\n" + usual + "CSeq: 1 OPTIONS\r\n\r\n", 505},
		{"mismatch01", "OPTIONS sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 8 INVITE\r\n\r\n", 400},
		{"mismatch02", "NEWMETHOD sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 8 INVITE\r\n\r\n", 400},
		{"bigcode", "SIP/2.0 4294967301 better not break the receiver\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", -1},
		{"badbranch", "OPTIONS sip:user@example.com SIP/2.0\r\nTo: sip:user@example.com\r\nFrom: sip:caller@example.org;tag=33242\r\nMax-Forwards: 3\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK\r\nCall-ID: x\r\nCSeq: 8 OPTIONS\r\n\r\n", 0},
		{"insuf", "INVITE sip:user@example.com SIP/2.0\r\nCSeq: 193942 INVITE\r\nVia: SIP/2.0/UDP 192.0.2.95;branch=z9hG4bKkdj.insuf\r\nContent-Length: 0\r\n\r\n", -1},
		{"unkscm", "OPTIONS nobodyKnowsThisScheme:totallyopaquecontent SIP/2.0\r\n" + usual + "CSeq: 3923423 OPTIONS\r\n\r\n", 0},
		{"novelsc", "OPTIONS soap.beep://192.0.2.103:3002 SIP/2.0\r\n" + usual + "CSeq: 3923423 OPTIONS\r\n\r\n", 0},
		{"bext01", "OPTIONS sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 8 OPTIONS\r\nRequire: nothingSupportsThis, nothingSupportsThisEither\r\nProxy-Require: noProxiesSupportThis, norDoAnyProxiesSupportThis\r\n\r\n", 420},
		{"multi01", "INVITE sip:user@company.com SIP/2.0\r\n" + usual + "CSeq: 5 INVITE\r\nCSeq: 59 INVITE\r\nCall-ID: other\r\nFrom: sip:other@example.com;tag=3413415\r\n\r\n", 400},
		{"mcl01", "OPTIONS sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 5 OPTIONS\r\nContent-Length: 13\r\nContent-Length: 5\r\n\r\nThere's no way", 400},
		{"bcast", "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.198;branch=z9hG4bK1324923\r\nVia: SIP/2.0/UDP 255.255.255.255;branch=z9hG4bK1saber23\r\nCall-ID: bcast.0384840201234ksdfak3j2erwedfsASdf\r\nCSeq: 35 INVITE\r\nFrom: sip:user@example.com;tag=11141343\r\nTo: sip:user@example.edu;tag=2229\r\n\r\n", -1},
		{"zeromf", "OPTIONS sip:user@example.com SIP/2.0\r\nTo: sip:user@example.com\r\nFrom: sip:caller@example.net;tag=3ghsd41\r\nCall-ID: x\r\nCSeq: 39234321 OPTIONS\r\nVia: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKkdjuw2349i\r\nMax-Forwards: 0\r\n\r\n", 483},
		{"inv2543", "INVITE sip:UserB@example.com SIP/2.0\r\nVia: SIP/2.0/UDP iftgw.example.com\r\nFrom: <sip:+13035551111@ift.client.example.net;user=phone>\r\nRecord-Route: <sip:UserB@example.com;maddr=ss1.example.com>\r\nTo: sip:+16505552222@ss1.example.net;user=phone\r\nCall-ID: inv2543.1717@ift.client.example.com\r\nCSeq: 56 INVITE\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n", 0},
		{"keep-alive", "\r\n\r\n", -1},
		{"nothing", "", -1},
		{"noise", "\x00\x01\x02\xff\r\n\r\n", -1},
		{"no sent-by", "OPTIONS sip:u@example.com SIP/2.0\r\nVia: nonsense\r\nTo: a\r\nFrom: b\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\n\r\n", -1},
		{"ACK that does not parse", "ACK  sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 1 ACK\r\n\r\n", -1},
	} {
		rules := rulesConfig()
		rules.Rules = append(rules.Rules, Rule{Type: "session"})
		s := newStage(t, rules)
		r, ok := s.pass(c.text, client, udp4)
		if !ok {
			if c.want != -1 {
				t.Errorf("%s: dropped, want status %d", c.name, c.want)
			}
			continue
		}
		// The answer repeats the request's headers, including invalid ones.
		if got := strings.HasPrefix(r.text, fmt.Sprintf("SIP/2.0 %d ", c.want)); got != (c.want > 0) {
			t.Errorf("%s: want status %d, got\n%s", c.name, c.want, r.text)
		}
		if c.want == 0 {
			checkForwarded(t, c.name, c.text, r.text)
		}
	}
}

// checkForwarded compares a forwarded request with the received one. Only headers that a proxy adds
// or decrements may differ.
func checkForwarded(t *testing.T, name, came, sent string) {
	t.Helper()
	var a, b sip.Message
	if _, err := a.Parse([]byte(came)); err != nil {
		t.Errorf("%s: forwarded, but cannot be parsed: %v", name, err)
		return
	}
	if _, err := b.Parse([]byte(sent)); err != nil {
		t.Errorf("%s: forwarded in a form that cannot be parsed: %v\n%s", name, err, sent)
		return
	}
	if !bytes.Equal(a.StartLine, b.StartLine) && a.Route == nil || !bytes.Equal(a.Body, b.Body) {
		t.Errorf("%s: the start line or the body changed:\n%s", name, sent)
	}
	left := other(&a)
	right := other(&b)
	if left != right {
		t.Errorf("%s: a header changed:\n%s\nwant\n%s", name, right, left)
	}
	if n, was := len(elements(&b, sip.Via)), len(elements(&a, sip.Via)); n != was+1 {
		t.Errorf("%s: got %d Vias, received %d", name, n, was)
	}
}

// other returns the header lines that a proxy must leave unchanged.
func other(m *sip.Message) string {
	var b strings.Builder
	for f := m.Fields(); f.Next(); {
		switch f.Kind {
		case sip.Via, sip.MaxForwards, sip.Route, sip.RecordRoute, sip.Path, sip.ContentLength:
		default:
			b.WriteString(string(f.Name) + ": " + string(f.Value) + "\n")
		}
	}
	return b.String()
}

// FuzzHandle checks that no input makes the proxy panic. A forwarded message must parse, have one
// Via more or less, and be the same when it is handled again.
func FuzzHandle(f *testing.F) {
	invite := lines("INVITE sip:b@example.com SIP/2.0")
	f.Add([]byte(register), uint16(5060), uint8(0))
	f.Add([]byte(invite), uint16(1), uint8(1))
	f.Add([]byte(lines("BYE sip:i.0011..session@198.51.100.1:5060 SIP/2.0", "Route: <sip:10.0.1.9;lr>, <sip:b@x>")), uint16(9), uint8(2))
	f.Add([]byte(lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: <sip:o.0011.0a0000011234.session@198.51.100.1>,<sip:i.0011..session@director.test;lr> , <sip:x;lr>", "To: <sip:b@x>;tag=2")), uint16(9), uint8(0))
	f.Add([]byte(lines("SUBSCRIBE sip:b@example.com SIP/2.0", "v: SIP / 2.0 / UDP [::1] : 5 ; rport ; received = x ; oc ; oc-algo=\"loss;\\\"\" ; branch = 1, SIP/2.0/TCP b")), uint16(9), uint8(0))
	f.Add([]byte("SIP/2.0 200 OK\r\nv: SIP/2.0/UDP 198.51.100.1:5060;branch=z9hG4bK-vd00010011000000000000000100000000000000ff;vf=0a0000011234, SIP/2.0/TCP 192.0.2.7;rport=3;received=192.0.2.8;oc\r\nf: a\r\nt: b\r\ni: 1\r\nCSeq: 1 INVITE\r\n\r\n"), uint16(1), uint8(0))
	f.Add([]byte("BYE sip:i.0000..0@198.51.100.1 SIP/2.0\r\nRoute:0 0\r\nV://0 0\r\nF:0\r\nT:0\r\nCAll-ID:0\r\nCSeq:0 BYE\r\n\r\n"), uint16(9), uint8(0))
	f.Add([]byte("OPTIONS  sip:x SIP/2.0\r\n"+usual+"CSeq: 1 OPTIONS\r\n\r\n"), uint16(1), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, port uint16, listener uint8) {
		rules := rulesConfig()
		rules.Rules = append(rules.Rules, Rule{Type: "session"})
		s := newStage(t, rules)
		from := netip.AddrPortFrom(netip.MustParseAddr("10.0.1.3"), port)
		in := datagram.Datagram{From: from, Listener: int(listener) % 3, At: s.now}
		var first, again Outgoing
		in.Data = bytes.Clone(data)
		ok := s.proxy.Handle(&in, make([]byte, 0, 1024), &first)
		text := bytes.Join(first.Parts, nil)
		in.Data = bytes.Clone(data)
		if s.proxy.Handle(&in, make([]byte, 0, 64), &again) != ok {
			t.Fatal("the second pass had another outcome")
		}
		if !ok {
			return
		}
		if second := bytes.Join(again.Parts, nil); !bytes.Equal(text, second) || first.To != again.To {
			t.Fatalf("the second pass sent\n%q\nthe first\n%q", second, text)
		}
		if first.Listener < 0 || first.Listener > 2 || !first.To.IsValid() {
			t.Fatalf("sent to %v by listener %d", first.To, first.Listener)
		}
		checkOut(t, data, text)
	})
}

// checkOut checks the message that the proxy sent for a received message.
func checkOut(t *testing.T, came, sent []byte) {
	t.Helper()
	var out, in sip.Message
	if _, err := in.Parse(bytes.Clone(came)); err != nil {
		if !bytes.HasPrefix(sent, []byte("SIP/2.0 ")) {
			t.Fatalf("a message that cannot be parsed (%v) was forwarded:\n%q", err, sent)
		}
		return
	}
	if n, err := out.Parse(bytes.Clone(sent)); err != nil || n != len(sent) {
		t.Fatalf("parsed %d of %d bytes, %v:\n%q", n, len(sent), err, sent)
	}
	was, is := len(elements(&in, sip.Via)), len(elements(&out, sip.Via))
	switch {
	case !in.IsRequest():
		if is != was-1 || out.Status != in.Status {
			t.Fatalf("the response has %d Vias, received %d:\n%q", is, was, sent)
		}
	case !out.IsRequest():
		if is != was {
			t.Fatalf("the answer has %d Vias, the request %d:\n%q", is, was, sent)
		}
	default:
		checkForwarded(t, "fuzz", string(came), string(sent))
	}
}

// TestCaptures passes the SIP messages of real captures.
func TestCaptures(t *testing.T) {
	folder := os.Getenv("VITRINE_CAPTURES")
	if folder == "" {
		folder = "../../../shared/captures"
	}
	messages := 0
	for _, name := range []string{"sip.pcap", "FAX-Call-t38-CA-TDM-SIP-FB-1.pcap"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if os.IsNotExist(err) {
			t.Skipf("no captures: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, payload := range payloads(t, data) {
			var m sip.Message
			if n, err := m.Parse(bytes.Clone(payload)); err != nil || n > len(payload) {
				continue
			}
			messages++
			rules := rulesConfig()
			rules.Rules = append(rules.Rules, Rule{Type: "session"})
			s := newStage(t, rules)
			r, ok := s.pass(string(payload), client, udp4)
			switch {
			case !m.IsRequest() && ok:
				t.Errorf("%s: a response to another host was forwarded:\n%s", name, payload)
			case m.IsRequest() && !ok:
				t.Errorf("%s: the request was dropped:\n%s", name, payload)
			case ok:
				checkOut(t, payload, []byte(r.text))
				if out := new(sip.Message); true {
					if _, err := out.Parse([]byte(r.text)); err != nil || !out.IsRequest() {
						t.Errorf("%s: the request was answered:\n%s", name, r.text)
					}
				}
			}
		}
	}
	if messages < 50 {
		t.Errorf("the captures have %d SIP messages, want at least 50", messages)
	}
}

// payloads returns the payloads of the UDP datagrams over IPv4 in a capture (the classic
// format, Ethernet).
func payloads(t *testing.T, data []byte) (all [][]byte) {
	t.Helper()
	if len(data) < 24 || data[0] != 0xd4 || data[20] != 1 {
		t.Fatal("the file is not a little-endian Ethernet capture")
	}
	for at := 24; at+16 <= len(data); {
		n := int(data[at+8]) | int(data[at+9])<<8 | int(data[at+10])<<16
		frame := data[at+16 : at+16+n]
		at += 16 + n
		if len(frame) < 42 || frame[12] != 8 || frame[13] != 0 || frame[23] != 17 {
			continue
		}
		udp := 14 + int(frame[14]&15)*4
		if end := udp + int(frame[udp+4])<<8 + int(frame[udp+5]); end <= len(frame) && end > udp+8 {
			all = append(all, frame[udp+8:end])
		}
	}
	return all
}
