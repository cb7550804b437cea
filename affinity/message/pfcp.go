package message

import (
	"encoding/binary"
	"net/netip"

	"vitrine/wire/pfcp"
)

// Elements that package pfcp does not name.
const (
	pfcpFTEID     pfcp.Element = 21 // TS 29.244 clause 8.2.3
	pfcpUEAddress pfcp.Element = 93 // clause 8.2.62
)

// pfcp reads the messages of a datagram.
func (r *reading) pfcp(o *origin, data []byte, missing int) {
	m := &r.decoders.pfcp
	for len(data) > 0 {
		n, err := m.Parse(data)
		if err != nil {
			r.counts.unread(PFCP, err, missing)
			return
		}
		o.hash = hashOf(m.Octets)
		r.pfcpMessage(o, m)
		data = data[n:]
		if !m.Follows && pfcpLength(data, missing) == 0 {
			return
		}
	}
}

func (r *reading) pfcpMessage(o *origin, m *pfcp.Message) {
	s := r.slot(o, PFCP)
	s.m.Bytes = len(m.Octets)
	s.m.Name = r.words.number(PFCP, uint64(m.Type), func() string { return m.Type.String() })
	client, server, request := hashEnd(o.src), hashEnd(o.dst), uint64(m.Type)
	s.part = opens
	if m.Type.IsResponse() {
		// A Version Not Supported Response finds no request: it answers a message of another
		// version, which this package does not read (TS 29.244 clause 7.6.2).
		client, server, request = server, client, request-1 // a response has the type after its request's
		s.part, s.m.Kind = closes, Answer
	}
	s.key = join(join(join(client, server), uint64(m.Sequence)), request)
	s.number(Sequence, join(client, server), uint64(m.Sequence))
	if m.SEID != 0 && m.Type >= pfcp.SessionEstablishmentRequest { // messages of nodes name no session (TS 29.244 clause 7.2.2.2)
		s.number(SEID, hashAddr(o.dst.Addr()), m.SEID)
	}
	if err := r.pfcpElements(s, m.Elements(), 0); err != nil {
		r.counts.bad(PFCP, reason(err))
	}
	r.commit(s)
}

// pfcpElements adds the identifiers in the elements.
func (r *reading) pfcpElements(s *slot, e pfcp.Elements, depth int) error {
	const deepest = 4
	for e.Next() {
		switch {
		case e.Type == pfcp.FSEID:
			if f, ok := pfcp.ParseFSEID(e.Value); ok {
				for _, a := range [...]netip.Addr{f.V4, f.V6} {
					if a.IsValid() {
						s.number(SEID, hashAddr(a), f.SEID)
					}
				}
			}
		case e.Type == pfcp.Cause && depth == 0:
			if c, ok := pfcp.ParseCause(e.Value); ok && s.m.Kind == Answer && !c.Accepted() {
				s.m.Failed, s.m.Cause = true, r.code(PFCP, int(c))
			}
		case e.Type == pfcpFTEID:
			s.pfcpTunnel(e.Value)
		case e.Type == pfcpUEAddress:
			s.pfcpAddress(e.Value)
		case e.Type.IsGroup() && depth < deepest:
			if err := r.pfcpElements(s, pfcp.Group(e.Value), depth+1); err != nil {
				return err
			}
		}
	}
	return e.Err
}

// The flags of an F-TEID and of a UE IP address say which addresses follow.
const (
	teidV4, teidV6, teidChoose = 1, 2, 4
	ueV6, ueV4                 = 1, 2
)

// pfcpTunnel adds the tunnel of an F-TEID (TS 29.244 clause 8.2.3).
func (s *slot) pfcpTunnel(v []byte) {
	if len(v) < 5 || v[0]&teidChoose != 0 {
		return
	}
	teid, rest := binary.BigEndian.Uint32(v[1:]), v[5:]
	if v[0]&teidV4 != 0 && len(rest) >= 4 {
		s.tunnel(netip.AddrFrom4([4]byte(rest)), teid, true)
		rest = rest[4:]
	}
	if v[0]&teidV6 != 0 && len(rest) >= 16 {
		s.tunnel(netip.AddrFrom16([16]byte(rest)), teid, true)
	}
}

// pfcpAddress adds a UE IP address (TS 29.244 clause 8.2.62).
func (s *slot) pfcpAddress(v []byte) {
	if len(v) < 1 {
		return
	}
	rest := v[1:]
	if v[0]&ueV4 != 0 && len(rest) >= 4 {
		s.address(netip.AddrFrom4([4]byte(rest)))
		rest = rest[4:]
	}
	if v[0]&ueV6 != 0 && len(rest) >= 16 {
		s.address(netip.AddrFrom16([16]byte(rest)))
	}
}
