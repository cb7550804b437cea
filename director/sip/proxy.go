// Package sip is the director's SIP side. It is a stateless proxy (RFC 3261 section
// 16.11) with UDP and TCP transports. The proxy finds the aggregate type of each request,
// lets the table choose an instance of that type, and sends the request there.
//
// The result depends on the message, the rules and the epoch alone. So directors side by
// side, and a restarted director, treat a retransmission alike. A Proxy does no I/O: for
// one message in, it returns at most one message out.
package sip

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// An Outgoing is a message to send.
type Outgoing struct {
	Listener int            // the listener to send from
	To       netip.AddrPort // its destination
	// Flow is the remote address of the TCP connection to send on, if that connection is
	// still open. Otherwise, or if Flow is invalid, To counts.
	Flow  netip.AddrPort
	Back  bool     // a response; new connections for responses are rate-limited
	Parts [][]byte // views of the received message and of the room
}

// counts are the counts of one Proxy. Server.Counters adds them up.
type counts struct {
	Requests, Responses atomic.Uint64 // received
	Inward, Outward     atomic.Uint64 // requests sent on
	Returned            atomic.Uint64 // responses sent on
	Answered            atomic.Uint64 // requests answered by the director itself
	KeepAlives          atomic.Uint64 // datagrams that contain only line ends
	Malformed           atomic.Uint64 // received, and neither parsed nor answerable
	Absorbed            atomic.Uint64 // ACKs of the director's own answers
	Dropped             atomic.Uint64 // not sent on and not answered
	Unsigned            atomic.Uint64 // own Route entries without a valid MAC
}

// core is the state that all proxies of a director share.
type core struct {
	places []place // by listener
	epochs *table.Epochs
	rules  atomic.Pointer[Rules]
	keys   atomic.Pointer[Keyring]
	known  atomic.Pointer[sources]
	losses losses
}

// A steering chooses instances: a table.Steering, or one that several proxies share.
type steering interface {
	Choose(now time.Duration, ty table.Type, key uint64, region table.Region) (*table.Target, bool)
	Resume(now time.Duration, ty table.Type, id uint16, key uint64, region table.Region, dialogs bool) (*table.Target, bool)
	Follow(now time.Duration, ty table.Type, id uint16, key uint64, region table.Region) (*table.Target, bool)
}

// A sharedSteering is the memory of all TCP workers. A client may send a CANCEL or an ACK on another
// connection than the INVITE, and that connection may belong to another worker.
type sharedSteering struct {
	mu       sync.Mutex
	steering *table.Steering
}

func (s *sharedSteering) Choose(now time.Duration, ty table.Type, key uint64, region table.Region) (*table.Target, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steering.Choose(now, ty, key, region)
}

func (s *sharedSteering) Resume(now time.Duration, ty table.Type, id uint16, key uint64, region table.Region, dialogs bool) (*table.Target, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steering.Resume(now, ty, id, key, region, dialogs)
}

func (s *sharedSteering) Follow(now time.Duration, ty table.Type, id uint16, key uint64, region table.Region) (*table.Target, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steering.Follow(now, ty, id, key, region)
}

// A Proxy handles the messages of one worker.
type Proxy struct {
	server   *core
	steering steering
	meter    *meter.Worker
	counts   counts
	explains bool // messages are not sent: they change nothing that other proxies share

	rules   *Rules   // valid while a message is handled
	keys    *Keyring // likewise
	message sip.Message
	pass    pass
	edits   edits
	in      *datagram.Datagram
	room    []byte
	over    []byte // input of the MAC
	out     *Outgoing
}

// Handle processes one message and reports whether out has a message to send. Handle
// changes in.Data. room is empty and is used to build text. in.Data, room and out stay in
// use until the message is sent.
func (p *Proxy) Handle(in *datagram.Datagram, room []byte, out *Outgoing) bool {
	p.in, p.room, p.out = in, room, out
	p.rules, p.keys = p.server.rules.Load(), p.server.keys.Load()
	out.Flow, out.Back = netip.AddrPort{}, false
	m := &p.message
	n, err := m.Parse(in.Data)
	if err == nil && m.NoLength && p.server.places[in.Listener].Stream {
		err = sip.ErrLength // a stream cannot tell where the message ends (RFC 3261 section 18.3)
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

// build returns the free end of the room, to append text to; built ends the text.
func (p *Proxy) build() []byte { return p.room[len(p.room):] }

// built marks text, which was appended to build's result, as used.
func (p *Proxy) built(text []byte) []byte {
	if cap(text) == cap(p.room)-len(p.room) {
		p.room = p.room[:len(p.room)+len(text)]
	} // else append outgrew the room and moved the text
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
	if ty == noType {
		ty = meter.NoType
	}
	p.meter.Drop(p.in.At, ty, cause, p.in.From)
	p.counts.Dropped.Add(1)
	return false
}

// placeFor returns the listener to send from: the preferred one if it has the address
// family and transport of the destination, else the first that has; -1: none.
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
