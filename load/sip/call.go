package sip

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"time"

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

// after is the step that follows another in the scenario.
func (e *engine) after(s step) step {
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
	number   int    // of the subscriber
	sequence uint32 // CSeq of its last registration
	lines    []byte // From, To, Call-ID and Contact of its registrations

	// Its answer to the last challenge; empty nonce: there was none.
	realm, nonce, opaque []byte
	ha1                  sip.Hash
	count                uint32 // how often the nonce was used
	qop, proxy           bool

	route []byte // Route lines from the registration's Service-Route
}

// A call is one run of the scenario. Calls are reused, last freed first, so
// that few of them stay in the cache.
type call struct {
	index      uint32 // in engine.calls
	generation uint32 // counts the runs: answers to an earlier one are known by it
	alive      bool
	due        time.Duration // from the beginning of the window
	socket     *socket       // to its target

	step        step
	transaction uint8 // counts the requests; part of the branch
	challenges  int   // met by the current step
	fresh       bool  // the last request answers a challenge to that step
	answered    bool  // subscribe, invite: the final answer is in
	notified    bool  // subscribe: the NOTIFY is in
	proceeding  bool  // a provisional answer is in

	caller, callee party
	sequence       uint32 // CSeq of the last request outside registrations
	inviteSequence uint32

	// The dialog as the caller sees it.
	to, target, routes []byte

	last   []byte // the last request, to send again
	answer []byte // the callee's 200 to the INVITE, to send again
	from   *socket
	reply  netip.AddrPort
}

// branchPrefix begins every branch; 8 digits of the call's index, 8 of its
// generation and 2 of its transaction follow.
const branchPrefix = sip.BranchCookie + "v"

var branchParam = []byte(";branch=" + branchPrefix)

const branchLength = len(";branch=") + len(branchPrefix) + 8 + 8 + 2

// appendHex appends the low digits of v in hexadecimal.
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

// byVia finds the living call, and its transaction, that the branch of a Via of
// ours stands for; nil: none. It is looked for as text, which is quicker than to
// take the value apart.
func (e *engine) byVia(via []byte) (*call, uint8) {
	i := bytes.Index(via, branchParam)
	if i < 0 || len(via)-i < branchLength {
		return nil, 0
	}
	rest := via[i+len(branchParam):]
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

// appendCallID appends the Call-ID of the call's dialog of that kind.
func (e *engine) appendCallID(b []byte, c *call, kind byte) []byte {
	b = appendHex(appendHex(b, c.index, 8), c.generation, 8)
	return append(append(append(b, kind, '-'), e.token...), "@vitrine"...)
}

// callIDFits says whether a request's Call-ID may be of the call: it is ours
// and of this run of it, or a function between has replaced it.
func (e *engine) callIDFits(callID []byte, c *call) bool {
	const digits = 16
	if len(callID) < digits+2+len(e.token) || string(callID[digits+2:digits+2+len(e.token)]) != string(e.token) {
		return true
	}
	var own [digits]byte
	return string(appendHex(appendHex(own[:0], c.index, 8), c.generation, 8)) == string(callID[:digits])
}

// bySubscriber finds the living call of the subscriber that one of our contacts
// names; nil: none.
func (e *engine) bySubscriber(request *sip.Message) *call {
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

// newCall takes a call that is free, or makes some.
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

// reset makes the call ready for its next run, keeping its buffers.
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

// randomToken tells the Call-IDs of this process from those of others.
func randomToken(random []byte) []byte { return []byte(hex.EncodeToString(random)) }
