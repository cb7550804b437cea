package sip

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
)

func TestCutParam(t *testing.T) {
	for _, c := range []struct{ params, want string }{
		{"", ""},
		{";", "(=)"},
		{";lr", "(lr=)"},
		{";a=1;b", "(a=1)(b=)"},
		{" ; a\t=  1 ;b =2 ", "(a=1)(b=2)"},
		{`;q="x;\"=y" ;z`, `(q="x;\"=y")(z=)`},
		{`;q="x;y`, `(q="x;y)`},
		{`;q="x\`, `(q="x\)`},
		{";a=;=b;c==d", "(a=)(=b)(c==d)"},
		{";a b=1 2;c", "(a=)(c=)"},
	} {
		got := ""
		for rest := bytes.TrimLeft([]byte(c.params), " "); len(rest) > 0; {
			var name, value []byte
			name, value, rest = CutParam(rest)
			got += fmt.Sprintf("(%s=%s)", name, value)
			if value == nil || len(value) == 0 && cap(value) > cap(name)-len(name) {
				t.Errorf("%q: the value of %q does not follow its name", c.params, name)
			}
		}
		if got != c.want {
			t.Errorf("parameters %q: got %s, want %s", c.params, got, c.want)
		}
	}
}

func TestParam(t *testing.T) {
	for _, c := range []struct {
		value, want string
		ok          bool
		bare        string
	}{
		{"<sip:a@b;tag=no>;tag=1", "1", true, "<sip:a@b;tag=no>"},
		{"sip:a@b ; Tag = 1", "1", true, "sip:a@b"},
		{`"a;tag=no \" <" <sip:a@b>;x;tag=1`, "1", true, `"a;tag=no \" <" <sip:a@b>`},
		{"<sip:a@b>;tag", "", true, "<sip:a@b>"},
		{"<sip:a@b>;tags=1", "", false, "<sip:a@b>"},
		{"<sip:a@b;tag=1", "", false, "<sip:a@b;tag=1"},
		{`"a;tag=1`, "", false, `"a;tag=1`},
		{"presence", "", false, "presence"},
	} {
		got, ok := Param([]byte(c.value), "tag")
		if string(got) != c.want || ok != c.ok {
			t.Errorf("%s: got %q %v, want %q", c.value, got, ok, c.want)
		}
		if got := WithoutParams([]byte(c.value)); string(got) != c.bare {
			t.Errorf("%s without parameters: got %q, want %q", c.value, got, c.bare)
		}
	}
}

func TestCutElement(t *testing.T) {
	for _, c := range []struct{ list, first, rest string }{
		{"a", "a", ""},
		{" a , b, c", "a", "b, c"},
		{`"a,\"b" <sip:c,d>;e=f, g`, `"a,\"b" <sip:c,d>;e=f`, "g"},
		{`"a, b`, `"a, b`, ""},
		{",b", "", "b"},
	} {
		first, rest := CutElement([]byte(c.list))
		if string(first) != c.first || string(rest) != c.rest {
			t.Errorf("%s: %q, %q", c.list, first, rest)
		}
	}
}

func TestURI(t *testing.T) {
	for _, c := range []struct {
		text, want string // user, host, port, maddr, transport (true: TCP, other: neither); empty if not a SIP URI
		target     string // empty for a host name
		bare       string
	}{
		{"sip:a@192.0.2.1", `"a" 192.0.2.1 0 "" false`, "192.0.2.1:5060", "sip:a@192.0.2.1"},
		{"SIP:192.0.2.1:5070;lr;Transport=TCP", `none 192.0.2.1 5070 "" true`, "192.0.2.1:5070", "SIP:192.0.2.1:5070"},
		{"sip:a:secret@[2001:db8::1]:5070;maddr=192.0.2.9?Subject=x;transport=tcp", `"a" [2001:db8::1] 5070 "192.0.2.9" false`, "192.0.2.9:5070", "sip:a:secret@[2001:db8::1]:5070"},
		{"sip:[::1]", `none [::1] 0 "" false`, "[::1]:5060", "sip:[::1]"},
		{"sip:a@192.0.2.1;transport=UDP", `"a" 192.0.2.1 0 "" false`, "192.0.2.1:5060", "sip:a@192.0.2.1"},
		{"sip:a@192.0.2.1;transport=", `"a" 192.0.2.1 0 "" false`, "192.0.2.1:5060", "sip:a@192.0.2.1"},
		{"sip:a@192.0.2.1;transport=tls", `"a" 192.0.2.1 0 "" false other`, "192.0.2.1:5060", "sip:a@192.0.2.1"},
		{"sip:a@example.com?x=y", `"a" example.com 0 "" false`, "", "sip:a@example.com"},
		// RFC 4475 section 3.1.1.2, and RFC 3261 section 19.1.1: a user with semicolons and question marks.
		{"sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com",
			`"1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*" example.com 0 "" false`, "",
			"sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com"},
		{"sip:alice;day=tuesday@192.0.2.1;lr", `"alice;day=tuesday" 192.0.2.1 0 "" false`, "192.0.2.1:5060", "sip:alice;day=tuesday@192.0.2.1"},
		{"sip:@h", `"" h 0 "" false`, "", "sip:@h"},
		{"sips:a@b", "", "", "sips:a@b"},
		{"tel:+1;phone-context=x", "", "", "tel:+1"},
		{"sip:", "", "", "sip:"},
		{"sip:a@", "", "", "sip:a@"},
		{"sip:a@b:", "", "", "sip:a@b:"},
		{"sip:a@b:0", "", "", "sip:a@b:0"},
		{"sip:a@b:65536", "", "", "sip:a@b:65536"},
		{"sip:a@[::1", "", "", "sip:a@[::1"},
	} {
		u, ok := ParseURI([]byte(c.text))
		user := "none"
		if u.User != nil {
			user = fmt.Sprintf("%q", u.User)
		}
		got := fmt.Sprintf("%s %s %d %q %v", user, u.Host, u.Port, u.MAddr, u.Stream)
		if u.Other {
			got += " other"
		}
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: got %s %v, want %s", c.text, got, ok, c.want)
		}
		if to, isIP := u.Target(); ok && (isIP != (c.target != "") || isIP && to.String() != c.target) {
			t.Errorf("target of %s: got %v %v, want %s", c.text, to, isIP, c.target)
		}
		if got := WithoutURIParams([]byte(c.text)); string(got) != c.bare {
			t.Errorf("%s without parameters: got %s, want %s", c.text, got, c.bare)
		}
	}
}

func TestHost(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "192.000.002.001": "192.0.2.1", "[2001:db8::1]": "2001:db8::1", "::1": "::1",
		"": "", "example.com": "", "1.2.3": "", "1.2.3.4.5": "", "1.2.3.256": "", "1.2..4": "", "[::1": "", "[]": "",
		"[fe80::1%eth0]": "", "::ffff:1.2.3.4": "", "1.2.3.0004": "",
	} {
		a, ok := ParseHost([]byte(text))
		if ok != (want != "") || ok && a != netip.MustParseAddr(want) {
			t.Errorf("address %q: got %v %v, want %s", text, a, ok, want)
		}
	}
}

func TestViaHop(t *testing.T) {
	for _, c := range []struct {
		text, want string // host, port, stream, branch, rport, received; empty if not a Via
		target     string // empty for a host name or a wrong port
	}{
		{"SIP/2.0/UDP 192.0.2.1;branch=b", "192.0.2.1 0 false b - -", "192.0.2.1:5060"},
		{"SIP/2.0/TCP 192.0.2.1:5070 ;Branch = b", "192.0.2.1 5070 true b - -", "192.0.2.1:5070"},
		{"SIP  / 2.0\t/ tcp   h : 5070  ; rport;received=192.0.2.2", "h 5070 true - + 192.0.2.2", "192.0.2.2:5070"},
		{"SIP/2.0/    UDP 192.0.2.1;branch=b", "192.0.2.1 0 false b - -", "192.0.2.1:5060"}, // a line folded after the slash
		{"SIP/2.0/   TCP 192.0.2.1", "192.0.2.1 0 true - - -", "192.0.2.1:5060"},
		{"SIP/2.0/UDP [2001:db8::1]:5070;rport=99;received=[::2]", "[2001:db8::1] 5070 false - 99 [::2]", "[::2]:99"},
		{"SIP/2.0/UDP h;rport=0;received=192.0.2.2", "h 0 false - 0 192.0.2.2", ""},
		{"SIP/2.0/UDP 192.0.2.1;maddr=192.0.2.3;received=192.0.2.2", "192.0.2.1 0 false - - 192.0.2.2", "192.0.2.3:5060"},
		{"SIP/2.0/TCP 192.0.2.1;maddr=192.0.2.3", "192.0.2.1 0 true - - -", "192.0.2.1:5060"},
		{"SIP/2.0/TLS-SCTP h", "h 0 false - - -", ""},
		{"SIP/2.0/TCX h", "h 0 false - - -", ""},
		{"SIP/2.0/UDP 192.0.2.7;;,;,,", "192.0.2.7 0 false - - -", "192.0.2.7:5060"},
		{"SIP/2.0/UDP h:0", "", ""},
		{"SIP/2.0/UDP h:65536", "", ""},
		{"SIP/2.0/UDP [::1", "", ""},
		{"SIP/2.0/UDP 192.0.2.1:50]60", "", ""},
		{"SIP/2.0/UDP ;branch=b", "", ""},
		{"SIP/2.0/UDP", "", ""},
		{"SIP/2.0 h", "", ""},
		{"h", "", ""},
		{"", "", ""},
	} {
		h, ok := ParseViaHop([]byte(c.text))
		if got := fmt.Sprintf("%s %d %v %s %s %s", h.Host, h.Port, h.Stream, shown(h.Branch), shown(h.RPort), shown(h.Received)); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: got %s %v, want %s", c.text, got, ok, c.want)
		}
		if to, isIP := h.Target(); ok && (isIP != (c.target != "") || isIP && to.String() != c.target) {
			t.Errorf("target of the response by %s: got %v %v, want %s", c.text, to, isIP, c.target)
		}
	}
}

// shown returns a parameter as text: "-" if it is missing, "+" if it has no
// value.
func shown(param []byte) string {
	switch {
	case param == nil:
		return "-"
	case len(param) == 0:
		return "+"
	}
	return string(param)
}

func TestOverloadControl(t *testing.T) {
	for algorithms, want := range map[string]bool{`"loss"`: true, `"rate, LOSS"`: true, "loss": true, "": true, `"lossless"`: false, `"A"`: false} {
		h, _ := ParseViaHop([]byte("SIP/2.0/UDP h;oc;oc-algo=" + algorithms))
		if h.OC == nil || h.AllowsOC("loss") != want {
			t.Errorf("%s allows loss: %v", algorithms, !want)
		}
	}
	for text, want := range map[string]uint64{
		"1282321615.782": 128232161578200, "7": 700000, "7.123456": 712345, "": 0, ".5": 0, "x": 0, "7.x": 700000, "99999999999999999999": 0,
	} {
		h, _ := ParseViaHop([]byte("SIP/2.0/UDP h;oc-seq=" + text))
		if got := h.OCSequence(); got != want {
			t.Errorf("oc-seq=%s: got %d, want %d", text, got, want)
		}
	}
}

// within reports whether a view lies in the text.
func within(text, view []byte) bool {
	at := cap(text) - cap(view)
	return view == nil || at >= 0 && at+len(view) <= len(text) && bytes.Equal(text[at:at+len(view)], view)
}

func FuzzViaHop(f *testing.F) {
	f.Add([]byte("SIP  / 2.0 / TCP spindle.example.com : 5060 ; branch = z9hG4bK9ikj8;rport;received=[::1];maddr=x"))
	f.Add([]byte("SIP/2.0/UDP [::1]:5;oc;oc-algo=\"loss,a\";oc-seq=1.5;oc-validity=500"))
	f.Fuzz(func(t *testing.T, text []byte) {
		text = text[:len(text):len(text)]
		h, ok := ParseViaHop(text)
		if !ok {
			return
		}
		for _, view := range [][]byte{h.Text, h.Host, h.Params, h.Branch, h.Received, h.MAddr, h.RPort, h.OC, h.OCAlgo, h.OCValidity, h.OCSeq} {
			if !within(text, view) {
				t.Fatalf("%q is not part of %q", view, text)
			}
		}
		if len(h.Host) == 0 || len(h.Params) > 0 && h.Params[0] != ';' {
			t.Fatalf("got host %q, parameters %q", h.Host, h.Params)
		}
		if to, ok := h.Target(); ok && (!to.IsValid() || to.Port() == 0) {
			t.Fatalf("got the invalid target %v", to)
		}
		_, _ = h.AllowsOC("loss"), h.OCSequence()
	})
}

func FuzzURI(f *testing.F) {
	f.Add([]byte("<sip:alice;x:secret@[2001:db8::1]:5070;maddr=192.0.2.9;transport=tcp?Subject=x>;tag=1, \"b\" <sip:b>"))
	f.Add([]byte("tel:+1;phone-context=x"))
	f.Fuzz(func(t *testing.T, value []byte) {
		value = value[:len(value):len(value)]
		first, _ := CutElement(value)
		for _, text := range [][]byte{value, Address(first)} {
			if !within(value, text) || !within(value, WithoutURIParams(text)) {
				t.Fatalf("%q is not part of %q", text, value)
			}
			u, ok := ParseURI(text)
			if !ok {
				continue
			}
			for _, view := range [][]byte{u.User, u.Host, u.MAddr} {
				if !within(value, view) {
					t.Fatalf("%q is not part of %q", view, value)
				}
			}
			if bare, ok := ParseURI(WithoutURIParams(text)); !ok || !bytes.Equal(bare.User, u.User) || !bytes.Equal(bare.Host, u.Host) || bare.Port != u.Port {
				t.Fatalf("%q without parameters is a different URI", text)
			}
			if to, ok := u.Target(); ok && (!to.IsValid() || to.Port() == 0) {
				t.Fatalf("got the invalid target %v", to)
			}
		}
	})
}

func FuzzParam(f *testing.F) {
	f.Add([]byte(`"a;b" <sip:c;d>;e="f;\"g" ;h = i;j, <k>`))
	f.Fuzz(func(t *testing.T, value []byte) {
		value = value[:len(value):len(value)]
		for rest := value; len(rest) > 0; {
			before := len(rest)
			var first []byte
			if first, rest = CutElement(rest); !within(value, first) || len(rest) >= before {
				t.Fatalf("got element %q and rest %q of %q", first, rest, value)
			}
			for params := paramsOf(first); len(params) > 0; {
				name, v, after := CutParam(params)
				if v == nil || !within(value, name) || !within(value, v) || len(after) >= len(params) || len(after) > 0 && after[0] != ';' {
					t.Fatalf("got parameter %q=%q and rest %q of %q", name, v, after, params)
				}
				params = after
			}
			if !within(value, WithoutParams(first)) || !within(value, Unquote(first)) {
				t.Fatalf("%q", first)
			}
		}
		_, _ = ParseChallenge(value)
		_ = AuthParam(value, "realm")
	})
}

// TestFrequent checks that the frequent names are recognized as all names are, and no others.
func TestFrequent(t *testing.T) {
	recognized := 0
	for _, name := range []string{
		"Via", "From", "To", "Call-ID", "CSeq", "Contact", "Content-Length", "Max-Forwards", "User-Agent",
		"via", "FROM", "Route", "Contact-X", "Vi", "V", "Call-Id", "C", "X", "Content-Type", "",
	} {
		for _, after := range []string{":", ": ", ":x", " :", "", "x:"} {
			kind, n := frequent([]byte(name + after))
			if n == 0 {
				continue
			}
			recognized++
			if n != len(name) || after[0] != ':' || kind != kindOf([]byte(name)) {
				t.Errorf("%q: got kind %d with a name of %d bytes, want kind %d", name+after, kind, n, kindOf([]byte(name)))
			}
		}
	}
	if recognized != 9*3 {
		t.Errorf("recognised %d lines, want three for each of nine names", recognized)
	}
}
