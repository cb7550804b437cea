package sip

import (
	"bytes"
	"net/netip"

	"vitrine/internal/truth"
)

// eventType returns the type of the network event that a step begins.
func (s step) eventType() string {
	switch s {
	case registerCaller, registerCallee:
		return "REGISTER"
	case subscribe:
		return "SUBSCRIBE"
	case invite:
		return "INVITE"
	case deregister:
		return "DEREGISTER"
	}
	return "" // the step is part of an earlier step's event
}

// eventOf returns the event of a call's next request. Each step begins an event. The BYE is an
// exception: it belongs to the event of its INVITE.
func (e *engine) eventOf(c *call) truth.Event {
	if e.messages != nil && c.challenges == 0 && c.step != bye {
		c.event = e.messages.Begin()
	}
	return c.event
}

// logSent logs a message of an event before it is sent. kind is the event's type if
// the message begins the event. to is used only if the socket is not connected.
func (e *engine) logSent(s *socket, message []byte, to netip.AddrPort, of truth.Event, kind string) {
	if e.messages == nil {
		return
	}
	if s.connected {
		to = s.peer
	}
	e.messages.Write(truth.Line{
		Src: s.local, Dst: to, Protocol: truth.SIP, Name: firstLine(message), Event: of, Type: kind, Key: truth.Hash(message),
	})
}

// logReceived logs the i-th datagram read, which belongs to the event.
func (e *engine) logReceived(s *socket, i int, message []byte, of truth.Event) {
	if e.messages == nil {
		return
	}
	from := s.peer
	if !s.connected {
		from = s.source(i)
	}
	e.messages.Write(truth.Line{
		Src: from, Dst: s.local, Received: true, Protocol: truth.SIP, Name: firstLine(message), Event: of, Key: truth.Hash(message),
	})
}

func firstLine(message []byte) string {
	line, _, _ := bytes.Cut(message, []byte("\r\n"))
	return string(line)
}
