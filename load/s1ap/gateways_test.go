package s1ap

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"

	"vitrine"
	"vitrine/director/client"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/pgw"
	"vitrine/reference/epc/sgw"
	"vitrine/reference/epc/ue"
	wire "vitrine/wire/s1ap"
)

// gatewayHost plus n is the host of S-GW n, from 1.
const gatewayHost = 10

// gateway starts S-GW n. The MMEs do not know its address.
func (e *epc) gateway(n int) vitrine.Instance {
	e.t.Helper()
	host := gatewayHost + n
	e.start("sgw", sgw.Run, "--listen", e.at(host, 2123), "--metrics", e.at(host, 9090), "--downlink", e.at(host, 8080),
		"--type", "3", "--instance", strconv.Itoa(n), "--advertise", e.prefix+strconv.Itoa(directorHost), "--restart-counter", "9")
	return vitrine.Instance{Name: fmt.Sprint("sgw-", n), ID: uint16(n), Type: "sgw", Weight: 1, Address: netip.MustParseAddrPort(e.at(host, 2123))}
}

// startGateways starts an EPC with two S-GWs behind a director, and two MMEs that share a
// store.
func startGateways(t *testing.T, number int) (*epc, *client.Client) {
	t.Helper()
	e := newEPC(t, number)
	e.start("hss", hss.Run, "--listen", e.at(41, 3868))
	e.start("pgw", pgw.Run, "--listen", e.at(21, 2123), "--metrics", e.at(21, 9090))
	c := e.direct(fmt.Sprintf("gtpc: [\"udp://%s\"]", e.at(directorHost, 2123)),
		"gtpc: {restart_counter: 9}\ntypes: [{name: sgw, protocol: gtpc, number: 3, drain: dialog}]\nrules: [{type: sgw}]",
		e.gateway(1), e.gateway(2))
	v := startStore(t, engines()["embedded"])
	for n := 1; n <= 2; n++ {
		e.mme(e.member(n, "--sgw", e.at(directorHost, 2123), "--store", v.URL, "--store-timeout", "20s", "--nas-timer", patience.String())...)
		e.connected(n)
	}
	return e, c
}

// downlink simulates a downlink packet that reaches an S-GW. The status is http.StatusNotFound if
// the UE has no session there.
func (e *epc) downlink(host int, of *phone) (status int, paged bool) {
	res, err := http.Post("http://"+e.at(host, 8080)+"/downlink/"+of.IMSI.String(), "", nil)
	if err != nil {
		e.t.Error(err)
		return 0, false
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		var answer struct{ Paged bool }
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			e.t.Error(err)
		}
		paged = answer.Paged
	}
	return res.StatusCode, paged
}

// holder returns the number of the S-GW that has the session of a connected UE.
func (e *epc) holder(of *phone, gateways int) (holder int) {
	e.t.Helper()
	for n := 1; n <= gateways; n++ {
		switch status, _ := e.downlink(gatewayHost+n, of); {
		case status == http.StatusNotFound:
		case status != http.StatusOK || holder != 0:
			e.t.Errorf("%s: got status %d at S-GW %d, S-GW %d already has the session", of.IMSI, status, n, holder)
		default:
			holder = n
		}
	}
	return holder
}

// release makes the UE idle.
func (p *phone) release() {
	p.t.Helper()
	p.at.send(p.at.AppendReleaseRequest(nil, p.ids, wire.CauseUserInactivity))
	p.at.receive(&p.in, wire.Initiating, wire.UEContextRelease)
	p.at.send(p.at.AppendReleased(nil, p.ids))
}

// initial sends the first message of a connection.
func (p *phone) initial(at *tower, pdu []byte) {
	p.t.Helper()
	p.at, p.last = at, p.last+1
	short := p.GUTI.STMSI()
	at.send(at.AppendInitial(nil, p.last, pdu, &short))
}

// serve connects the idle UE by a service request.
func (p *phone) serve(at *tower) {
	p.t.Helper()
	p.initial(at, p.AppendService(nil))
	at.receive(&p.in, wire.Initiating, wire.InitialContextSetup)
	p.ids = p.in.IDs
	p.Serve()
	at.send(at.AppendContextSetUp(nil, p.ids, p.in.Bearers()...))
}

// update brings the idle UE to a tracking area.
func (p *phone) update(at *tower) {
	p.t.Helper()
	p.Connect()
	p.initial(at, p.AppendUpdate(nil, false))
	at.receive(&p.in, wire.Initiating, wire.DownlinkNASTransport)
	p.ids = p.in.IDs
	if _, event, err := p.Receive(nil, p.in.NAS); err != nil || event != ue.Updated {
		p.t.Fatalf("%s: got event %d with cause %d, error %v", p.IMSI, event, p.Cause, err)
	}
	at.receive(&p.in, wire.Initiating, wire.UEContextRelease)
	at.send(at.AppendReleased(nil, p.ids))
}

// call gets a dedicated bearer and releases it. Both times, the P-GW sends a request with the
// number of the MME's command.
func (p *phone) call() {
	p.t.Helper()
	answer := func(procedure wire.Procedure, want ue.Event, confirm func([]byte, enb.IDs, uint8) []byte) {
		p.at.receive(&p.in, wire.Initiating, procedure)
		reply, event, err := p.Receive(nil, p.in.NAS)
		if err != nil || event != want {
			p.t.Fatalf("%s: got event %d, error %v", p.IMSI, event, err)
		}
		p.at.send(confirm(nil, p.ids, p.in.Bearer))
		p.at.send(p.at.AppendUplink(nil, p.ids, reply))
	}
	p.at.send(p.at.AppendUplink(nil, p.ids, p.AppendAllocation(nil, voice, udp, remote, mediaPort)))
	answer(wire.ERABSetup, ue.Activated, func(b []byte, ids enb.IDs, id uint8) []byte { return p.at.AppendBearerSetUp(b, ids, id) })
	p.at.send(p.at.AppendUplink(nil, p.ids, p.AppendRelease(nil, p.Dedicated)))
	answer(wire.ERABRelease, ue.Deactivated, p.at.AppendBearerReleased)
}

// A fleet is UEs and the S-GWs that have their sessions.
type fleet struct {
	*epc
	t        *testing.T
	params   Params
	gateways int
	all      []*phone
	at       map[*phone]int
}

// join attaches the next UE at an eNodeB and returns its S-GW.
func (f *fleet) join(at *tower) int {
	f.t.Helper()
	n := len(f.all)
	p := &phone{UE: ue.New(f.params.imsi(n), f.params.network), t: f.t, last: uint32(n * 100)}
	p.attach(at)
	f.settled("the attach is over", "attach", n+1)
	f.all, f.at[p] = append(f.all, p), f.holder(p, f.gateways)
	return f.at[p]
}

// settled waits until procedures of the MMEs have succeeded a number of times.
func (f *fleet) settled(what, procedure string, times int) {
	f.t.Helper()
	hosttest.Until(f.t, patience, what, func() bool {
		n := 0
		for host := 1; host <= 2; host++ {
			n += f.succeeded(host, procedure)
		}
		return n == times
	})
}

// stay checks that a connected UE's session is still at its S-GW.
func (f *fleet) stay(p *phone, when string) {
	f.t.Helper()
	if now := f.holder(p, f.gateways); now != f.at[p] {
		f.t.Errorf("%s: the session of %s is at S-GW %d, previously at %d", when, p.IMSI, now, f.at[p])
	}
}

// change changes the director's instances, and waits until all keys use the new table.
func (f *fleet) change(c *client.Client, do func() error) {
	f.t.Helper()
	before, err := c.Status(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	if err := do(); err != nil {
		f.t.Fatal(err)
	}
	hosttest.Until(f.t, patience, "the change of epoch is over", func() bool {
		now, err := c.Status(f.t.Context())
		return err == nil && now.Epoch > before.Epoch && !now.Pending && !now.InTransition
	})
}

// relocate moves idle UEs to an eNodeB of another MME by a tracking area update. Their S-GWs must
// then page them there.
func (f *fleet) relocate(all []*phone, to *tower) {
	f.t.Helper()
	for _, p := range all {
		p.update(to)
		var status int
		var paged bool
		var packet sync.WaitGroup
		packet.Go(func() { status, paged = f.downlink(gatewayHost+f.at[p], p) })
		to.receive(&p.in, wire.Initiating, wire.Paging)
		if p.in.Paged != p.GUTI.STMSI() {
			f.t.Errorf("%s: got paging of %+v", p.IMSI, p.in.Paged)
		}
		p.serve(to)
		if packet.Wait(); status != http.StatusOK || !paged {
			f.t.Errorf("%s: got status %d, paged: %t", p.IMSI, status, paged)
		}
		f.stay(p, "after the relocation")
		p.call()
	}
}

// dismiss detaches all UEs, which are connected. After that the draining S-GW must have no
// session.
func (f *fleet) dismiss(c *client.Client, draining string) {
	f.t.Helper()
	for _, p := range f.all {
		p.detach()
	}
	hosttest.Until(f.t, patience, "no session is left", func() bool {
		left := f.metric(21, "pgw_sessions")
		for n := 1; n <= f.gateways; n++ {
			left += f.metric(gatewayHost+n, "sgw_ues")
		}
		return left == 0
	})
	hosttest.Until(f.t, patience, "the S-GW is drained", func() bool {
		in, err := c.Instance(f.t.Context(), draining)
		return err == nil && in.Drained && in.Dialogs == 0
	})
	for n := 1; n <= f.gateways; n++ {
		if lost := f.metric(gatewayHost+n, "sgw_procedures_total", `cause="64"`); lost != 0 {
			f.t.Errorf("%d messages reached S-GW %d, which does not have their session", lost, n)
		}
	}
}

// TestSessionsOfGatewaysBehindADirector adds an S-GW while UEs have sessions at two others, moves
// the UEs to another MME by a tracking area update, and drains an S-GW. Each session must stay at
// its S-GW for requests from either MME. New sessions must reach the new S-GW. An S-GW must find
// its UE's new MME.
func TestSessionsOfGatewaysBehindADirector(t *testing.T) {
	t.Parallel()
	e, c := startGateways(t, 84)
	f := &fleet{epc: e, t: t, params: Defaults(), gateways: 2, at: map[*phone]int{}}
	elsewhere := f.params.cell(1)
	elsewhere.TAI.TAC++
	one, two := e.tower(t, 1, f.params.cell(0)), e.tower(t, 2, elsewhere)
	const old = 9
	held := [4]int{}
	for range old {
		held[f.join(one)]++
	}
	if held[1] == 0 || held[2] == 0 {
		t.Fatalf("got sessions per S-GW %v", held)
	}

	third := e.gateway(3)
	f.gateways = 3
	f.change(c, func() error { _, err := c.Put(t.Context(), third); return err })
	for _, p := range f.all {
		p.release()
		p.serve(one)
		f.stay(p, "after the scale-out")
		p.call()
		p.release()
	}
	for tries := 0; f.join(one) != 3; tries++ {
		if tries == 50 {
			t.Fatal("the new S-GW got no session")
		}
	}

	f.relocate(f.all[:old], two)

	f.change(c, func() error { _, err := c.Drain(t.Context(), "sgw-1"); return err })
	for range 6 {
		if f.join(two) == 1 {
			t.Error("the draining S-GW got a session")
		}
	}
	for _, p := range f.all[:old] {
		p.release()
		p.serve(two)
		f.stay(p, "while S-GW 1 drains")
	}
	f.dismiss(c, "sgw-1")
}
