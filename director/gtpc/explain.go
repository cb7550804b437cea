package gtpc

import (
	"fmt"
	"net/netip"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// An Explanation tells where a message would go, and why.
type Explanation struct {
	Kind gtpc.Type
	// Initial: the message begins an exchange. The director answers other messages itself
	// (Echo), or routes them by their exchange. The fields below do not apply to them.
	Initial  bool
	Stranger bool           // neither an instance nor a peer may send from there: dropped, and the fields below do not apply
	Again    bool           // a retransmission, which goes where the first message went
	Owner    uint16         // the ID of the instance whose TEID the message carries; 0: none
	OwnerOf  table.Type     // and that instance's type
	Rule     int            // the rule of the policy that matches, from 0; -1: none
	Type     table.Type     // the type that the rule names
	Session  bool           // Key is the session's
	Key      uint64         // the key that the table chooses by
	Lost     bool           // an instance sends it to a TEID without a known owner: dropped
	Peer     netip.AddrPort // valid: an instance sends it to a TEID that it got from this peer
	Instance *table.Target  // nil: the type has no available instance
	Refused  string         // why the request does not go to Instance; empty: it goes there
}

// Explain tells where a message from that address would go now. It decides as a worker
// with an empty memory would. A worker that saw the session's key before a recent change
// of epoch may still send the message to the earlier instance. Explain remembers nothing.
// Counts go to the probe.
//
// Explain fails if data is not a GTPv2-C message.
func (s *Server) Explain(now time.Duration, probe *meter.Worker, from netip.AddrPort, data []byte) (Explanation, error) {
	m := new(message)
	if _, err := m.read(append([]byte(nil), data...)); err != nil {
		return Explanation{}, fmt.Errorf("explain a GTP-C message: %w", err)
	}
	w := s.newWorker(8, probe)
	t := &turn{message: m, in: &datagram.Datagram{From: from}, now: now, from: placeOf(from), view: s.config.Epochs.View(), policy: s.policy.Load()}
	t.origin = w.instanceAt(t.view, from)
	x := Explanation{Kind: m.Type, Rule: -1}
	if x.Stranger = from.IsValid() && t.origin.id == 0 && !t.policy.admits(from.Addr()); x.Stranger {
		return x, nil
	}
	if m.Type < gtpc.CreateSessionRequest || m.Type.IsTriggered() || m.IsCommand() && m.Type.FollowsCommand() {
		return x, nil
	}
	x.Initial = true
	if e, ok := s.exchanges.find(now, t.from, t.at, m.Sequence, m.Type); ok && w.repeats(t, &e) {
		if target := t.view.Table.ByID(e.receiver.ty, e.receiver.id); e.receiver.id != 0 && target != nil {
			x.Again, x.Instance, x.Type = true, target, target.Type
		}
	}
	c := w.decide(t)
	x.Owner, x.OwnerOf, x.Key, x.Session, x.Peer, x.Lost = c.owner.id, c.owner.ty, c.key, c.session, c.peer, c.lost
	if c.rule != nil {
		x.Rule, x.Type = c.rule.at, c.rule.ty
	}
	if !x.Again {
		x.Instance, x.Refused = c.target, w.refusalOf(t, c.target)
	}
	return x, nil
}

// refusalOf returns why the worker refuses or drops a new request although the table has a target for
// it; empty: it does not. It asks what admit and claim ask, but takes no token and counts nothing.
func (w *worker) refusalOf(t *turn, target *table.Target) string {
	if target == nil {
		return ""
	}
	_, at := w.asked(t)
	cause, bad := w.senderFault(t, at)
	switch {
	case !t.policy.options[target.Type].Gate.Open(t.now, overload.Begins):
		return "the gate of type " + target.TypeName() + " refuses it now"
	case !bad:
		return ""
	case cause == meter.Stranger:
		return "the address in the sender's F-TEID is not in gtpc.peers: the message is dropped"
	}
	return "the sender's F-TEID is malformed, has no address, or is not the only one: the message is dropped"
}
