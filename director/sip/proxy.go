// Package sip is the director's SIP side: a stateless proxy (RFC 3261 section
// 16.11) that finds the aggregate type of each request, has the table choose an
// instance of it, and sends the request there; and its UDP and TCP transports.
//
// What a message becomes depends on the message, the rules and the epoch alone:
// directors side by side, and one that was started again, do the same with a
// retransmission. A Proxy does no I/O: one message in, at most one out.
package sip

import (
	"net/netip"
	"sync/atomic"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// An Outgoing is a message to send.
type Outgoing struct {
	Listener int            // to send it from
	To       netip.AddrPort // its destination
	// Flow is the far end of the connection to send it on while that is there;
	// not valid: To's.
	Flow  netip.AddrPort
	Back  bool     // it is a response: connections for it are made at a limited rate
	Parts [][]byte // views of what came in and of the room
}

// counts are the counts of one Proxy. Server.Counters adds them up.
type counts struct {
	Requests, Responses atomic.Uint64 // that came
	Inward, Outward     atomic.Uint64 // requests sent on
	Returned            atomic.Uint64 // responses sent on
	Answered            atomic.Uint64 // requests answered by the director itself
	KeepAlives          atomic.Uint64 // datagrams of nothing but line ends
	Absorbed            atomic.Uint64 // ACKs of the director's own answers
	Dropped             atomic.Uint64 // not sent on and not answered
	Unsigned            atomic.Uint64 // own entries in Route without a right MAC
}

// core is what all proxies of a director share.
type core struct {
	places []place // by listener
	epochs *table.Epochs
	rules  atomic.Pointer[Rules]
	keys   atomic.Pointer[Keyring]
	known  atomic.Pointer[sources]
	losses losses
}

// A Proxy handles the messages of one worker.
type Proxy struct {
	server   *core
	steering *table.Steering
	meter    *meter.Worker
	counts   counts

	rules   *Rules   // while a message is handled
	keys    *Keyring // likewise
	message sip.Message
	pass    pass
	edits   edits
	in      *datagram.Datagram
	room    []byte
	over    []byte // what a MAC is over
	out     *Outgoing
}

// Handle takes one message and says whether there is one to send, in out. in.Data
// is changed; room is empty room to build in. Both, and what out has, are in use
// until the message is sent.
func (p *Proxy) Handle(in *datagram.Datagram, room []byte, out *Outgoing) bool {
	p.in, p.room, p.out = in, room, out
	p.rules, p.keys = p.server.rules.Load(), p.server.keys.Load()
	out.Flow, out.Back = netip.AddrPort{}, false
	m := &p.message
	n, err := m.Parse(in.Data)
	if err == nil && m.NoLength && p.server.places[in.Listener].Stream {
		err = sip.ErrLength // where it ends cannot be told (RFC 3261 section 18.3)
	}
	if err != nil {
		return p.malformed(err)
	}
	p.edits.reset(in.Data)
	if !m.IsRequest() {
		p.counts.Responses.Add(1)
		return p.response(m, n)
	}
	p.counts.Requests.Add(1)
	return p.request(m, n)
}

// build begins a piece of text in the room; built ends it.
func (p *Proxy) build() []byte { return p.room[len(p.room):] }

// built takes what was appended to build's result out of the room.
func (p *Proxy) built(text []byte) []byte {
	if cap(text) == cap(p.room)-len(p.room) {
		p.room = p.room[:len(p.room)+len(text)]
	} // else the room was too small, and text is elsewhere
	return text
}

// fail counts a message that is not served.
func (p *Proxy) fail(ty table.Type, cause meter.Cause) {
	if ty == noType {
		ty = meter.NoType
	}
	p.meter.Fail(ty, cause)
}

// drop counts a message that is neither sent on nor answered.
func (p *Proxy) drop(ty table.Type, cause meter.Cause) bool {
	p.fail(ty, cause)
	p.counts.Dropped.Add(1)
	return false
}

// placeFor is the listener to send from to an address: the preferred one if it
// is of the address's family and transport, else the first that is; -1: none.
func (p *Proxy) placeFor(preferred int, stream, is4 bool) int {
	places := p.server.places
	if preferred < len(places) && places[preferred].Stream == stream && places[preferred].is4 == is4 {
		return preferred
	}
	for i := range places {
		if places[i].Stream == stream && places[i].is4 == is4 {
			return i
		}
	}
	return -1
}
