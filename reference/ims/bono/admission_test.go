package bono

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/reference/ims/overload"
	"vitrine/reference/ims/sipudp"
	wiresip "vitrine/wire/sip"
)

// message returns a request with the given lines, as a client at address from
// sends it.
func message(method, branch, from string, lines ...string) string {
	return strings.Join(append([]string{
		method + " sip:ims.test SIP/2.0", "Via: SIP/2.0/UDP " + from + ";rport;branch=z9hG4bK" + branch, "Max-Forwards: 70",
		"From: <sip:sub000001@ims.test>;tag=1", "To: <sip:sub000001@ims.test>", "Call-ID: c-" + branch, "CSeq: 1 " + method,
	}, append(lines, "Content-Length: 0", "", "")...), "\r\n")
}

// netipLoopback is a loopback address with any free port.
var netipLoopback = netip.MustParseAddrPort("127.0.0.1:0")

const credentials = `Authorization: Digest username="sub000001@ims.test", realm="ims.test", nonce="n", uri="sip:ims.test", response="00"`

func TestBeginsCall(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{message("REGISTER", "1", "192.0.2.1:5060"), true},
		// TS 24.229 section 5.1.1.2.2: the first REGISTER has an empty response.
		{message("REGISTER", "1", "192.0.2.1:5060", `Authorization: Digest username="a", realm="b", nonce="", uri="sip:b", response=""`), true},
		{message("REGISTER", "1", "192.0.2.1:5060", credentials), false},
		{message("INVITE", "1", "192.0.2.1:5060"), false},
		{message("OPTIONS", "1", "192.0.2.1:5060"), false},
	} {
		var m wiresip.Message
		if _, err := m.Parse([]byte(c.text)); err != nil {
			t.Fatal(err)
		}
		if got := beginsCall(&m); got != c.want {
			t.Errorf("got %t for\n%s", got, c.text)
		}
	}
}

// entry returns a Bono without Sprouts, and a client socket.
func entry(t *testing.T) (*proxy, *net.UDPConn) {
	client, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	socket, err := sipudp.Listen(netipLoopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	registry := prometheus.NewRegistry()
	p := newProxy(socket, slog.New(slog.DiscardHandler), registry)
	p.transactions = sipudp.NewTransactions(time.Minute, p.timedOut)
	p.pool = &pool{}
	p.admit(overload.NewWindow(time.Minute, time.Now()), registry)
	return p, client
}

// TestFullWindowRefusesNewCallsAlone checks that a full window refuses new calls
// at once and nothing else.
func TestFullWindowRefusesNewCallsAlone(t *testing.T) {
	p, client := entry(t)
	from := client.LocalAddr().String()
	arrive := func(text string) bool {
		return p.refuse([]byte(text), sipudp.Arrival{From: client.LocalAddr().(*net.UDPAddr).AddrPort(), At: time.Now()})
	}
	fresh, later := message("REGISTER", "1", from), message("REGISTER", "2", from, credentials)
	if arrive(fresh) {
		t.Error("an empty window refused a call")
	}
	for !p.window.Full(time.Now(), time.Now()) {
		p.window.Enter()
	}
	if arrive(later) || arrive("nonsense") || arrive("\r\n\r\n") {
		t.Error("a full window refused a message that is not a new call")
	}
	if !arrive(fresh) {
		t.Fatal("a full window admitted a call")
	}
	buf := make([]byte, 2048)
	if err := client.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := client.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := sipudp.Parse(sip.NewParser(), buf[:n])
	if err != nil {
		t.Fatal(err)
	}
	res := msg.(*sip.Response)
	tag, tagged := res.To().Params.Get("tag")
	if res.StatusCode != sip.StatusServiceUnavailable || res.GetHeader("Retry-After") == nil || !tagged || tag == "" || string(*res.CallID()) != "c-1" {
		t.Errorf("got answer\n%s", buf[:n])
	}

	// A retransmission of a call that was admitted is not a new call.
	msg, err = sipudp.Parse(sip.NewParser(), []byte(message("REGISTER", "3", from)))
	if err != nil {
		t.Fatal(err)
	}
	p.transactions.Receive(msg.(*sip.Request), sipudp.Peer{Socket: p.socket}, time.Now())
	if arrive(message("REGISTER", "3", from)) {
		t.Error("a retransmission of an admitted request was refused")
	}
}

// TestRefusalsAreCounted checks that the counters tell a refused new call from a request of a call that
// was admitted before.
func TestRefusalsAreCounted(t *testing.T) {
	p, client := entry(t)
	a := sipudp.Arrival{From: client.LocalAddr().(*net.UDPAddr).AddrPort(), At: time.Now()}
	for !p.window.Crowded(time.Now(), time.Now()) {
		p.window.Enter()
	}
	if !p.refuse([]byte(message("REGISTER", "1", a.From.String())), a) {
		t.Fatal("a crowded window admitted a call")
	}
	msg, err := sipudp.Parse(sip.NewParser(), []byte(message("REGISTER", "2", a.From.String(), credentials)))
	if err != nil {
		t.Fatal(err)
	}
	req := msg.(*sip.Request)
	tx, _ := p.transactions.Receive(req, sipudp.Peer{Socket: p.socket, To: sipudp.ReturnPath(req, a.From)}, a.At)
	p.begun(tx, a)
	if all, admitted := testutil.ToFloat64(p.counts.shed), testutil.ToFloat64(p.counts.broken); all != 2 || admitted != 1 {
		t.Errorf("%g requests rejected, %g of them of admitted calls; want 2 and 1", all, admitted)
	}
}

// TestWindowCountsToTheAnswer checks that an admitted request counts once, until
// its first final answer.
func TestWindowCountsToTheAnswer(t *testing.T) {
	p, client := entry(t)
	a := sipudp.Arrival{From: client.LocalAddr().(*net.UDPAddr).AddrPort(), At: time.Now()}
	msg, err := sipudp.Parse(sip.NewParser(), []byte(message("REGISTER", "1", a.From.String())))
	if err != nil {
		t.Fatal(err)
	}
	req := msg.(*sip.Request)
	tx, _ := p.transactions.Receive(req, sipudp.Peer{Socket: p.socket, To: sipudp.ReturnPath(req, a.From)}, a.At)
	if _, ok := p.control(tx, a); !ok || p.window.InFlight() != 1 {
		t.Fatalf("got admitted %t, %d in flight", ok, p.window.InFlight())
	}
	for _, c := range []struct{ status, inFlight int }{{100, 1}, {401, 0}, {401, 0}} {
		p.respond(tx, sipudp.Reply(req, c.status, "Some"))
		if p.window.InFlight() != c.inFlight {
			t.Errorf("got %d in flight after status %d, want %d", p.window.InFlight(), c.status, c.inFlight)
		}
	}
}
