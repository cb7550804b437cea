package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/wire/gtpc"
)

// A bearerNode is the instance of bearerType. It answers health checks.
type bearerNode struct {
	conn     *net.UDPConn
	requests atomic.Int64
	answers  chan uint32 // sequence numbers of the answers to requests of its own
}

func newBearerNode(t *testing.T, address string) *bearerNode {
	t.Helper()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	n := &bearerNode{conn: conn, answers: make(chan uint32, 16)}
	go n.serve()
	return n
}

func (n *bearerNode) serve() {
	in := make([]byte, 2048)
	for {
		k, from, err := n.conn.ReadFromUDPAddrPort(in)
		if err != nil {
			return
		}
		var m gtpc.Message
		_, err = m.Parse(in[:k])
		switch {
		case err == nil && m.Type == gtpc.EchoRequest:
			_, _ = n.conn.WriteToUDPAddrPort(gtpc.AppendEchoResponse(nil, m.Sequence, 1), from)
		case err == nil && m.Type == gtpc.DeleteBearerResponse:
			n.answers <- m.Sequence
		default:
			n.requests.Add(1)
		}
	}
}

// victim returns an MME that listens for requests, as the MMEs of the load do not. Nobody else has its TEID.
func (h *hostileEPC) victim(t *testing.T) *subscriber {
	t.Helper()
	host := netip.MustParseAddr(h.host(firstPhone + mmes + 1))
	c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, gtpcPort)), h.peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &subscriber{ctx: t.Context(), conn: c, host: host, teid: 1 << 28}
}

// reach lets the instance of bearerType send a request to a peer's TEID, and the peer answer it.
func (h *hostileEPC) reach(peer *subscriber, gateway, sequence uint32) error {
	request := gtpc.AppendElement(gtpc.AppendHeader(nil, gtpc.DeleteBearerRequest, peer.teid, sequence), gtpc.EBI, 1, 6)
	if _, err := h.bearers.conn.WriteToUDPAddrPort(gtpc.End(request, 0), h.peer.AddrPort()); err != nil {
		return err
	}
	if err := peer.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var m gtpc.Message
	for m.Type != gtpc.DeleteBearerRequest { // the answer to a retransmission may come before it
		n, err := peer.conn.Read(peer.answer[:])
		if err != nil {
			return fmt.Errorf("a request of an instance did not reach the peer: %w", err)
		}
		if _, err := m.Parse(peer.answer[:n]); err != nil {
			return err
		}
	}
	if m.TEID != peer.teid {
		return fmt.Errorf("a request of an instance came to TEID %#x, want %#x", m.TEID, peer.teid)
	}
	answer := gtpc.AppendCause(gtpc.AppendHeader(nil, gtpc.DeleteBearerResponse, gateway, m.Sequence), gtpc.RequestAccepted)
	if _, err := peer.conn.Write(gtpc.End(answer, 0)); err != nil {
		return err
	}
	select {
	case got := <-h.bearers.answers:
		if got != sequence {
			return fmt.Errorf("the instance got the answer %#x, want %#x", got, sequence)
		}
		return nil
	case <-time.After(patience):
		return errors.New("the peer's answer did not reach the instance")
	}
}

// takeovers sends requests of strangers with the TEID of an attached MME: new sessions, with their own and with the
// MME's address, and requests that would move the MME's session to them. Gateways accept all of them. Requests of
// instances must still reach the MME.
func (h *hostileEPC) takeovers(t *testing.T) attack {
	t.Helper()
	victim := h.victim(t)
	gateway, err := victim.attach(h.imsi())
	if err == nil {
		err = h.reach(victim, gateway, 1)
	}
	if err != nil {
		t.Fatalf("before the attacks: %v", err)
	}
	return attack{
		name: "TEIDs of others", times: 0.2, lasts: time.Second, counter: "vitrine_director_handled_total", labels: []string{`protocol="gtpc"`, `how="aliased"`},
		run: flood(h.peer.String(), anywhere, func(n int) []byte {
			end, sequence := gtpc.Endpoint{Interface: gtpc.S11MME, TEID: victim.teid, V4: anywhere(n)}, uint32(n)&0x3fffff
			if n%3 == 1 {
				return gtpc.End(gtpc.AppendFTEID(gtpc.AppendHeader(nil, gtpc.ModifyBearerRequest, gateway, sequence), 0, end), 0)
			}
			if n%3 == 2 {
				end.V4 = victim.host
			}
			b := gtpc.AppendDigits(gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, sequence), gtpc.IMSI, fmt.Sprintf("00103%010d", n))
			return gtpc.End(appendBearer(gtpc.AppendFTEID(b, 0, end)), 0)
		}),
		check: func(t *testing.T) {
			if err := h.reach(victim, gateway, 2); err != nil {
				t.Error(err)
			}
		},
	}
}
