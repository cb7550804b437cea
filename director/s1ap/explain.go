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

// An Explanation tells where a message of an eNodeB would go, and why.
type Explanation struct {
	Procedure s1ap.Procedure
	Stranger  bool // eNodeBs may not connect from there
	// Number is that of the instance that the message names, by the S-TMSI of a first
	// message or by the MME UE S1AP ID of a later one; 0: none.
	Number uint8
	Named  *table.Target // the instance with that number; nil: there is none
	// Initial: the message begins a connection. The fields below do not apply to others.
	Initial  bool
	Message  string        // as in rules; "other": NAS does not say
	Cause    string        // as in rules; empty: the eNodeB does not say
	Identity string        // what Key is of; empty: the eNodeB and its number for the UE
	Key      uint64        // that the table chooses by
	Rule     int           // the rule that matches, from 0; -1: none
	Type     table.Type    // the rule's
	Instance *table.Target // nil: the type has no available instance
}

// Explain tells where a message from that address would go now, if its eNodeB reaches all
// instances. It decides as a worker with an empty memory would, and remembers nothing.
// Counts go to the probe. Explain fails if data is not an S1AP message.
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
