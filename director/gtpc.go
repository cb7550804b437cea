package director

import (
	"fmt"
	"net/netip"
	"os"

	"vitrine/director/client"
	"vitrine/director/gtpc"
)

// openGTPC opens or takes over the GTP-C listeners.
func (d *Director) openGTPC(c *Config, inherited []*os.File) (*protocol, error) {
	addresses, err := addressesOf(c.Listen.GTPC)
	if err != nil {
		return nil, err
	}
	policy, err := d.gtpcPolicy(c, d.state.Rules)
	if err != nil {
		return nil, err
	}
	s, err := gtpc.Listen(gtpc.Config{
		Addresses: addresses, Workers: c.Workers, Inherited: inherited, Now: d.now, Epochs: d.epochs, Meter: d.meter, Policy: policy, Log: d.log,
		Counter: c.GTPC.RestartCounter, First: d.state.Starts * sequencesPerStart, PeerPort: uint16(c.GTPC.PeerPort),
		Region: regionFinder(c), Keys: c.Memory.Keys, Sessions: c.Memory.Sessions, Exchanges: c.Memory.Exchanges,
	})
	if err != nil {
		return nil, err
	}
	return &protocol{
		server: s, name: GTPC, section: gtpcSection, shared: s,
		prepare: func(c *Config, rules []Rule) (func(), error) {
			p, err := d.gtpcPolicy(c, rules)
			return func() { s.SetPolicy(p) }, err
		},
		collect: func(e emitter) { d.collectGTPC(s, e) },
		explain: func(message []byte, from netip.AddrPort) (client.Explanation, error) {
			return d.explainGTPC(s, message, from)
		},
		forgot: map[string]uint64{},
		forgotten: func() map[string]uint64 {
			exchanges, sessions, peers := s.Forgotten()
			return map[string]uint64{"requests (memory.exchanges)": exchanges, "learned TEIDs (memory.sessions)": sessions, "TEIDs of peers (memory.sessions)": peers}
		},
	}, nil
}

// sequencesPerStart is the distance between the first sequence numbers of two starts. It
// avoids the numbers that the previous process used last.
const sequencesPerStart = 1 << 20

// gtpcPolicy returns the policy for the types that speak GTP-C.
func (d *Director) gtpcPolicy(c *Config, rules []Rule) (*gtpc.Policy, error) {
	var options []gtpc.TypeOption
	for i := range c.Types {
		t := &c.Types[i]
		if t.Protocol == GTPC {
			options = append(options, gtpc.TypeOption{Type: t.Name, Number: t.Number, Sessions: t.Drain == DrainDialogs, Gate: d.gates[t.Name]})
		}
	}
	var own []gtpc.Rule
	for _, r := range rules {
		if t := c.Type(r.Type); t != nil && t.Protocol == GTPC {
			own = append(own, gtpc.Rule{Message: r.Message, Interface: r.Interface, Relocation: r.Relocation, Type: r.Type})
		}
	}
	policy, err := gtpc.NewPolicy(c.typeNames(), options, own)
	if err == nil {
		policy.Quota, policy.Peers = d.quotas[GTPC], c.GTPC.Peers
	}
	return policy, err
}

// collectGTPC sends the counters of GTP-C.
func (d *Director) collectGTPC(s *gtpc.Server, e emitter) {
	t, err := s.Counters()
	if err != nil {
		d.log.Warn("metrics of GTP-C", "error", err)
	}
	e.count("received_total", receivedHelp, t.Received, "protocol", GTPC, "kind", "any")
	for what, n := range map[string]uint64{
		"forwarded": t.Forwarded, "echo": t.Echoes, "version_refused": t.VersionsRefused, "malformed": t.Malformed, "stray": t.Stray,
		"retransmitted": t.Retransmitted, "rejected": t.Rejected, "unruled": t.Unruled, "unreachable": t.Unreachable,
		"unknown_teid": t.UnknownTEID, "keyless": t.Keyless, "piggybacked": t.Piggybacked, "over_quota": t.OverQuota,
		"stranger": t.Strangers, "aliased": t.Aliased,
	} {
		e.count("handled_total", handledHelp, n, "protocol", GTPC, "how", what)
	}
	e.count("exchanges_forgotten_total", "GTP-C requests forgotten for lack of room; their answers are lost.", t.ExchangesForgotten)
	e.count("sessions_forgotten_total", "Learned TEIDs forgotten for lack of room, although no session of theirs had ended.", t.SessionsForgotten)
	e.count("sessions_collided_total", "Learned TEIDs that two instances gave to sessions that live; messages for the earlier one go to the later one.", t.SessionsCollided)
	e.gauge("sessions_learned", "TEIDs learned.", float64(t.Sessions))
	e.count("peers_forgotten_total", "TEIDs of GTP-C peers forgotten for lack of room, although no session of theirs had ended, or not learned because another peer has them; instances cannot send requests to them.", t.PeersForgotten)
	e.gauge("peers_learned", "TEIDs of GTP-C peers learned.", float64(t.Peers))
	d.collectDatagrams(e, GTPC, t.Datagrams)
}

func (d *Director) explainGTPC(s *gtpc.Server, message []byte, from netip.AddrPort) (client.Explanation, error) {
	v := d.epochs.View()
	e := client.Explanation{Epoch: v.Table.Epoch()}
	step := func(format string, args ...any) { e.Steps = append(e.Steps, fmt.Sprintf(format, args...)) }
	x, err := s.Explain(d.now(), d.meter.Probe(), from, message)
	switch {
	case err != nil:
		step("the message does not parse: %v", err)
		return e, nil
	case x.Stranger:
		step("%s is neither an instance's address nor in gtpc.peers: the message is dropped", from)
		return e, nil
	case !x.Initial:
		step("message type %d begins no exchange: the director answers it, or sends it along its exchange", x.Kind)
		return e, nil
	case x.Peer.IsValid():
		e.Address = x.Peer.String()
		step("an instance sends it to a TEID from the peer %s", x.Peer)
		return e, nil
	case x.Lost:
		step("an instance sends it to a TEID that the director has from nobody: it is dropped")
		return e, nil
	}
	if x.Owner != 0 {
		step("its TEID belongs to instance %d of type %s", x.Owner, v.Table.Types()[x.OwnerOf])
	}
	if x.Rule < 0 {
		step("no rule matches message type %d", x.Kind)
		return e, nil
	}
	step("%s", d.matches(GTPC, x.Rule))
	e.Type = v.Table.Types()[x.Type]
	if x.Session {
		step("its session key is %016x", x.Key)
	} else {
		step("it carries no session key; the hash %016x takes its place", x.Key)
	}
	if from.IsValid() {
		e.Region = d.regionName(from.Addr())
	}
	d.explainPick(v, &e, x.Type, x.Key, e.Region)
	switch {
	case x.Refused != "":
		e.Instance, e.Address = "", ""
		step("%s", x.Refused)
	case x.Instance != nil:
		e.Instance, e.Address = x.Instance.Name, x.Instance.Address.String()
		step("it goes to %s at %s", e.Instance, e.Address)
	}
	return e, nil
}
