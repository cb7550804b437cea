package gtpc

import (
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// A message holds the elements that the director reads, from the top level only.
type message struct {
	gtpc.Message
	key       uint64 // of the IMSI
	hasKey    bool
	sender    gtpc.Endpoint // the sender's F-TEID: see senderInstance
	hasSender bool
	senderIE  []byte        // its value
	badSender bool          // it does not parse, has no address or is not the only one
	pgw       gtpc.Endpoint // F-TEID of instance 1: the P-GW's in Create Session
	hasPGW    bool
	linked    bool            // it has an EPS bearer ID of instance 0: see exchange.endsSession
	cause     gtpc.CauseValue // 0: none
	recovery  []byte          // the one octet of the restart counter
}

// read parses the message at the begin of data and returns its length.
func (m *message) read(data []byte) (int, error) {
	*m = message{}
	n, err := m.Parse(data)
	if err != nil {
		return 0, err
	}
	e, sender := m.Elements(), senderInstance(m.Type)
	for e.Next() {
		switch {
		case e.Type == gtpc.IMSI && !m.hasKey:
			if d, ok := gtpc.ParseDigits(e.Value); ok {
				m.key, m.hasKey = table.Key(d.Bytes()), true
			}
		case e.Type == gtpc.FTEID && e.Instance == sender:
			m.readSender(e.Value)
		case e.Type == gtpc.FTEID && e.Instance == 1 && !m.hasPGW:
			m.pgw, m.hasPGW = gtpc.ParseFTEID(e.Value)
		case e.Type == gtpc.EBI && e.Instance == 0:
			m.linked = true
		case e.Type == gtpc.Cause && m.cause == 0:
			m.cause, _ = gtpc.ParseCause(e.Value)
		case e.Type == gtpc.Recovery && m.recovery == nil && len(e.Value) > 0:
			m.recovery = e.Value[:1]
		}
	}
	return n, e.Err
}

// senderInstance returns the instance of the sender's F-TEID for the control plane. In a Bearer
// Resource Command, instances 0 and 1 are of the user plane (TS 29.274 table 7.2.5-1).
func senderInstance(t gtpc.Type) uint8 {
	if t == gtpc.BearerResourceCommand {
		return 2
	}
	return 0
}

// readSender reads the sender's F-TEID. The first one counts (TS 29.274 clause 7.7.10).
// Not all functions follow this rule, so readSender marks a message with more than one.
func (m *message) readSender(value []byte) {
	f, ok := gtpc.ParseFTEID(value)
	m.badSender = m.badSender || m.hasSender || !ok || !f.Addr().IsValid()
	if ok && !m.hasSender {
		m.sender, m.hasSender, m.senderIE = f, true, value
	}
}

// renumberSender puts another TEID into the sender's F-TEID. The field sender stays.
func (m *message) renumberSender(teid uint32) { gtpc.SetFTEID(m.senderIE, teid) }

// relocates reports whether the message is a Create Session Request that moves a session
// to another S-GW.
func (m *message) relocates() bool {
	return m.Type == gtpc.CreateSessionRequest && m.hasPGW && m.pgw.TEID != 0 && m.hasSender && m.sender.Interface != gtpc.S5SGW
}
