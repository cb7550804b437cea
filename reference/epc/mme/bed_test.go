package mme_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/hosttest"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/epctest"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/s1"
	"vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// patience is how long tests wait for what must come.
const patience = 20 * time.Second

// A bed is an MME with its neighbours.
type bed struct {
	t        testing.TB
	mme      *mme.MME
	hss      *epctest.HSS
	gateway  *epctest.Gateway
	registry *prometheus.Registry
	addr     string
}

func plmn(t testing.TB) identity.PLMN {
	t.Helper()
	p, ok := identity.MakePLMN("001", "01")
	if !ok {
		t.Fatal("invalid PLMN")
	}
	return p
}

// start starts an MME. change changes its configuration.
func start(t testing.TB, change func(*mme.Config)) *bed {
	t.Helper()
	home := plmn(t)
	b := &bed{t: t, hss: epctest.NewHSS(home), gateway: epctest.NewGateway(), registry: prometheus.NewRegistry()}
	c := mme.Config{
		GUMMEI: identity.GUMMEI{PLMN: home, Group: 1}, Instance: 7,
		Subscribers: b.hss, Gateway: b.gateway, Registry: b.registry,
	}
	if change != nil {
		change(&c)
	}
	b.mme = mme.New(c)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = listener.Addr().String()
	hosttest.Run(t, patience, "the MME", func(ctx context.Context) error { return b.mme.Serve(ctx, listener) })
	return b
}

// count returns the value of a counter or gauge. labels are the values of its
// labels, in the order of their names.
func (b *bed) count(name string, labels ...string) int {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "mme_"+name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i, l := range m.GetLabel() {
				if l.GetValue() != labels[i] {
					continue metrics
				}
			}
			return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	b.t.Fatalf("found no metric %s %v", name, labels)
	return 0
}

// ended returns how many procedures ended so.
func (b *bed) ended(procedure, outcome string) int {
	b.t.Helper()
	return b.count("procedures_total", outcome, procedure)
}

// waits until something becomes true.
func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	hosttest.Until(b.t, patience, what, ok)
}

// A base is an eNodeB of a test.
type base struct {
	enb.Cell
	t       testing.TB
	bed     *bed
	conn    net.Conn
	reader  s1.Reader
	last    uint32 // eNB UE S1AP ID
	message enb.Message
}

// dial connects an eNodeB without S1 Setup.
func (b *bed) dial(number uint32) *base {
	b.t.Helper()
	conn, err := net.Dial("tcp4", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	e := &base{t: b.t, bed: b, conn: conn, last: number * 100}
	e.Cell = e.cell(number)
	return e
}

// cell returns the data of an eNodeB.
func (e *base) cell(number uint32) enb.Cell {
	e.t.Helper()
	home := plmn(e.t)
	return enb.Cell{
		ID: s1ap.ENB{PLMN: home, ID: number}, Name: fmt.Sprint("enb-", number),
		TAI: identity.TAI{PLMN: home, TAC: uint16(number)}, Address: netip.AddrFrom4([4]byte{127, 0, 1, byte(number)}),
	}
}

// enodeb connects an eNodeB and sets it up.
func (b *bed) enodeb(number uint32) *base {
	b.t.Helper()
	e := b.dial(number)
	e.send(e.AppendSetup(nil))
	e.expect(s1ap.Successful, s1ap.S1Setup)
	return e
}

func (e *base) send(message []byte) {
	e.t.Helper()
	if _, err := e.conn.Write(frame.Append(nil, frame.UE, message)); err != nil {
		e.t.Fatal(err)
	}
}

// receive returns the next message of the MME, and false if the MME has closed the
// association.
func (e *base) receive() bool {
	e.t.Helper()
	if err := e.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		e.t.Fatal(err)
	}
	for {
		if e.reader.Pending() {
			message, err := e.reader.Next()
			if err != nil {
				e.t.Fatal(err)
			}
			if message != nil {
				if err := e.message.Parse(message); err != nil {
					e.t.Fatalf("parse a message of the MME % x: %v", message, err)
				}
				return true
			}
		}
		n, err := e.conn.Read(e.reader.Room())
		if err != nil {
			if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() {
				e.t.Fatalf("%s: got no message from the MME", e.Name)
			}
			return false
		}
		e.reader.Received(n)
	}
}

// expect receives a message of a kind and procedure.
func (e *base) expect(k s1ap.Kind, p s1ap.Procedure) *enb.Message {
	e.t.Helper()
	if !e.receive() {
		e.t.Fatalf("%s: the association ended, want %v", e.Name, p)
	}
	if e.message.Kind != k || e.message.Procedure != p {
		e.t.Fatalf("%s: got %v of kind %d, want %v of kind %d: %+v", e.Name, e.message.Procedure, e.message.Kind, p, k, e.message)
	}
	return &e.message
}

// A phone is a UE at an eNodeB.
type phone struct {
	ue.UE
	t   testing.TB
	at  *base
	ids enb.IDs
}

// phone returns the UE of subscriber n.
func (e *base) phone(n int) *phone {
	e.t.Helper()
	imsi, ok := identity.MakeDigits(fmt.Sprintf("00101%010d", n))
	if !ok {
		e.t.Fatal("invalid IMSI")
	}
	return &phone{UE: ue.New(imsi, plmn(e.t)), t: e.t, at: e}
}

// begin sends the first message of a connection.
func (p *phone) begin(pdu []byte) {
	p.t.Helper()
	p.at.last++
	p.ids = enb.IDs{ENB: p.at.last}
	var s *identity.STMSI
	if p.HasGUTI {
		short := p.GUTI.STMSI()
		s = &short
	}
	p.at.send(p.at.AppendInitial(nil, p.ids.ENB, pdu, s))
}

func (p *phone) uplink(pdu []byte) {
	p.t.Helper()
	p.at.send(p.at.AppendUplink(nil, p.ids, pdu))
}

// download expects a NAS message in a Downlink NAS Transport, and returns the UE's
// reply.
func (p *phone) download(want ue.Event) (reply []byte) {
	p.t.Helper()
	return p.take(p.at.expect(s1ap.Initiating, s1ap.DownlinkNASTransport), want)
}

// take gives the UE the NAS message of a message.
func (p *phone) take(m *enb.Message, want ue.Event) (reply []byte) {
	p.t.Helper()
	if m.IDs.ENB != p.ids.ENB || p.ids.MME != 0 && m.IDs.MME != p.ids.MME {
		p.t.Fatalf("got a message for %+v, want %+v", m.IDs, p.ids)
	}
	p.ids.MME = m.IDs.MME
	reply, e, err := p.Receive(nil, m.NAS)
	if err != nil {
		p.t.Fatalf("the UE refused % x: %v", m.NAS, err)
	}
	if e != want {
		p.t.Fatalf("got event %d of the UE, want %d; cause %d", e, want, p.Cause)
	}
	return reply
}

// attach attaches by IMSI, and checks that the MME knows it.
func (p *phone) attach() {
	p.t.Helper()
	p.begin(p.AppendAttach(nil))
	p.answerChallenge()
	p.accept()
}

// answerChallenge answers the challenge and the security mode command.
func (p *phone) answerChallenge() {
	p.t.Helper()
	p.uplink(p.download(ue.Asked))
	p.uplink(p.download(ue.Asked))
}

// accept takes the Attach Accept and completes the attach.
func (p *phone) accept() {
	p.t.Helper()
	complete := p.take(p.at.expect(s1ap.Initiating, s1ap.InitialContextSetup), ue.Accepted)
	p.at.send(p.at.AppendContextSetUp(nil, p.ids, p.at.message.Bearer))
	p.uplink(complete)
	p.reached(p.at)
}

// reached waits until the gateway sends the UE's packets to an eNodeB.
func (p *phone) reached(at *base) {
	p.t.Helper()
	want := s1ap.Tunnel{V4: at.Address, TEID: p.ids.ENB}
	at.bed.until("the gateway has the eNodeB's end", func() bool {
		of := at.bed.gateway.Sessions(p.IMSI)
		return len(of) == 1 && of[0].ENodeB == want
	})
}

// hangUp expects the release of the connection and confirms it.
func (p *phone) hangUp() s1ap.Cause {
	p.t.Helper()
	m := p.at.expect(s1ap.Initiating, s1ap.UEContextRelease)
	if m.IDs.ENB != p.ids.ENB {
		p.t.Fatalf("the MME released %+v, want %+v", m.IDs, p.ids)
	}
	p.at.send(p.at.AppendReleased(nil, m.IDs))
	return m.Cause
}

// idle makes the UE idle.
func (p *phone) idle() {
	p.t.Helper()
	before := p.at.bed.ended("release", "success")
	p.at.send(p.at.AppendReleaseRequest(nil, p.ids, s1ap.CauseUserInactivity))
	if cause := p.hangUp(); cause != s1ap.CauseUserInactivity {
		p.t.Errorf("got release cause %+v", cause)
	}
	p.at.bed.until("the UE is idle", func() bool { return p.at.bed.ended("release", "success") > before })
}

// serve requests service and takes the bearer.
func (p *phone) serve() {
	p.t.Helper()
	p.begin(p.AppendService(nil))
	m := p.at.expect(s1ap.Initiating, s1ap.InitialContextSetup)
	p.ids.MME = m.IDs.MME
	p.Serve()
	p.at.send(p.at.AppendContextSetUp(nil, p.ids, m.Bearer))
	p.reached(p.at)
}

// rejected expects a rejection with a cause, and the release.
func (p *phone) rejected(cause nas.Cause) {
	p.t.Helper()
	p.download(ue.Rejected)
	if p.Cause != cause {
		p.t.Errorf("got reject cause %d, want %d", p.Cause, cause)
	}
	p.hangUp()
}
