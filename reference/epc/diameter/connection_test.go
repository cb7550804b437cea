package diameter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"
	"github.com/fiorix/go-diameter/v4/diam/dict"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/internal/hosttest"
)

// patience limits every wait of these tests. Reaching it is a failure.
const patience = 30 * time.Second

// pgwHost is the Diameter identity of the P-GWs.
const pgwHost = "pgw.epc.test"

// TestFraming checks that lengths are followed however the stream is cut.
func TestFraming(t *testing.T) {
	header := func(version byte, length uint32) []byte {
		b := binary.BigEndian.AppendUint32(nil, length)
		b[0] = version
		return append(b, make([]byte, 16)...)
	}
	good := append(header(1, 24), 0, 0, 0, 0)
	good = append(append(good, header(1, 20)...), good...)
	for _, c := range []struct {
		name   string
		stream []byte
		want   bool
	}{
		{"messages", good, true},
		{"a length below the header's", append(bytes.Clone(good), header(1, 19)...), false},
		{"no length", header(1, 0), false},
		{"a length above the limit", header(1, maxMessage+1), false},
		{"another version", header(2, 20), false},
	} {
		for cut := 1; cut <= len(c.stream); cut++ {
			var f framing
			ok := true
			for rest := c.stream; len(rest) > 0 && ok; rest = rest[min(cut, len(rest)):] {
				ok = f.check(rest[:min(cut, len(rest))])
			}
			if ok != c.want {
				t.Errorf("%s, in pieces of %d octets: got %v", c.name, cut, ok)
			}
		}
	}
}

// A stuck connection is one to a peer that does not read.
type stuck struct{ net.Conn }

func (stuck) SetWriteDeadline(time.Time) error { return nil }
func (stuck) Write([]byte) (int, error)        { return 1, os.ErrDeadlineExceeded }
func (stuck) Close() error                     { return nil }

// TestFailedWriteEndsTheConnection checks that nothing follows the first part of a message.
func TestFailedWriteEndsTheConnection(t *testing.T) {
	c := newConnection(stuck{})
	if _, err := c.Write(make([]byte, headerSize)); !errors.Is(err, os.ErrDeadlineExceeded) || !c.over() {
		t.Errorf("got error %v; the connection is over: %v", err, c.over())
	}
}

// nobody is a database without subscribers.
type nobody struct{ Database }

// serve runs a server until the test ends, and returns its address.
func serve(t *testing.T, run func(context.Context, net.Listener) error) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Run(t, patience, "the server", func(ctx context.Context) error { return run(ctx, l) })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// serveHSS runs an HSS without subscribers until the test ends.
func serveHSS(t *testing.T) netip.AddrPort {
	t.Helper()
	return serve(t, NewHSS("hss.epc.test", nobody{}, prometheus.NewRegistry()).Serve)
}

// TestStreamsThatAreNotDiameterEnd checks that a server closes connections with
// impossible lengths, and serves the others.
func TestStreamsThatAreNotDiameterEnd(t *testing.T) {
	at := serveHSS(t)
	for _, stream := range []string{"GET / HTTP/1.1\r\n\r\n", "\x01\x00\x00\x00" + string(make([]byte, 16)), "\x01\xff\xff\xff" + string(make([]byte, 16))} {
		conn, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte(stream)); err != nil {
			t.Error(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
			t.Errorf("%q: got %d octets, error %v", stream, n, err)
		}
		conn.Close()
	}
}

// TestConnectionsAreLimited checks that a server closes the connections over the
// limit.
func TestConnectionsAreLimited(t *testing.T) {
	at := serveHSS(t)
	for n := range maxConnections + 3 {
		conn, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if n < maxConnections {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: got %v", n, err)
		}
	}
}

// dial returns a client of the server, which runs until the test ends.
func dial(t *testing.T, at netip.AddrPort, c ClientConfig) *MME {
	t.Helper()
	c.Peer, c.Host, c.Log, c.Registry = at, "mme.epc.test", slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	m := NewMME(MMEConfig{ClientConfig: c, Cancelled: func(string) {}})
	hosttest.Run(t, patience, "the client", m.Run)
	return m
}

// admitting are rules that admit every session.
type admitting struct{ Rules }

func (admitting) Begin(string, string, GxRequest) (Policy, error) { return policy, nil }

// TestChangesReachAClientThatReconnects changes a session whose P-GW has lost its
// connection in the meantime.
func TestChangesReachAClientThatReconnects(t *testing.T) {
	server := NewPCRF("pcrf.epc.test", admitting{}, prometheus.NewRegistry())
	changed := make(chan string, 1)
	p := startPGW(t, serve(t, server.Serve), 1, func(_ context.Context, session string, _ Change) error {
		changed <- session
		return nil
	})
	id, _, err := p.Begin(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	first := p.conn
	p.mu.Unlock()
	first.Close()
	hosttest.Until(t, patience, "another connection", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.conn != nil && p.conn != first
	})
	if _, _, err := p.Begin(t.Context(), session); err != nil { // the server answers it after it has stored the connection
		t.Fatal(err)
	}
	if err := server.Change(t.Context(), id, pgwHost, change); err != nil {
		t.Fatal(err)
	}
	if got := <-changed; got != id {
		t.Errorf("session %s was changed, want %s", got, id)
	}
}

// startPGW runs a P-GW's client until the test ends, and returns it when it is connected.
func startPGW(t *testing.T, at netip.AddrPort, state uint32, changed func(context.Context, string, Change) error) *PCEF {
	t.Helper()
	p := NewPCEF(ClientConfig{Peer: at, Host: pgwHost, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()}, changed)
	if p.state == 0 {
		t.Error("a P-GW has no Origin-State-Id")
	}
	p.state = state
	hosttest.Run(t, patience, "the client", p.Run)
	hosttest.Until(t, patience, "a connection", p.Connected)
	return p
}

// A slowPCRF admits sessions when its gate is open.
type slowPCRF struct {
	admitting
	gate  chan struct{}
	ended chan string
}

func (r slowPCRF) Begin(session, pgw string, request GxRequest) (Policy, error) {
	<-r.gate
	return r.admitting.Begin(session, pgw, request)
}

func (r slowPCRF) End(session string) error {
	r.ended <- session
	return nil
}

// TestSessionThatIsAdmittedTooLateEnds has the PCRF admit a session that the P-GW does not wait
// for any more.
func TestSessionThatIsAdmittedTooLateEnds(t *testing.T) {
	rules := slowPCRF{gate: make(chan struct{}), ended: make(chan string, 3)}
	at := serve(t, NewPCRF("pcrf.epc.test", rules, prometheus.NewRegistry()).Serve)
	p := startPGW(t, at, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the request is sent, and the wait ends at once
	if _, _, err := p.Begin(ctx, session); !errors.Is(err, context.Canceled) {
		t.Fatalf("got error %v, want context.Canceled", err)
	}
	close(rules.gate)
	select {
	case id := <-rules.ended:
		if !strings.HasPrefix(id, pgwHost+";") {
			t.Errorf("ended the session %q", id)
		}
	case <-time.After(patience):
		t.Fatal("the session stays at the PCRF")
	}
	for range 2 { // the answer to the second request follows all that came before it
		if _, _, err := p.Begin(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(rules.ended); n > 0 {
		t.Errorf("%d sessions ended that were admitted in time", n)
	}
}

// newGxClient returns a P-GW's client that is not connected.
func newGxClient() *client {
	return newClient(ClientConfig{Host: pgwHost, Registry: prometheus.NewRegistry()}, gxApplication, "gx")
}

// An instant connection answers each request while the request is written.
type instant struct {
	diam.Conn
	client *client
}

func (i instant) Write(b []byte) (int, error) {
	i.client.answered(i, diam.NewMessage(creditControl, 0, gxApplication, binary.BigEndian.Uint32(b[12:]), 0, nil))
	return len(b), nil
}

// TestAnswerAtTheEndOfTheWaitIsNotLost has each answer arrive when the wait ends. The request
// gets the answer, or late does.
func TestAnswerAtTheEndOfTheWaitIsNotLost(t *testing.T) {
	c := newGxClient()
	c.conn = &link{Conn: instant{client: c}}
	inTime, late := 0, 0
	c.late = func(diam.Conn, *diam.Message) { late++ }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const requests = 100
	for range requests {
		if _, err := c.exchange(ctx, creditControl, "", nil); err == nil {
			inTime++
		}
	}
	if late == 0 || inTime+late != requests {
		t.Errorf("%d answers in time and %d late, want %d together, some of them late", inTime, late, requests)
	}
}

// A restartPCRF records which P-GWs have restarted.
type restartPCRF struct {
	admitting
	restarted chan string
}

func (r restartPCRF) Restarted(pgw string) { r.restarted <- pgw }

// TestHigherOriginStateIDIsARestart connects P-GWs with the same identity one after the other.
func TestHigherOriginStateIDIsARestart(t *testing.T) {
	rules := restartPCRF{restarted: make(chan string, 4)}
	at := serve(t, NewPCRF("pcrf.epc.test", rules, prometheus.NewRegistry()).Serve)
	for _, c := range []struct {
		state    uint32
		restarts int
	}{{7, 0}, {7, 0}, {8, 1}, {7, 1}, {8, 1}} {
		p := startPGW(t, at, c.state, nil)
		if _, _, err := p.Begin(t.Context(), session); err != nil { // follows the exchange of capabilities
			t.Fatal(err)
		}
		if got := len(rules.restarted); got != c.restarts {
			t.Errorf("after Origin-State-Id %d: got %d restarts, want %d", c.state, got, c.restarts)
		}
	}
}

// TestResultsThatNobodyDefinesShareALabel has a server invent a result code.
func TestResultsThatNobodyDefinesShareALabel(t *testing.T) {
	silent := newSilent(t)
	m := dial(t, silent.at, ClientConfig{})
	hosttest.Until(t, patience, "a connection", m.Connected)
	done := make(chan error, 1)
	go func() { done <- m.Purge(t.Context(), "1") }()
	asked := <-silent.requests
	if _, err := asked.m.Answer(7777).WriteTo(asked.conn); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, Result(7777)) {
		t.Errorf("got error %v, want the result 7777", err)
	}
	if n := testutil.ToFloat64(m.requests.WithLabelValues("321", "other")); n != 1 {
		t.Errorf("counted %v Purge-UE-Requests with another result, want 1", n)
	}
	for _, code := range []uint32{0, 2001, 3004, 4181, 5001, 5421} {
		if got := resultLabel(code); got != strconv.Itoa(int(code)) {
			t.Errorf("result %d has the label %s", code, got)
		}
	}
}

// TestSessionsOfTwoClientsDiffer has two clients with the same host start in the same
// second.
func TestSessionsOfTwoClientsDiffer(t *testing.T) {
	one, two := newGxClient(), newGxClient()
	two.session = one.session
	if a, b := one.newSession(), two.newSession(); a == b {
		t.Errorf("both clients have the session %s", a)
	}
}

// TestUnknownCommands checks that a server answers a command of another
// application, which it has no handler for.
func TestUnknownCommands(t *testing.T) {
	at := serveHSS(t)
	m := dial(t, at, ClientConfig{})
	hosttest.Until(t, patience, "a connection", m.Connected)
	_, err := m.call(t.Context(), cancelLocation, m.newSession(), []*diam.AVP{base(avp.UserName, datatype.UTF8String("1"))})
	if !errors.Is(err, CommandUnsupported) {
		t.Errorf("%v", err)
	}
}

// TestRequestsEndWithTheConnection checks that a request does not wait for its
// time limit when the server is gone.
func TestRequestsEndWithTheConnection(t *testing.T) {
	silent := newSilent(t)
	m := dial(t, silent.at, ClientConfig{Timeout: time.Hour})
	hosttest.Until(t, patience, "a connection", m.Connected)
	done := make(chan error, 1)
	go func() { done <- m.Purge(t.Context(), "1") }()
	silent.close(<-silent.requests)
	if err := <-done; !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

// TestClientStopsDuringTheCapabilityExchange checks that a client stops at once while a server does
// not answer its Capabilities-Exchange-Request. The clean-up of dial waits for it.
func TestClientStopsDuringTheCapabilityExchange(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	t.Cleanup(func() { // after the client has stopped
		conn.Close()
		l.Close()
	})
	dial(t, l.Addr().(*net.TCPAddr).AddrPort(), ClientConfig{Timeout: time.Hour})
	if conn, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, headerSize)); err != nil {
		t.Fatal(err)
	}
}

// TestRequestsEnd checks the time limit of a request, and its context.
func TestRequestsEnd(t *testing.T) {
	silent := newSilent(t)
	m := dial(t, silent.at, ClientConfig{Timeout: 500 * time.Millisecond})
	hosttest.Until(t, patience, "a connection", m.Connected)
	if err := m.Purge(t.Context(), "1"); !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Purge(ctx, "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestUnansweredWatchdogEndsTheConnection checks that a client leaves a server that
// does not answer watchdogs.
func TestUnansweredWatchdogEndsTheConnection(t *testing.T) {
	silent := newSilent(t)
	dial(t, silent.at, ClientConfig{Watchdog: 20 * time.Millisecond})
	for range 2 { // it comes back, and leaves again
		first := <-silent.requests
		if first.m.Header.CommandCode != diam.DeviceWatchdog {
			t.Errorf("got command %d, want Device-Watchdog", first.m.Header.CommandCode)
		}
	}
}

// TestAnsweredWatchdogKeepsTheConnection checks that a client stays with a server
// that answers watchdogs. The test answers, so nothing is due before the next one.
func TestAnsweredWatchdogKeepsTheConnection(t *testing.T) {
	silent := newSilent(t)
	m := dial(t, silent.at, ClientConfig{Watchdog: 2 * time.Second})
	watchdog := <-silent.requests
	m.mu.Lock()
	l := m.conn
	m.mu.Unlock()
	if watchdog.m.Header.CommandCode != diam.DeviceWatchdog || l.alive.Load() {
		t.Errorf("got command %d; alive before the answer: %v", watchdog.m.Header.CommandCode, l.alive.Load())
	}
	answer := watchdog.m.Answer(diam.Success)
	answer.AddAVP(base(avp.OriginHost, datatype.DiameterIdentity("silent.epc.test")))
	answer.AddAVP(base(avp.OriginRealm, datatype.DiameterIdentity("epc.test")))
	if _, err := answer.WriteTo(watchdog.conn); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, patience, "it is answered", l.alive.Load)
	select {
	case <-l.ended:
		t.Error("the client closed the connection to a server that answers")
	default:
	}
}

// A silentServer exchanges capabilities and answers nothing else.
type silentServer struct {
	at       netip.AddrPort
	requests chan received
}

type received struct {
	conn net.Conn
	m    *diam.Message
}

// close closes the connection of a request.
func (silentServer) close(r received) { r.conn.Close() }

func newSilent(t *testing.T) silentServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := silentServer{l.Addr().(*net.TCPAddr).AddrPort(), make(chan received, 16)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.exchange(conn)
		}
	}()
	return s
}

// exchange answers the first message, a Capabilities-Exchange-Request.
func (s silentServer) exchange(conn net.Conn) {
	defer conn.Close()
	for {
		m, err := diam.ReadMessage(conn, dict.Default)
		if err != nil {
			return
		}
		if m.Header.CommandCode != diam.CapabilitiesExchange {
			s.requests <- received{conn, m}
			continue
		}
		answer := m.Answer(diam.Success)
		for _, a := range []*diam.AVP{
			base(avp.OriginHost, datatype.DiameterIdentity("silent.epc.test")), base(avp.OriginRealm, datatype.DiameterIdentity("epc.test")),
			base(avp.HostIPAddress, datatype.Address(net.IPv4(127, 0, 0, 1))), base(avp.VendorID, number(uint32(vendor3GPP))),
			diam.NewAVP(avp.ProductName, 0, 0, datatype.UTF8String("silent")), applicationAVP(s6aApplication),
		} {
			answer.AddAVP(a)
		}
		if _, err := answer.WriteTo(conn); err != nil {
			return
		}
	}
}
