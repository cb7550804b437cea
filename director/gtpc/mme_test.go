package gtpc_test

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/wmnsk/go-gtp/gtpv2"
	"github.com/wmnsk/go-gtp/gtpv2/ie"
	"github.com/wmnsk/go-gtp/gtpv2/message"

	director "vitrine/director/gtpc"
)

// An ownMME is an MME built on go-gtp's library. It counts its TEIDs from 1.
type ownMME struct {
	n        *network
	through  *side
	host     byte
	conn     *gtpv2.Conn
	director *net.UDPAddr
	answers  chan message.Message
	teid     uint32 // the last
}

func (n *network) ownMME(host byte, through *side) *ownMME {
	n.t.Helper()
	m := &ownMME{n: n, host: host, through: through, answers: make(chan message.Message, 16)}
	m.director = net.UDPAddrFromAddrPort(netip.AddrPortFrom(through.s11, director.Port))
	ctx, cancel := context.WithCancel(context.Background())
	n.t.Cleanup(cancel)
	local := net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.ip(host), director.Port))
	var err error
	m.conn, err = gtpv2.Dial(ctx, local, m.director, gtpv2.IFTypeS11MMEGTPC, 0) // which exchanges Echo first
	if err != nil {
		n.t.Fatal(err)
	}
	take := func(_ *gtpv2.Conn, _ net.Addr, msg message.Message) error {
		m.answers <- msg
		return nil
	}
	for _, kind := range []uint8{message.MsgTypeCreateSessionResponse, message.MsgTypeModifyBearerResponse, message.MsgTypeDeleteSessionResponse} {
		m.conn.AddHandler(kind, take)
	}
	return m
}

// answer waits for the answer to a request.
func (m *ownMME) answer(kind uint8, sequence uint32) message.Message {
	m.n.t.Helper()
	select {
	case a := <-m.answers:
		if a.MessageType() != kind || a.Sequence() != sequence || a.TEID() == 0 || a.TEID() > m.teid {
			m.n.t.Fatalf("got %s with sequence number %#x to TEID %#x, want type %d, sequence number %#x", a.MessageTypeName(), a.Sequence(), a.TEID(), kind, sequence)
		}
		return a
	case <-time.After(20 * time.Second):
		m.n.t.Fatalf("no answer of type %d", kind)
	}
	return nil
}

func (m *ownMME) attach(imsi string) *gtpv2.Session {
	m.n.t.Helper()
	before := m.n.registered(imsi)
	m.teid++
	s, sequence, err := m.conn.CreateSession(m.director,
		ie.NewIMSI(imsi), ie.NewMSISDN("819012345678"), ie.NewMobileEquipmentIdentity("3548020912345678"),
		ie.NewServingNetwork("001", "01"), ie.NewRATType(gtpv2.RATTypeEUTRAN), ie.NewIndicationFromOctets(0, 0, 0, 0, 0, 0, 0),
		ie.NewFullyQualifiedTEID(gtpv2.IFTypeS11MMEGTPC, m.teid, m.n.ip(m.host).String(), ""),
		ie.NewFullyQualifiedTEID(gtpv2.IFTypeS5S8PGWGTPC, 0, m.through.s5.String(), "").WithInstance(1),
		ie.NewAccessPointName("internet.example"), ie.NewSelectionMode(0), ie.NewPDNType(gtpv2.PDNTypeIPv4),
		ie.NewPDNAddressAllocation("192.0.2.77"), ie.NewAPNRestriction(0), ie.NewAggregateMaximumBitRate(0, 0),
		ie.NewUserLocationInformationStruct(nil, nil, nil, ie.NewTAI("001", "01", 1), ie.NewECGI("001", "01", 257), nil, nil, nil),
		ie.NewBearerContext(ie.NewEPSBearerID(5), ie.NewBearerQoS(1, 2, 1, 9, 0, 0, 0, 0)),
		ie.NewFullyQualifiedCSID(m.n.ip(m.host).String(), 1))
	if err != nil {
		m.n.t.Fatal(err)
	}
	response := m.answer(message.MsgTypeCreateSessionResponse, sequence).(*message.CreateSessionResponse)
	if cause, err := response.Cause.Cause(); err != nil || cause != gtpv2.CauseRequestAccepted {
		m.n.t.Fatalf("%s: got cause %d, error %v", imsi, cause, err)
	}
	s.AddTEID(gtpv2.IFTypeS11S4SGWGTPC, response.SenderFTEIDC.MustTEID())
	m.n.awaitRegistered(imsi, before+1)
	return s
}

func (m *ownMME) gateway(s *gtpv2.Session) uint32 {
	m.n.t.Helper()
	teid, err := s.GetTEID(gtpv2.IFTypeS11S4SGWGTPC)
	if err != nil {
		m.n.t.Fatal(err)
	}
	return teid
}

func (m *ownMME) modify(s *gtpv2.Session) {
	m.n.t.Helper()
	sequence, err := m.conn.ModifyBearer(m.gateway(s), s, ie.NewIndicationFromOctets(0, 0, 0, 0, 0, 0, 0),
		ie.NewBearerContext(ie.NewEPSBearerID(5), ie.NewFullyQualifiedTEID(gtpv2.IFTypeS1UeNodeBGTPU, 7, m.n.ip(14).String(), "")))
	if err != nil {
		m.n.t.Fatal(err)
	}
	m.answer(message.MsgTypeModifyBearerResponse, sequence)
}

func (m *ownMME) detach(s *gtpv2.Session) {
	m.n.t.Helper()
	sequence, err := m.conn.DeleteSession(m.gateway(s), s, ie.NewEPSBearerID(5))
	if err != nil {
		m.n.t.Fatal(err)
	}
	m.answer(message.MsgTypeDeleteSessionResponse, sequence)
}
