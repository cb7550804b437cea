package s1ap

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/s1ap"
)

// An Explanation says where a message of an eNodeB would go, and why.
type Explanation struct {
	Procedure s1ap.Procedure
	Stranger  bool // the policy does not admit eNodeBs from this address
	// Number is the number of the instance that the message names: by the S-TMSI or GUTI of a
	// first message, or by the MME UE S1AP ID of a later message. 0: none.
	Number uint8
	Named  *table.Target // the instance with this Number; nil: there is none
	// Initial says that the message begins a connection. The fields below apply only then.
	Initial  bool
	Message  string        // as in rules; "other": NAS does not have it
	Cause    string        // as in rules; empty: unknown
	Identity string        // kind of identity that Key is made from; empty: the eNodeB and its eNB UE S1AP ID
	Key      uint64        // key for the lookup in the table
	Rule     int           // index of the matching rule, from 0; -1: none
	Type     table.Type    // type of the rule
	Instance *table.Target // nil: the type has no available instance
}

// Explain says where a message from an address would go now, if its eNodeB reaches all
// instances. It decides like a worker with an empty memory, and changes no state of the Server.
// Counts go to probe. Explain fails if data is not an S1AP message.
func (s *Server) Explain(now time.Duration, probe *meter.Worker, from netip.AddrPort, data []byte) (Explanation, error) {
	w := &worker{steering: table.NewSteering(s.config.Epochs, 8), meter: probe}
	t := &turn{server: s, worker: w, now: now, view: s.config.Epochs.View(), policy: s.policy.Load()}
	if err := t.message.Parse(data); err != nil {
		return Explanation{}, fmt.Errorf("explain an S1AP message: %w", err)
	}
	if _, ok := t.in.parse(&t.message); !ok {
		return Explanation{}, errors.New("explain an S1AP message: an information element is malformed")
	}
	in := &t.in
	x := Explanation{Procedure: t.message.Procedure, Rule: -1, Stranger: from.IsValid() && !t.policy.admits(from.Addr())}
	x.Initial = x.Procedure == s1ap.InitialUEMessage && t.message.Kind == s1ap.Initiating
	switch {
	case x.Initial:
	case in.has&hasSource != 0:
		x.Number = numberOf(in.source)
	case in.has&hasMME != 0:
		x.Number = numberOf(in.mme)
	}
	if !x.Initial {
		x.Named = t.policy.find(t.view.Table, x.Number)
		return x, nil
	}
	a := t.ask()
	x.Message, x.Cause, x.Identity, x.Key, x.Number = a.kind.String(), in.reason.String(), a.identity, a.key, a.number
	x.Named = t.policy.find(t.view.Table, a.number)
	if r, ok := t.policy.classify(a.kind, in.reason); ok {
		e := &enodeb{association: &association{peer: from}}
		if s.config.Region != nil && from.IsValid() {
			e.region = s.config.Region(from.Addr())
		}
		x.Rule, x.Type = r.at, r.ty
		x.Key = e.keyFor(&a, in.enb)
		x.Instance, _ = t.steer(e, r.ty, &a, x.Key)
	}
	return x, nil
}
