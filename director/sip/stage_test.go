package sip

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// A stage is a proxy with a table and no sockets.
type stage struct {
	t      testing.TB
	epochs *table.Epochs
	meter  *meter.Meter
	proxy  *Proxy
	now    time.Duration
}

const (
	udp4 = iota // indexes of a stage's listeners
	udp6
	tcp4
)

var (
	client = netip.MustParseAddrPort("192.0.2.7:5060")
)

func instances() []vitrine.Instance {
	var all []vitrine.Instance
	for i := range 4 {
		all = append(all,
			vitrine.Instance{Name: fmt.Sprintf("reg-%d", i+1), Type: "registration", Weight: 1, ID: uint16(i + 1), Address: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:5060", i+1))},
			vitrine.Instance{Name: fmt.Sprintf("ses-%d", i+1), Type: "session", Weight: 1, ID: uint16(0x11 + i), Address: netip.MustParseAddrPort(fmt.Sprintf("10.0.1.%d:5060", i+1))})
	}
	return append(all, vitrine.Instance{Name: "six", Type: "six", Weight: 1, Address: netip.MustParseAddrPort("[2001:db8::5]:5060")})
}

var typeNames = []string{"registration", "session", "six", "empty"}

func rulesConfig() RulesConfig {
	return RulesConfig{
		Types: typeNames,
		Rules: []Rule{
			{Method: "REGISTER", Type: "registration"},
			{Method: "INVITE", Type: "session"},
			{Method: "SUBSCRIBE", Event: "reg", Type: "registration"},
			{Method: "SUBSCRIBE", Event: "presence", Type: "session", Key: ByTo},
			{Method: "MESSAGE", Type: "six"},
			{Method: "PUBLISH", Type: "empty"},
		},
		Names: []string{"director.test"},
	}
}

// firstTable is built once, because building a table is slow.
var firstTable = sync.OnceValues(func() (*table.Table, error) { return table.New(1, typeNames, instances()) })

func newStage(t testing.TB, c RulesConfig) *stage {
	t.Helper()
	tb, err := firstTable()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, meter: meter.New(1000, table.Transition), now: time.Second}
	if err := s.meter.Register(tb); err != nil {
		t.Fatal(err)
	}
	s.epochs = table.NewEpochs(table.Transition, 0, tb, nil)
	rules, err := NewRules(c)
	if err != nil {
		t.Fatal(err)
	}
	server := &core{epochs: s.epochs}
	server.rules.Store(rules)
	server.keys.Store(keyring(t, 1))
	for _, text := range []string{"udp://198.51.100.1:5060", "udp://[2001:db8::1]:5060", "tcp://198.51.100.1:5060"} {
		l := listener(text)
		p, err := newPlace(l, l.Address)
		if err != nil {
			t.Fatal(err)
		}
		server.places = append(server.places, p)
	}
	s.proxy = s.another(server)
	return s
}

// keyring returns a Keyring with keys of these IDs; the first key signs.
func keyring(t testing.TB, ids ...uint8) *Keyring {
	t.Helper()
	var keys []SigningKey
	for _, id := range ids {
		keys = append(keys, SigningKey{ID: id, Secret: [16]byte{id, 0x5e}, Via: true, Route: true})
	}
	r, err := NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listener parses a listener such as udp://127.0.0.1:5060 or tcp://[::1]:5060.
func listener(text string) Listener {
	network, address, _ := strings.Cut(text, "://")
	return Listener{Stream: network == "tcp", Address: netip.MustParseAddrPort(address)}
}

// another returns a second proxy of the same director.
func (s *stage) another(server *core) *Proxy {
	return &Proxy{server: server, steering: table.NewSteering(s.epochs, 1000), meter: s.meter.Worker()}
}

// A result is a message that the proxy sends.
type result struct {
	text     string
	to       string
	listener int
	flow     netip.AddrPort
}

// pass handles a message. ok is false if the proxy sends nothing.
func (s *stage) pass(text string, from netip.AddrPort, listener int) (r result, ok bool) {
	s.t.Helper()
	return s.passTo(s.proxy, text, from, listener)
}

func (s *stage) passTo(p *Proxy, text string, from netip.AddrPort, listener int) (r result, ok bool) {
	data := []byte(text)
	var out Outgoing
	if !p.Handle(&datagram.Datagram{Data: data[:len(data):len(data)], From: from, Listener: listener, At: s.now}, make([]byte, 0, 1024), &out) {
		return r, false
	}
	return result{string(bytes.Join(out.Parts, nil)), out.To.String(), out.Listener, out.Flow}, true
}

// must is like pass but fails the test if the proxy sends nothing.
func (s *stage) must(text string, from netip.AddrPort, listener int) (result, *sip.Message) {
	s.t.Helper()
	r, ok := s.pass(text, from, listener)
	if !ok {
		s.t.Fatalf("no message was sent for\n%s", text)
	}
	var m sip.Message
	if n, err := m.Parse([]byte(r.text)); err != nil || n != len(r.text) {
		s.t.Fatalf("parsed %d of %d bytes, %v:\n%s", n, len(r.text), err, r.text)
	}
	return r, &m
}

// status is like must. It also checks the status of the director's own answer.
func (s *stage) status(want int, text string, from netip.AddrPort, listener int) (result, *sip.Message) {
	s.t.Helper()
	r, m := s.must(text, from, listener)
	if m.Status != want {
		s.t.Fatalf("got status %d, want %d:\n%s", m.Status, want, r.text)
	}
	return r, m
}

func (s *stage) same(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

// lines returns a message with the given header lines, and with the usual headers that are missing.
func lines(start string, given ...string) string {
	text := start + "\r\n"
	for _, line := range given {
		text += line + "\r\n"
	}
	method, _, _ := strings.Cut(start, " ")
	for _, line := range []string{
		"Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bKclient", "From: <sip:a@example.com>;tag=1", "To: <sip:b@example.com>",
		"Call-ID: c1", "CSeq: 7 " + method, "Max-Forwards: 70",
	} {
		if name, _, _ := strings.Cut(line, ":"); !strings.Contains(text, "\r\n"+name+": ") {
			text += line + "\r\n"
		}
	}
	return text + "\r\n"
}

// branch returns the branch of a message's top Via.
func branch(m *sip.Message) string {
	b, _ := sip.Param(m.Via, "branch")
	return string(b)
}

func (s *stage) targetOf(address string) *table.Target {
	s.t.Helper()
	tb := s.epochs.View().Table
	for i := range int32(tb.Len()) {
		if tb.Target(i).Address.String() == address {
			return tb.Target(i)
		}
	}
	s.t.Fatalf("no instance has the address %s", address)
	return nil
}

func (s *stage) counted(name string) meter.Instance {
	s.t.Helper()
	for _, in := range s.meter.Instances() {
		if in.Name == name {
			return in
		}
	}
	s.t.Fatalf("the meter has no counts for %s", name)
	return meter.Instance{}
}

func (s *stage) failures(ty table.Type, cause meter.Cause) uint64 {
	types := s.meter.Types()
	if ty == meter.NoType {
		return types[len(types)-1].Failures[cause.String()]
	}
	return types[ty].Failures[cause.String()]
}

// route returns the director's own Route entry for an instance.
func (s *stage) route(direction byte, target *table.Target, callID string) string {
	s.proxy.keys = s.proxy.server.keys.Load()
	s.proxy.message.CallID = []byte(callID)
	return string(s.proxy.appendURI(nil, &s.proxy.server.places[udp4], direction, target.ID, netip.AddrPort{}, []byte(target.TypeName())))
}

// mac returns the MAC in a message's top Via.
func mac(m *sip.Message) string {
	b, _ := sip.Param(m.Via, macName)
	return string(b)
}

// respond returns a user agent's response to a request.
func respond(request string, status int, more string) string {
	var m sip.Message
	if _, err := m.Parse([]byte(request)); err != nil {
		panic(err)
	}
	b := sip.AppendResponse(nil, &m, status, "Some Reason", []byte("uas"), netip.AddrPort{})
	return string(sip.AppendEnd(append(b, more...), nil))
}

// elements returns the elements of all lines of a header.
func elements(m *sip.Message, kind sip.Kind) (all []string) {
	for f := m.Fields(); f.Next(); {
		for rest := f.Value; f.Kind == kind && len(rest) > 0; {
			var e []byte
			e, rest = sip.CutElement(rest)
			all = append(all, string(e))
		}
	}
	return all
}
