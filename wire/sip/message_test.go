package sip

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

const challenge = "SIP/2.0 401 Unauthorized\r\nVia: SIP/2.0/UDP 127.0.0.1:5061;branch=z9hG4bK0a\r\n" +
	"From: <sip:a@ims.test>;tag=1\r\nTo: <sip:a@ims.test>;tag=2\r\nCall-ID: 1@h\r\nCSeq: 1 REGISTER\r\n" +
	"WWW-Authenticate: Digest realm=\"ims.test\", nonce=\"84a4cc6f\", qop=\"auth,auth-int\", algorithm=MD5, opaque=\"x,y\", stale=FALSE\r\n" +
	"Content-Length: 0\r\n\r\n"

func TestChallenge(t *testing.T) {
	var m Message
	if _, err := m.Parse([]byte(challenge)); err != nil {
		t.Fatal(err)
	}
	c, ok := ParseChallenge(m.WWWAuthenticate)
	if !ok || string(c.Realm) != "ims.test" || string(c.Nonce) != "84a4cc6f" || string(c.Opaque) != "x,y" || !c.QOP || c.Stale {
		t.Errorf("got challenge %+v %v", c, ok)
	}
	for _, bad := range []string{
		`Basic realm="x"`, `Digest realm="x"`, `Digest nonce="x"`, `Digest realm="x",nonce="y",algorithm=AKAv1-MD5`,
		`Digest realm="x",nonce="y",qop="auth-int"`, ``, `Digest `, `Digest ,,,=`,
	} {
		if _, ok := ParseChallenge([]byte(bad)); ok {
			t.Errorf("ParseChallenge accepted %q", bad)
		}
	}
	if c, ok := ParseChallenge([]byte(`digest nonce=abc , REALM="" , Stale = true`)); !ok || !c.Stale || c.QOP || string(c.Nonce) != "abc" {
		t.Errorf("unusual challenge: got %+v %v", c, ok)
	}
}

// TestDigest checks the worked example of RFC 2617 section 3.5.
func TestDigest(t *testing.T) {
	var scratch [256]byte
	c := Credentials{
		User: []byte("Mufasa"), Realm: []byte("testrealm@host.com"), Nonce: []byte("dcd98b7102dd2f0e8b11d0f600bfb0c093"),
		URI: []byte("/dir/index.html"), Opaque: []byte("5ccc069c403ebaf9f0171e9517f40e41"),
		QOP: true, Count: 1, CNonce: []byte("0a4f113b"),
	}
	c.HA1 = HA1(scratch[:], c.User, c.Realm, []byte("Circle Of Life"))
	c.HA2 = HA2(scratch[:], "GET", c.URI)
	if got := c.Response(scratch[:]); string(got[:]) != "6629fae49393a05397450978507c4ef1" {
		t.Errorf("got response %s", got[:])
	}
	value := c.AppendAuthorization(nil)
	for name, want := range map[string]string{
		"username": "Mufasa", "realm": "testrealm@host.com", "nc": "00000001", "cnonce": "0a4f113b", "qop": "auth",
		"response": "6629fae49393a05397450978507c4ef1", "opaque": "5ccc069c403ebaf9f0171e9517f40e41", "uri": "/dir/index.html",
	} {
		if got := string(AuthParam(value, name)); got != want {
			t.Errorf("%s: got %q, want %q in %s", name, got, want, value)
		}
	}
	// Without qop (RFC 2069) the same MD5 covers HA1:nonce:HA2.
	c.QOP = false
	want := hashOf([]byte(string(c.HA1[:]) + ":" + string(c.Nonce) + ":" + string(c.HA2[:])))
	if got := c.Response(scratch[:]); got != want {
		t.Errorf("response without qop: got %s, want %s", got[:], want[:])
	}
}

func TestResponse(t *testing.T) {
	request := "INVITE sip:b@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP proxy.example:5070;rport;branch=z9hG4bK2, SIP/2.0/UDP 127.0.0.9;branch=z9hG4bK1\r\n" +
		"Record-Route: <sip:127.0.0.2;lr>\r\nv: SIP/2.0/UDP 127.0.0.8;branch=z9hG4bK0\r\nFrom: <sip:a@x>;tag=1\r\nTo: <sip:b@x;tag=no>\r\n" +
		"Call-ID: 1\r\nCSeq: 7 INVITE\r\n\r\n"
	var m Message
	if _, err := m.Parse([]byte(request)); err != nil {
		t.Fatal(err)
	}
	source := netip.MustParseAddrPort("127.0.0.2:4444")
	b := AppendResponse(nil, &m, 180, "Ringing", []byte("mine"), source)
	b = AppendEnd(b, nil)
	want := "SIP/2.0 180 Ringing\r\nVia: SIP/2.0/UDP proxy.example:5070;rport=4444;branch=z9hG4bK2;received=127.0.0.2, SIP/2.0/UDP 127.0.0.9;branch=z9hG4bK1\r\n" +
		"Record-Route: <sip:127.0.0.2;lr>\r\nVia: SIP/2.0/UDP 127.0.0.8;branch=z9hG4bK0\r\nFrom: <sip:a@x>;tag=1\r\nTo: <sip:b@x;tag=no>;tag=mine\r\n" +
		"Call-ID: 1\r\nCSeq: 7 INVITE\r\nContent-Length: 0\r\n\r\n"
	if string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
	var back Message
	if _, err := back.Parse(b); err != nil || back.Status != 180 {
		t.Errorf("the response cannot be parsed: %v", err)
	}
	for via, want := range map[string]string{
		"SIP/2.0/UDP h;RPort = ;branch=b":     "Via: SIP/2.0/UDP h;RPort = 4444;branch=b;received=127.0.0.2\r\n",
		`SIP/2.0/UDP h;x="rport;rport";rport`: `Via: SIP/2.0/UDP h;x="rport;rport";rport=4444;received=127.0.0.2` + "\r\n",
		"SIP/2.0/UDP 127.0.0.2;rport=1":       "Via: SIP/2.0/UDP 127.0.0.2;rport=1\r\n",
		"SIP/2.0/UDP 127.000.000.002":         "Via: SIP/2.0/UDP 127.000.000.002\r\n",
		"h;rport":                             "Via: h;rport\r\n",
	} {
		if got := appendTopVia(nil, []byte(via), source); string(got) != want {
			t.Errorf("%s became %s, want %s", via, got, want)
		}
	}
	for _, c := range []struct{ via, want string }{
		{"SIP/2.0/UDP 10.0.0.1:5070;rport;branch=b", "127.0.0.2:4444"},
		{"SIP/2.0/UDP 10.0.0.1:5070;branch=b", "127.0.0.2:5070"},
		{"SIP/2.0/UDP 10.0.0.1", "127.0.0.2:5060"},
		{"SIP/2.0/UDP [::1]", "127.0.0.2:5060"},
		{"SIP/2.0/UDP [::1]:5072", "127.0.0.2:5072"},
		{"SIP/2.0/UDP h:0", "127.0.0.2:4444"},
		{"h", "127.0.0.2:4444"},
	} {
		if got := ReplyTo(&Message{Via: []byte(c.via)}, source); got.String() != c.want {
			t.Errorf("reply to %q: got %v, want %s", c.via, got, c.want)
		}
	}
}

func TestLength(t *testing.T) {
	one := "\r\n\r\nOPTIONS sip:x SIP/2.0\r\nVia: a\r\nl\r\n : 3\r\n\r\nabc"
	header := len(one) - len("abc")
	for n := range header {
		if got, err := Length([]byte(one[:n]), 1000); got != 0 || err != nil {
			t.Fatalf("Length of %d bytes: got %d, %v", n, got, err)
		}
	}
	for _, text := range []string{one[:header], one, one + "OPTIONS"} {
		if got, err := Length([]byte(text), 1000); got != len(one) || err != nil {
			t.Errorf("Length of %q: got %d, %v, want %d", text, got, err, len(one))
		}
	}
	for _, c := range []struct {
		text string
		want error
	}{
		{"OPTIONS sip:x SIP/2.0\r\nVia: a\r\n\r\n", ErrLength},
		{"OPTIONS sip:x SIP/2.0\r\nContent-Length: 999999999999\r\n\r\n", ErrLength},
		{"OPTIONS sip:x SIP/2.0\r\nContent-Length: -1\r\n\r\n", ErrLength},
		{"OPTIONS sip:x SIP/2.0\r\nbad header\r\n\r\n", ErrHeader},
		{strings.Repeat("x", 1001), ErrHeader},
	} {
		if _, err := Length([]byte(c.text), 1000); !errors.Is(err, c.want) {
			t.Errorf("%.50q: got error %v, want %v", c.text, err, c.want)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	data := []byte(challenge)
	var m Message
	out := make([]byte, 0, 2048)
	user, password := []byte("a"), []byte("pw-a")
	source := netip.MustParseAddrPort("127.0.0.1:5060")
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := m.Parse(data); err != nil {
			t.Fatal(err)
		}
		ch, _ := ParseChallenge(m.WWWAuthenticate)
		c := Credentials{User: user, Realm: ch.Realm, Nonce: ch.Nonce, QOP: true, Count: 1, CNonce: user}
		c.HA1 = HA1(out, user, ch.Realm, password)
		c.HA2 = HA2(out, "REGISTER", user)
		b := AppendRequestLine(out, "REGISTER", user)
		b = c.AppendAuthorization(b)
		_ = AppendResponse(b, &m, 200, "OK", user, source)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(wire(tortuous))
	f.Add([]byte(challenge))
	f.Add([]byte("SIP/2.0 200 OK\r\nv: SIP/2.0/UDP [::1]:5;rport\r\nf: <a\r\nt: \"\r\ni:1\r\nCSeq: 1 A\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		length, lengthErr := Length(bytes.Clone(data), 1<<16)
		var m Message
		n, err := m.Parse(data)
		if err != nil {
			return
		}
		if lengthErr == nil && length != 0 && length <= len(data) && length != n {
			t.Fatalf("Length returned %d, but Parse %d", length, n)
		}
		if n < 0 || n > len(data) || len(data) != len(before) {
			t.Fatalf("parsed %d of %d bytes", n, len(data))
		}
		for f := m.Fields(); f.Next(); {
			if f.Err != nil {
				t.Fatalf("the accepted message has a bad header: %v", f.Err)
			}
			_, _ = Param(f.Value, "tag")
			_, _ = ParseURI(Address(f.Value))
			_, _ = ParseChallenge(f.Value)
		}
		b := AppendEnd(AppendResponse(nil, &m, 200, "OK", []byte("x"), netip.MustParseAddrPort("[::1]:9")), nil)
		var back Message
		if _, err := back.Parse(b); err != nil {
			t.Fatalf("the response to an accepted message cannot be parsed: %v\n%q", err, b)
		}
		if !bytes.Equal(back.CallID, m.CallID) || back.Sequence != m.Sequence {
			t.Fatalf("the response belongs to another transaction:\n%q", b)
		}
	})
}
