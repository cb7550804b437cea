package director

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"

	"vitrine/director/client"
	"vitrine/director/datagram"
	"vitrine/director/sip"
	"vitrine/director/table"
)

// A server owns the listening sockets of one protocol, from its package's Listen to
// Close, and steers their messages. Messages wait in the sockets before Run and after it.
type server interface {
	Addresses() []netip.AddrPort // in the order of the configuration
	Run(context.Context) error   // once, until the context is done
	Files() ([]*os.File, error)  // duplicates of the sockets, in a fixed order; the caller closes them
	Datagrams() (datagram.Counters, error)
	Steerings() []*table.Steering // memories of the workers, in a fixed order; not to be changed during Run
	Close() error                 // after Run
}

// A carrier has memory that all workers of a server share. Its methods are called only while no
// worker runs. numbers has the type numbers here by those of the writer; -1: the type is gone;
// nil: they are the same.
type carrier interface {
	Carry(io.Writer) error
	TakeOver(from io.Reader, numbers []int) (n int, err error)
}

// A protocol is a server and the functions that differ between protocols.
type protocol struct {
	server
	name    string            // SIP, GTPC or S1AP
	section byte              // of the hand-over, for the memory of a worker
	shared  carrier           // nil: the workers share no memory
	lost    datagram.Counters // at the last call of logLosses
	forgot  map[string]uint64 // what forgotten returned then

	// prepare checks rules and returns put, which puts them in force.
	prepare func(c *Config, rules []Rule) (put func(), err error)
	collect func(emitter)
	setKeys func(*sip.Keyring) // nil: the protocol needs no keys
	explain func(message []byte, from netip.AddrPort) (client.Explanation, error)

	// forgotten counts what was forgotten for lack of room since the start, by what it was and the option to
	// raise. nil: the protocol forgets nothing.
	forgotten func() map[string]uint64
}

// openProtocols opens or takes over the listeners of all protocols.
func (d *Director) openProtocols(c *Config, inherited []*os.File) error {
	for _, of := range []struct {
		listeners []string
		open      func(*Config, []*os.File) (*protocol, error)
	}{{c.Listen.SIP, d.openSIP}, {c.Listen.GTPC, d.openGTPC}, {c.Listen.S1AP, d.openS1AP}} {
		if len(of.listeners) == 0 {
			continue
		}
		p, err := of.open(c, inherited)
		if err != nil {
			return err
		}
		if c, err := p.Datagrams(); err == nil {
			p.lost = c // an inherited socket has counted since the previous process opened it
		}
		d.protocols = append(d.protocols, p)
	}
	return nil
}

// A regionNetwork is one network of a region.
type regionNetwork struct {
	prefix netip.Prefix
	name   string // of the region
	region table.Region
}

// regionNetworks returns all networks of regions, the longest prefix first.
func regionNetworks(c *Config) (all []regionNetwork) {
	for _, r := range c.Regions {
		for _, n := range r.Networks {
			all = append(all, regionNetwork{n.Masked(), r.Name, table.RegionOf(r.Name)})
		}
	}
	slices.SortStableFunc(all, func(a, b regionNetwork) int { return b.prefix.Bits() - a.prefix.Bits() })
	return all
}

// regionFinder returns a function that finds the region of a client's address; 0: none.
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

// prepareRules checks rules and returns put, which puts them in force.
func (d *Director) prepareRules(c *Config, rules []Rule) (put func(), err error) {
	var all []func()
	for _, p := range d.protocols {
		put, err := p.prepare(c, rules)
		if err != nil {
			return nil, err
		}
		all = append(all, put)
	}
	return func() {
		for _, put := range all {
			put()
		}
	}, nil
}

// setRules puts rules in force for all protocols, or for none.
func (d *Director) setRules(c *Config, rules []Rule) error {
	put, err := d.prepareRules(c, rules)
	if err != nil {
		return err
	}
	put()
	return nil
}

// runProtocols serves until ctx is done.
func (d *Director) runProtocols(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range d.protocols {
		g.Go(func() error { return p.Run(ctx) })
	}
	return g.Wait()
}

func (d *Director) closeProtocols() (err error) {
	for _, p := range d.protocols {
		err = errors.Join(err, p.Close())
	}
	return err
}

// files returns duplicates of the listening sockets, in a fixed order.
func (d *Director) files() (all []*os.File, err error) {
	for _, p := range d.protocols {
		more, err := p.Files()
		all = append(all, more...)
		if err != nil {
			closeAll(all)
			return nil, err
		}
	}
	return all, nil
}
