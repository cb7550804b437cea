package sip

import (
	"bytes"
	"net/netip"
)

// BranchCookie begins every branch (RFC 3261 section 8.1.1.7).
const BranchCookie = "z9hG4bK"

// A ViaHop is a parsed element of a Via header (RFC 3261 section 20.42). Its
// slices are views. A missing parameter is nil, and a parameter without a value
// is empty.
type ViaHop struct {
	Text   []byte // the whole element
	Stream bool   // the transport is TCP
	Host   []byte // from sent-by; an IPv6 address includes its brackets
	Port   uint16 // from sent-by; 0 if there is none
	Params []byte // from the first semicolon on, for CutParam

	Branch, Received, MAddr []byte // RFC 3261
	RPort                   []byte // RFC 3581
	OC, OCAlgo              []byte // RFC 7339 section 4
	OCValidity, OCSeq       []byte
}

// ParseViaHop parses a Via element. ok is false if it has no sent-by.
func ParseViaHop(text []byte) (h ViaHop, ok bool) {
	h.Text = text
	at, ok := h.parseProtocol()
	if !ok {
		return h, false
	}
	end := len(text)
	if i := bytes.IndexByte(text[at:], ';'); i >= 0 {
		end = at + i
	}
	if h.Host, h.Port, ok = ParseHostPort(text[at:end]); !ok {
		return h, false
	}
	h.Params = text[end:]
	for rest := h.Params; len(rest) > 0; {
		var name, value []byte
		name, value, rest = CutParam(rest)
		h.keep(name, value)
	}
	return h, true
}

// parseProtocol parses "SIP/2.0/UDP", with optional spaces around the slashes
// (sent-protocol), and the space after it.
func (h *ViaHop) parseProtocol() (at int, ok bool) {
	text := h.Text
	if len(text) > 12 && string(text[:8]) == "SIP/2.0/" && !isSpace(text[8]) && text[11] == ' ' {
		h.Stream = EqualFold(text[8:11], "tcp")
		return 12, true
	}
	for range 2 {
		i := bytes.IndexByte(text[at:], '/')
		if i < 0 {
			return at, false
		}
		at += i + 1
	}
	at = skipSpaces(text, at)
	start := at
	for at < len(text) && !isSpace(text[at]) {
		at++
	}
	h.Stream = EqualFold(text[start:at], "tcp")
	return at, at < len(text)
}

// keep stores the parameters that ViaHop has fields for.
func (h *ViaHop) keep(name, value []byte) {
	switch len(name) {
	case 2:
		if EqualFold(name, "oc") {
			h.OC = value
		}
	case 5:
		switch {
		case EqualFold(name, "rport"):
			h.RPort = value
		case EqualFold(name, "maddr"):
			h.MAddr = value
		}
	case 6:
		switch {
		case EqualFold(name, "branch"):
			h.Branch = value
		case EqualFold(name, "oc-seq"):
			h.OCSeq = value
		}
	case 7:
		if EqualFold(name, "oc-algo") {
			h.OCAlgo = value
		}
	case 8:
		if EqualFold(name, "received") {
			h.Received = value
		}
	case 11:
		if EqualFold(name, "oc-validity") {
			h.OCValidity = value
		}
	}
}

// Target returns the destination of a response with this ViaHop on top (RFC 3261
// section 18.2.2, RFC 3581 section 4). ok is false for a host name, which Target
// does not look up.
func (h *ViaHop) Target() (a netip.AddrPort, ok bool) {
	switch {
	case len(h.MAddr) > 0 && !h.Stream:
		return target(h.MAddr, h.Port)
	case len(h.Received) == 0:
		return target(h.Host, h.Port)
	}
	port := h.Port
	if len(h.RPort) > 0 {
		if port, ok = ParsePort(h.RPort); !ok {
			return a, false
		}
	}
	return target(h.Received, port)
}

// AllowsOC reports whether the response may carry overload feedback by the
// algorithm: oc-algo lists it or is empty (RFC 7339 section 4.2).
func (h *ViaHop) AllowsOC(algorithm string) bool {
	return len(h.OCAlgo) == 0 || hasToken(Unquote(h.OCAlgo), algorithm)
}

// OCSequence returns oc-seq, a decimal number, in units of its fifth decimal
// place (RFC 7339 section 4.4), or 0 if there is none.
func (h *ViaHop) OCSequence() uint64 {
	whole, fraction, _ := bytes.Cut(h.OCSeq, dot)
	n, ok := ParseNumber(whole)
	if !ok || n >= 1<<44 {
		return 0
	}
	for i := range 5 {
		n *= 10
		if i < len(fraction) && isDigit(fraction[i]) {
			n += uint64(fraction[i] - '0')
		}
	}
	return n
}

var dot = []byte(".")
