package sip

import (
	"bytes"
	"net/netip"
	"time"

	"vitrine/internal/truth"
	"vitrine/wire/sip"
)

// A step is one exchange of a call.
type step uint8

const (
	registerCaller step = iota
	registerCallee
	subscribe // SUBSCRIBE and its NOTIFY
	invite    // INVITE up to the callee's ACK
	holding   // between ACK and BYE
	bye
	deregister
	done
)

// nextStep returns the step that follows s in the scenario.
func (e *engine) nextStep(s step) step {
	switch {
	case s == registerCaller && e.params.Scenario == RegSubscribe:
		return subscribe
	case s == registerCaller && e.params.Scenario == RegInvite:
		return registerCallee
	case s == registerCaller, s == subscribe:
		return deregister
	case s == registerCallee:
		return invite
	case s == invite:
		return holding
	case s == holding:
		return bye
	}
	return done
}

// A party is a subscriber in a call.
type party struct {
	number   int    // number of the subscriber
	sequence uint32 // CSeq of its last registration
	lines    []byte // From, To, Call-ID and Contact of its registrations

	// The last challenge and the data to answer it. The nonce is empty before the
	// first challenge.
	realm, nonce, opaque []byte
	ha1                  sip.Hash
	count                uint32 // number of requests that used the nonce (nc)
	qop, proxy           bool

	route []byte // Route lines from the registration's Service-Route
}

// A call is one run of the scenario. Calls are reused. The last freed call is reused first, so
// that the calls in use stay in the cache.
type call struct {
	index      uint32 // in engine.calls
	generation uint32 // counts the runs, to recognize answers to an earlier run
	alive      bool
	due        time.Duration // relative to the start of the window
	socket     *socket       // socket to the call's target

	step        step
	transaction uint8 // counts the requests; part of the branch
	challenges  int   // challenges of the current step
	fresh       bool  // the last request answers a challenge to that step
	answered    bool  // subscribe, invite: the final answer has arrived
	notified    bool  // subscribe: the NOTIFY has arrived
	proceeding  bool  // a provisional answer has arrived
	accepted    bool  // invite: the callee has sent its 200
	confirmed   bool  // invite: the callee has received the ACK to that 200

	event truth.Event // the step's event in the messages log

	caller, callee party
	sequence       uint32 // CSeq of the last request outside registrations
	inviteSequence uint32

	// The dialog as the caller sees it.
	to, target, routes []byte

	last   []byte // the last request, for retransmission
	answer []byte // the callee's 200 to the INVITE, for retransmission
	from   *socket
	reply  netip.AddrPort
}

// branchPrefix begins every branch. It is followed by 8 digits of the call's index, 8 of its
// generation and 2 of its transaction.
const branchPrefix = sip.BranchCookie + "v"

var branchParam = []byte(";branch=" + branchPrefix)

const (
	branchDigits = 8 + 8 + 2
	branchLength = len(";branch=") + len(branchPrefix) + branchDigits
)

// appendHex appends the lowest digits of v in hexadecimal.
func appendHex(b []byte, v uint32, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[v>>shift&15])
	}
	return b
}

func parseHex(text []byte) (v uint32, ok bool) {
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint32(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// ownVia returns one of our Vias as we wrote it, without the parameters that servers append; nil
// if it is none of ours. It searches for the branch as text, because that is faster than parsing
// the value.
func ownVia(via []byte) []byte {
	i := bytes.Index(via, branchParam)
	if i < 0 || len(via)-i < branchLength {
		return nil
	}
	return via[:i+branchLength]
}

// findByVia returns the live call and the transaction that the branch of one of our Vias
// identifies, or nil.
func (e *engine) findByVia(via []byte) (*call, uint8) {
	via = ownVia(via)
	if via == nil {
		return nil, 0
	}
	rest := via[len(via)-branchDigits:]
	index, ok1 := parseHex(rest[:8])
	generation, ok2 := parseHex(rest[8:16])
	transaction, ok3 := parseHex(rest[16:18])
	if !ok1 || !ok2 || !ok3 || int(index) >= len(e.calls) {
		return nil, 0
	}
	c := e.calls[index]
	if !c.alive || c.generation != generation {
		return nil, 0
	}
	return c, uint8(transaction)
}

// appendCallID appends the Call-ID of the call's dialog of the given kind.
func (e *engine) appendCallID(b []byte, c *call, kind byte) []byte {
	b = appendHex(appendHex(b, c.index, 8), c.generation, 8)
	return append(append(append(b, kind, '-'), e.token...), "@vitrine"...)
}

// callIDFits reports whether a request with this Call-ID may belong to the call. That is so if the
// Call-ID belongs to this run of the call, or if a function in between has replaced our Call-ID.
func (e *engine) callIDFits(callID []byte, c *call) bool {
	const digits = 16
	if len(callID) < digits+2+len(e.token) || string(callID[digits+2:digits+2+len(e.token)]) != string(e.token) {
		return true
	}
	var own [digits]byte
	return string(appendHex(appendHex(own[:0], c.index, 8), c.generation, 8)) == string(callID[:digits])
}

// findBySubscriber returns the live call of a subscriber, or nil. The request's URI is one of our
// contacts and names the subscriber.
func (e *engine) findBySubscriber(request *sip.Message) *call {
	uri, ok := sip.ParseURI(request.URI)
	if !ok || len(uri.User) == 0 || uri.User[0] != 'v' {
		return nil
	}
	number, ok := sip.ParseNumber(uri.User[1:])
	n := int(number) - e.params.FirstUser
	if !ok || n < 0 || n >= len(e.inCall) {
		return nil
	}
	if c := e.inCall[n]; c != nil && c.alive && e.callIDFits(request.CallID, c) {
		return c
	}
	return nil
}

// newCall returns a free call. It allocates more calls if none is free.
func (e *engine) newCall() *call {
	if len(e.idle) == 0 {
		const chunk = 64
		made := make([]call, chunk)
		for i := range made {
			made[i].index = uint32(len(e.calls))
			e.calls = append(e.calls, &made[i])
			e.idle = append(e.idle, &made[i])
		}
	}
	c := e.idle[len(e.idle)-1]
	e.idle = e.idle[:len(e.idle)-1]
	return c
}

// reset prepares the call for its next run and keeps its buffers.
func (c *call) reset(generation uint32) {
	caller, callee := c.caller, c.callee
	caller.reset()
	callee.reset()
	*c = call{
		index: c.index, generation: generation, alive: true, caller: caller, callee: callee,
		to: c.to[:0], target: c.target[:0], routes: c.routes[:0], last: c.last[:0], answer: c.answer[:0],
	}
}

func (p *party) reset() {
	*p = party{lines: p.lines[:0], realm: p.realm[:0], nonce: p.nonce[:0], opaque: p.opaque[:0], route: p.route[:0]}
}
