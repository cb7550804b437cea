// Package vxlan wires instances by a VXLAN tunnel (RFC 7348) between two hosts.
// By default these are two network namespaces that stand for hosts, and
// instances are joined to them in turn. The tunnel can also lead from this host
// to a remote one.
package vxlan

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Overhead is what the tunnel adds to a packet, in bytes: outer IPv4 (20), UDP
// (8) and VXLAN (8) headers, and the inner Ethernet header (14).
const Overhead = 50

const (
	defaultVNI  = 1
	maxVNI      = 1<<24 - 1
	defaultPort = 4789 // RFC 7348, section 5
	maxPort     = 1<<16 - 1
)

// Config is the part servers.vxlan of a deployment.
type Config struct {
	Run *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired

	// VNI is the VXLAN network identifier; the default is 1.
	VNI int `yaml:"vni,omitempty" json:"vni,omitempty" jsonschema:"minimum=1,maximum=16777215"`
	// Port is the UDP port of the tunnel; the default is 4789.
	Port int `yaml:"port,omitempty" json:"port,omitempty" jsonschema:"minimum=1,maximum=65535"`
	// Remote is the IPv4 address of the other host's end. All instances are then
	// on this host, and a run on the other host has this one as its remote. Give
	// the two different `first` addresses. By default the other host is a second
	// namespace.
	Remote string `yaml:"remote,omitempty" json:"remote,omitempty"`
	// Parent is the interface of this host that leads to the remote one. It is
	// required with remote, and not allowed without.
	Parent string `yaml:"parent,omitempty" json:"parent,omitempty"`

	segment.Options `yaml:",inline"`
}

func kind() segment.Kind {
	return segment.Kind{Name: "vxlan", Needs: "CONFIG_VXLAN, CONFIG_BRIDGE, CONFIG_VETH", Do: "modprobe vxlan bridge veth, or use the fabric bridge"}
}

// New makes the fabric. It looks for the parent in the calling thread's network
// namespace. Without the privilege, or without the kernel features that it
// needs, the error is a *vitrine.Unsupported.
func New(config Config) (*segment.Segment, error) {
	if config.VNI == 0 {
		config.VNI = defaultVNI
	}
	if config.Port == 0 {
		config.Port = defaultPort
	}
	bad := func(found, want string) (*segment.Segment, error) {
		return nil, &vitrine.BadInput{File: "fabric vxlan", Found: found, Want: want}
	}
	remote, err := netip.ParseAddr(config.Remote)
	switch {
	case config.VNI < 1 || config.VNI > maxVNI:
		return bad(fmt.Sprintf("vni: %d", config.VNI), fmt.Sprintf("1 to %d", maxVNI))
	case config.Port < 1 || config.Port > maxPort:
		return bad(fmt.Sprintf("port: %d", config.Port), fmt.Sprintf("1 to %d", maxPort))
	case (config.Remote == "") != (config.Parent == ""):
		return bad("one of remote and parent", "both or neither")
	case config.Remote != "" && (err != nil || !remote.Is4()):
		return bad(fmt.Sprintf("remote: %q", config.Remote), "an IPv4 address")
	}
	c := segment.Config{Run: config.Run, Kind: kind(), Options: config.Options}
	if config.Remote == "" {
		return segment.New(c, &pair{config: config})
	}
	w, err := openTunnel(config, remote, &c)
	if err != nil {
		return nil, fmt.Errorf("making the vxlan fabric: %w", err)
	}
	s, err := segment.New(c, w)
	if err != nil {
		return nil, errors.Join(err, w.Unmake(nil))
	}
	return s, nil
}

// Check reports whether this host supports vxlan fabrics.
func Check(context.Context) []vitrine.Check {
	w := &pair{config: Config{VNI: defaultVNI, Port: defaultPort}}
	c := segment.Check(kind(), w, "tunnels", "between two namespaces that stand for hosts, or to a remote host")
	if err := w.Unmake(nil); err != nil {
		c.OK, c.Detail, c.Missing = false, "", err.Error()
	}
	return []vitrine.Check{c}
}

// device returns one end of the tunnel.
func (c Config) device(attrs netlink.LinkAttrs, local, remote netip.Addr) *netlink.Vxlan {
	v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: c.VNI, Port: c.Port, Group: remote.AsSlice(), Learning: true}
	if local.IsValid() {
		v.SrcAddr = local.AsSlice()
	}
	return v
}

// tunnel is the Wiring that leads to a remote host: a bridge, and an end of the
// tunnel. The end is a port of the bridge but sends from the host's namespace.
type tunnel struct {
	config Config
	remote netip.Addr
	host   *netlink.Handle
	parent int // index on the host
	bridge int
}

// openTunnel finds the parent and makes a tunnel over it.
func openTunnel(config Config, remote netip.Addr, c *segment.Config) (*tunnel, error) {
	host, err := segment.Host()
	if err != nil {
		return nil, err
	}
	w := &tunnel{config: config, remote: remote, host: host}
	parent, err := segment.Uplink(host, config.Run, c.Name, config.Parent)
	if err == nil {
		w.parent, c.Outward = parent.Attrs().Index, true
		err = c.Fit(parent.Attrs().MTU-Overhead, config.Parent)
	}
	if err != nil {
		return nil, errors.Join(err, w.Unmake(nil))
	}
	return w, nil
}

// Make makes the bridge and the end of the tunnel.
func (w *tunnel) Make(s *segment.Segment) (err error) {
	if w.bridge, err = s.Bridge("br0"); err != nil {
		return err
	}
	here, err := segment.OpenHere()
	if err != nil {
		return err
	}
	defer here.Close()
	// Older kernels need a name that is free on the host, too.
	attrs := netlink.LinkAttrs{Name: "vt" + s.Run.ID, MTU: s.MTU, TxQLen: -1, Namespace: netlink.NsFd(here.Fd())}
	device := w.config.device(attrs, netip.Addr{}, w.remote)
	device.VtepDevIndex = w.parent
	err = w.host.LinkAdd(device)
	if errors.Is(err, unix.EEXIST) {
		return &vitrine.BadInput{File: "fabric vxlan", Found: fmt.Sprintf("vni: %d is in use on this host, at port %d", w.config.VNI, w.config.Port),
			Want: "another vni, or another port, on both hosts"}
	}
	if err != nil {
		return fmt.Errorf("making the end of the tunnel: %w", err)
	}
	return plug(s.Links, device.Name, w.bridge)
}

// plug joins an interface to a bridge and brings it up.
func plug(links *netlink.Handle, name string, bridge int) error {
	link, err := links.LinkByName(name)
	if err == nil {
		err = links.LinkSetMasterByIndex(link, bridge)
	}
	if err == nil {
		err = links.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("joining %s to a bridge: %w", name, err)
	}
	return segment.Settle(links, link.Attrs().Index)
}

// Join joins the instance to the bridge.
func (w *tunnel) Join(s *segment.Segment, end *segment.End) error { return s.Pair(end, w.bridge) }

func (w *tunnel) Cut(s *segment.Segment, end *segment.End) error { return s.Unpair(end) }

// Unmake gives up the parent and removes the end of the tunnel. Without a
// segment there is no end yet.
func (w *tunnel) Unmake(s *segment.Segment) error {
	var err error
	if w.host != nil {
		w.host.Close()
		w.host = nil
		err = segment.LeaveUplink(w.config.Run, w.config.Parent)
	}
	if s == nil || s.Links == nil || w.bridge == 0 {
		return err
	}
	w.bridge = 0 // not left to the end of the namespace, so that the UDP port is free at once
	return errors.Join(err, segment.RemoveByName(s.Links, "vt"+s.Run.ID))
}
