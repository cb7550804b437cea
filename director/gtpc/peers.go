package gtpc

import (
	"hash/maphash"
	"net/netip"
	"time"

	"vitrine/director/meter"
	"vitrine/internal/source"
	"vitrine/wire/gtpc"
)

// A peer's request with an F-TEID tells an instance where to send later requests. The
// instance sends them to the director, and only their TEID identifies the peer. So each
// TEID that the instances know must belong to one peer, and no other peer may take it over.
// Several instances may know a TEID, because they may share sessions.
//
// The director therefore claims the TEID for the peer before it forwards the request to the
// instance. If the TEID already belongs to another peer, the director writes an alias into
// the request, and translates the alias back in the instances' messages. The claim becomes
// learned when the instance accepts the request. Until then, no message is routed by it.

// A claim is the content of a peer's F-TEID, and the TEID by which the instances know it.
type claim struct {
	address place  // of the F-TEID, with the port of peers
	given   uint32 // the TEID of the F-TEID
	alias   uint32 // the TEID that the instances know: usually the same; 0: there is no claim
}

// isOf reports whether an entry has the claim's peer and TEID.
func (c *claim) isOf(e *learnedEntry) bool { return e.given == c.given && e.address == c.address }

// claim reserves the claim's alias until the instance answers. It returns false if the
// alias belongs to another peer. A claim never evicts a learned TEID: in a bucket of
// learned TEIDs, claim reserves nothing and returns true.
func (l *learned) claim(now time.Duration, c claim, at instance) bool {
	b, lock := l.bucket(c.alias)
	seconds := uint32(now / time.Second)
	lock.Lock()
	defer lock.Unlock()
	if e := l.entry(b, seconds, c.alias); e != nil {
		if !c.isOf(e) {
			return false
		}
		e.seconds, e.ended = seconds, false
		return true
	}
	if e := l.victim(b, seconds); e.claimed || !l.live(e, seconds) {
		*e = learnedEntry{owner: owner{instance: at, given: c.given, address: c.address}, teid: c.alias, seconds: seconds, claimed: true}
	}
	return true
}

// accept learns the TEID of a claim, or of an answer to an instance's request. If the TEID
// is already learned for another peer, that entry stays, and the new one counts as
// forgotten. For a claim this happens only if there was no room to reserve it.
func (l *learned) accept(now time.Duration, c claim, by instance) {
	b, lock := l.bucket(c.alias)
	seconds := uint32(now / time.Second)
	lock.Lock()
	defer lock.Unlock()
	if e := l.entry(b, seconds, c.alias); e != nil && !e.claimed && !c.isOf(e) {
		l.overflow.Add(1)
		return
	}
	l.enter(b, learnedEntry{owner: owner{instance: by, given: c.given, address: c.address}, teid: c.alias, seconds: seconds})
}

// aliases is how many TEIDs the director tries for one F-TEID. All but the first are
// random, so the third is hardly ever needed.
const aliases = 4

// alias returns the n-th candidate for the TEID by which instances know a peer's TEID.
// Candidate 0 is the peer's TEID itself. The others depend on a secret, so nobody can
// choose TEIDs that collide with them.
func (s *Server) alias(n uint32, address place, given uint32) uint32 {
	if n == 0 {
		return given
	}
	return uint32(maphash.Comparable(s.seed, claim{address, given, n}))
}

// claim claims the TEID of a peer's request to an instance, and writes the alias, if there
// is one, into the message. It returns false if the message must not go to the instance;
// claim has then counted the message.
func (w *worker) claim(t *turn, to *way) bool {
	if to.receiver.id == 0 {
		return true
	}
	s := w.server
	c, at := w.asked(t)
	switch cause, bad := w.senderFault(t, at); {
	case bad && cause == meter.Stranger:
		w.drop(t.in, to.receiver.ty, cause, &w.counts.strangers)
		return false
	case bad:
		w.drop(t.in, to.receiver.ty, cause, &w.counts.malformed)
		return false
	case c.given == 0: // the request names no TEID to which an instance could send
		return true
	}
	inside := s.own(at)
	for n := range uint32(aliases) {
		c.alias = s.alias(n, c.address, c.given)
		if c.alias == 0 || !inside && w.isAnothers(t, to.receiver, c.alias) || !s.peers.claim(t.now, c, to.receiver) {
			continue
		}
		if n > 0 {
			w.counts.aliased.Add(1)
			t.renumberSender(c.alias)
		}
		to.claim = c
		return true
	}
	w.reject(t, to.receiver.ty, meter.Unroutable, gtpc.NoResourcesAvailable)
	return false
}

// senderFault returns why the sender's F-TEID keeps a peer's request from instances: it is malformed, or
// its address at is a stranger's. It returns false if the request may reach an instance.
func (w *worker) senderFault(t *turn, at netip.Addr) (cause meter.Cause, bad bool) {
	switch {
	case t.origin.id != 0:
		return 0, false
	case t.badSender:
		return meter.Malformed, true
	case t.hasSender && !w.server.own(at) && !t.policy.admits(at):
		return meter.Stranger, true
	}
	return 0, false
}

// asked returns the claim that a peer's request makes by its F-TEID, without an alias, and
// the peer's address by addressOf. Empty: the request makes no claim, or has no F-TEID.
func (w *worker) asked(t *turn) (c claim, at netip.Addr) {
	if t.origin.id != 0 || !t.hasSender {
		return c, at
	}
	s := w.server
	at = s.addressOf(t.policy, t.sender)
	if t.sender.TEID != 0 {
		c = claim{address: placeOf(netip.AddrPortFrom(at, s.config.PeerPort)), given: t.sender.TEID}
	}
	return c, at
}

// addressOf returns the address by which the director reaches a peer. If an F-TEID has both
// addresses, it is the first one that the policy admits and that a listener can send to. The
// choice depends only on the configuration, so a peer is always known by the same address.
func (s *Server) addressOf(p *Policy, f gtpc.Endpoint) netip.Addr {
	for _, a := range [...]netip.Addr{f.V4, f.V6.Unmap()} {
		if a.IsValid() && (s.own(a) || p.admits(a) && s.listenerFor(0, a) >= 0) {
			return a
		}
	}
	return f.Addr().Unmap()
}

// repeats reports whether a request has the TEID and the F-TEID of the exchange. If not, the
// sender uses the sequence number for another request.
func (w *worker) repeats(t *turn, e *exchange) bool {
	c, _ := w.asked(t)
	return e.teid == t.TEID && c.given == e.claim.given && c.address == e.claim.address && (t.origin.id != 0 || !t.badSender)
}

// repeatClaim writes the alias of the first transmission into a retransmitted request.
func (w *worker) repeatClaim(t *turn, e *exchange) {
	if e.claim.alias != e.claim.given {
		t.renumberSender(e.claim.alias)
	}
}

// isAnothers reports whether a TEID belongs to an instance of the table other than the
// given one. The given instance may then send requests to that TEID.
func (w *worker) isAnothers(t *turn, of instance, teid uint32) bool {
	o := w.server.ownerOf(t.policy, t.now, teid)
	return o.id != 0 && o.instance != of && t.view.Table.ByID(o.ty, o.id) != nil
}

// isAcceptedBy reports whether an instance's message accepts the request that began the
// exchange, so that the instance will use the F-TEID of the request. It excludes the end of
// a session, because no requests follow it.
func (e *exchange) isAcceptedBy(m *message) bool {
	if e.kind.IsCommand() {
		return !m.Type.IsTriggered() // a failure indication refuses it
	}
	response, ok := e.kind.Response()
	return ok && m.Type == response && m.cause.Accepted() && e.kind != gtpc.DeleteSessionRequest
}

// learnPeer remembers the peer's TEID that an answer makes valid. The TEID is in a request that an
// instance accepts, in the header of the answer if the request has none, or in a peer's answer to
// an instance's request.
func (w *worker) learnPeer(t *turn, e *exchange) {
	s := w.server
	if e.receiver.id != 0 {
		switch {
		case !e.isAcceptedBy(t.message):
		case e.claim.alias != 0:
			s.peers.accept(t.now, e.claim, e.receiver)
		case e.sender.id == 0 && e.teid != 0 && t.TEID != 0: // a peer's request about a session
			w.relearnPeer(t, e)
		}
		return
	}
	if e.sender.id == 0 || !t.cause.Accepted() {
		return
	}
	f, ok := t.sender, t.hasSender
	if !ok && t.Type == gtpc.CreateSessionResponse {
		f, ok = t.pgw, t.hasPGW
	}
	// There is no alias here, because an S-GW also gives its P-GW's F-TEID to others.
	if a := s.addressOf(t.policy, f); ok && f.TEID != 0 && a.IsValid() && !s.own(a) && t.policy.admits(a) && !w.isAnothers(t, e.sender, f.TEID) {
		s.peers.accept(t.now, claim{placeOf(netip.AddrPortFrom(a, s.config.PeerPort)), f.TEID, f.TEID}, e.sender)
	}
}

// relearnPeer remembers a peer's TEID that the director does not know, as after a crash. The
// instance knows it and answers to it, although the request had no F-TEID. Of the peer's
// addresses, the director knows only the source of the request.
func (w *worker) relearnPeer(t *turn, e *exchange) {
	peers := w.server.peers
	if _, known := peers.find(t.now, t.TEID); known || w.isAnothers(t, e.receiver, t.TEID) {
		return
	}
	c := claim{address: e.from, given: t.TEID, alias: t.TEID}
	c.address.port = w.server.config.PeerPort
	if peers.claim(t.now, c, e.receiver) {
		peers.accept(t.now, c, e.receiver)
	}
}

// restore replaces an alias in an instance's message by the TEID that the receiver gave.
func (w *worker) restore(t *turn, to way) {
	if t.TEID == 0 {
		return
	}
	if to.given == 0 {
		// The search also notes the use of the TEID, so that it stays learned while its
		// session lives.
		o, ok := w.server.peers.find(t.now, t.TEID)
		if !ok || w.server.own(o.address.addrPort().Addr()) != (to.receiver.id != 0) {
			return
		}
		to.given = o.given
	}
	if to.given != t.TEID {
		t.SetTEID(to.given)
	}
}

// admits reports whether peers may send from an address, and name it in an F-TEID.
func (p *Policy) admits(a netip.Addr) bool {
	return len(p.Peers) == 0 || source.In(a, p.Peers)
}
