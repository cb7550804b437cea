package sip

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// wire converts the line ends of a Go raw string to CR LF.
func wire(text string) []byte {
	return []byte(strings.ReplaceAll(strings.TrimPrefix(text, "\n"), "\n", "\r\n"))
}

// tortuous follows RFC 4475 section 3.1.1.1: unusual but valid syntax.
const tortuous = `
INVITE sip:vivekg@chair-dnrc.example.com;unknownparam SIP/2.0
TO :
 sip:vivekg@chair-dnrc.example.com ;   tag    = 1918181833n
from   : "J Rosenberg \\\""       <sip:jdrosen@example.com>
  ;
  tag = 98asjd8
MaX-fOrWaRdS: 0068
Call-ID: wsinv.ndaksdj@192.0.2.1
Content-Length   : 4
cseq: 0009
  INVITE
Via  : SIP  /   2.0
 /UDP
    192.0.2.2;branch=390skdjuw
s :
NewFangledHeader:   newfangled value
 continued newfangled value
UnknownHeaderWithUnusualValue: ;;,,;;,;
Content-Type: application/sdp
Route:
 <sip:services.example.com;lr;unknownwith=value;unknown-no-value>
v:  SIP  / 2.0  / TCP     spindle.example.com   ;
  branch  =   z9hG4bK9ikj8  ,
 SIP  /    2.0   / UDP  192.168.255.111   ; branch=
 z9hG4bK30239
m:"Quoted string \"\"" <sip:jdrosen@example.com> ; newparam =
      newvalue ;
  secondparam ; q = 0.33

v=0
`

func TestTortuousInvite(t *testing.T) {
	data := wire(tortuous)
	var m Message
	n, err := m.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(data)-n != 1 || string(m.Body) != "v=0\r" { // Content-Length is 4
		t.Errorf("got body %q, %d bytes left", m.Body, len(data)-n)
	}
	tag, _ := Param(m.To, "tag")
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	check("To tag", string(tag), "1918181833n")
	tag, _ = Param(m.From, "tag")
	check("From tag", string(tag), "98asjd8")
	check("From address", string(Address(m.From)), "sip:jdrosen@example.com")
	from, _ := ParseURI(Address(m.From))
	check("From user", string(from.User), "jdrosen")
	check("Call-ID", string(m.CallID), "wsinv.ndaksdj@192.0.2.1")
	check("CSeq method", string(m.SequenceMethod), "INVITE")
	if m.Sequence != 9 {
		t.Errorf("got CSeq %d, want 9", m.Sequence)
	}
	branch, _ := Param(m.Via, "branch")
	check("branch", string(branch), "390skdjuw")
	hop, ok := ParseViaHop(m.Via)
	if string(hop.Host) != "192.0.2.2" || hop.Port != 0 || !ok {
		t.Errorf("got sent-by %q %d %v", hop.Host, hop.Port, ok)
	}
	check("Contact", string(Address(m.Contact)), "sip:jdrosen@example.com")
	second, ok := Param(m.Contact, "secondparam")
	if !ok || len(second) != 0 {
		t.Errorf("parameter without value: got %q %v", second, ok)
	}
	var vias []string
	for f := m.Fields(); f.Next(); {
		for rest := f.Value; f.Kind == Via && len(rest) > 0; {
			var v []byte
			v, rest = CutElement(rest)
			b, _ := Param(v, "branch")
			vias = append(vias, string(b))
		}
	}
	check("all branches", strings.Join(vias, " "), "390skdjuw z9hG4bK9ikj8 z9hG4bK30239")
}

// usual holds the mandatory headers except CSeq.
const usual = "To: sip:j.user@example.com\r\nFrom: sip:caller@example.net;tag=1\r\nCall-ID: a@b\r\n" +
	"Via: SIP/2.0/UDP host.example.com;branch=z9hG4bK1\r\n"

// TestTorture checks the messages of RFC 4475 whose result depends on the parser.
func TestTorture(t *testing.T) {
	for _, c := range []struct {
		section, name, text string
		want                error
	}{
		{"3.1.1.2", "intmeth", "!interesting-Method0123456789_*+`.%indeed'~ sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com SIP/2.0\r\n" + usual + "CSeq: 139122385 !interesting-Method0123456789_*+`.%indeed'~\r\n\r\n", nil},
		{"3.1.1.4", "escnull", "REGISTER sip:example.com SIP/2.0\r\n" + usual + "CSeq: 14398234 REGISTER\r\nL:0\r\nContact: <sip:%00@host5.example.com>\r\n\r\n", nil},
		{"3.1.1.5", "esc02", "RE%47IST%45R sip:example.com SIP/2.0\r\n" + usual + "CSeq: 29344 RE%47IST%45R\r\n\r\n", nil},
		{"3.1.1.6", "lwsdisp", "OPTIONS sip:user@example.com SIP/2.0\r\nTo: sip:user@example.com\r\nFrom: caller<sip:caller@example.com>;tag=323\r\ni: x\r\nv: SIP/2.0/UDP h;branch=b\r\nCSeq: 60 OPTIONS\r\n\r\n", nil},
		{"3.1.1.8", "dblreq", "REGISTER sip:example.com SIP/2.0\r\n" + usual + "CSeq: 8 REGISTER\r\nContent-Length: 0\r\n\r\nINVITE sip:joe@example.com SIP/2.0\r\n", nil},
		{"3.1.1.12", "unreason", "SIP/2.0 200 = 2**3 * 5**2 \xd0\xbd\xd0\xbe\r\n" + usual + "CSeq: 35 INVITE\r\n\r\n", nil},
		{"3.1.1.13", "noreason", "SIP/2.0 100 \r\n" + usual + "CSeq: 35 INVITE\r\n\r\n", nil},
		{"3.1.2.2", "clerr", "INVITE sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 8 INVITE\r\nContent-Length: 9999\r\n\r\nv=0\r\n", ErrLength},
		{"3.1.2.3", "ncl", "INVITE sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 8 INVITE\r\nContent-Length: -999\r\n\r\nv=0\r\n", ErrLength},
		{"3.1.2.4", "scalar02", "REGISTER sip:example.com SIP/2.0\r\n" + usual + "CSeq: 36893488147419103232 REGISTER\r\n\r\n", ErrHeader},
		{"3.1.2.5", "scalarlg", "SIP/2.0 503 Service Unavailable\r\n" + usual + "CSeq: 9292394834772304023312 OPTIONS\r\n\r\n", ErrHeader},
		{"3.1.2.7", "ltgtruri", "INVITE <sip:user@example.com> SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", ErrStartLine},
		{"3.1.2.8", "lwsruri", "INVITE sip:user@example.com; lr SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", ErrStartLine},
		{"3.1.2.9", "lwsstart", "INVITE  sip:user@example.com  SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", ErrStartLine},
		{"3.1.2.10", "trws", "OPTIONS sip:remote-target@example.com SIP/2.0  \r\n" + usual + "CSeq: 1 OPTIONS\r\n\r\n", ErrStartLine},
		{"3.1.2.16", "badvers", "OPTIONS sip:t.watson@example.org SIP/7.0\r\n" + usual + "CSeq: 1 OPTIONS\r\n\r\n", ErrVersion},
		{"3.1.2.17", "mismatch01", "OPTIONS sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 8 INVITE\r\n\r\n", ErrHeader},
		{"3.1.2.19", "bigcode", "SIP/2.0 4294967301 better not break the receiver\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", ErrStartLine},
		{"3.3.1", "insuf", "INVITE sip:user@example.com SIP/2.0\r\nCSeq: 193942 INVITE\r\nVia: SIP/2.0/UDP 192.0.2.95;branch=b\r\n\r\n", ErrMissing},
		{"3.3.8", "multi01", "INVITE sip:user@company.com SIP/2.0\r\n" + usual + "CSeq: 5 INVITE\r\nCSeq: 59 INVITE\r\n\r\n", ErrHeader},
		{"3.3.8", "multi01, Call-ID", "INVITE sip:user@company.com SIP/2.0\r\n" + usual + "Call-ID: another\r\nCSeq: 5 INVITE\r\n\r\n", ErrHeader},
		{"3.3.9", "mcl01", "OPTIONS sip:user@example.com SIP/2.0\r\n" + usual + "CSeq: 5 OPTIONS\r\nContent-Length: 13\r\nContent-Length: 5\r\n\r\nThere's no way", ErrLength},
		{"", "keep-alive", "\r\n\r\n", ErrEmpty},
		{"", "no header end", "OPTIONS sip:user@example.com SIP/2.0\r\n" + usual, ErrHeader},
		{"", "no colon", "OPTIONS sip:user@example.com SIP/2.0\r\nVia\r\n\r\n", ErrHeader},
		{"", "line feed alone", "OPTIONS sip:user@example.com SIP/2.0\r\nVia: a\nTo: b\r\n\r\n", ErrHeader},
		{"", "space before name", "OPTIONS sip:user@example.com SIP/2.0\r\n Via: a\r\n\r\n", ErrHeader},
		{"", "half a line", "OPTIONS sip:user@exam", ErrStartLine},
	} {
		var m Message
		_, err := m.Parse([]byte(c.text))
		if !errors.Is(err, c.want) {
			t.Errorf("%s %s: got error %v, want %v", c.section, c.name, err, c.want)
		}
	}
}

func TestDoubleRequestLeavesTheRest(t *testing.T) { // RFC 4475 section 3.1.1.8
	text := "\r\nREGISTER sip:example.com SIP/2.0\r\n" + usual + "CSeq: 8 REGISTER\r\nContent-Length: 0\r\n\r\n"
	var m Message
	n, err := m.Parse([]byte(text + "INVITE"))
	if err != nil || n != len(text) {
		t.Errorf("parsed %d of %d bytes: %v", n, len(text), err)
	}
}

func TestUnbalancedValues(t *testing.T) { // RFC 4475 section 3.1.2.6
	for _, v := range []string{`"Mr. J. User <sip:j.user@example.com>`, `"Bell, Alexander" <sip:a.g.bell@example.com`} {
		if got := Address([]byte(v)); got != nil {
			t.Errorf("Address(%s): got %q, want nothing", v, got)
		}
	}
}

// TestSalvageOfManyLines checks that a datagram of bad lines costs no error, and so no copy of the
// rest, for each of them.
func TestSalvageOfManyLines(t *testing.T) {
	for _, bad := range []string{"\n", "x\r\n"} {
		text := []byte("A B C\r\n" + strings.Repeat(bad, 20000))
		var m Message
		if n := testing.AllocsPerRun(1, func() { m.Salvage(text) }); n > 10 {
			t.Errorf("%.0f allocations for 20000 lines %q", n, bad)
		}
	}
}

// TestSalvage checks that Salvage finds the headers that an answer repeats in
// messages that Parse rejects.
func TestSalvage(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // CSeq line of the answer; empty if there is no answer
	}{
		{"INVITE <sip:user@example.com> SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", "CSeq: 1 INVITE"},
		{"INVITE  sip:user@example.com  SIP/2.0\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", "CSeq: 1 INVITE"},
		{"OPTIONS sip:user@example.com SIP/7.0\r\n" + usual + "CSeq: 1 OPTIONS\r\n\r\n", "CSeq: 1 OPTIONS"},
		{"OPTIONS sip:user@example.com SIP/2.0\r\nbad header\r\n" + usual + "=: x\r\nCSeq: x\r\nCSeq: 2 y\r\nCall-ID: second\r\n\r\n", "CSeq: x"},
		{"OPTIONS sip:user@example.com SIP/2.0\r\nalone\n" + usual + "CSeq: 9\r\nhalf a li", "CSeq: 9"},
		{"OPTIONS sip:user@example.com SIP/2.0\r\n" + usual + "\r\nCSeq: 9\r\n", ""},
		{"SIP/2.0 999 x\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", ""},
		{"INVITE\r\n" + usual + "CSeq: 1 INVITE\r\n\r\n", ""},
		{"INVITE sip:user@example.com SIP/2.0\r\nCSeq: 193942 INVITE\r\nVia: SIP/2.0/UDP 192.0.2.95;branch=b\r\n\r\n", ""},
		{"\x00\x01", ""},
		{"", ""},
	} {
		var m Message
		ok := m.Salvage([]byte(c.text))
		if ok != (c.want != "") {
			t.Errorf("%.60q: %v", c.text, ok)
		}
		if !ok {
			continue
		}
		b := AppendEnd(AppendResponse(nil, &m, 400, "Bad Request", []byte("x"), netip.AddrPort{}), nil)
		want := "SIP/2.0 400 Bad Request\r\nTo: sip:j.user@example.com;tag=x\r\nFrom: sip:caller@example.net;tag=1\r\n" +
			"Call-ID: a@b\r\nVia: SIP/2.0/UDP host.example.com;branch=z9hG4bK1\r\n" + c.want + "\r\nContent-Length: 0\r\n\r\n"
		if got := string(b); got != want {
			t.Errorf("answer to %.60q: got\n%s\nwant\n%s", c.text, got, want)
		}
	}
}

func TestViasAndRoute(t *testing.T) {
	for _, c := range []struct{ lines, via, next string }{
		{"Via: a\r\n", "a", ""},
		{"Via: a, b, c\r\nVia: d\r\n", "a", "b"},
		{"Via: a\r\nv: b, c\r\nVia: d\r\n", "a", "b"},
	} {
		var m Message
		text := "OPTIONS sip:x SIP/2.0\r\n" + c.lines + "f: x\r\nt: y\r\ni: 1\r\nCSeq: 1 OPTIONS\r\nmax-forwards: 3\r\nRoute: <sip:r>\r\nRoute: <sip:q>\r\n\r\n"
		if _, err := m.Parse([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if string(m.Via) != c.via || string(m.NextVia) != c.next || string(m.MaxForwards) != "3" || string(m.Route) != "<sip:r>" || string(m.StartLine) != "OPTIONS sip:x SIP/2.0" {
			t.Errorf("%q: %q %q %q %q %q", c.lines, m.Via, m.NextVia, m.MaxForwards, m.Route, m.StartLine)
		}
	}
}
