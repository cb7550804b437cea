package s1ap

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/directortest"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/enb"
	phone "vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// patience limits every wait. A test that reaches it fails.
const patience = 20 * time.Second

const (
	attachType = "attach-detach"
	srType     = "handover-sr"
	callType   = "bearer-crt"
)

func network() identity.PLMN {
	p, _ := identity.MakePLMN("001", "01")
	return p
}

// A site is a director with instances and eNodeBs.
type site struct {
	t         testing.TB
	server    *Server
	epochs    *table.Epochs
	meter     *meter.Meter
	now       func() time.Duration
	types     []string
	instances []vitrine.Instance
	epoch     uint64
}

// tableOne returns the rules of Table 1 of the Contain-ed paper for three aggregate types that
// contain an MME. A calling UE goes to bearerCRT, because it needs a dedicated bearer. Handovers
// have no rule: they stay at the instance of the UE's connection.
func tableOne(attachDetach, handoverSR, bearerCRT string) []Rule {
	return []Rule{
		{Message: "service-request", Cause: "mo-voice-call", Type: bearerCRT},
		{Message: "service-request", Type: handoverSR}, {Message: "extended-service-request", Type: handoverSR},
		{Message: "tracking-area-update", Type: handoverSR}, {Type: attachDetach},
	}
}

// newSite starts a director with one type. If split is true, it has the types of tableOne.
func newSite(t testing.TB, split bool, instances []*instance, change ...func(*Config, *Policy)) *site {
	t.Helper()
	begun := time.Now()
	s := &site{t: t, types: []string{attachType}, epoch: 1, now: func() time.Duration { return time.Since(begun) }}
	rules, options := []Rule{{Type: attachType}}, []TypeOption{{Type: attachType}}
	if split {
		s.types = append(s.types, srType, callType)
		rules, options = tableOne(attachType, srType, callType), append(options, TypeOption{Type: srType}, TypeOption{Type: callType})
	}
	for _, in := range instances {
		s.instances = append(s.instances, in.instance())
	}
	s.meter = meter.New(1024, time.Minute)
	first, err := table.New(1, s.types, s.instances)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.meter.Register(first); err != nil {
		t.Fatal(err)
	}
	s.epochs = table.NewEpochs(time.Second, 0, first, nil)
	policy, err := NewPolicy(s.types, options, rules)
	if err != nil {
		t.Fatal(err)
	}
	policy.Pool = Pool{Name: "pool", PLMN: network(), Group: 1, Capacity: 77}
	c := Config{
		Addresses: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Workers: 2, Now: s.now, Epochs: s.epochs, Meter: s.meter,
		Policy: policy, Log: slog.New(slog.DiscardHandler), Setup: patience,
	}
	for _, f := range change {
		f(&c, policy)
	}
	if s.server, err = Listen(c); err != nil {
		t.Fatal(err)
	}
	directortest.Serve(t, s.server.Run, s.server.Close)
	return s
}

// publish replaces the instances in a new epoch, and returns when the epoch is effective.
func (s *site) publish(instances ...vitrine.Instance) {
	s.t.Helper()
	s.epoch++
	next, err := table.New(s.epoch, s.types, instances)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.meter.Register(next); err != nil {
		s.t.Fatal(err)
	}
	hosttest.Until(s.t, patience, "the epoch is published", func() bool { return s.epochs.Publish(s.now(), next, nil) == 0 })
	s.instances = instances
}

func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	hosttest.Until(s.t, patience, what, ok)
}

// A peer is one end of an association.
type peer struct {
	t    testing.TB
	conn net.Conn
	rest []byte // octets received and not yet read
}

func (p *peer) send(message []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(frame.Append(nil, frame.UE, message)); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the next message, or nil if the association has ended.
func (p *peer) read() []byte {
	buffer := make([]byte, 64<<10)
	for {
		message, rest, err := frame.Cut(p.rest)
		if err != nil {
			p.t.Error(err)
			return nil
		}
		if message != nil {
			p.rest = rest
			return append([]byte(nil), message...)
		}
		if err := p.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return nil
		}
		n, err := p.conn.Read(buffer)
		p.rest = append(p.rest, buffer[:n]...)
		if err != nil {
			return nil
		}
	}
}

// expect reads the next message, which must be of the kind and procedure.
func (p *peer) expect(k s1ap.Kind, procedure s1ap.Procedure) (m enb.Message, raw []byte) {
	p.t.Helper()
	raw = p.read()
	if raw == nil {
		p.t.Fatalf("the association ended, want %v", procedure)
	}
	if err := m.Parse(raw); err != nil {
		p.t.Fatalf("parse message: %v: % x", err, raw)
	}
	if m.Kind != k || m.Procedure != procedure {
		p.t.Fatalf("got kind %d of %v with cause %v, want kind %d of %v", m.Kind, m.Procedure, m.Cause, k, procedure)
	}
	return m, raw
}

// An instance plays an MME. It accepts the S1 Setup of every eNodeB. The test sends all further
// messages.
type instance struct {
	t        testing.TB
	name     string
	ty       string
	number   uint8
	listener net.Listener

	mu    sync.Mutex
	conns map[uint32]*peer // by eNB ID
	all   []net.Conn
}

func newInstance(t testing.TB, ty string, number uint8) *instance {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{t: t, name: fmt.Sprintf("m%d", number), ty: ty, number: number, listener: l, conns: map[uint32]*peer{}}
	go in.accept()
	t.Cleanup(in.kill)
	return in
}

func (in *instance) instance() vitrine.Instance {
	return vitrine.Instance{Name: in.name, Type: in.ty, ID: uint16(in.number), Weight: 1, Address: netip.MustParseAddrPort(in.listener.Addr().String())}
}

func (in *instance) accept() {
	for {
		conn, err := in.listener.Accept()
		if err != nil {
			return
		}
		in.mu.Lock()
		in.all = append(in.all, conn)
		in.mu.Unlock()
		go in.setUp(&peer{t: in.t, conn: conn})
	}
}

// setUp answers the S1 Setup of an eNodeB.
func (in *instance) setUp(p *peer) {
	raw := p.read()
	var m s1ap.Message
	if raw == nil || m.Parse(raw) != nil || m.Procedure != s1ap.S1Setup {
		return
	}
	v, _ := m.Find(s1ap.GlobalENBID)
	id, ok := s1ap.ParseENB(v)
	if !ok {
		in.t.Errorf("got an S1 Setup without eNodeB identity: % x", raw)
		return
	}
	in.mu.Lock()
	in.conns[id.ID] = p
	in.mu.Unlock()
	_, _ = p.conn.Write(frame.Append(nil, frame.Common, setupResponse(in.number)))
}

// setupResponse returns the S1 Setup Response of an instance.
func setupResponse(number uint8) []byte {
	b := s1ap.AppendHeader(nil, s1ap.Successful, s1ap.S1Setup, s1ap.Reject)
	b = s1ap.AppendServed(b, s1ap.Reject, network(), 1, number)
	start := len(b)
	b = append(s1ap.BeginElement(b, s1ap.RelativeCapacity, s1ap.Ignore), 255)
	return s1ap.End(s1ap.EndElement(b, start), 0)
}

// at returns the instance's association for an eNodeB. It waits for the association.
func (in *instance) at(cell enb.Cell) *peer {
	in.t.Helper()
	var p *peer
	hosttest.Until(in.t, patience, "an association with "+in.name, func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		p = in.conns[cell.ID.ID]
		return p != nil
	})
	return p
}

// kill closes all connections of the instance, as the death of its process would.
func (in *instance) kill() {
	_ = in.listener.Close()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, c := range in.all {
		_ = c.Close()
	}
}

// id returns an MME UE S1AP ID of the instance.
func (in *instance) id(n uint32) uint32 { return uint32(in.number)<<24 | n }

func newCell(id uint32) enb.Cell {
	return enb.Cell{ID: s1ap.ENB{PLMN: network(), ID: id}, Name: fmt.Sprint("enb-", id), TAI: identity.TAI{PLMN: network(), TAC: 1}, Address: netip.MustParseAddr("198.18.0.1")}
}

// A base is an eNodeB.
type base struct {
	peer
	enb.Cell
}

// connect connects an eNodeB without S1 Setup.
func (s *site) connect(id uint32) *base {
	s.t.Helper()
	return s.connectFrom("127.0.0.1", id)
}

func (s *site) connectFrom(address string, id uint32) *base {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := d.Dial("tcp4", s.server.Addresses()[0].String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return &base{peer{t: s.t, conn: conn}, newCell(id)}
}

// enodeb connects an eNodeB and completes its S1 Setup.
func (s *site) enodeb(id uint32) *base {
	s.t.Helper()
	e := s.connect(id)
	e.send(e.AppendSetup(nil))
	e.expect(s1ap.Successful, s1ap.S1Setup)
	return e
}

// attachRequest returns an Attach Request of the nth subscriber.
func attachRequest(n int) []byte {
	d, _ := identity.MakeDigits(fmt.Sprintf("00101%010d", n))
	u := phone.New(d, network())
	return u.AppendAttach(nil)
}

// serviceRequest returns a Service Request.
func serviceRequest() []byte { return nas.AppendServiceRequest(nil, 1, 2) }

// begin sends the first message of a connection. It returns the instance that gets the message.
func (e *base) begin(enbID uint32, pdu []byte, s *identity.STMSI, among ...*instance) *instance {
	e.t.Helper()
	e.send(e.AppendInitial(nil, enbID, pdu, s))
	return e.arrived(s1ap.InitialUEMessage, among...)
}

// arrived waits until one of the instances has a message from the eNodeB. It reads the message and
// returns the instance.
func (e *base) arrived(procedure s1ap.Procedure, among ...*instance) (got *instance) {
	e.t.Helper()
	hosttest.Until(e.t, patience, "an instance has the message", func() bool {
		for _, in := range among {
			p := in.at(e.Cell)
			_ = p.conn.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
			buffer := make([]byte, 64<<10)
			n, _ := p.conn.Read(buffer)
			p.rest = append(p.rest, buffer[:n]...)
			if message, _, _ := frame.Cut(p.rest); message != nil {
				p.expect(s1ap.Initiating, procedure)
				got = in
				return true
			}
		}
		return false
	})
	return got
}

// download sends a Downlink NAS Transport from an instance and reads it at the eNodeB.
func (e *base) download(in *instance, ids enb.IDs) {
	e.t.Helper()
	in.at(e.Cell).send(about(s1ap.Initiating, s1ap.DownlinkNASTransport, ids, func(b []byte) []byte {
		return s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, []byte{7, 0x52})
	}))
	m, _ := e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
	if m.IDs != ids {
		e.t.Fatalf("got identifiers %+v, want %+v", m.IDs, ids)
	}
}

// connection begins a connection, and the instance answers. It returns the instance and the
// connection's identifiers.
func (e *base) connection(enbID uint32, n uint32, pdu []byte, s *identity.STMSI, among ...*instance) (*instance, enb.IDs) {
	e.t.Helper()
	in := e.begin(enbID, pdu, s, among...)
	ids := enb.IDs{MME: in.id(n), ENB: enbID}
	e.download(in, ids)
	return in, ids
}

// about returns a message with the identifiers of a connection, and further elements if more is not
// nil.
func about(k s1ap.Kind, p s1ap.Procedure, ids enb.IDs, more func([]byte) []byte) []byte {
	b := s1ap.AppendHeader(nil, k, p, s1ap.Reject)
	b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Reject, ids.MME)
	b = s1ap.AppendENBUEID(b, s1ap.Reject, ids.ENB)
	if more != nil {
		b = more(b)
	}
	return s1ap.End(b, 0)
}
