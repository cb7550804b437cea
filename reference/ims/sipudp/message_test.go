package sipudp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/emiago/sipgo/sip"
)

var client = netip.MustParseAddrPort("192.0.2.7:4321")

const register = "REGISTER sip:ims.test SIP/2.0\r\n" +
	"Via: SIP/2.0/UDP 10.0.0.1:5070;rport;branch=z9hG4bKabc\r\n" +
	"From: <sip:sub000001@ims.test>;tag=1\r\n" +
	"To: <sip:sub000001@ims.test>\r\n" +
	"Call-ID: c\r\n" +
	"CSeq: 1 REGISTER\r\n" +
	"Contact: <sip:sub000001@10.0.0.1:5070>\r\n" +
	"Content-Length: 0\r\n\r\n"

func parse(t *testing.T, text string) sip.Message {
	t.Helper()
	msg, err := Parse(sip.NewParser(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestParseRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"no Via":        strings.Replace(register, "Via:", "X-Via:", 1),
		"no Call-ID":    strings.Replace(register, "Call-ID:", "X:", 1),
		"old branch":    strings.Replace(register, "z9hG4bK", "", 1),
		"other method":  strings.Replace(register, "1 REGISTER", "1 INVITE", 1),
		"not SIP":       "GET / HTTP/1.1\r\n\r\n",
		"cut short":     register[:60],
		"body too long": strings.Replace(register, "Content-Length: 0", "Content-Length: 99", 1),
	} {
		if msg, err := Parse(sip.NewParser(), []byte(text)); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: got %v, error %v", what, msg, err)
		}
	}
	if msg, err := Parse(sip.NewParser(), []byte("\r\n\r\n")); msg != nil || err != nil {
		t.Errorf("keep-alive: got %v, error %v", msg, err)
	}
}

// TestReturnPath checks RFC 3581 section 4 and RFC 3261 section 18.2.2.
func TestReturnPath(t *testing.T) {
	req := parse(t, register).(*sip.Request)
	if got := ReturnPath(req, client); got != client {
		t.Errorf("with rport: got %s, want the source %s", got, client)
	}
	if got := req.Via().Value(); !strings.Contains(got, "rport=4321") || !strings.Contains(got, "received=192.0.2.7") {
		t.Errorf("got Via %s", got)
	}
	req = parse(t, strings.Replace(register, "rport;", "", 1)).(*sip.Request)
	if got := ReturnPath(req, client); got != netip.MustParseAddrPort("192.0.2.7:5070") {
		t.Errorf("without rport: got %s, want the port of the Via", got)
	}
	req = parse(t, strings.Replace(register, "10.0.0.1:5070;rport;", "192.0.2.7;", 1)).(*sip.Request)
	if got := ReturnPath(req, client); got != netip.MustParseAddrPort("192.0.2.7:5060") {
		t.Errorf("without port: got %s, want 5060", got)
	}
	if _, noted := req.Via().Params.Get("received"); noted {
		t.Error("received was added although the Via already has that host")
	}
}

func TestHopsLeft(t *testing.T) {
	req := parse(t, register).(*sip.Request)
	if !HopsLeft(req) || *req.MaxForwards() != 70 {
		t.Errorf("without Max-Forwards: got %v", req.MaxForwards())
	}
	*req.MaxForwards() = 1
	if !HopsLeft(req) || *req.MaxForwards() != 0 || HopsLeft(req) {
		t.Errorf("got Max-Forwards %v", req.MaxForwards())
	}
}

// FuzzParse includes torture tests of RFC 4475 that a proxy must survive among
// its seeds.
func FuzzParse(f *testing.F) {
	f.Add([]byte(register))
	f.Add([]byte(strings.Replace(register, "10.0.0.1:5070;rport", "[2001:db8::1]:99999;rport=1", 1)))
	f.Add([]byte("SIP/2.0 200 OK\r\n" + register[strings.Index(register, "Via"):]))
	f.Add([]byte("INVITE sip:vivekg@chair-dnrc.example.com;unknownparam SIP/2.0\r\n" + // 3.1.1.1
		"TO :\r\n sip:vivekg@chair-dnrc.example.com ;   tag    = 1918181833n\r\n" +
		"from   : \"J Rosenberg \\\\\\\"\"       <sip:jdrosen@example.com>\r\n  ;\r\n  tag = 98asjd8\r\n" +
		"MaX-fOrWaRdS: 0068\r\nCall-ID: wsinv.ndaksdj@192.0.2.1\r\nContent-Length   : 150\r\n" +
		"cseq: 0009\r\n  INVITE\r\nVia  : SIP  /   2.0\r\n /UDP\r\n    192.0.2.2;branch=390skdjuw\r\n" +
		"s :\r\nNewFangledHeader:   newfangled value\r\n continued newfangled value\r\n" +
		"v:  SIP  / 2.0  / TCP     spindle.example.com   ;\r\n  branch  =   z9hG4bK9ikj8  ,\r\n SIP  /    2.0   / UDP  192.168.255.111   ; branch=\r\n z9hG4bK30239\r\n\r\n"))
	f.Add([]byte("OPTIONS sip:user@example.org SIP/2.0\r\nVia: SIP/2.0/UDP host1.example.com;branch=z9hG4bK;;,;,,\r\n" + // 3.1.2.1
		"From: sip:j.user@example.com;;;tag=\r\nTo: <>\r\nCall-ID: \r\nCSeq: 8 OPTIONS\r\nContent-Length: -999\r\n\r\n"))
	parser := sip.NewParser()
	f.Fuzz(func(t *testing.T, data []byte) {
		msg, err := Parse(parser, data)
		if err != nil || msg == nil {
			return
		}
		switch m := msg.(type) {
		case *sip.Request:
			ReturnPath(m, client)
			HopsLeft(m)
			Initial(m)
			serverKey(m)
			for m.Route() != nil {
				RouteAddr(&m.Route().Address)
				m.RemoveHeader("Route")
			}
			Bytes(Reply(m, 200, "OK"))
			Bytes(m.Clone())
		case *sip.Response:
			m.RemoveHeader("Via")
			Bytes(m)
		}
	})
}
