package mme_test

import (
	"net"
	"testing"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/epctest"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// A driven MME is one without goroutines, and an eNodeB that is set up.
type driven struct {
	t       testing.TB
	driver  *mme.Driver
	gateway *epctest.Gateway
	cell    enb.Cell
	in      enb.Message
	out     []byte
	pdu     []byte
	last    uint32
}

func drive(t testing.TB, cipher aka.Algorithm) *driven {
	t.Helper()
	home := plmn(t)
	d := &driven{t: t, gateway: epctest.NewGateway()}
	m := mme.New(mme.Config{
		GUMMEI: identity.GUMMEI{PLMN: home, Group: 1}, Instance: 7, Cipher: cipher,
		Subscribers: epctest.NewHSS(home), Gateway: d.gateway,
	})
	conn, other := net.Pipe()
	t.Cleanup(func() { conn.Close(); other.Close() })
	d.driver = mme.NewDriver(m, conn)
	b := &base{t: t}
	d.cell = b.cell(1)
	d.handle(d.cell.AppendSetup(nil))
	d.driver.Sent()
	return d
}

func (d *driven) handle(message []byte) { d.driver.Handle(d.t.Context(), message) }

// attach plays an attach of the UE.
func (d *driven) attach(u *ue.UE) enb.IDs {
	d.last++
	ids := enb.IDs{ENB: d.last}
	d.pdu = u.AppendAttach(d.pdu[:0])
	d.out = d.cell.AppendInitial(d.out[:0], ids.ENB, d.pdu, nil)
	for d.handle(d.out); ; d.handle(d.out) {
		event := d.take(u)
		ids.MME = d.in.IDs.MME
		switch event {
		case ue.Asked:
			d.out = d.cell.AppendUplink(d.out[:0], ids, d.pdu)
		case ue.Accepted:
			d.out = d.cell.AppendContextSetUp(d.out[:0], ids, d.in.Bearer)
			d.handle(d.out)
			d.out = d.cell.AppendUplink(d.out[:0], ids, d.pdu)
			d.handle(d.out)
			return ids
		default:
			d.t.Fatalf("got the unexpected event %d: %+v", event, d.in)
		}
	}
}

// take gives the UE the message that the MME sent. The reply is in pdu.
func (d *driven) take(u *ue.UE) ue.Event {
	message, _, err := frame.Cut(d.driver.Sent())
	if err != nil || message == nil {
		d.t.Fatalf("the MME sent nothing: %v", err)
	}
	if err := d.in.Parse(message); err != nil {
		d.t.Fatal(err)
	}
	reply, event, err := u.Receive(d.pdu[:0], d.in.NAS)
	if err != nil {
		d.t.Fatal(err)
	}
	d.pdu = reply
	return event
}

// detach plays a detach of the UE.
func (d *driven) detach(u *ue.UE, ids enb.IDs) {
	d.pdu = u.AppendDetach(d.pdu[:0], false)
	d.out = d.cell.AppendUplink(d.out[:0], ids, d.pdu)
	d.handle(d.out)
	if event := d.take(u); event != ue.Detached {
		d.t.Fatalf("got event %d, want Detached", event)
	}
	d.out = d.cell.AppendReleased(d.out[:0], ids)
	d.handle(d.out)
}

// TestContextsAreUsedAgain attaches and detaches more UEs than there are contexts.
func TestContextsAreUsedAgain(t *testing.T) {
	d := drive(t, aka.AES)
	for n := range 100 {
		p := (&base{t: t}).phone(n % 3)
		d.detach(&p.UE, d.attach(&p.UE))
		d.driver.Sent()
	}
	if d.gateway.Len() != 0 {
		t.Errorf("%d sessions are left, want 0", d.gateway.Len())
	}
}

// connect makes the UE idle and sends an initial message for it. It returns the new connection and the
// radio capability that the MME gives the eNodeB.
func (d *driven) connect(u *ue.UE, ids enb.IDs, pdu []byte) (enb.IDs, []byte) {
	d.handle(d.cell.AppendReleaseRequest(nil, ids, s1ap.CauseUserInactivity))
	d.handle(d.cell.AppendReleased(nil, ids))
	d.driver.Sent()
	d.last++
	short := u.GUTI.STMSI()
	d.handle(d.cell.AppendInitial(nil, d.last, pdu, &short))
	message, _, _ := frame.Cut(d.driver.Sent())
	var m s1ap.Message
	if m.Parse(message) != nil || d.in.Parse(message) != nil || m.Procedure != s1ap.InitialContextSetup {
		d.t.Fatalf("got no Initial Context Setup: %x", message)
	}
	v, _ := m.Find(s1ap.RadioCapability)
	radio, _ := s1ap.ParseNAS(v)
	d.handle(d.cell.AppendContextSetUp(nil, d.in.IDs, d.in.Bearer))
	return d.in.IDs, radio
}

// TestRadioCapability checks when the MME gives an eNodeB the UE's radio capability (TS 23.401 clause
// 5.11.2): not after an attach or an update for a new one, and not if it is too long to be stored.
func TestRadioCapability(t *testing.T) {
	d := drive(t, aka.Null)
	p := (&base{t: t}).phone(1)
	ids := d.attach(&p.UE)
	expect := func(when string, pdu []byte, want int) {
		t.Helper()
		var radio []byte
		if ids, radio = d.connect(&p.UE, ids, pdu); len(radio) != want {
			t.Errorf("%s: the eNodeB got a radio capability of %d octets, want %d", when, len(radio), want)
		}
	}
	indicate := func(octets int) {
		b := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.UECapabilityIndication, s1ap.Ignore)
		b = s1ap.AppendENBUEID(s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Reject, ids.MME), s1ap.Reject, ids.ENB)
		d.handle(s1ap.End(s1ap.AppendNAS(b, s1ap.RadioCapability, s1ap.Ignore, make([]byte, octets)), 0))
	}
	indicate(500)
	expect("after the indication", p.AppendService(nil), 500)
	update := nas.UpdateRequest{Active: true, NewRadio: true, GUTI: nas.Identity{Kind: nas.KindGUTI, GUTI: p.GUTI}}
	p.Connect()
	expect("update for a new one", p.AppendMessage(nil, update.Append(nil)), 0)
	indicate(500)
	indicate(2000)
	expect("after a long one", p.AppendService(nil), 0)
	indicate(500)
	expect("attach", p.AppendAttach(nil), 0)
}

// BenchmarkAttach is the work of an MME, an HSS, a gateway, an eNodeB and a UE for
// one attach and detach, without transport.
func BenchmarkAttach(b *testing.B) {
	for _, cipher := range []aka.Algorithm{aka.Null, aka.AES} {
		b.Run(map[aka.Algorithm]string{aka.Null: "EEA0", aka.AES: "EEA2"}[cipher], func(b *testing.B) {
			d := drive(b, cipher)
			p := (&base{t: b}).phone(1)
			b.ReportAllocs()
			for b.Loop() {
				p.Forget()
				d.detach(&p.UE, d.attach(&p.UE))
				d.driver.Sent()
			}
		})
	}
}

// BenchmarkServiceRequest is the same for a service request and the release.
func BenchmarkServiceRequest(b *testing.B) {
	d := drive(b, aka.Null)
	p := (&base{t: b}).phone(1)
	ids := d.attach(&p.UE)
	d.driver.Sent()
	short := p.GUTI.STMSI()
	b.ReportAllocs()
	for b.Loop() {
		d.out = d.cell.AppendReleaseRequest(d.out[:0], ids, s1ap.CauseUserInactivity)
		d.handle(d.out)
		d.out = d.cell.AppendReleased(d.out[:0], ids)
		d.handle(d.out)
		d.driver.Sent()
		d.last++
		d.pdu = p.AppendService(d.pdu[:0])
		d.out = d.cell.AppendInitial(d.out[:0], d.last, d.pdu, &short)
		d.handle(d.out)
		message, _, _ := frame.Cut(d.driver.Sent())
		if d.in.Parse(message) != nil || d.in.Procedure != s1ap.InitialContextSetup {
			b.Fatalf("got no Initial Context Setup: %+v", d.in)
		}
		ids = d.in.IDs
		d.out = d.cell.AppendContextSetUp(d.out[:0], ids, 5)
		d.handle(d.out)
	}
}

// FuzzHandle gives the MME messages that follow an attach, and lets timers expire.
// It must not panic, whatever they are.
func FuzzHandle(f *testing.F) {
	b := &base{t: f}
	cell, ids := b.cell(1), enb.IDs{MME: 0x07000001, ENB: 1}
	p := b.phone(1)
	p.HasGUTI = true
	for _, m := range [][]byte{
		cell.AppendInitial(nil, 1, p.AppendAttach(nil), nil),
		cell.AppendInitial(nil, 2, p.AppendUpdate(nil, true), &identity.STMSI{Code: 7, TMSI: 1}),
		cell.AppendUplink(nil, ids, p.AppendDetach(nil, true)),
		cell.AppendReleaseRequest(nil, ids, s1ap.CauseUserInactivity),
		cell.AppendReleased(nil, ids),
		cell.AppendContextSetUp(nil, ids, 5),
		cell.AppendPathSwitch(nil, ids, 5),
		cell.AppendHandoverRequired(nil, ids, &cell, []byte{1}),
		cell.AppendHandoverAdmitted(nil, ids, []byte{1}, 5),
		cell.AppendBearerSetUp(nil, ids, 6), cell.AppendBearerRefused(nil, ids, 6, s1ap.CauseNoRadioResources), cell.AppendBearerReleased(nil, ids, 6),
		cell.AppendReset(nil, s1ap.CauseIntervention), cell.AppendReset(nil, s1ap.CauseIntervention, s1ap.Connection{MME: ids.MME, HasMME: true}, s1ap.Connection{ENB: 2, HasENB: true}),
		errorIndication(ids, s1ap.CauseUnknownPair), cell.AppendHandoverNotify(nil, ids),
		cell.AppendHandoverCancel(nil, ids),
		cell.AppendSetup(nil),
	} {
		f.Add(m, m)
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		d := drive(t, aka.Null)
		fresh := (&base{t: t}).phone(2)
		d.attach(&fresh.UE)
		d.handle(one)
		d.handle(two)
		d.driver.Expire()
		d.handle(one)
	})
}
