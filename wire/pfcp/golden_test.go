package pfcp_test

import (
	"encoding/binary"

	"vitrine/wire/pfcp"
)

// element appends an information element.
func element(t pfcp.Element, value ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(t))
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func group(t pfcp.Element, inner ...[]byte) []byte { return element(t, join(inner...)...) }

// node returns a message without SEID.
func node(t pfcp.Type, sequence uint32, elements ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0x20, byte(t), 0, 0}, sequence<<8)
	b = append(b, join(elements...)...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
	return b
}

// session returns a message with SEID.
func session(t pfcp.Type, seid uint64, sequence uint32, elements ...[]byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0x21, byte(t), 0, 0}, seid)
	b = binary.BigEndian.AppendUint32(b, sequence<<8)
	b = append(b, join(elements...)...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
	return b
}

var (
	nodeV4    = element(pfcp.NodeID, 0, 192, 0, 2, 1)
	nodeV6    = element(pfcp.NodeID, 1, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	nodeName  = element(pfcp.NodeID, join([]byte{2, 3}, []byte("upf"), []byte{7}, []byte("example"))...)
	recovery  = element(pfcp.RecoveryTimeStamp, 0xe3, 0x6a, 0x8c, 0)
	accepted  = element(pfcp.Cause, byte(pfcp.Accepted))
	fseidV4   = element(pfcp.FSEID, 2, 1, 2, 3, 4, 5, 6, 7, 8, 192, 0, 2, 1)
	fseidBoth = element(pfcp.FSEID, join([]byte{3, 0, 0, 0, 0, 0, 0, 0, 9, 192, 0, 2, 1}, nodeV6[5:])...)
)

// golden returns messages of nodes and of sessions.
func golden() [][]byte {
	pdr := func(id byte) []byte { return element(pfcp.PDRID, 0, id) }
	far := func(id byte) []byte { return element(pfcp.FARID, 0, 0, 0, id) }
	qer := func(id byte) []byte { return element(pfcp.QERID, 0, 0, 0, id) }
	source := element(20, 0)
	precedence := element(29, 0, 0, 0, 255)
	pdi := group(pfcp.PDI, source, element(21, 1, 0, 0, 0, 42, 192, 0, 2, 1))
	forward := element(44, 2)
	return [][]byte{
		node(pfcp.HeartbeatRequest, 1, recovery),
		node(pfcp.HeartbeatResponse, 1, recovery),
		node(pfcp.AssociationSetupRequest, 0xfffffe, nodeV4, recovery, element(89, 0)),
		node(pfcp.AssociationSetupResponse, 0xfffffe, nodeName, accepted, recovery),
		node(pfcp.AssociationReleaseRequest, 2, nodeV6),
		session(pfcp.SessionEstablishmentRequest, 0, 3, nodeV4, fseidV4,
			group(pfcp.CreatePDR, pdr(1), precedence, pdi, far(1), qer(7)),
			group(pfcp.CreatePDR, pdr(2), precedence, group(pfcp.PDI, element(20, 1)), far(2), qer(7), qer(8)),
			group(pfcp.CreateFAR, far(1), forward, group(pfcp.ForwardingParameters, element(42, 1))),
			group(pfcp.CreateFAR, far(2), element(44, 1)),
			group(pfcp.CreateQER, qer(7), element(25, 0)),
			element(0x8001, 0x28, 0xaf, 1, 2)),
		session(pfcp.SessionEstablishmentResponse, 0x0102030405060708, 3, nodeV4, accepted, fseidBoth,
			group(pfcp.CreatedPDR, pdr(1), element(21, 1, 0, 0, 0, 42, 192, 0, 2, 1))),
		session(pfcp.SessionModificationRequest, 9, 4, group(pfcp.RemovePDR, pdr(2)), group(pfcp.RemoveFAR, far(2)),
			group(pfcp.UpdateFAR, far(1), forward), group(pfcp.UpdatePDR, pdr(1), far(1))),
		session(pfcp.SessionModificationResponse, 0x0102030405060708, 4, element(pfcp.Cause, byte(pfcp.SessionNotFound))),
		session(pfcp.SessionDeletionRequest, 9, 5),
		session(pfcp.SessionDeletionResponse, 0x0102030405060708, 5, accepted),
	}
}
