package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/internal/netns"
	"vitrine/internal/truth"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/s1"
	"vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
	s1frame "vitrine/wire/s1ap/frame"
)

// A radio is eNodeBs and UEs. It logs their messages.
type radio struct {
	site  *site
	log   *truth.Log
	home  identity.PLMN
	cells []*cell

	mu    sync.Mutex
	byENB map[uint32]*phone // by eNB UE S1AP ID, which differs for all connections
	byMME map[uint32]*phone
	last  uint32
}

// A cell is an eNodeB's association with the MME.
type cell struct {
	enb.Cell
	radio *radio
	conn  net.Conn
	mu    sync.Mutex // of writes
	setUp chan []byte
}

// A phone is a UE that plays its life in one goroutine.
type phone struct {
	ue.UE
	radio  *radio
	random *rand.Rand
	at     *cell
	ids    enb.IDs
	event  truth.Event
	kind   string // of the event, until its first message is sent
	inbox  chan arrival
}

// An arrival is a message of the MME for a phone.
type arrival struct {
	at      *cell
	octets  []byte
	message enb.Message
}

func newRadio(s *site, log *truth.Log) *radio {
	home, _ := identity.MakePLMN("001", "01")
	return &radio{site: s, log: log, home: home, byENB: map[uint32]*phone{}, byMME: map[uint32]*phone{}}
}

// connect connects an eNodeB at a place and sets it up.
func (r *radio) connect(name string) {
	r.site.t.Helper()
	at := r.site.places[name]
	id := uint32(len(r.cells) + 1)
	c := &cell{radio: r, setUp: make(chan []byte, 1), Cell: enb.Cell{
		ID: s1ap.ENB{PLMN: r.home, ID: id}, Name: name, TAI: identity.TAI{PLMN: r.home, TAC: 1}, Address: at.addr,
	}}
	err := netns.Do(at.netns, func() (err error) {
		c.conn, err = net.Dial("tcp4", r.site.places["mme"].at(36412))
		return err
	})
	if err != nil {
		r.site.t.Fatal(err)
	}
	r.site.t.Cleanup(func() { c.conn.Close() })
	go c.read()
	of := r.log.Begin()
	c.send(c.AppendSetup(nil), of, "")
	select {
	case answer := <-c.setUp:
		c.logReceived(answer, of)
	case <-time.After(patience):
		r.site.t.Fatalf("the setup of %s did not end", name)
	}
	r.cells = append(r.cells, c)
}

// read reads until the connection ends, and gives each message to its phone.
func (c *cell) read() {
	var reader s1.Reader
	for {
		n, err := c.conn.Read(reader.Room())
		if err != nil {
			return
		}
		reader.Received(n)
		for {
			octets, err := reader.Next()
			if err != nil || octets == nil {
				break
			}
			a := arrival{at: c, octets: append([]byte(nil), octets...)}
			if err := a.message.Parse(a.octets); err != nil {
				c.radio.site.t.Errorf("parse a message of the MME % x: %v", octets, err)
				continue
			}
			if a.message.Procedure == s1ap.S1Setup {
				c.setUp <- a.octets
				continue
			}
			c.radio.deliver(a)
		}
	}
}

func (r *radio) deliver(a arrival) {
	r.mu.Lock()
	p := r.byENB[a.message.IDs.ENB]
	if !a.message.HasENB {
		p = r.byMME[a.message.IDs.MME]
	}
	r.mu.Unlock()
	if p == nil {
		r.site.t.Errorf("got a message for an unknown UE: %+v", a.message)
		return
	}
	p.inbox <- a
}

// send sends a message of an event.
func (c *cell) send(message []byte, of truth.Event, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.radio.log.Write(truth.Line{
		Src: c.local(), Dst: c.remote(), Protocol: truth.S1AP, Event: of, Type: kind, Key: truth.Hash(message),
	})
	if _, err := c.conn.Write(s1frame.Append(nil, s1frame.UE, message)); err != nil {
		c.radio.site.t.Error(err)
	}
}

func (c *cell) logReceived(message []byte, of truth.Event) {
	c.radio.log.Write(truth.Line{Src: c.remote(), Dst: c.local(), Received: true, Protocol: truth.S1AP, Event: of, Key: truth.Hash(message)})
}

func (c *cell) local() netip.AddrPort  { return truth.AddrPort(c.conn.LocalAddr()) }
func (c *cell) remote() netip.AddrPort { return truth.AddrPort(c.conn.RemoteAddr()) }

// play plays the lives of n UEs.
func (r *radio) play(n int) {
	r.site.t.Helper()
	var group errgroup.Group
	for i := range n {
		imsi, _ := identity.MakeDigits(fmt.Sprintf("00101%010d", i+1))
		p := &phone{
			UE: ue.New(imsi, r.home), radio: r, at: r.cells[i%len(r.cells)], inbox: make(chan arrival, 16),
			random: rand.New(rand.NewPCG(uint64(i), 1)),
		}
		group.Go(func() error {
			if err := p.live(); err != nil {
				return fmt.Errorf("UE %s: %w", p.IMSI.String(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		r.site.t.Fatal(err)
	}
}

// live plays each procedure once or twice.
func (p *phone) live() error {
	for _, step := range []func() error{
		p.attach, p.idle, p.service, p.pathSwitch, p.handover, p.idle, p.update, p.service, p.activate, p.idle, p.detach,
	} {
		time.Sleep(time.Duration(50+p.random.IntN(200)) * time.Millisecond) // a user's pause, beside others
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// begin begins a network event.
func (p *phone) begin(kind string) { p.event, p.kind = p.radio.log.Begin(), kind }

// send sends a message of the present event through the UE's eNodeB.
func (p *phone) send(message []byte) {
	p.at.send(message, p.event, p.kind)
	p.kind = ""
}

func (p *phone) uplink(pdu []byte) { p.send(p.at.AppendUplink(nil, p.ids, pdu)) }

// newID gives the UE an eNB UE S1AP ID for a connection at an eNodeB.
func (p *phone) newID() uint32 {
	p.radio.mu.Lock()
	defer p.radio.mu.Unlock()
	p.radio.last++
	p.radio.byENB[p.radio.last] = p
	return p.radio.last
}

// call begins a connection.
func (p *phone) call(pdu []byte) {
	p.ids = enb.IDs{ENB: p.newID()}
	var s *identity.STMSI
	if p.HasGUTI {
		short := p.GUTI.STMSI()
		s = &short
	}
	p.send(p.at.AppendInitial(nil, p.ids.ENB, pdu, s))
}

// next returns the next message of the MME. It must be of the procedure.
func (p *phone) next(of s1ap.Procedure) (arrival, error) {
	select {
	case a := <-p.inbox:
		a.at.logReceived(a.octets, p.event)
		p.ids.MME = a.message.IDs.MME
		if a.message.Procedure != of {
			return a, fmt.Errorf("%v of kind %d, want %v", a.message.Procedure, a.message.Kind, of)
		}
		return a, nil
	case <-time.After(patience):
		return arrival{}, fmt.Errorf("no %v", of)
	}
}

// hear gives the UE the NAS message of the MME's next message.
func (p *phone) hear(of s1ap.Procedure, want ue.Event) (reply []byte, err error) {
	a, err := p.next(of)
	if err != nil {
		return nil, err
	}
	reply, got, err := p.Receive(nil, a.message.NAS)
	if err == nil && got != want {
		err = fmt.Errorf("the UE's event is %d, want %d; cause %d", got, want, p.Cause)
	}
	return reply, err
}

// released confirms the release of a connection.
func (p *phone) released() error {
	a, err := p.next(s1ap.UEContextRelease)
	if err == nil {
		a.at.send(a.at.AppendReleased(nil, a.message.IDs), p.event, "")
	}
	return err
}

func (p *phone) attach() error {
	p.begin("ATTACH")
	p.call(p.AppendAttach(nil))
	for range 2 { // the challenge and the security mode command
		reply, err := p.hear(s1ap.DownlinkNASTransport, ue.Asked)
		if err != nil {
			return err
		}
		p.uplink(reply)
	}
	complete, err := p.hear(s1ap.InitialContextSetup, ue.Accepted)
	if err != nil {
		return err
	}
	p.send(p.at.AppendContextSetUp(nil, p.ids, p.Bearer))
	p.uplink(complete)
	return nil
}

func (p *phone) idle() error {
	p.begin("RELEASE")
	p.send(p.at.AppendReleaseRequest(nil, p.ids, s1ap.CauseUserInactivity))
	return p.released()
}

func (p *phone) service() error {
	p.begin("SR")
	p.call(p.AppendService(nil))
	a, err := p.next(s1ap.InitialContextSetup)
	if err != nil {
		return err
	}
	p.Serve()
	p.send(p.at.AppendContextSetUp(nil, p.ids, a.message.Bearer))
	return nil
}

// activate has an application ask the PCRF for a dedicated bearer. The PCRF begins the
// network event.
func (p *phone) activate() error {
	asked := make(chan error, 1)
	go func() {
		answer, err := p.radio.site.ask("pcrf", rulesPort, "PUT /rules/"+p.IMSI.String()+"/call?qci=1&up=64&down=64")
		if err == nil && !strings.Contains(answer, " 204 ") {
			err = fmt.Errorf("the PCRF: %q", answer)
		}
		asked <- err
	}()
	p.begin("")
	reply, err := p.hear(s1ap.ERABSetup, ue.Activated)
	if err != nil {
		return err
	}
	p.send(p.at.AppendBearerSetUp(nil, p.ids, p.Dedicated))
	p.uplink(reply)
	return <-asked
}

func (p *phone) update() error {
	p.begin("TAU")
	p.Connect()
	p.call(p.AppendUpdate(nil, false))
	if _, err := p.hear(s1ap.DownlinkNASTransport, ue.Updated); err != nil {
		return err
	}
	return p.released()
}

func (p *phone) detach() error {
	p.begin("DETACH")
	p.Connect()
	p.call(p.AppendDetach(nil, false))
	if _, err := p.hear(s1ap.DownlinkNASTransport, ue.Detached); err != nil {
		return err
	}
	return p.released()
}

// other returns another eNodeB than the UE's.
func (p *phone) other() *cell {
	of := p.radio.cells
	return of[(int(p.at.ID.ID)-1+1+p.random.IntN(len(of)-1))%len(of)]
}

var errBusy = errors.New("the MME refuses, because an earlier procedure has not ended")

// pathSwitch ends an X2 handover. The MME refuses it while an earlier procedure goes on.
func (p *phone) pathSwitch() error {
	p.at = p.other()
	for range 100 {
		p.begin("X2-HANDOVER")
		p.ids.ENB = p.newID()
		p.send(p.at.AppendPathSwitch(nil, p.ids, p.Bearer))
		a, err := p.next(s1ap.PathSwitchRequest)
		if err != nil || a.message.Kind == s1ap.Successful {
			return err
		}
		time.Sleep(20 * time.Millisecond) // the eNodeB's pause before it asks again
	}
	return errBusy
}

// handover plays an S1 handover to another eNodeB.
func (p *phone) handover() error {
	source, sourceIDs, target := p.at, p.ids, p.other()
	p.radio.mu.Lock()
	p.radio.byMME[p.ids.MME] = p
	p.radio.mu.Unlock()
	p.begin("S1-HANDOVER")
	p.send(source.AppendHandoverRequired(nil, sourceIDs, &target.Cell, []byte{1}))
	a, err := p.next(s1ap.HandoverResourceAllocation)
	if err != nil {
		return err
	}
	p.at, p.ids = target, enb.IDs{MME: sourceIDs.MME, ENB: p.newID()}
	p.send(target.AppendHandoverAdmitted(nil, p.ids, []byte{2}, a.message.Bearer))
	if _, err := p.next(s1ap.HandoverPreparation); err != nil {
		return err
	}
	p.send(target.AppendHandoverNotify(nil, p.ids))
	return p.released()
}
