package sip

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/director/table"
)

// TestTransports sends between all transports and address families, with small messages and with
// messages that IP fragments.
func TestTransports(t *testing.T) {
	for _, listeners := range [][]string{{"udp://127.0.0.1:0", "tcp://127.0.0.1:0"}, {"udp://[::1]:0", "tcp://[::1]:0"}} {
		host := "127.0.0.1"
		if strings.Contains(listeners[0], "::1") {
			host = "::1"
		}
		for _, stream := range []bool{false, true} {
			server := newUAS(t, host)
			d := direct(t, listeners, oneType(stream), nil, instance(server))
			for i, network := range []string{"udp", "tcp"} {
				p := newPhone(t, network, d.Addresses()[i])
				for _, size := range []int{0, 1500, 20000, 60000} {
					id := fmt.Sprint(network, size)
					p.send(p.request("INVITE", id, size))
					text := server.next()
					if n := strings.Count(text, "\r\nVia: "); n != 2 || strings.Count(text, "x")-size > 20 || !strings.HasSuffix(text, strings.Repeat("x", size)) {
						t.Errorf("%s over %s, %d bytes: the instance got %d Vias in %.500s", host, network, size, n, text)
					}
					if want := map[bool]string{false: "\r\nVia: SIP/2.0/UDP ", true: "\r\nVia: SIP/2.0/TCP "}[stream]; !strings.Contains(text, want) {
						t.Errorf("wrong transport in the Via over %s: %.300s", network, text)
					}
					if answer := p.next(); !strings.HasPrefix(answer, "SIP/2.0 200 ") || !strings.Contains(answer, "Call-ID: "+id+"\r\n") || strings.Count(answer, "\r\nVia: ") != 1 {
						t.Errorf("%s over %s: got answer %.300s", host, network, answer)
					}
				}
			}
			d.stop()
			totals, err := d.Counters()
			if err != nil {
				t.Fatal(err)
			}
			if totals.Inward != 8 || totals.Returned != 8 || totals.Dropped != 0 || totals.Streams.Unsent != 0 || totals.Datagrams.Unsent != 0 {
				t.Errorf("%+v", totals)
			}
			if stream && totals.Streams.Dialed != 1 {
				t.Errorf("got %d connections to one instance, want 1", totals.Streams.Dialed)
			}
		}
	}
}

// TestOnePortAtTwoListeners connects to two listeners from one port. Each connection must get the answers
// to its own requests.
func TestOnePortAtTwoListeners(t *testing.T) {
	server := newUAS(t, "127.0.0.1")
	d := direct(t, []string{"udp://127.0.0.1:0", "tcp://127.0.0.1:0", "tcp://127.0.0.2:0"}, oneType(false), nil, instance(server))
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(err, failed)
	}}
	var phones []*phone
	for _, at := range d.Addresses()[1:] {
		c, err := dialer.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		dialer.LocalAddr = c.LocalAddr()
		phones = append(phones, phoneOn(t, "tcp", c))
	}
	for i, p := range phones {
		p.send(p.request("INVITE", fmt.Sprint(i), 0))
		if answer := p.next(); !strings.Contains(answer, fmt.Sprintf("\r\nCall-ID: %d\r\n", i)) {
			t.Errorf("connection %d got %s", i, answer)
		}
	}
}

// TestStream checks framing and keep-alives. Requests of an instance must reach a client on the
// client's own connection.
func TestStream(t *testing.T) {
	server := newUAS(t, "127.0.0.1")
	d := direct(t, []string{"udp://127.0.0.1:0", "tcp://127.0.0.1:0"}, oneType(false), nil, instance(server))
	p := newPhone(t, "tcp", d.Addresses()[1])
	both := p.request("INVITE", "one", 3) + "\r\n" + p.request("MESSAGE", "two", 0)
	for _, part := range []string{both[:40], both[40:300], both[300:]} {
		p.send(part)
	}
	for _, id := range []string{"one", "two"} {
		if text := server.next(); !strings.Contains(text, "Call-ID: "+id+"\r\n") {
			t.Errorf("%s: %s", id, text)
		}
	}
	p.next()
	p.next()
	p.send(p.request("REGISTER", "reg", 0))
	register := server.next()
	p.next()
	_, after, _ := strings.Cut(register, "\r\nPath: ")
	path, _, _ := strings.Cut(after, "\r\n")
	notify := "NOTIFY sip:a@192.0.2.1:9 SIP/2.0\r\nVia: SIP/2.0/UDP " + server.address.String() + ";branch=z9hG4bKn\r\nRoute: " + path +
		"\r\nFrom: <sip:b@x>;tag=1\r\nTo: <sip:a@x>;tag=2\r\nCall-ID: n\r\nCSeq: 1 NOTIFY\r\nContent-Length: 0\r\n\r\n"
	if _, err := server.udp.WriteToUDPAddrPort([]byte(notify), d.Addresses()[0]); err != nil {
		t.Fatal(err)
	}
	text := p.next()
	if !strings.HasPrefix(text, "NOTIFY sip:a@192.0.2.1:9 ") || strings.Contains(text, "Route:") {
		t.Errorf("the phone got %s on its connection", text)
	}
	p.send(respond(text, 200, ""))
	if answer := server.next(); !strings.HasPrefix(answer, "SIP/2.0 200 ") || strings.Count(answer, "Via:") != 1 {
		t.Errorf("the instance got answer %s", answer)
	}
	// A message without a valid length is answered, and ends the connection.
	for _, length := range []string{"", "Content-Length: x\r\n"} {
		bad := newPhone(t, "tcp", d.Addresses()[1])
		bad.send(strings.Replace(bad.request("OPTIONS", "bad", 0), "Content-Length: 0\r\n", length, 1))
		if answer := bad.next(); !strings.HasPrefix(answer, "SIP/2.0 400 ") {
			t.Errorf("got answer %s, want 400", answer)
		}
		select {
		case _, open := <-bad.got:
			if open {
				t.Error("got another message, want the end of the connection")
			}
		case <-time.After(10 * time.Second):
			t.Error("the connection did not end")
		}
	}
}

func TestPing(t *testing.T) {
	d := direct(t, []string{"tcp://127.0.0.1:0"}, oneType(true), nil)
	c, err := net.Dial("tcp", d.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "\r\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestIdle checks that a silent connection is closed.
func TestIdle(t *testing.T) {
	d := direct(t, []string{"tcp://127.0.0.1:0"}, oneType(true), func(c *Config) { c.Idle = time.Millisecond })
	c, err := net.Dial("tcp", d.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
}

// TestEndOfStream checks that a peer that does not read does not delay the director's end.
func TestEndOfStream(t *testing.T) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := peer.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	conn, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	st := &streams{writeTimeout: time.Hour, now: func() time.Duration { return 0 }, workers: []*streamWorker{{proxy: &Proxy{meter: meter.New(8, time.Hour).Worker()}}}}
	c := &stream{conn: conn, queue: make(chan *[]byte, queueLength), done: make(chan struct{})}
	for range queueLength { // more than the kernel buffers
		b := make([]byte, maxMessage)
		c.queue <- &b
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		st.write(c)
	}()
	if _, err := io.ReadFull(peer, make([]byte, maxMessage)); err != nil {
		t.Fatal(err)
	}
	c.end()
	select {
	case <-written:
	case <-time.After(30 * time.Second):
		t.Fatal("the write did not end")
	}
	if st.unsent.Load() != 1 || st.sent.Load() == 0 {
		t.Errorf("%d sent, %d unsent, want at least 1 and exactly 1", st.sent.Load(), st.unsent.Load())
	}
}

// TestConnectionsAreBounded checks that connections above the limit are closed. A closed connection
// must make room for another.
func TestConnectionsAreBounded(t *testing.T) {
	d := direct(t, []string{"tcp://127.0.0.1:0"}, oneType(true), func(c *Config) { c.Connections = 2 })
	options := func(p *phone) string {
		return strings.Replace(p.request("OPTIONS", "o", 0), "sip:b@example.com", "sip:"+d.Addresses()[0].String(), 1)
	}
	var phones []*phone
	for range 2 {
		p := newPhone(t, "tcp", d.Addresses()[0])
		p.send(options(p))
		p.next()
		phones = append(phones, p)
	}
	third := newPhone(t, "tcp", d.Addresses()[0])
	select {
	case _, open := <-third.got:
		if open {
			t.Error("a third connection was served")
		}
	case <-time.After(10 * time.Second):
		t.Error("a third connection was not closed")
	}
	if err := phones[0].conn.Close(); err != nil {
		t.Fatal(err)
	}
	d.until(t, "the closed connection is not counted", func(s StreamCounters) bool { return s.Open == 1 })
	fourth := newPhone(t, "tcp", d.Addresses()[0])
	fourth.send(options(fourth))
	fourth.next()
}

// TestHandOver checks that all requests that are sent during a hand-over are answered and stay at
// their instances.
func TestHandOver(t *testing.T) {
	a, b := newUAS(t, "127.0.0.1"), newUAS(t, "127.0.0.1")
	first := direct(t, []string{"udp://127.0.0.1:0", "tcp://127.0.0.1:0"}, oneType(false), nil, instance(a), instance(b))
	p := newPhone(t, "udp", first.Addresses()[0])
	const before, between, after = 50, 50, 50
	for i := range before {
		p.send(p.request("INVITE", fmt.Sprint(i), 0))
		p.next()
	}
	files, err := first.Files()
	if err != nil {
		t.Fatal(err)
	}
	addresses := first.Addresses()
	first.stop()
	for i := range between {
		p.send(p.request("INVITE", fmt.Sprint(i), 0))
	}
	waiting, err := net.Dial("tcp", addresses[1].String())
	if err != nil {
		t.Fatalf("a new connection failed: %v", err)
	}
	defer waiting.Close()
	c := first.config
	c.Inherited = files
	for i := range c.Listeners {
		c.Listeners[i].Address = addresses[i]
	}
	second := run(t, c)
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for range between {
		p.next()
	}
	for i := range after {
		p.send(p.request("INVITE", fmt.Sprint(i), 0))
		p.next()
	}
	where := map[string]*uas{}
	for _, u := range []*uas{a, b} {
		for range u.count.Load() {
			text := u.next()
			_, rest, _ := strings.Cut(text, "Call-ID: ")
			id, _, _ := strings.Cut(rest, "\r\n")
			if where[id] != nil && where[id] != u {
				t.Errorf("call %s reached both instances", id)
			}
			where[id] = u
		}
	}
	if len(where) != 50 || a.count.Load() == 0 || b.count.Load() == 0 {
		t.Errorf("got %d calls, %d requests at one instance and %d at the other", len(where), a.count.Load(), b.count.Load())
	}
	totals, err := second.Counters()
	if err != nil || totals.Inward != between+after || totals.Streams.Accepted != 1 {
		t.Errorf("the second director counted %+v, error %v", totals, err)
	}
}

// TestConnectionsDoNotWaitForEachOther checks that a request is served while one on another
// connection is still being handled.
func TestConnectionsDoNotWaitForEachOther(t *testing.T) {
	server := newUAS(t, "127.0.0.1")
	begun, wait := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(wait) })
	defer end()
	rules := oneType(false)
	var requests atomic.Int64
	rules.Region = func(netip.Addr) table.Region { // part of the handling of each request
		if requests.Add(1) == 1 {
			close(begun)
			<-wait
		}
		return 0
	}
	d := direct(t, []string{"udp://127.0.0.1:0", "tcp://127.0.0.1:0"}, rules, nil, instance(server))
	slow, quick := newPhone(t, "tcp", d.Addresses()[1]), newPhone(t, "tcp", d.Addresses()[1])
	slow.send(slow.request("INVITE", "slow", 0))
	<-begun
	quick.send(quick.request("INVITE", "quick", 0))
	if answer := quick.next(); !strings.Contains(answer, "\r\nCall-ID: quick\r\n") {
		t.Errorf("got %s", answer)
	}
	end()
	if answer := slow.next(); !strings.Contains(answer, "\r\nCall-ID: slow\r\n") {
		t.Errorf("got %s", answer)
	}
}

// TestConnectionsShareTheirMemory drains the instance of an INVITE. The CANCEL must still reach it,
// although it comes over a new connection.
func TestConnectionsShareTheirMemory(t *testing.T) {
	a, b := newUAS(t, "127.0.0.1"), newUAS(t, "127.0.0.1")
	const now = time.Minute // the first epoch began long ago
	d := direct(t, []string{"udp://127.0.0.1:0", "tcp://127.0.0.1:0"}, oneType(false), func(c *Config) {
		c.Now = func() time.Duration { return now }
	}, instance(a), instance(b))
	p := newPhone(t, "tcp", d.Addresses()[1])
	p.send(p.request("INVITE", "one", 0))
	p.next()
	if b.count.Load() > 0 {
		a, b = b, a
	}
	drained := instance(a)
	drained.State = vitrine.Draining
	next, err := table.New(2, oneType(false).Types, []vitrine.Instance{drained, instance(b)})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.config.Meter.Register(next); err != nil {
		t.Fatal(err)
	}
	if wait := d.config.Epochs.Publish(now, next, nil); wait > 0 {
		t.Fatalf("the table may be published in %v", wait)
	}
	again := newPhone(t, "tcp", d.Addresses()[1])
	for _, c := range []struct{ method, call string }{{"INVITE", "two"}, {"CANCEL", "one"}} {
		again.send(again.request(c.method, c.call, 0))
		again.next()
	}
	if a.count.Load() != 2 || b.count.Load() != 1 {
		t.Errorf("the draining instance got %d requests, and the other %d; want 2 and 1", a.count.Load(), b.count.Load())
	}
}

// TestNobody checks that an unreachable instance affects only its own requests.
func TestNobody(t *testing.T) {
	gone := vitrine.Instance{Name: "gone", Type: "all", Weight: 1, Address: netip.MustParseAddrPort("127.0.0.1:1")}
	d := direct(t, []string{"udp://127.0.0.1:0", "tcp://127.0.0.1:0"}, oneType(true), nil, gone)
	p := newPhone(t, "udp", d.Addresses()[0])
	for i := range 300 {
		p.send(p.request("INVITE", fmt.Sprint(i), 0))
	}
	d.until(t, "all requests count as unsent", func(s StreamCounters) bool { return s.Unsent == 300 && s.Open == 0 })
}

// TestResponseWithoutItsConnection checks that a response whose connection is closed goes to the
// port of its Via on a new connection. A forged response must open no connection.
func TestResponseWithoutItsConnection(t *testing.T) {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	server := &uas{t: t, udp: udp, address: udp.LocalAddr().(*net.UDPAddr).AddrPort()}
	d := direct(t, []string{"udp://127.0.0.1:0", "tcp://127.0.0.1:0"}, oneType(false), nil, instance(server))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newPhone(t, "tcp", d.Addresses()[1])
	p.send(strings.Replace(p.request("INVITE", "gone", 0), "SIP/2.0/TCP "+p.conn.LocalAddr().String(), "SIP/2.0/TCP "+l.Addr().String(), 1))
	b := make([]byte, 4096)
	n, err := udp.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.conn.Close(); err != nil {
		t.Fatal(err)
	}
	d.until(t, "no connection is open", func(s StreamCounters) bool { return s.Open == 0 })
	answer := respond(string(b[:n]), 200, "")
	forged := strings.Replace(answer, ";vm=0001", ";vm=0001"+strings.Repeat("0", 32)+";x=", 1)
	for _, text := range []string{forged, answer, answer} {
		if _, err := udp.WriteToUDPAddrPort([]byte(text), d.Addresses()[0]); err != nil {
			t.Fatal(err)
		}
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make(chan string, 10)
	go messages(c, func(text string) { got <- text })
	for range 2 {
		if text := <-got; !strings.Contains(text, "Call-ID: gone\r\n") {
			t.Errorf("%s", text)
		}
	}
	if totals, err := d.Counters(); err != nil || totals.Streams.Dialed != 1 || totals.Dropped != 1 {
		t.Errorf("%+v %v", totals, err)
	}
}

func TestExplain(t *testing.T) {
	server := newUAS(t, "127.0.0.1")
	d := direct(t, []string{"tcp://127.0.0.1:0", "udp://127.0.0.1:0"}, oneType(false), nil, instance(server))
	from := netip.MustParseAddrPort("192.0.2.7:5060")
	x, err := d.Explain(time.Second, d.config.Meter.Probe(), from, []byte(lines("INVITE sip:b@example.com SIP/2.0")))
	if err != nil || !x.Request || !x.Sends || x.To != server.address || x.Rule != 0 || x.Key != table.Key([]byte("c1")) || x.Outward || x.Route != "" {
		t.Errorf("%+v %v", x, err)
	}
	if !bytes.Contains(x.Message, []byte("Record-Route: ")) {
		t.Errorf("%s", x.Message)
	}
	x, err = d.Explain(time.Second, d.config.Meter.Probe(), server.address, []byte(lines("BYE sip:a@192.0.2.7 SIP/2.0", "To: <sip:a@x>;tag=2")))
	if err != nil || !x.Outward || !x.Source || x.Route != instance(server).Type || x.ID == 0 {
		t.Errorf("a request from an instance's address: %+v %v", x, err)
	}
	if _, err := d.Explain(time.Second, d.config.Meter.Probe(), from, []byte("x")); err == nil {
		t.Error("Explain accepted data that is not SIP")
	}
	if len(d.Steerings()) != 3 {
		t.Errorf("got %d steerings for two workers and TCP, want 3", len(d.Steerings()))
	}
}

// TestExplainChangesNothing checks that Explain takes no token from the gate, and that an explained
// response does not count as feedback.
func TestExplainChangesNothing(t *testing.T) {
	gate := overload.New(overload.Config{Target: time.Second, Initial: 1, Min: 1, Burst: 1}, 0)
	c := rulesConfig()
	c.Options = map[string]TypeOptions{"registration": {Gate: gate}}
	c.Feedback = true
	s := newStage(t, c)
	d := &Server{core: core{places: s.proxy.server.places, epochs: s.epochs}}
	d.core.rules.Store(s.proxy.server.rules.Load())
	d.core.keys.Store(s.proxy.server.keys.Load())
	var x Explanation
	for range 3 {
		var err error
		if x, err = d.Explain(s.now, s.meter.Probe(), client, []byte(register)); err != nil || !bytes.HasPrefix(x.Message, []byte("REGISTER ")) {
			t.Fatalf("%s %v", x.Message, err)
		}
	}
	if r := gate.Read(); r.Admitted != 0 || r.Refused != 0 {
		t.Errorf("the gate counted explained requests: %+v", r)
	}
	gate.Admit(s.now, overload.Begins)
	refused, err := d.Explain(s.now, s.meter.Probe(), client, []byte(register))
	if err != nil || !bytes.HasPrefix(refused.Message, []byte("SIP/2.0 500 ")) || !strings.Contains(refused.Refused, "gate") || gate.Read().Refused != 0 {
		t.Errorf("explain without a token: got %s, refused because %q, %v", refused.Message, refused.Refused, err)
	}
	response := strings.Replace(respond(string(x.Message), 200, ""), `;oc;oc-algo="loss"`, ";oc=100;oc-seq=1", 1)
	if back, err := d.Explain(s.now, s.meter.Probe(), x.To, []byte(response)); err != nil || !back.Sends {
		t.Errorf("explained response: got %+v %v", back, err)
	}
	if d.core.losses.of.Load() != nil {
		t.Error("an explained response was counted as feedback")
	}
}

func TestBadListeners(t *testing.T) {
	everywhere := Listener{Address: netip.MustParseAddrPort("0.0.0.0:5060")}
	if _, err := newPlace(everywhere, everywhere.Address); !vitrine.IsBadInput(err) {
		t.Errorf("an unspecified address without host: got error %v, want bad input", err)
	}
	everywhere.Host = "sip.example.com"
	p, err := newPlace(everywhere, everywhere.Address)
	if err != nil || !p.is([]byte("SIP.example.com"), 5060) || !p.is([]byte("sip.example.com"), 0) || p.is([]byte("sip.example.com"), 5061) {
		t.Errorf("%+v %v", p, err)
	}
}
