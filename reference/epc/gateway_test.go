package epc_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"testing"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

const accepted = gtpc.RequestAccepted

// TestSession creates, modifies, releases and deletes a session, and sees the
// address again.
func TestSession(t *testing.T) {
	s := newSite(t)
	s.pcrf()
	s.pgw("--pcrf", s.at(31, 3868), "--pool", "10.45.0.0/30") // two addresses
	s.sgw(11)
	m := s.mme(1, 1)
	request := m.request(imsi(0), 0x1001)
	request.Bearers[0].QoS.QCI = 8 // the PCRF's QoS is another one
	answer := m.create(11, request)
	if answer.Result.Cause != accepted || len(answer.Bearers) != 1 {
		t.Fatalf("%+v", answer)
	}
	if a := answer.Address; a.Type != gtpc.PDNv4 || !netip.MustParsePrefix("10.45.0.0/30").Contains(a.V4) {
		t.Errorf("got address %+v", a)
	}
	bearer := answer.Bearers[0]
	if bearer.EBI != 5 || bearer.SGW.Addr() != s.addr(11, 0).Addr() || bearer.S5PGW.Addr() != s.addr(21, 0).Addr() || bearer.ChargingID == 0 || bearer.QoS.QCI != 9 {
		t.Errorf("got bearer %+v", bearer)
	}
	if answer.Sender.Addr() != s.addr(11, 0).Addr() || answer.PGW.Addr() != s.addr(21, 0).Addr() || answer.PGW.TEID == 0 {
		t.Errorf("control plane: got %+v, %+v", answer.Sender, answer.PGW)
	}
	teid := answer.Sender.TEID
	modify := &gtpc.ModifyBearer{Bearers: []gtpc.Bearer{{EBI: 5, ENB: gtpc.Endpoint{TEID: 9, V4: netip.MustParseAddr("192.0.2.1")}}}}
	if a := m.ask(11, teid, modify); a.Result.Cause != accepted || len(a.Bearers) != 1 || a.Bearers[0].SGW != bearer.SGW {
		t.Errorf("modify: got %+v", a)
	}
	modify.Bearers = append(modify.Bearers, gtpc.Bearer{EBI: 6, ENB: modify.Bearers[0].ENB})
	if a := m.ask(11, teid, modify); a.Result.Cause != gtpc.AcceptedPartially || a.Bearers[1].Result.Cause != gtpc.ContextNotFound {
		t.Errorf("modify with an unknown bearer: got %+v", a)
	}
	if a := m.ask(11, teid, &gtpc.ReleaseAccessBearers{}); a.Result.Cause != accepted {
		t.Errorf("release: got %+v", a)
	}
	if a := m.ask(11, teid, &gtpc.DeleteSession{Linked: 5, Flags: gtpc.Operation}); a.Result.Cause != accepted {
		t.Errorf("delete: got %+v", a)
	}
	if a := m.ask(11, teid, &gtpc.DeleteSession{Linked: 5, Flags: gtpc.Operation}); a.Result.Cause != gtpc.ContextNotFound {
		t.Errorf("second delete: got %+v", a)
	}
	s.until("the PCRF knows", func() bool { return s.metric(31, "pcrf_sessions") == 0 })
	if n := s.metric(21, "pgw_sessions") + s.metric(11, "sgw_ues"); n != 0 {
		t.Errorf("%v sessions are left, want 0", n)
	}
	if n := s.metric(11, "sgw_procedures_total", `procedure="create-session"`, `cause="16"`); n != 1 {
		t.Errorf("counted %v sessions, want 1", n)
	}
}

// TestAddressesRunOut checks the cause, and that a deleted session gives its
// address back.
func TestAddressesRunOut(t *testing.T) {
	s := newSite(t)
	s.pgw("--pool", "10.45.0.0/30")
	s.sgw(11)
	m := s.mme(1, 1)
	var first, second gtpc.CreateSessionAnswer
	first = m.create(11, m.request(imsi(0), 1))
	second = m.create(11, m.request(imsi(1), 2))
	if first.Address == second.Address || !second.Address.V4.IsValid() {
		t.Errorf("got addresses %v and %v, want two different ones", first.Address, second.Address)
	}
	if a := m.create(11, m.request(imsi(2), 3)); a.Result.Cause != gtpc.AddressesOccupied {
		t.Errorf("third session: got %+v", a)
	}
	if a := m.ask(11, first.Sender.TEID, &gtpc.DeleteSession{Linked: 5, Flags: gtpc.Operation}); a.Result.Cause != accepted {
		t.Fatalf("%+v", a)
	}
	if a := m.create(11, m.request(imsi(2), 3)); a.Result.Cause != accepted || a.Address != first.Address {
		t.Errorf("after an address was released: got %+v", a)
	}
	if n := s.metric(21, "pgw_procedures_total", `cause="84"`); n != 1 {
		t.Errorf("counted %v refusals, want 1", n)
	}
}

// TestAttachReplacesASession checks that a UE that attaches again has one session
// and one address.
func TestAttachReplacesASession(t *testing.T) {
	s := newSite(t)
	s.pcrf()
	s.pgw("--pcrf", s.at(31, 3868), "--pool", "10.45.0.0/30")
	s.sgw(11)
	m := s.mme(1, 1)
	for range 5 {
		if a := m.create(11, m.request(imsi(0), 1)); a.Result.Cause != accepted {
			t.Fatalf("%+v", a)
		}
	}
	if n := s.metric(21, "pgw_sessions"); n != 1 {
		t.Errorf("the P-GW has %v sessions, want 1", n)
	}
	s.until("the PCRF has one session", func() bool { return s.metric(31, "pcrf_sessions") == 1 })
}

// TestTwoConnections checks a second connection of a UE: it shares the TEIDs on S11.
func TestTwoConnections(t *testing.T) {
	s := newSite(t)
	s.pgw("--apn", "Internet,ims") // names have no case (TS 23.003 clause 9.1)
	s.sgw(11)
	m := s.mme(1, 1)
	first := m.create(11, m.request(imsi(0), 1))
	request := m.request(imsi(0), 1)
	request.APN, request.Bearers[0].EBI, request.IMSI = []byte("\x03IMS"), 6, gtpc.CreateSession{}.IMSI
	var second gtpc.CreateSessionAnswer
	if err := m.Do(t.Context(), s.addr(11, gtp.Port), first.Sender.TEID, request, &second); err != nil {
		t.Fatal(err)
	}
	if second.Result.Cause != accepted || second.Sender != first.Sender || second.Address == first.Address {
		t.Errorf("got %+v after %+v", second, first)
	}
	if a := m.ask(11, first.Sender.TEID, &gtpc.DeleteSession{Linked: 5, Flags: gtpc.Operation}); a.Result.Cause != accepted {
		t.Errorf("%+v", a)
	}
	if ues, sessions := s.metric(11, "sgw_ues"), s.metric(21, "pgw_sessions"); ues != 1 || sessions != 1 {
		t.Errorf("got %v UEs, %v sessions, want 1 each", ues, sessions)
	}
	if a := m.ask(11, first.Sender.TEID, &gtpc.DeleteSession{Flags: gtpc.Operation}); a.Result.Cause != accepted {
		t.Errorf("%+v", a)
	}
	if ues, sessions := s.metric(11, "sgw_ues"), s.metric(21, "pgw_sessions"); ues != 0 || sessions != 0 {
		t.Errorf("got %v UEs, %v sessions, want 0", ues, sessions)
	}
}

// TestAttachEndsTheOtherConnections checks that a UE with two connections that
// attaches again has one, also at the P-GW.
func TestAttachEndsTheOtherConnections(t *testing.T) {
	s := newSite(t)
	s.pgw()
	s.sgw(11)
	m := s.mme(1, 1)
	first := m.create(11, m.request(imsi(0), 1))
	further := m.request(imsi(0), 1)
	further.APN, further.Bearers[0].EBI = []byte("\x03IMS"), 6
	var second gtpc.CreateSessionAnswer
	if err := m.Do(t.Context(), s.addr(11, gtp.Port), first.Sender.TEID, further, &second); err != nil {
		t.Fatal(err)
	}
	if n := s.metric(21, "pgw_sessions"); second.Result.Cause != accepted || n != 2 {
		t.Fatalf("the P-GW has %v sessions, want 2; %+v", n, second)
	}
	if a := m.create(11, m.request(imsi(0), 2)); a.Result.Cause != accepted {
		t.Errorf("%+v", a)
	}
	s.until("the P-GW has one session", func() bool { return s.metric(21, "pgw_sessions") == 1 })
	if ues := s.metric(11, "sgw_ues"); ues != 1 {
		t.Errorf("the S-GW has %v UEs, want 1", ues)
	}
}

// TestMalformedSessionsAreRefused checks the causes of S-GW and P-GW.
func TestMalformedSessionsAreRefused(t *testing.T) {
	s := newSite(t)
	s.pgw()
	s.sgw(11)
	m := s.mme(1, 1)
	for _, c := range []struct {
		name   string
		change func(*gtpc.CreateSession)
		want   gtpc.Result
	}{
		{"no subscriber", func(r *gtpc.CreateSession) { r.IMSI = gtpc.CreateSession{}.IMSI }, gtpc.Result{Cause: gtpc.ConditionalMissing, Offending: gtpc.IMSI}},
		{"no P-GW", func(r *gtpc.CreateSession) { r.PGW = gtpc.Endpoint{} }, gtpc.Result{Cause: gtpc.ConditionalMissing, Offending: gtpc.FTEID, Instance: 1}},
		{"another sender", func(r *gtpc.CreateSession) { r.Sender.Interface = gtpc.S4SGSN }, gtpc.Result{Cause: gtpc.MandatoryIncorrect, Offending: gtpc.FTEID}},
		{"no bearer", func(r *gtpc.CreateSession) { r.Bearers = nil }, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.BearerContext}},
		{"no QoS", func(r *gtpc.CreateSession) { r.Bearers[0].QoS = gtpc.QoS{} }, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.BearerQoS}},
		{"another APN", func(r *gtpc.CreateSession) { r.APN = []byte("\x05other") }, gtpc.Result{Cause: gtpc.UnknownAPN, Offending: gtpc.APN}},
		{"IPv6", func(r *gtpc.CreateSession) { r.PDN = gtpc.PDNv6 }, gtpc.Result{Cause: gtpc.PDNTypeNotSupported, Offending: gtpc.PDNType}},
	} {
		request := m.request(imsi(0), 7)
		c.change(request)
		if a := m.create(11, request); a.Result != c.want {
			t.Errorf("%s: got %v, want %v", c.name, a.Result, c.want)
		}
	}
	request := m.request(imsi(0), 7)
	request.PDN = gtpc.PDNv4v6
	if a := m.create(11, request); a.Result.Cause != gtpc.NewPDNTypePreferred || a.Address.Type != gtpc.PDNv4 {
		t.Errorf("request for IPv4 and IPv6: got %+v", a)
	}
	if ues, sessions := s.metric(11, "sgw_ues"), s.metric(21, "pgw_sessions"); ues != 1 || sessions != 1 {
		t.Errorf("got %v UEs, %v sessions, want 1 each", ues, sessions)
	}
}

// TestPGWDoesNotAnswer checks the cause, and that no session is left.
func TestPGWDoesNotAnswer(t *testing.T) {
	s := newSite(t)
	s.sgw(11, "--t3", "100ms") // three attempts end before the MME's first one
	m := s.mme(1, 1)
	if a := m.create(11, m.request(imsi(0), 7)); a.Result != (gtpc.Result{Cause: gtpc.PeerNotResponding}) {
		t.Errorf("%v", a.Result)
	}
	if ues := s.metric(11, "sgw_ues"); ues != 0 {
		t.Errorf("the S-GW has %v UEs, want 0", ues)
	}
}

// TestRelocation moves a session to another S-GW.
func TestRelocation(t *testing.T) {
	s := newSite(t)
	s.pgw("--pool", "10.45.0.0/30")
	s.sgw(11)
	s.sgw(12)
	m := s.mme(1, 1)
	before := m.create(11, m.request(imsi(0), 1))
	request := m.request(imsi(0), 1)
	request.PGW = before.PGW
	after := m.create(12, request)
	if after.Result.Cause != accepted || after.Sender.Addr() != s.addr(12, 0).Addr() || after.PGW != before.PGW {
		t.Fatalf("%+v", after)
	}
	// The old S-GW forgets the session without asking the P-GW.
	if a := m.ask(11, before.Sender.TEID, &gtpc.DeleteSession{Linked: 5}); a.Result.Cause != accepted {
		t.Errorf("%+v", a)
	}
	if n := s.metric(21, "pgw_sessions"); n != 1 {
		t.Errorf("the P-GW has %v sessions, want 1", n)
	}
	if a := m.ask(12, after.Sender.TEID, &gtpc.DeleteSession{Linked: 5, Flags: gtpc.Operation}); a.Result.Cause != accepted {
		t.Errorf("%+v", a)
	}
	if n := s.metric(21, "pgw_sessions"); n != 0 {
		t.Errorf("%v sessions are left, want 0", n)
	}
}

// TestPeersRestart checks that an MME's new restart counter removes its sessions
// at both gateways.
func TestPeersRestart(t *testing.T) {
	s := newSite(t)
	s.pgw()
	s.sgw(11, "--restart-counter", "77")
	m := s.mme(1, 1)
	for n := range 3 {
		m.create(11, m.request(imsi(n), uint32(n+1)))
	}
	request := m.request(imsi(3), 9)
	request.Recovery.Counter = 2
	if a := m.create(11, request); a.Result.Cause != accepted || a.Recovery != (gtpc.Restart{Given: true, Counter: 77}) {
		t.Fatalf("%+v", a)
	}
	if n := s.metric(11, "sgw_ues"); n != 1 {
		t.Errorf("the S-GW has %v UEs, want 1", n)
	}
	if n := s.metric(11, "sgw_sessions_lost_total"); n != 3 {
		t.Errorf("counted %v lost sessions, want 3", n)
	}
	s.until("the P-GW has one session", func() bool { return s.metric(21, "pgw_sessions") == 1 })
}

// TestPGWRestarts checks that a P-GW's new restart counter removes the P-GW's connections, but
// not the one whose answer has the counter.
func TestPGWRestarts(t *testing.T) {
	s := newSite(t)
	stop := s.pgw("--restart-counter", "1")
	s.sgw(11)
	m := s.mme(1, 1)
	m.create(11, m.request(imsi(0), 1))
	stop()
	s.pgw("--restart-counter", "2")
	if a := m.create(11, m.request(imsi(1), 2)); a.Result.Cause != accepted {
		t.Errorf("%+v", a)
	}
	if ues, sessions, lost := s.metric(11, "sgw_ues"), s.metric(21, "pgw_sessions"), s.metric(11, "sgw_sessions_lost_total"); ues != 1 || sessions != 1 || lost != 1 {
		t.Errorf("got %v UEs, %v sessions, %v lost, want 1 each", ues, sessions, lost)
	}
}

// TestInstancesNumberTheirTEIDs checks that the number of an instance is in all its
// TEIDs.
func TestInstancesNumberTheirTEIDs(t *testing.T) {
	s := newSite(t)
	s.pgw("--type", "2", "--instance", "5")
	s.sgw(11, "--type", "1", "--instance", "127")
	m := s.mme(1, 1)
	a := m.create(11, m.request(imsi(0), 1))
	if a.Sender.TEID>>22 != 1<<7|127 || a.PGW.TEID>>22 != 2<<7|5 {
		t.Errorf("got TEIDs %#x and %#x", a.Sender.TEID, a.PGW.TEID)
	}
}

// TestPaging checks that a downlink packet for an idle UE notifies the MME.
func TestPaging(t *testing.T) {
	s := newSite(t)
	s.pgw()
	s.sgw(11, "--downlink", s.at(11, 8080))
	m := s.mme(1, 1)
	handle := func(r *gtp.Request) {
		var d gtpc.DownlinkDataNotification
		if err := d.Parse(&r.Message); err != nil || r.Type != gtpc.DownlinkData || d.EBI != 5 || r.TEID != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		r.Answer(0, &gtpc.Answer{Type: gtpc.DownlinkDataAcknowledge, Result: gtpc.Result{Cause: accepted}})
	}
	m.handle.Store(&handle)
	packet := func() (paged bool, status int) {
		res, err := http.Post("http://"+s.at(11, 8080)+"/downlink/"+imsi(0), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var answer struct{ Paged bool }
		if res.StatusCode == http.StatusOK {
			if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
				t.Error(err)
			}
		}
		return answer.Paged, res.StatusCode
	}
	if _, status := packet(); status != http.StatusNotFound {
		t.Errorf("unknown UE: got status %d, want 404", status)
	}
	a := m.create(11, m.request(imsi(0), 1))
	if paged, status := packet(); !paged || status != http.StatusOK {
		t.Errorf("idle UE: got paged %v, status %d", paged, status)
	}
	m.ask(11, a.Sender.TEID, &gtpc.ModifyBearer{Bearers: []gtpc.Bearer{{EBI: 5, ENB: gtpc.Endpoint{TEID: 9, V4: netip.MustParseAddr("192.0.2.1")}}}})
	if paged, status := packet(); paged || status != http.StatusOK {
		t.Errorf("connected UE: got paged %v, status %d", paged, status)
	}
}

// TestBearersOfThePGW checks that requests of a P-GW reach the MME, and its answers
// the P-GW.
func TestBearersOfThePGW(t *testing.T) {
	s := newSite(t)
	s.sgw(11)
	m := s.mme(1, 1)
	p := s.bareGateway()
	a := m.create(11, m.request(imsi(0), 1))
	if a.Result.Cause != accepted {
		t.Fatalf("%+v", a)
	}
	handle := func(r *gtp.Request) {
		answer := &gtpc.Answer{Type: r.Type + 1, Result: gtpc.Result{Cause: accepted}}
		if r.Type == gtpc.CreateBearerRequest {
			var c gtpc.CreateBearer
			if err := c.Parse(&r.Message); err != nil || c.Bearers[0].SGW.Addr() != s.addr(11, 0).Addr() {
				t.Errorf("%+v, %v", c, err)
			}
			answer.Bearers = []gtpc.Bearer{{EBI: 6, Result: answer.Result, ENB: m.Own(gtpc.S1UeNodeB, 3), SGW: c.Bearers[0].SGW}}
		}
		r.Answer(0, answer)
	}
	m.handle.Store(&handle)
	sgw := <-p.sgw
	create := &gtpc.CreateBearer{Linked: 5, Bearers: []gtpc.Bearer{{TFT: []byte{0x20}, QoS: gtpc.QoS{QCI: 1, Priority: 2}, S5PGW: p.Own(gtpc.S5UPGW, 8)}}}
	var created gtpc.Answer
	if err := p.Do(t.Context(), s.addr(11, gtp.Port), sgw.TEID, create, &created); err != nil || created.Result.Cause != accepted || len(created.Bearers) != 1 {
		t.Fatalf("%+v, %v", created, err)
	}
	if b := created.Bearers[0]; b.EBI != 6 || b.S5SGW.Addr() != s.addr(11, 0).Addr() || b.S5PGW != create.Bearers[0].S5PGW || b.ENB.Addr().IsValid() {
		t.Errorf("%+v", b)
	}
	var deleted gtpc.Answer
	if err := p.Do(t.Context(), s.addr(11, gtp.Port), sgw.TEID, &gtpc.DeleteBearer{Bearers: []uint8{6}}, &deleted); err != nil || deleted.Result.Cause != accepted {
		t.Errorf("%+v, %v", deleted, err)
	}
	if err := p.Do(t.Context(), s.addr(11, gtp.Port), sgw.TEID, &gtpc.DeleteBearer{Linked: 5}, &deleted); err != nil || deleted.Result.Cause != accepted {
		t.Errorf("%+v, %v", deleted, err)
	}
	if n := s.metric(11, "sgw_ues"); n != 0 {
		t.Errorf("%v UEs are left, want 0", n)
	}
}

// TestPCRFIsAway checks that the P-GW creates no session that the PCRF has not
// allowed.
func TestPCRFIsAway(t *testing.T) {
	s := newSite(t)
	stop := s.pcrf()
	s.pgw("--pcrf", s.at(31, 3868))
	s.sgw(11)
	m := s.mme(1, 1)
	s.until("a session is created", func() bool { return m.create(11, m.request(imsi(0), 1)).Result.Cause == accepted })
	stop()
	s.until("the P-GW has no PCRF", func() bool {
		return m.create(11, m.request(imsi(1), 2)).Result.Cause == gtpc.PeerNotResponding
	})
	if n := s.metric(21, "pgw_sessions"); n != 1 {
		t.Errorf("the P-GW has %v sessions, want 1", n)
	}
}
