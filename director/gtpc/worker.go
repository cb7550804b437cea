package gtpc

import (
	"net/netip"
	"sync/atomic"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// A worker steers the datagrams of one datagram worker. It is a datagram.Handler.
type worker struct {
	server   *Server
	steering *table.Steering
	meter    *meter.Worker
	counts   counts

	message, carried message // here, so that Handle does not allocate them

	// places has the instances of the table of, by their address.
	places map[netip.AddrPort]instance
	of     *table.Table
}

type counts struct {
	received, forwarded, echoes, versions, malformed, stray, again, rejected, unruled, unreachable, unknownTEID, keyless, piggybacked, overQuota, strangers, aliased, collided atomic.Uint64
	_                                                                                                                                                                          [64]byte
}

// A turn is the state of one message while it is handled.
type turn struct {
	*message
	in     *datagram.Datagram
	out    *datagram.Sender
	now    time.Duration
	view   *table.View
	policy *Policy
	from   place
	at     uint8    // the listener that received it
	origin instance // the instance that sent it; zero: a peer sent it
}

// A way is where a message goes, and what to remember about it.
type way struct {
	to       netip.AddrPort
	listener uint8    // to send from, if it has the address family of to
	via      int      // the listener that is used
	receiver instance // zero if the receiver is not an instance
	sender   instance
	claim    claim  // of the sender's TEID
	given    uint32 // the TEID that the receiver gave; 0: not known yet
	ended    uint32 // the sender's TEID of a session that has ended; 0: none has
	key      uint64
	hasKey   bool
}

// Handle steers one datagram.
func (w *worker) Handle(in *datagram.Datagram, out *datagram.Sender) {
	w.counts.received.Add(1)
	view, policy := w.server.config.Epochs.View(), w.server.policy.Load()
	origin := w.instanceAt(view, in.From)
	switch {
	case w.server.isOwn(in.From):
		w.drop(in, meter.NoType, meter.Looped, &w.counts.malformed)
		return
	case origin.id == 0 && !policy.admits(in.From.Addr()):
		w.drop(in, meter.NoType, meter.Stranger, &w.counts.strangers)
		return
	}
	m := &w.message
	n, err := m.read(in.Data)
	if err != nil {
		w.refuse(in, out, err)
		return
	}
	second := false
	if m.Piggyback {
		k, err := w.carried.read(in.Data[n:])
		if err != nil || w.carried.Piggyback || w.carried.Type.IsTriggered() || w.carried.Type < gtpc.CreateSessionRequest {
			w.drop(in, meter.NoType, meter.Malformed, &w.counts.malformed)
			return
		}
		n, second = n+k, true
	}
	t := turn{message: m, in: in, out: out, now: in.At, from: placeOf(in.From), at: uint8(in.Listener), view: view, policy: policy, origin: origin}
	to, ok := w.route(&t)
	if !ok {
		return
	}
	if to.via = w.server.listenerFor(int(to.listener), to.to.Addr()); to.via < 0 {
		w.drop(in, meter.NoType, meter.Unroutable, &w.counts.unreachable)
		return
	}
	w.finish(&t, to)
	if second {
		w.counts.received.Add(1)
		t.message, to.given, to.claim, to.ended = &w.carried, 0, claim{}, 0
		switch {
		case w.withinQuota(&t) && w.numberPiggybacked(&t, to):
			w.counts.forwarded.Add(1)
			w.finish(&t, to)
		default: // its carrier goes alone
			n -= len(w.carried.Octets)
			gtpc.ClearPiggyback(in.Data, 0)
		}
	}
	w.counts.forwarded.Add(1)
	out.Send(to.via, to.to, in.Data[:n])
}

// finish makes the changes that every forwarded message needs.
func (w *worker) finish(t *turn, to way) {
	teid := t.TEID // as instances know it
	if t.origin.id != 0 {
		w.restore(t, to)
	}
	if to.ended != 0 { // after restore, which notes a use
		w.server.end(t.now, to.ended, to.sender, to.receiver)
		w.server.end(t.now, teid, to.receiver, to.sender)
	}
	w.replaceCounter(t.message)
}

// route returns where a message goes. It also sets the outgoing sequence number, and
// remembers the state that the answer will need.
func (w *worker) route(t *turn) (way, bool) {
	switch {
	case t.Type == gtpc.EchoRequest:
		w.counts.echoes.Add(1)
		reply := gtpc.AppendEchoResponse(t.out.Room(), t.Sequence, w.server.config.Counter)
		t.out.Send(t.in.Listener, t.in.From, reply)
		return way{}, false
	case t.Type < gtpc.CreateSessionRequest:
		// Echo Responses and indications do not pass the director, which sends no Echo
		// Requests.
		w.drop(t.in, meter.NoType, meter.Unroutable, &w.counts.stray)
		return way{}, false
	case t.IsCommand() && t.Type.FollowsCommand():
		return w.routeTriggered(t)
	case t.Type.IsTriggered():
		return w.routeAnswer(t)
	}
	return w.routeRequest(t)
}

// routeAnswer routes an answer to a request.
func (w *worker) routeAnswer(t *turn) (way, bool) {
	x := w.server.exchanges
	// The director preserves the command bit, even of a request that is not a command.
	if e, first, ok := x.answer(t.now, t.Sequence&^gtpc.CommandSequence, t.in.From); ok {
		return w.routeBack(t, e, first), true
	}
	if to, ok := w.routeToPrefix(t); ok {
		return to, true
	}
	// A third message of an exchange, such as Context Acknowledge.
	if e, ok := x.find(t.now, t.from, t.at, t.Sequence, 0); ok {
		return w.routeOnward(t, e), true
	}
	w.drop(t.in, meter.NoType, meter.Unroutable, &w.counts.stray)
	return way{}, false
}

// routeTriggered routes a message that a command triggered: a failure indication, or a request
// and its response. All have the command's sequence number (clause 7.6).
func (w *worker) routeTriggered(t *turn) (way, bool) {
	x := w.server.exchanges
	if e, first, ok := x.answer(t.now, t.Sequence&^gtpc.CommandSequence, t.in.From); ok && e.kind.IsCommand() {
		return w.routeBack(t, e, first), true
	}
	if e, ok := x.find(t.now, t.from, t.at, t.Sequence, 0); ok {
		return w.routeOnward(t, e), true
	}
	if to, ok := w.routeToPrefix(t); ok {
		return to, true
	}
	if !w.withinQuota(t) {
		return way{}, false
	}
	to, target, ok := w.destination(t)
	if !ok || !w.admit(t, target) {
		return way{}, false
	}
	w.learn(t, to)
	return to, true
}

// admit asks the gate of the target's type to admit a message that belongs to no known
// exchange. It answers a message that the gate refuses.
func (w *worker) admit(t *turn, target *table.Target) bool {
	if target == nil || t.policy.options[target.Type].Gate.Admit(t.now, overload.Begins) {
		return true
	}
	w.reject(t, target.Type, meter.Overloaded, gtpc.EntityCongestion)
	return false
}

// routeOnward routes a message to the receiver of its exchange.
func (w *worker) routeOnward(t *turn, e exchange) way {
	t.SetSequence(e.number | e.sequence&gtpc.CommandSequence)
	return way{to: e.to.addrPort(), listener: t.at, receiver: e.receiver, sender: e.sender, key: e.key, hasKey: e.hasKey}
}

// routeBack routes an answer to the sender of the request.
func (w *worker) routeBack(t *turn, e exchange, first bool) way {
	t.SetSequence(e.sequence)
	to := way{to: e.from.addrPort(), listener: e.listener, receiver: e.sender, sender: e.receiver, key: e.key, hasKey: e.hasKey}
	if t.TEID == e.claim.alias {
		to.given = e.claim.given
	}
	if e.endsSession() && t.cause.Accepted() {
		to.ended = e.teid
	}
	if e.receiver.id != 0 {
		t.origin = e.receiver // several instances may share the address
	}
	if first && e.receiver.id != 0 {
		if latency, ok := w.meter.End(t.now, transaction(e.number), outcome(t.cause)); ok {
			w.meter.Sample(e.receiver.ty, latency)
		}
	}
	if first {
		w.countSession(t, &e)
	}
	w.learn(t, to)
	w.learnPeer(t, &e)
	return to
}

// countSession counts a session like a dialog when an answer accepts its begin or its end. It counts for
// the instance that got the request. A Delete Bearer Request counts for the instance that sent it.
func (w *worker) countSession(t *turn, e *exchange) {
	at, begins := e.receiver, e.kind == gtpc.CreateSessionRequest
	if e.kind == gtpc.DeleteBearerRequest {
		at = e.sender
	}
	if at.id == 0 || !t.cause.Accepted() || !begins && !e.endsSession() {
		return
	}
	if target := t.view.Table.ByID(at.ty, at.id); target != nil {
		w.meter.Dialog(target, begins)
	}
}

// routeToPrefix routes an answer to the instance whose prefix is in its sequence number.
func (w *worker) routeToPrefix(t *turn) (way, bool) {
	number, id := splitSequence(t.Sequence &^ gtpc.CommandSequence)
	if number == 0 || !t.policy.has[number] {
		return way{}, false
	}
	asked := instance{t.policy.numbered[number], id}
	target := t.view.Table.ByID(asked.ty, asked.id)
	if target == nil || asked == t.origin {
		return way{}, false
	}
	to := way{to: target.Address, listener: t.at, receiver: asked, sender: t.origin}
	w.learn(t, to)
	return to, true
}

// routeRequest routes a message that begins an exchange.
func (w *worker) routeRequest(t *turn) (way, bool) {
	if !w.withinQuota(t) {
		return way{}, false
	}
	x := w.server.exchanges
	if e, ok := x.find(t.now, t.from, t.at, t.Sequence, t.Type); ok && w.repeats(t, &e) {
		if to, ok := w.routeRetransmission(t, e); ok {
			return to, true
		}
	}
	to, target, ok := w.destination(t)
	if !ok || !w.admit(t, target) || !w.claim(t, &to) {
		return way{}, false
	}
	if prefix, ok := t.policy.prefixOf(t.origin); t.origin.id != 0 && ok && t.Sequence&^(gtpc.CommandSequence|MaxCount) == prefix.Sequence {
		if target != nil {
			w.meter.Sent(target)
		}
	} else {
		w.assignNumber(t, to, target)
	}
	w.learn(t, to)
	return to, true
}

// assignNumber gives a request a sequence number of the director and remembers the exchange.
func (w *worker) assignNumber(t *turn, to way, target *table.Target) {
	number := w.server.exchanges.add(t.now, exchange{
		from: t.from, to: placeOf(to.to), sequence: t.Sequence, teid: t.TEID, key: to.key, hasKey: to.hasKey, claim: to.claim,
		receiver: to.receiver, sender: t.origin, kind: t.Type, listener: t.at, linked: t.linked,
	})
	if _, awaits := t.Type.Response(); target != nil && (awaits || t.Type.IsCommand()) {
		w.meter.Begin(t.now, target, transaction(number))
	} else if target != nil {
		w.meter.Sent(target)
	}
	t.SetSequence(number | t.Sequence&gtpc.CommandSequence)
}

// routeRetransmission routes a retransmitted request to its first receiver, unless that instance has
// gone.
func (w *worker) routeRetransmission(t *turn, e exchange) (way, bool) {
	if e.receiver.id != 0 {
		target, ok := w.steering.Resume(t.now, e.receiver.ty, e.receiver.id, e.key, 0, true)
		if !ok || target.ID != e.receiver.id || placeOf(target.Address) != e.to {
			return way{}, false
		}
		w.meter.Sent(target)
	}
	w.counts.again.Add(1)
	w.repeatClaim(t, &e)
	return w.routeOnward(t, e), true
}

// transaction returns the meter's hash of a request.
func transaction(number uint32) uint64 { return table.Mix(uint64(number) + 1) }

// numberPiggybacked sets the sequence number of a piggybacked request, which goes to the
// receiver of its carrier. It returns false if the request must not go there; it has then
// counted the request.
func (w *worker) numberPiggybacked(t *turn, to way) bool {
	w.counts.piggybacked.Add(1)
	if prefix, ok := t.policy.prefixOf(t.origin); t.origin.id != 0 && ok && t.Sequence&^(gtpc.CommandSequence|MaxCount) == prefix.Sequence {
		return true
	}
	if e, ok := w.server.exchanges.find(t.now, t.from, t.at, t.Sequence, t.Type); ok && w.repeats(t, &e) && e.to == placeOf(to.to) {
		t.SetSequence(e.number | e.sequence&gtpc.CommandSequence)
		w.repeatClaim(t, &e)
		return true
	}
	if !w.claim(t, &to) {
		return false
	}
	var target *table.Target
	if to.receiver.id != 0 {
		target = t.view.Table.ByID(to.receiver.ty, to.receiver.id)
	}
	w.assignNumber(t, to, target)
	return true
}

// learn remembers the owners of the TEIDs that an instance without prefix hands out.
func (w *worker) learn(t *turn, to way) {
	if t.origin.id == 0 || !t.hasSender && !t.hasPGW {
		return
	}
	o := owner{instance: t.origin, key: to.key, hasKey: to.hasKey}
	if t.hasSender {
		w.learnOwn(t, o, to.receiver, t.sender)
	}
	// In this F-TEID, a P-GW sends its own TEID, but an S-GW sends its P-GW's.
	if t.Type == gtpc.CreateSessionResponse && t.hasPGW && (!t.hasSender || t.pgw.Has(t.in.From.Addr())) {
		w.learnOwn(t, o, to.receiver, t.pgw)
	}
}

func (w *worker) learnOwn(t *turn, o owner, receiver instance, f gtpc.Endpoint) {
	if prefix, ok := t.policy.prefixOf(o.instance); f.TEID == 0 || ok && f.TEID>>(keyBits+serialBits) == prefix.TEID>>(keyBits+serialBits) {
		return
	}
	before := w.server.sessions.put(t.now, f.TEID, o)
	if before.id == 0 || before.instance == o.instance {
		return
	}
	// An owner with the same key has the same session, which has moved, unless that owner is
	// the receiver: a P-GW may choose the TEID of the session's S-GW. Of a key, a TEID with
	// a prefix carries only the low bits.
	if before.instance == receiver || before.hasKey && o.hasKey && (before.key^o.key)%numberOfKeys != 0 {
		w.countCollision(t, before.instance, o.instance, f.TEID)
	}
}

// countCollision counts a TEID that two instances gave to sessions that live, and logs the
// first one. Messages of the earlier session then go to the later instance.
func (w *worker) countCollision(t *turn, earlier, later instance, teid uint32) {
	one, other := t.view.Table.ByID(earlier.ty, earlier.id), t.view.Table.ByID(later.ty, later.id)
	if one == nil || other == nil {
		return
	}
	w.counts.collided.Add(1)
	if s := w.server; s.warned.CompareAndSwap(false, true) {
		s.config.Log.Warn("two instances without TEID prefix chose the same TEID: messages for the earlier one go to the later one", "teid", teid, "earlier", one.Name, "later", other.Name)
	}
}

// replaceCounter replaces the sender's restart counter by the shared one. Each side sees
// all nodes behind the director as one node.
func (w *worker) replaceCounter(m *message) {
	if m.recovery != nil {
		m.recovery[0] = w.server.config.Counter
	}
}

// instanceAt returns the instance that sends from an address; zero: none.
func (w *worker) instanceAt(v *table.View, from netip.AddrPort) instance {
	if w.of != v.Table {
		clear(w.places)
		for i := range int32(v.Table.Len()) {
			target := v.Table.Target(i)
			w.places[target.Address] = instanceOf(target)
		}
		w.of = v.Table
	}
	return w.places[from]
}

// drop counts a message that is neither sent on nor answered.
func (w *worker) drop(in *datagram.Datagram, ty table.Type, cause meter.Cause, count *atomic.Uint64) {
	count.Add(1)
	w.meter.Drop(in.At, ty, cause, in.From)
}

// withinQuota takes a token of the sender's quota for a message that begins an exchange. It
// drops a message without a token. Instances have no quota.
func (w *worker) withinQuota(t *turn) bool {
	if t.origin.id != 0 || t.policy.Quota.Take(t.now, t.in.From.Addr()) == overload.Admitted {
		return true
	}
	w.drop(t.in, meter.NoType, meter.OverQuota, &w.counts.overQuota)
	return false
}
