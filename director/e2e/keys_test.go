package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/directortest"
	"vitrine/wire/sip"
)

// An endpoint is a UDP socket on which a test sends and receives SIP messages itself. It
// answers OPTIONS automatically, because directors use OPTIONS as health checks.
type endpoint struct {
	t    testing.TB
	at   string
	conn net.PacketConn
	got  chan arrival
}

// An arrival is a message that an endpoint received.
type arrival struct {
	at   *endpoint
	text string
}

// endpoint opens the socket of a host. Endpoints may share the channel of arrivals.
func (s site) endpoint(host int, got chan arrival) *endpoint {
	s.t.Helper()
	e := &endpoint{t: s.t, at: s.at(host, sipPort), got: got}
	var err error
	if e.conn, err = new(net.ListenConfig).ListenPacket(s.t.Context(), "udp", e.at); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = e.conn.Close() })
	go func() {
		in := make([]byte, 65536)
		for {
			n, from, err := e.conn.ReadFrom(in)
			if err != nil {
				return
			}
			if strings.HasPrefix(string(in[:n]), "OPTIONS ") {
				_, _ = e.conn.WriteTo(directortest.Response(in[:n], 200), from)
				continue
			}
			e.got <- arrival{e, string(in[:n])}
		}
	}()
	return e
}

func (e *endpoint) send(d *steward, text string) {
	e.t.Helper()
	if _, err := e.conn.WriteTo([]byte(text), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(d.address))); err != nil {
		e.t.Fatal(err)
	}
}

// reply sends a response to a request through a director.
func (a arrival) reply(d *steward, status int64) {
	a.at.t.Helper()
	a.at.send(d, string(directortest.Response([]byte(a.text), status)))
}

// message parses an arrival.
func (a arrival) message() (m sip.Message) {
	a.at.t.Helper()
	if _, err := m.Parse([]byte(a.text)); err != nil {
		a.at.t.Fatalf("%v: %s", err, a.text)
	}
	return m
}

// branch returns the branch of the top Via, which is the director's.
func (a arrival) branch() string {
	m := a.message()
	b, _ := sip.Param(m.Via, "branch")
	return string(b)
}

// next waits for a message of a call that begins with start.
func next(t *testing.T, got chan arrival, start, callID string) arrival {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case a := <-got:
			if strings.HasPrefix(a.text, start) && strings.Contains(a.text, "\r\nCall-ID: "+callID+"\r\n") {
				return a
			}
		case <-limit:
			t.Fatalf("no %s of %s arrived", start, callID)
		}
	}
}

// A signed is two instances of one type, their two directors, and a phone.
type signed struct {
	site
	fleet     fleet
	instances [2]*endpoint
	in, out   chan arrival // at the instances, at the phone
	phone     *endpoint
}

func newSigned(t *testing.T) *signed {
	t.Helper()
	s := &signed{site: newSite(t), in: make(chan arrival, 256), out: make(chan arrival, 256)}
	// The directors advertise the same name, so that each may get answers to the other's requests.
	o := options{Transition: "4s", Session: ", drain: dialog", Advertise: s.host(firstPhone - 1)}
	for i := range s.instances {
		s.instances[i] = s.endpoint(firstInstance+i, s.in)
		o.Instances = append(o.Instances, entry(&instance{name: s.name(s.instances[i]), ty: session, address: s.instances[i].at}, uint16(i+1)))
	}
	for i := range 2 {
		s.fleet = append(s.fleet, s.director(firstDirector+i, o))
	}
	s.phone = s.endpoint(firstPhone, s.out)
	return s
}

func (s *signed) name(e *endpoint) string {
	return fmt.Sprintf("session-%d", slices.Index(s.instances[:], e))
}

// ring begins a call through a director. It returns the INVITE at its instance, once the
// phone has the 180.
func (s *signed) ring(t *testing.T, d *steward, callID string) arrival {
	t.Helper()
	s.phone.send(d, string(request("INVITE", callID, "")))
	invite := next(t, s.in, "INVITE ", callID)
	invite.reply(d, 180)
	next(t, s.out, "SIP/2.0 180 ", callID)
	return invite
}

// ringAt begins calls until a call arrives at the given instance.
func (s *signed) ringAt(t *testing.T, d *steward, at *endpoint, callID string) (invite arrival, id string) {
	t.Helper()
	for n := 0; invite.at != at; n++ {
		id = fmt.Sprintf("%s-%d", callID, n)
		invite = s.ring(t, d, id)
	}
	return invite, id
}

// accept answers a call with 200 and returns the phone's route set.
func (s *signed) accept(t *testing.T, d *steward, invite arrival, callID string) string {
	t.Helper()
	invite.reply(d, 200)
	ok := next(t, s.out, "SIP/2.0 200 ", callID).message()
	var routes []string
	for f := ok.Fields(); f.Next(); {
		for rest := f.Value; f.Kind == sip.RecordRoute && len(rest) > 0; {
			var element []byte
			element, rest = sip.CutElement(rest)
			routes = append(routes, string(element))
		}
	}
	if len(routes) != 2 {
		t.Fatalf("got Record-Route %q, want 2 elements", routes)
	}
	slices.Reverse(routes) // RFC 3261 section 12.1.2
	return strings.Join(routes, ", ")
}

// within returns a request of an established dialog.
func within(method, callID, routes string, sequence int) string {
	return strings.NewReplacer("To: <sip:user@proof.test>", "To: <sip:user@proof.test>;tag=2", "CSeq: 1 ", fmt.Sprintf("CSeq: %d ", sequence),
		";branch=z9hG4bK", ";branch=z9hG4bK"+method).Replace(string(request(method, callID, "Route: "+routes+"\r\n")))
}

// drain drains the instance at all directors, and returns when they have applied it.
func (s *signed) drain(at *endpoint) {
	s.t.Helper()
	state := vitrine.Draining
	s.fleet.alter(s.name(at), client.Change{State: &state})
	s.fleet.agree()
}

const firstKey = "1 000102030405060708090a0b0c0d0e0f 2026-01-01T00:00:00Z\n"

// setKeys replaces the shared key file, and makes all directors reload it.
func (s *signed) setKeys(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "shared.keys"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range s.fleet {
		if err := d.client.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeysRotateAmidCalls rotates the key of two directors between INVITE and CANCEL, ACK, a
// late 200, and BYE. Messages after the rotation take either director. After the removal of the
// old key, the directors no longer accept its signatures.
func TestKeysRotateAmidCalls(t *testing.T) {
	t.Parallel()
	s := newSigned(t)
	type call struct {
		id            string
		before, after *steward // the directors that its messages take before and after the rotation
		invite        arrival
		routes        string
	}
	begin := func(kind string) (all []*call) {
		for _, before := range s.fleet {
			for _, after := range s.fleet {
				c := &call{id: fmt.Sprintf("%s-%s-%s", kind, before.name, after.name), before: before, after: after}
				c.invite = s.ring(t, before, c.id)
				all = append(all, c)
			}
		}
		return all
	}
	cancelled, busy, late, answered := begin("cancelled"), begin("busy"), begin("late"), begin("answered")
	for _, c := range answered {
		c.routes = s.accept(t, c.before, c.invite, c.id)
	}
	first, second := s.fleet[0], s.fleet[1]
	kept := answered[1] // through the first director, then the second
	gone, goneID := s.ringAt(t, first, kept.invite.at, "gone")
	goneRoutes := s.accept(t, first, gone, goneID)

	newKey := "2 9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6 " + time.Now().Add(2*time.Second).UTC().Format(time.RFC3339) + "\n"
	s.setKeys(t, firstKey+newKey)
	for i, d := range s.fleet {
		n := 0
		eventually(t, d.name+" signs with the new key", func() bool {
			n++
			return strings.Contains(s.ring(t, d, fmt.Sprintf("probe-%d-%d", i, n)).text, ";vm=0002")
		})
	}
	same := func(what string, c *call, a arrival, branch bool) {
		t.Helper()
		if a.at != c.invite.at || branch && a.branch() != c.invite.branch() {
			t.Errorf("%s of %s arrived at %s with branch %s, but its INVITE at %s with branch %s", what, c.id, a.at.at, a.branch(), c.invite.at.at, c.invite.branch())
		}
		if !strings.Contains(a.text, ";vm=0002") {
			t.Errorf("%s of %s is not signed with the new key: %s", what, c.id, a.text)
		}
	}
	for _, c := range cancelled {
		s.phone.send(c.after, string(request("CANCEL", c.id, "")))
		cancel := next(t, s.in, "CANCEL ", c.id)
		same("CANCEL", c, cancel, true)
		cancel.reply(c.after, 200)
		next(t, s.out, "SIP/2.0 200 ", c.id)
		c.invite.reply(c.after, 487)
		next(t, s.out, "SIP/2.0 487 ", c.id)
	}
	for _, c := range busy {
		c.invite.reply(c.after, 486)
		next(t, s.out, "SIP/2.0 486 ", c.id)
		s.phone.send(c.after, string(request("ACK", c.id, "")))
		same("ACK", c, next(t, s.in, "ACK ", c.id), true)
	}
	for _, c := range late {
		c.routes = s.accept(t, c.after, c.invite, c.id)
		s.phone.send(c.after, within("ACK", c.id, c.routes, 1))
		same("ACK", c, next(t, s.in, "ACK ", c.id), false)
	}
	s.drain(kept.invite.at) // from now on only a valid Route leads to this instance
	for _, c := range append(late, answered...) {
		if c.invite.at != kept.invite.at {
			continue
		}
		s.phone.send(c.after, within("BYE", c.id, c.routes, 2))
		bye := next(t, s.in, "BYE ", c.id)
		same("BYE", c, bye, false)
		bye.reply(c.before, 200)
		next(t, s.out, "SIP/2.0 200 ", c.id)
	}

	s.setKeys(t, newKey)
	unverified := func() float64 { return second.metric("vitrine_director_failures_total", `cause="unverified"`) }
	was := unverified()
	gone.reply(second, 200)
	eventually(t, "the response with the removed key is dropped", func() bool { return unverified() > was })
	s.phone.send(second, within("BYE", goneID, goneRoutes, 2))
	if bye := next(t, s.in, "BYE ", goneID); bye.at == gone.at {
		t.Error("a Route signed with the removed key leads to a draining instance")
	}
}
