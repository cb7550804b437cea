package sip

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/directortest"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/internal/hosttest"
	"vitrine/wire/sip"
)

// A uas is a user agent server on UDP and TCP. It answers every request and keeps all messages that
// it receives.
type uas struct {
	t       *testing.T
	udp     *net.UDPConn
	tcp     net.Listener
	address netip.AddrPort
	got     chan string
	count   atomic.Int64
}

func newUAS(t *testing.T, host string) *uas {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr).AddrPort()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		t.Fatal(err)
	}
	u := &uas{t: t, udp: c, tcp: l, address: address, got: make(chan string, 10000)}
	t.Cleanup(func() { _ = c.Close(); _ = l.Close() })
	go u.serveUDP()
	go u.serveTCP()
	return u
}

func (u *uas) serveUDP() {
	b := make([]byte, 70000)
	for {
		n, from, err := u.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if answer := u.answer(string(b[:n])); answer != "" {
			if _, err := u.udp.WriteToUDPAddrPort([]byte(answer), from); err != nil {
				return
			}
		}
	}
}

func (u *uas) serveTCP() {
	for {
		c, err := u.tcp.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			messages(c, func(text string) {
				if answer := u.answer(text); answer != "" {
					_, _ = io.WriteString(c, answer)
				}
			})
		}()
	}
}

// messages reads a stream to its end and calls each for every message.
func messages(c net.Conn, each func(string)) {
	var buffer []byte
	chunk := make([]byte, 4096)
	for {
		n, err := c.Read(chunk)
		if err != nil {
			return
		}
		buffer = append(buffer, chunk[:n]...)
		for {
			n, err := sip.Length(buffer, 1<<20)
			if err != nil || n == 0 || n > len(buffer) {
				break
			}
			each(string(buffer[:n]))
			buffer = buffer[n:]
		}
	}
}

func (u *uas) answer(text string) string {
	u.got <- text
	u.count.Add(1)
	var m sip.Message
	if _, err := m.Parse([]byte(text)); err != nil || !m.IsRequest() || string(m.Method) == "ACK" {
		return ""
	}
	return respond(text, 200, "")
}

// next returns the next message that the server received.
func (u *uas) next() string {
	u.t.Helper()
	select {
	case text := <-u.got:
		return text
	case <-time.After(10 * time.Second):
		u.t.Fatal("no message reached the instance")
	}
	return ""
}

// A running is a director that runs in the test.
type running struct {
	*Server
	stop   func()
	config Config
}

// direct starts a director for the instances.
func direct(t *testing.T, listeners []string, rules RulesConfig, change func(*Config), instances ...vitrine.Instance) *running {
	t.Helper()
	tb, err := table.New(1, rules.Types, instances)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	c := Config{
		Workers: 2, Keys: 1000, Log: slog.New(slog.DiscardHandler), Now: func() time.Duration { return time.Since(start) },
		Meter: meter.New(1000, table.Transition), Epochs: table.NewEpochs(table.Transition, 0, tb, nil),
	}
	if err := c.Meter.Register(tb); err != nil {
		t.Fatal(err)
	}
	if c.Rules, err = NewRules(rules); err != nil {
		t.Fatal(err)
	}
	for _, text := range listeners {
		c.Listeners = append(c.Listeners, listener(text))
	}
	if change != nil {
		change(&c)
	}
	return run(t, c)
}

func run(t *testing.T, c Config) *running {
	t.Helper()
	s, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	return &running{Server: s, config: c, stop: directortest.Serve(t, s.Run, s.Close)}
}

// until waits until ok holds for the counters of the connections, and returns them.
func (r *running) until(t *testing.T, what string, ok func(StreamCounters) bool) (s StreamCounters) {
	t.Helper()
	hosttest.Until(t, time.Minute, what, func() bool {
		totals, err := r.Counters()
		if err != nil {
			t.Fatal(err)
		}
		s = totals.Streams
		return ok(s)
	})
	return s
}

func oneType(stream bool) RulesConfig {
	return RulesConfig{Types: []string{"all"}, Rules: []Rule{{Type: "all"}}, Options: map[string]TypeOptions{"all": {Stream: stream}}}
}

func instance(u *uas) vitrine.Instance {
	return vitrine.Instance{Name: u.address.String(), Type: "all", Weight: 1, Address: u.address}
}

type phone struct {
	t    *testing.T
	conn net.Conn
	got  chan string
}

func newPhone(t *testing.T, network string, to netip.AddrPort) *phone {
	t.Helper()
	c, err := net.Dial(network, to.String())
	if err != nil {
		t.Fatal(err)
	}
	return phoneOn(t, network, c)
}

func phoneOn(t *testing.T, network string, c net.Conn) *phone {
	p := &phone{t: t, conn: c, got: make(chan string, 10000)}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		defer close(p.got)
		if network == "tcp" {
			messages(c, func(text string) { p.got <- text })
			return
		}
		b := make([]byte, 70000)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			p.got <- string(b[:n])
		}
	}()
	return p
}

func (p *phone) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *phone) next() string {
	p.t.Helper()
	select {
	case text, ok := <-p.got:
		if ok {
			return text
		}
		p.t.Fatal("the phone's connection ended")
	case <-time.After(10 * time.Second):
		p.t.Fatal("no message reached the phone")
	}
	return ""
}

// request returns a request of the phone, with a body of body bytes.
func (p *phone) request(method, callID string, body int) string {
	transport := strings.ToUpper(p.conn.LocalAddr().Network())
	return fmt.Sprintf("%s sip:b@example.com SIP/2.0\r\nVia: SIP/2.0/%s %s;branch=z9hG4bK%s\r\nFrom: <sip:a@x>;tag=1\r\nTo: <sip:b@x>\r\n"+
		"Call-ID: %s\r\nCSeq: 1 %s\r\nContact: <sip:a@%s>\r\nContent-Length: %d\r\n\r\n%s",
		method, transport, p.conn.LocalAddr(), callID, callID, method, p.conn.LocalAddr(), body, strings.Repeat("x", body))
}
