package vxlan

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"vitrine/fabric/segment"
	"vitrine/internal/netns"
)

// Interfaces of the two namespaces that stand for hosts.
const (
	underlay = "wire"   // leads to the other host
	overlay  = "vxlan0" // the host's end of the tunnel
)

// A host is a namespace that stands for a host. It has a bridge, an interface
// that leads to the other host, and an end of the tunnel.
type host struct {
	links  *netlink.Handle
	bridge int
}

// pair is the Wiring of two such hosts. The first is the segment's namespace.
// The second has no name: the kernel removes it when this process closes it or
// ends.
type pair struct {
	config Config
	hosts  [2]host
	far    *os.File // namespace of the second host
	joined int      // number of instances joined so far
}

// Make makes the two hosts and a network between them.
func (w *pair) Make(s *segment.Segment) error {
	w.hosts[0].links = s.Links
	if err := netns.Try(w.makeFar); err != nil {
		return err
	}
	wire := netlink.NewVeth(netlink.LinkAttrs{Name: underlay, MTU: s.MTU + Overhead, TxQLen: -1})
	wire.PeerName, wire.PeerNamespace = underlay, netlink.NsFd(w.far.Fd())
	if err := s.Links.LinkAdd(wire); err != nil {
		return fmt.Errorf("making a pair of interfaces: %w", err)
	}
	ends := [2]netip.Prefix{netip.MustParsePrefix("198.19.255.253/30"), netip.MustParsePrefix("198.19.255.254/30")}
	for i := range w.hosts {
		if err := w.hosts[i].wire(ends[i]); err != nil {
			return err
		}
	}
	for i := range w.hosts {
		h := &w.hosts[i]
		err := h.links.LinkAdd(w.config.device(netlink.LinkAttrs{Name: overlay, MTU: s.MTU, TxQLen: -1}, ends[i].Addr(), ends[1-i].Addr()))
		if err != nil {
			return fmt.Errorf("making an end of the tunnel: %w", err)
		}
		if h.bridge, err = s.BridgeAt(h.links, "br0"); err != nil {
			return err
		}
		if err := plug(h.links, overlay, h.bridge); err != nil {
			return err
		}
	}
	return nil
}

// makeFar sets up the calling thread's namespace as the second host.
func (w *pair) makeFar() (err error) {
	if err := segment.Quiet(); err != nil {
		return err
	}
	if w.hosts[1].links, err = segment.Host(); err != nil {
		return err
	}
	w.far, err = segment.OpenHere()
	return err
}

// wire brings up the host's interface to the other host, with the address.
func (h *host) wire(addr netip.Prefix) error {
	wire, err := h.links.LinkByName(underlay)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", underlay, err)
	}
	if err := h.links.AddrAdd(wire, &netlink.Addr{IPNet: segment.IPNet(addr)}); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", underlay, addr, err)
	}
	if err := h.links.LinkSetUp(wire); err != nil {
		return fmt.Errorf("bringing %s up: %w", underlay, err)
	}
	return nil
}

// Join joins instances to the first and the second host in turn.
func (w *pair) Join(s *segment.Segment, end *segment.End) error {
	h := &w.hosts[w.joined%len(w.hosts)]
	end.Links = h.links
	if err := s.Pair(end, h.bridge); err != nil {
		return err
	}
	w.joined++
	return nil
}

func (w *pair) Cut(s *segment.Segment, end *segment.End) error { return s.Unpair(end) }

// Unmake closes the second host's namespace, and so removes it.
func (w *pair) Unmake(*segment.Segment) error {
	if far := w.hosts[1].links; far != nil {
		far.Close()
		w.hosts[1].links = nil
	}
	if w.far == nil {
		return nil
	}
	far := w.far
	w.far = nil
	return far.Close()
}
