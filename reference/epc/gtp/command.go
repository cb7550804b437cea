package gtp

import (
	"bytes"
	"context"
	"net/netip"

	"vitrine/wire/gtpc"
)

// Command sends a command (clause 7.6). done is called once: with the failure indication
// that refuses the command, with the request that the command triggers, or with an error.
// done must not block. Command uses only the event of ctx. A triggered request also goes to
// Config.Handle, with origin as its Origin. origin is the sequence number of the command
// that this endpoint forwards, or 0.
func (e *Endpoint) Command(ctx context.Context, to netip.AddrPort, teid, origin uint32, command Message, done func(*gtpc.Message, error)) {
	e.start(ctx, to, teid, order{command: true, origin: origin}, command, done)
}

// DoCommand is like Command, but waits until the peer has refused the command or has sent
// the request that the command triggers. If the peer refuses, failure is set.
func (e *Endpoint) DoCommand(ctx context.Context, to netip.AddrPort, teid, origin uint32, command Message, failure *gtpc.BearerFailure) (refused bool, err error) {
	type outcome struct {
		refused bool
		err     error
	}
	done := make(chan outcome, 1)
	e.Command(ctx, to, teid, origin, command, func(m *gtpc.Message, err error) {
		o := outcome{err: err}
		if err == nil && m.Type == gtpc.BearerResourceFailure {
			o.refused, o.err = true, failure.Parse(m)
		}
		done <- o
	})
	select {
	case o := <-done:
		return o.refused, o.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// DoTriggered is like Do, for a request that a command may have triggered. The request
// then has the command's sequence number (clause 7.6). 0 means that no command triggered it.
func (e *Endpoint) DoTriggered(ctx context.Context, to netip.AddrPort, teid, sequence uint32, request Message, answer Answer) error {
	type outcome struct {
		octets []byte
		err    error
	}
	done := make(chan outcome, 1)
	e.start(ctx, to, teid, order{sequence: sequence}, request, func(m *gtpc.Message, err error) {
		if err != nil {
			done <- outcome{err: err}
			return
		}
		done <- outcome{octets: bytes.Clone(m.Octets)} // the answer's slices outlive the receive buffer
	})
	select {
	case o := <-done:
		if o.err != nil {
			return o.err
		}
		var m gtpc.Message
		if _, err := m.Parse(o.octets); err != nil {
			return err
		}
		return answer.Parse(&m)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// An order decides the sequence number of a request. The zero order is for a request that
// no command triggered.
type order struct {
	sequence uint32 // of the command that triggered this request; 0: none
	command  bool
	origin   uint32 // of the command that this command forwards; 0: none
}

// failureOf returns the type of the message that refuses a command (table 6.1-1).
func failureOf(command gtpc.Type) gtpc.Type { return command + 1 }

// follow ends this endpoint's command that triggered the request m. done is nil if there is
// no such command. The caller holds mu.
func (e *Endpoint) follow(m *gtpc.Message, from netip.AddrPort) (origin uint32, done func(*gtpc.Message, error)) {
	if m.Sequence&gtpc.CommandSequence == 0 || !m.Type.FollowsCommand() {
		return 0, nil
	}
	x, ok := e.pending[pendingKey(from.Addr(), m.Sequence)]
	if !ok || !gtpc.Type(x.octets[1]).IsCommand() {
		return 0, nil
	}
	return x.origin, e.end(x)
}

// pendingKey returns the key of a request that waits for an answer. It omits the port,
// because answers may come from another port; see answered. It includes the peer, because
// peers choose the sequence numbers of triggered requests.
func pendingKey(peer netip.Addr, sequence uint32) exchangeKey {
	return exchangeKey{peer: netip.AddrPortFrom(peer, 0), sequence: sequence}
}
