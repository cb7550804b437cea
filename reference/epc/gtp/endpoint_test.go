package gtp_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/internal/hosttest"
	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

// patience limits every wait of these tests. Reaching it is a failure.
const patience = 30 * time.Second

// start runs an endpoint until the test ends. Its address is on loopback.
func start(t *testing.T, c gtp.Config) *gtp.Endpoint {
	t.Helper()
	c.Listen = netip.MustParseAddrPort("127.0.0.1:0")
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	e, err := gtp.Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Run(t, patience, "the endpoint", e.Serve)
	return e
}

// A peer is a bare socket.
type peer struct {
	*net.UDPConn
	t *testing.T
}

func newPeer(t *testing.T) peer {
	t.Helper()
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	_ = socket.SetDeadline(time.Now().Add(patience))
	return peer{socket, t}
}

func (p peer) addr() netip.AddrPort { return p.LocalAddr().(*net.UDPAddr).AddrPort() }

// read returns the next datagram and its first message.
func (p peer) read() ([]byte, gtpc.Message) {
	p.t.Helper()
	b := make([]byte, 2048)
	n, err := p.Read(b)
	if err != nil {
		p.t.Fatal(err)
	}
	var m gtpc.Message
	if _, err := m.Parse(b[:n]); err != nil {
		p.t.Fatal(err)
	}
	return b[:n], m
}

func (p peer) send(b []byte, to *gtp.Endpoint) {
	p.t.Helper()
	if _, err := p.WriteToUDPAddrPort(b, to.Addr()); err != nil {
		p.t.Fatal(err)
	}
}

// value returns the sum of a counter's values that have a label's value; an empty
// one fits all.
func value(t *testing.T, registry *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			fits := label == ""
			for _, l := range m.GetLabel() {
				fits = fits || l.GetValue() == label
			}
			if fits {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

var accepted = gtpc.Result{Cause: gtpc.RequestAccepted}

// TestLostRequestsAreSentAgain checks that the second retransmission, the same
// octets, may still be answered.
func TestLostRequestsAreSentAgain(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := start(t, gtp.Config{T3: 500 * time.Millisecond, N3: 3, Registry: registry})
	p := newPeer(t)
	done := make(chan error, 1)
	var answer gtpc.Answer
	go func() {
		done <- e.Do(t.Context(), p.addr(), 7, &gtpc.DeleteSession{Linked: 5}, &answer)
	}()
	first, m := p.read()
	for range 2 {
		if again, _ := p.read(); !bytes.Equal(first, again) {
			t.Errorf("%x was retransmitted as %x", first, again)
		}
	}
	p.send((&gtpc.Answer{Type: gtpc.DeleteSessionResponse, Result: accepted}).Append(nil, 1, m.Sequence), e)
	if err := <-done; err != nil || answer.Result != accepted || m.TEID != 7 {
		t.Errorf("%+v, %v", answer, err)
	}
	if n := value(t, registry, "gtpc_retransmissions_total", ""); n != 2 {
		t.Errorf("counted %v retransmissions, want 2", n)
	}
}

// TestAnswersMayComeFromAnotherPort answers a request from another port of the same
// address, as NextEPC does, after an answer from another address that does not count.
func TestAnswersMayComeFromAnotherPort(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := start(t, gtp.Config{Registry: registry})
	p, sibling := newPeer(t), newPeer(t)
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.2:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	done := make(chan error, 1)
	var answer gtpc.Answer
	go func() { done <- e.Do(t.Context(), p.addr(), 7, &gtpc.ReleaseAccessBearers{}, &answer) }()
	_, m := p.read()
	refusal := gtpc.Result{Cause: gtpc.ContextNotFound}
	(peer{socket, t}).send((&gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: refusal}).Append(nil, 1, m.Sequence), e)
	sibling.send((&gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: accepted}).Append(nil, 1, m.Sequence), e)
	if err := <-done; err != nil || answer.Result != accepted {
		t.Errorf("%+v, %v", answer, err)
	}
	if stray := value(t, registry, "gtpc_dropped_total", "no_request"); stray != 1 {
		t.Errorf("dropped %v answers, want 1 from the other address", stray)
	}
}

// TestRequestsEnd checks that a request fails after N3 attempts, and that a late
// answer is dropped.
func TestRequestsEnd(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := start(t, gtp.Config{T3: 10 * time.Millisecond, N3: 3, Registry: registry})
	p := newPeer(t)
	if err := e.Do(t.Context(), p.addr(), 7, &gtpc.ReleaseAccessBearers{}, &gtpc.Answer{}); !errors.Is(err, gtp.ErrTimeout) {
		t.Errorf("%v", err)
	}
	var m gtpc.Message
	for range 3 {
		_, m = p.read()
	}
	p.send((&gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: accepted}).Append(nil, 1, m.Sequence), e)
	p.send(gtpc.AppendEchoRequest(nil, 1, 0), e) // answered after the late answer
	if _, m := p.read(); m.Type != gtpc.EchoResponse {
		t.Errorf("got %v, want the Echo Response and no fourth attempt", m.Type)
	}
	if timeouts, stray := value(t, registry, "gtpc_timeouts_total", ""), value(t, registry, "gtpc_dropped_total", "no_request"); timeouts != 1 || stray != 1 {
		t.Errorf("counted %v timeouts, %v late answers", timeouts, stray)
	}
}

// TestRequestsEndWithTheEndpoint checks that nobody waits for an endpoint that was
// closed.
func TestRequestsEndWithTheEndpoint(t *testing.T) {
	e, err := gtp.Listen(t.Context(), gtp.Config{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx) }()
	done := make(chan error, 1)
	e.Send(t.Context(), p.addr(), 1, &gtpc.ReleaseAccessBearers{}, func(_ *gtpc.Message, err error) { done <- err })
	p.read()
	cancel()
	if err := <-done; !errors.Is(err, gtp.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	e.Send(t.Context(), p.addr(), 1, &gtpc.ReleaseAccessBearers{}, func(_ *gtpc.Message, err error) { done <- err })
	if err := <-done; !errors.Is(err, gtp.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestRequestsSentAgainAreAnsweredAgain checks that the handler sees a request
// once, and that its answer is sent for each copy.
func TestRequestsSentAgainAreAnsweredAgain(t *testing.T) {
	var handled atomic.Int32
	registry := prometheus.NewRegistry()
	release := make(chan struct{})
	e := start(t, gtp.Config{Registry: registry, Handle: func(_ context.Context, r *gtp.Request) {
		handled.Add(1)
		<-release
		r.Answer(9, &gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: accepted})
	}})
	p := newPeer(t)
	request := (&gtpc.ReleaseAccessBearers{}).Append(nil, 7, 77)
	p.send(request, e)
	p.send(request, e) // while the first one is being handled
	p.send(gtpc.AppendEchoRequest(nil, 1, 0), e)
	if _, m := p.read(); m.Type != gtpc.EchoResponse {
		t.Errorf("got %v before the handler returned", m.Type)
	}
	close(release)
	first, m := p.read()
	if m.Type != gtpc.ReleaseAccessBearersResponse || m.Sequence != 77 || m.TEID != 9 {
		t.Errorf("%+v", m)
	}
	p.send(request, e)
	if again, _ := p.read(); !bytes.Equal(first, again) {
		t.Errorf("answer %x was retransmitted as %x", first, again)
	}
	if n := value(t, registry, "gtpc_duplicates_total", ""); handled.Load() != 1 || n != 2 {
		t.Errorf("handled %d requests, counted %v duplicates", handled.Load(), n)
	}
}

// TestAnswersAreForgotten checks that the memory of answers is bounded: the oldest
// is displaced.
func TestAnswersAreForgotten(t *testing.T) {
	var handled atomic.Int32
	e := start(t, gtp.Config{Remember: 2, Handle: func(_ context.Context, r *gtp.Request) {
		handled.Add(1)
		r.Answer(0, &gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: accepted})
	}})
	p := newPeer(t)
	for _, sequence := range []uint32{1, 2, 3, 3, 2, 1} {
		p.send((&gtpc.ReleaseAccessBearers{}).Append(nil, 7, sequence), e)
		if _, m := p.read(); m.Sequence != sequence {
			t.Errorf("got an answer to %d, want to %d", m.Sequence, sequence)
		}
	}
	if handled.Load() != 4 {
		t.Errorf("handled %d requests, want 4 because the first one was forgotten", handled.Load())
	}
}

// TestFullEndpointsRefuse checks the bounds on requests, of peers and own ones.
func TestFullEndpointsRefuse(t *testing.T) {
	registry := prometheus.NewRegistry()
	release, begun := make(chan struct{}), make(chan struct{})
	e := start(t, gtp.Config{Pending: 1, Handling: 1, Registry: registry, Handle: func(_ context.Context, r *gtp.Request) {
		begun <- struct{}{}
		<-release
	}})
	p := newPeer(t)
	p.send((&gtpc.ReleaseAccessBearers{}).Append(nil, 7, 1), e)
	<-begun
	p.send((&gtpc.ReleaseAccessBearers{}).Append(nil, 7, 2), e)
	_, m := p.read()
	var answer gtpc.Answer
	if err := answer.Parse(&m); err != nil || m.Sequence != 2 || answer.Result.Cause != gtpc.EntityCongestion {
		t.Errorf("%+v, %v", answer, err)
	}
	close(release)
	errs := make(chan error, 2)
	for range 2 {
		e.Send(t.Context(), p.addr(), 1, &gtpc.ReleaseAccessBearers{}, func(_ *gtpc.Message, err error) { errs <- err })
	}
	if err := <-errs; !errors.Is(err, gtp.ErrBusy) {
		t.Errorf("%v", err)
	}
	if refused, busy := value(t, registry, "gtpc_dropped_total", "no_room"), value(t, registry, "gtpc_busy_total", ""); refused != 1 || busy != 1 {
		t.Errorf("counted %v refused requests, %v unsent requests", refused, busy)
	}
}

// TestRestarts checks that a change of a peer's restart counter is reported once,
// and that this node reports its own.
func TestRestarts(t *testing.T) {
	restarts := make(chan netip.Addr, 4)
	e := start(t, gtp.Config{Restart: 42, Restarted: func(_ context.Context, peer netip.Addr) { restarts <- peer }})
	p := newPeer(t)
	for _, counter := range []uint8{3, 3, 4, 4} {
		p.send(gtpc.AppendEchoRequest(nil, uint32(counter), counter), e)
		_, m := p.read()
		if v, ok := m.Find(gtpc.Recovery, 0); !ok || v[0] != 42 {
			t.Errorf("restart counter: got %v, %v", v, ok)
		}
	}
	if len(restarts) != 1 || <-restarts != p.addr().Addr() {
		t.Errorf("got the wrong restart notifications; %d more are waiting", len(restarts))
	}
}

// TestMalformedMessages checks what is answered to messages that cannot be read.
func TestMalformedMessages(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := start(t, gtp.Config{Registry: registry})
	p := newPeer(t)
	p.send([]byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0}, e)
	if _, m := p.read(); m.Type != gtpc.VersionNotSupported || m.Sequence != 0x1234 {
		t.Errorf("answer to GTPv1: got %+v", m)
	}
	p.send([]byte{0x32, 3, 0, 4, 0, 0, 0, 0, 0x12, 0x35, 0, 0}, e) // its Version Not Supported gets no answer
	long := (&gtpc.ReleaseAccessBearers{}).Append(nil, 7, 5)
	long[3]++ // one octet more than there is
	p.send(long, e)
	_, m := p.read()
	var answer gtpc.Answer
	if err := answer.Parse(&m); err != nil || m.Sequence != 5 || answer.Result.Cause != gtpc.InvalidLength {
		t.Errorf("answer to a message that is too long: got %+v, %v", answer, err)
	}
	p.send([]byte{0x48}, e)
	p.send(gtpc.AppendEchoRequest(nil, 1, 0), e)
	if _, m := p.read(); m.Type != gtpc.EchoResponse {
		t.Errorf("answer to one octet: got %v", m.Type)
	}
	if n := value(t, registry, "gtpc_dropped_total", "malformed"); n != 2 {
		t.Errorf("counted %v malformed messages, want 2", n)
	}
}

// TestTwoEndpoints checks a request from one endpoint to another, and its counts.
func TestTwoEndpoints(t *testing.T) {
	registry := prometheus.NewRegistry()
	server := start(t, gtp.Config{Handle: func(_ context.Context, r *gtp.Request) {
		var m gtpc.DeleteSession
		if err := m.Parse(&r.Message); err != nil {
			t.Error(err)
		}
		r.Answer(r.TEID+1, &gtpc.Answer{Type: gtpc.DeleteSessionResponse, Result: accepted, Linked: m.Linked})
	}})
	client := start(t, gtp.Config{Registry: registry})
	const n = 100
	for i := range uint32(n) {
		var answer gtpc.Answer
		if err := client.Do(t.Context(), server.Addr(), i, &gtpc.DeleteSession{Linked: 5}, &answer); err != nil || answer.Linked != 5 {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	if sent := value(t, registry, "gtpc_messages_total", "delete-session"); sent != n {
		t.Errorf("counted %v requests", sent)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// BenchmarkExchange measures a request and its answer, both ends included.
func BenchmarkExchange(b *testing.B) {
	listen := func(c gtp.Config) *gtp.Endpoint {
		c.Listen, c.Registry = netip.MustParseAddrPort("127.0.0.1:0"), prometheus.NewRegistry()
		e, err := gtp.Listen(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		go e.Serve(b.Context()) //nolint:errcheck // ends with the benchmark
		return e
	}
	server := listen(gtp.Config{Handle: func(_ context.Context, r *gtp.Request) {
		r.Answer(1, &gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: accepted})
	}})
	client := listen(gtp.Config{})
	b.ReportAllocs()
	done := make(chan struct{}, 1)
	for b.Loop() {
		client.Send(b.Context(), server.Addr(), 1, &gtpc.ReleaseAccessBearers{}, func(_ *gtpc.Message, err error) {
			if err != nil {
				b.Error(err)
			}
			done <- struct{}{}
		})
		<-done
	}
}
