package director

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"

	"vitrine/director/datagram"
	"vitrine/director/gtpc"
	"vitrine/director/sip"
	"vitrine/director/table"
)

// A sipSide is what speaks SIP; nil when no type does.
type sipSide struct{ *sip.Server }

// A gtpcSide is what speaks GTP-C; nil when no type does.
type gtpcSide struct {
	group    *datagram.Group
	director *gtpc.Director
	handlers []*gtpc.Worker
}

// openSides opens the listeners of both protocols, or takes them over.
func (d *Director) openSides(c *Config, inherited []*os.File) error {
	if len(c.Listen.SIP) > 0 {
		if err := d.openSIP(c, inherited); err != nil {
			return err
		}
	}
	if len(c.Listen.GTPC) > 0 {
		return d.openGTPC(c, inherited)
	}
	return nil
}

func (d *Director) openSIP(c *Config, inherited []*os.File) error {
	var listeners []sip.Listener
	for _, text := range c.Listen.SIP {
		l, err := ParseListener(text)
		if err != nil {
			return err
		}
		host := ""
		if c.Listen.Advertise != "" {
			host = fmt.Sprintf("%s:%d", c.Listen.Advertise, l.Address.Port())
		}
		listeners = append(listeners, sip.Listener{Stream: l.Network == TCP, Address: l.Address, Host: host})
	}
	rules, err := d.sipRules(c, d.state.Rules)
	if err != nil {
		return err
	}
	server, err := sip.Listen(sip.Config{
		Listeners: listeners, Workers: c.Workers, Inherited: inherited, Epochs: d.epochs, Rules: rules, Meter: d.meter,
		Keys: c.Memory.Keys, Now: d.now, Log: d.log,
	})
	if err != nil {
		return err
	}
	d.sip = &sipSide{server}
	return nil
}

// sipRules are the rules of the types that speak SIP.
func (d *Director) sipRules(c *Config, rules []Rule) (*sip.Rules, error) {
	all := sip.RulesConfig{Types: c.typeNames(), Options: map[string]sip.TypeOptions{}, Names: c.Listen.Names, Feedback: c.Feedback, Trusted: c.Trusted}
	for i := range c.Types {
		t := &c.Types[i]
		if t.Protocol == SIP {
			all.Options[t.Name] = sip.TypeOptions{Dialogs: t.Drain == DrainDialogs, Stream: t.Transport == TCP, Gate: d.gates[t.Name]}
		}
	}
	for _, r := range rules {
		if t := c.Type(r.Type); t == nil || t.Protocol != SIP {
			continue
		}
		key, err := sip.ParseKey(r.Key)
		if err != nil {
			return nil, err
		}
		all.Rules = append(all.Rules, sip.Rule{Method: r.Method, Event: r.Event, Type: r.Type, Key: key})
	}
	for _, r := range regionNetworks(c) {
		all.Regions = append(all.Regions, sip.Region{Prefix: r.prefix, Region: r.region})
	}
	return sip.NewRules(all)
}

type regionNetwork struct {
	prefix netip.Prefix
	region table.Region
}

// regionNetworks are all networks of regions, the longest prefix first.
func regionNetworks(c *Config) (all []regionNetwork) {
	for _, r := range c.Regions {
		for _, n := range r.Networks {
			all = append(all, regionNetwork{n.Masked(), table.RegionOf(r.Name)})
		}
	}
	slices.SortStableFunc(all, func(a, b regionNetwork) int { return b.prefix.Bits() - a.prefix.Bits() })
	return all
}

func regionFinder(c *Config) func(netip.Addr) table.Region {
	all := regionNetworks(c)
	return func(a netip.Addr) table.Region {
		for i := range all {
			if all[i].prefix.Contains(a) {
				return all[i].region
			}
		}
		return 0
	}
}

func (d *Director) openGTPC(c *Config, inherited []*os.File) error {
	var addresses []netip.AddrPort
	for _, text := range c.Listen.GTPC {
		l, err := ParseListener(text)
		if err != nil {
			return err
		}
		addresses = append(addresses, l.Address)
	}
	policy, err := d.gtpcPolicy(c, d.state.Rules)
	if err != nil {
		return err
	}
	group, err := datagram.Listen(datagram.Config{Addresses: addresses, Workers: c.Workers, Inherited: inherited, Now: d.now})
	if err != nil {
		return fmt.Errorf("listen for GTP-C: %w", err)
	}
	d.gtpc = &gtpcSide{group: group}
	d.gtpc.director, err = gtpc.New(gtpc.Config{
		Addresses: group.Addresses(), Epochs: d.epochs, Meter: d.meter, Policy: policy, Counter: c.GTPC.RestartCounter,
		First: d.state.Starts * sequencesPerStart, PeerPort: uint16(c.GTPC.PeerPort), Region: regionFinder(c), Keys: c.Memory.Keys,
	})
	if err != nil {
		return err
	}
	for range c.Workers {
		d.gtpc.handlers = append(d.gtpc.handlers, d.gtpc.director.Worker())
	}
	return nil
}

// sequencesPerStart keeps the sequence numbers of one start clear of those that
// the one before used last.
const sequencesPerStart = 1 << 20

// gtpcPolicy are the rules of the types that speak GTP-C.
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
	return gtpc.NewPolicy(c.typeNames(), options, own)
}

// setRules puts rules in force on both sides, or on none.
func (d *Director) setRules(c *Config, rules []Rule) error {
	if d.sip != nil {
		r, err := d.sipRules(c, rules)
		if err != nil {
			return err
		}
		defer d.sip.SetRules(r)
	}
	if d.gtpc != nil {
		p, err := d.gtpcPolicy(c, rules)
		if err != nil {
			return err
		}
		d.gtpc.director.SetPolicy(p)
	}
	return nil
}

// runSides serves until ctx is done.
func (d *Director) runSides(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if d.sip != nil {
		g.Go(func() error { return d.sip.Run(ctx) })
	}
	if d.gtpc != nil {
		g.Go(func() error {
			return d.gtpc.group.Run(ctx, func(i int) datagram.Handler { return d.gtpc.handlers[i] })
		})
	}
	return g.Wait()
}

func (d *Director) closeSides() error {
	var err error
	if d.sip != nil {
		err = d.sip.Close()
	}
	if d.gtpc != nil {
		err = errors.Join(err, d.gtpc.group.Close())
	}
	return err
}

// memories are the workers' steerings, by the section that hands them over, in
// an order that does not change.
func (d *Director) memories() map[byte][]*table.Steering {
	all := map[byte][]*table.Steering{}
	if d.sip != nil {
		all[sipSection] = d.sip.Memories()
	}
	if d.gtpc != nil {
		all[gtpcSection] = d.gtpc.director.Memories()
	}
	return all
}

// files are duplicates of the listening sockets, in an order that does not
// change.
func (d *Director) files() (all []*os.File, err error) {
	if d.sip != nil {
		if all, err = d.sip.Files(); err != nil {
			return nil, err
		}
	}
	if d.gtpc != nil {
		more, err := d.gtpc.group.Files()
		all = append(all, more...)
		if err != nil {
			closeAll(all)
			return nil, err
		}
	}
	return all, nil
}
