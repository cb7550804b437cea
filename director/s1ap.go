package director

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"vitrine/director/client"
	"vitrine/director/datagram"
	"vitrine/director/s1ap"
	"vitrine/internal/sctp"
	"vitrine/wire/identity"
	wire "vitrine/wire/s1ap"
)

func (o *S1APOptions) setDefaults() {
	o.Name = cmp.Or(o.Name, "vitrine-pool")
	o.Network = cmp.Or(o.Network, "00101")
	o.Group = cmp.Or(o.Group, 1)
	if o.Capacity == nil {
		capacity := uint8(255)
		o.Capacity = &capacity
	}
}

// network returns the PLMN of the pool.
func (o *S1APOptions) network() (identity.PLMN, bool) { return identity.ParsePLMN(o.Network) }

// sameIdentity reports whether eNodeBs see the same MME, and the limits are the same.
func (o *S1APOptions) sameIdentity(other *S1APOptions) bool {
	return o.Name == other.Name && o.Network == other.Network && o.Group == other.Group && slices.Equal(o.Codes, other.Codes) &&
		*o.Capacity == *other.Capacity && o.Most == other.Most && o.PerSource == other.PerSource && o.UEs == other.UEs && o.PerENodeB == other.PerENodeB
}

func (c *validator) s1ap() {
	if _, ok := c.S1AP.network(); !ok {
		c.Bad(fmt.Sprintf("%q", c.S1AP.Network), "want five or six digits, such as 00101", "s1ap", "network")
	}
	for i, n := range c.S1AP.ENodeBs {
		c.network(n, "s1ap", "enodebs", i)
	}
	for i, code := range c.S1AP.Codes {
		if code < 0 || code > 255 || slices.Index(c.S1AP.Codes, code) != i {
			c.Bad(fmt.Sprint(code), "want different numbers from 0 to 255", "s1ap", "codes", i)
		}
	}
	for i := range c.S1AP.Name {
		if c.S1AP.Name[i] < ' ' || c.S1AP.Name[i] > '~' {
			c.Bad(fmt.Sprintf("%q", c.S1AP.Name), "want printable ASCII characters", "s1ap", "name")
			break
		}
	}
}

// openS1AP opens or takes over the S1AP listeners.
func (d *Director) openS1AP(c *Config, inherited []*os.File) (*protocol, error) {
	addresses, err := addressesOf(c.Listen.S1AP)
	if err != nil {
		return nil, err
	}
	over, err := c.overSCTP()
	if err != nil {
		return nil, err
	}
	policy, err := d.s1apPolicy(c, d.state.Rules)
	if err != nil {
		return nil, err
	}
	s, err := s1ap.Listen(s1ap.Config{
		Addresses: addresses, SCTP: over, Workers: c.Workers, Inherited: inherited, Now: d.now, Epochs: d.epochs, Meter: d.meter, Policy: policy,
		Log: d.log, Region: regionFinder(c), Keys: c.Memory.Keys,
		ENodeBs: c.S1AP.Most, PerSource: c.S1AP.PerSource, UEs: c.S1AP.UEs, PerENodeB: c.S1AP.PerENodeB,
	})
	if err != nil {
		return nil, err
	}
	return &protocol{
		server: s, name: S1AP, section: s1apSection,
		prepare: func(c *Config, rules []Rule) (func(), error) {
			p, err := d.s1apPolicy(c, rules)
			return func() { s.SetPolicy(p) }, err
		},
		collect: func(e emitter) { d.collectS1AP(s, e) },
		explain: func(message []byte, from netip.AddrPort) (client.Explanation, error) {
			return d.explainS1AP(s, message, from)
		},
	}, nil
}

// overSCTP reports for each S1AP listener whether it uses SCTP. The error is a
// *vitrine.Unsupported if a listener or a type needs SCTP and the kernel does not have it.
func (c *Config) overSCTP() (over []bool, err error) {
	needed := slices.ContainsFunc(c.Types, func(t Type) bool { return t.Transport == SCTP })
	for _, text := range c.Listen.S1AP {
		over = append(over, strings.HasPrefix(text, SCTP+"://"))
		needed = needed || over[len(over)-1]
	}
	if needed {
		err = sctp.Possible()
	}
	return over, err
}

// s1apPolicy returns the policy for the types that speak S1AP.
func (d *Director) s1apPolicy(c *Config, rules []Rule) (*s1ap.Policy, error) {
	var options []s1ap.TypeOption
	for i := range c.Types {
		if t := &c.Types[i]; t.Protocol == S1AP {
			options = append(options, s1ap.TypeOption{Type: t.Name, Sessions: t.Drain == DrainDialogs, Spread: t.Spread, SCTP: t.Transport == SCTP, Gate: d.gates[t.Name]})
		}
	}
	var own []s1ap.Rule
	for _, r := range rules {
		if t := c.Type(r.Type); t != nil && t.Protocol == S1AP {
			own = append(own, s1ap.Rule{Message: r.Message, Cause: r.Cause, Type: r.Type})
		}
	}
	policy, err := s1ap.NewPolicy(c.typeNames(), options, own)
	if err != nil {
		return nil, err
	}
	network, _ := c.S1AP.network() // validate has checked it
	policy.Quota, policy.ENodeBs = d.quotas[S1AP], c.S1AP.ENodeBs
	policy.Pool = s1ap.Pool{Name: c.S1AP.Name, PLMN: network, Group: c.S1AP.Group, Capacity: *c.S1AP.Capacity}
	for _, code := range c.S1AP.Codes {
		policy.Pool.Codes = append(policy.Pool.Codes, byte(code))
	}
	return policy, nil
}

// collectS1AP sends the counters of S1AP.
func (d *Director) collectS1AP(s *s1ap.Server, e emitter) {
	t := s.Counters()
	e.count("received_total", receivedHelp, t.Received, "protocol", S1AP, "kind", "any")
	for what, n := range map[string]uint64{
		"forwarded": t.Forwarded, "answered": t.Answered, "absorbed": t.Absorbed, "malformed": t.Malformed, "unexpected": t.Unexpected,
		"refused": t.Refused, "no_room": t.Full, "unknown_connection": t.Unknown, "over_quota": t.OverQuota, "unruled": t.Unruled, "stray": t.Strayed,
		"reset": t.Resets, "misnumbered": t.Misnumbered,
	} {
		e.count("handled_total", handledHelp, n, "protocol", S1AP, "how", what)
	}
	e.gauge("enodebs", "eNodeBs that are set up.", float64(t.ENodeBs))
	e.gauge("connected_ues", "Connections of UEs.", float64(t.UEs))
	e.gauge("instance_associations", "S1AP associations with instances, one for each eNodeB and instance.", float64(t.Links))
	e.gauge("queued_bytes", "Bytes that wait for S1AP peers.", float64(t.Queued))
	e.count("enodeb_associations_total", "S1AP associations accepted.", t.Accepted)
	for cause, n := range map[string]uint64{"total": t.TurnedAway, "source": t.Crowded, "network": t.Strangers} {
		e.count("enodeb_associations_refused_total", "S1AP associations refused because of a limit, of all or of one source, or refused or ended because of s1ap.enodebs.", n, "cause", cause)
	}
	e.count("enodeb_associations_late_total", "S1AP associations ended because S1 Setup, or the rest of a frame, did not come in time.", t.Late)
	e.count("s1_setups_total", "S1 Setups that succeeded.", t.Setups)
	e.count("s1_setup_failures_total", "S1 Setups that failed.", t.Failures)
	e.count("instance_associations_lost_total", "S1AP associations with instances that ended.", t.Losses)
	d.collectDrops(e, S1AP, datagram.Counters{})
}

// isS1AP reports whether a message is S1AP: its length and its information elements must
// fill the message exactly.
func isS1AP(message []byte) bool {
	var m wire.Message
	return m.Parse(message) == nil && m.Check() == nil
}

func (d *Director) explainS1AP(s *s1ap.Server, message []byte, from netip.AddrPort) (client.Explanation, error) {
	v := d.epochs.View()
	e := client.Explanation{Epoch: v.Table.Epoch()}
	step := func(format string, args ...any) { e.Steps = append(e.Steps, fmt.Sprintf(format, args...)) }
	x, err := s.Explain(d.now(), d.meter.Probe(), from, message)
	switch {
	case err != nil:
		step("the message does not parse: %v", err)
		return e, nil
	case x.Stranger:
		step("%s is in none of the networks of s1ap.enodebs: its connection is refused", from)
		return e, nil
	}
	if x.Number != 0 && x.Named != nil {
		step("it carries the number %d of instance %s", x.Number, x.Named.Name)
	} else if x.Number != 0 {
		step("it carries the number %d, which no instance has", x.Number)
	}
	if !x.Initial {
		if step("%s begins no connection of a UE: it goes to the instance of its connection, or the director answers it", x.Procedure); x.Named != nil {
			e.Type, e.Instance, e.Address = x.Named.TypeName(), x.Named.Name, x.Named.Address.String()
		}
		return e, nil
	}
	step("NAS says in clear: %s", x.Message)
	if x.Cause != "" {
		step("its UE connects because of %s", x.Cause)
	}
	if x.Rule < 0 {
		step("no rule matches")
		return e, nil
	}
	step("%s", d.matches(S1AP, x.Rule))
	e.Type = v.Table.Types()[x.Type]
	if x.Identity != "" {
		step("the key is that of its %s: %016x", x.Identity, x.Key)
	} else {
		step("it names no UE; the hash %016x of the eNodeB and its identifier takes the place of the key", x.Key)
	}
	if from.IsValid() {
		e.Region = d.regionName(from.Addr())
	}
	if t := d.config.Load().Type(e.Type); x.Named == nil || x.Instance != x.Named || t != nil && t.Spread {
		d.explainPick(v, &e, x.Type, x.Key, e.Region)
	}
	if x.Instance != nil {
		e.Instance, e.Address = x.Instance.Name, x.Instance.Address.String()
		step("it goes to %s at %s, unless the eNodeB has just lost its association there", e.Instance, e.Address)
	}
	return e, nil
}
