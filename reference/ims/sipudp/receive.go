package sipudp

import (
	"log/slog"
	"net/netip"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/truth"
)

// A Receiver parses the datagrams of a node and enters them into its transactions. It calls
// the node for what follows. Its methods may be called concurrently.
type Receiver struct {
	Transactions *Transactions
	Upstream     *Socket // sends the answers to requests; nil: requests are dropped
	Parser       *sip.Parser
	Garbage      prometheus.Counter // datagrams that were no usable SIP message
	Log          *slog.Logger

	Begun    func(tx *Transaction, a Arrival)                            // a request that is no retransmission
	Ack      func(req *sip.Request, from netip.AddrPort, of truth.Event) // an ACK to forward
	Response func(res *sip.Response, a Arrival) (of truth.Event)         // an answer, not yet entered
}

// Receive handles one datagram.
func (r *Receiver) Receive(data []byte, a Arrival) {
	msg, err := Parse(r.Parser, data)
	if err != nil {
		r.Garbage.Inc()
		r.Log.Debug("dropped a datagram", "from", a.From, "error", err)
		return
	}
	var of truth.Event
	switch m := msg.(type) {
	case *sip.Request:
		if r.Upstream != nil {
			of = r.request(m, a)
		}
	case *sip.Response:
		of = r.Response(m, a)
	}
	Received(r.Transactions.Messages, data, a, of)
}

// request enters a request and returns its event.
func (r *Receiver) request(req *sip.Request, a Arrival) truth.Event {
	upstream := Peer{Socket: r.Upstream, To: ReturnPath(req, a.From)}
	switch req.Method {
	case sip.ACK:
		forward, of := r.Transactions.ReceiveAck(req)
		if forward {
			r.Ack(req, a.From, of)
		}
		return of
	case sip.CANCEL:
		of, err := r.Transactions.ReceiveCancel(req, upstream)
		if err != nil {
			r.Log.Debug("a CANCEL was not sent", "error", err)
		}
		return of
	}
	tx, fresh := r.Transactions.Receive(req, upstream, a.At)
	if fresh {
		r.Begun(tx, a)
	}
	return tx.Event
}
