package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"vitrine/fabric/segment"
	"vitrine/internal/netns"
)

// Join makes a veth pair and adds its outer end to the bridge.
func (w *wiring) Join(s *segment.Segment, end *segment.End) error {
	number := w.freeNumber()
	if w.server == nil {
		end.Outer, end.Links = interfaceOf(w.config.Run.ID, number), w.host
	}
	if err := s.Pair(end, 0); err != nil {
		return err
	}
	if err := w.join(end, port{number: number, name: end.Outer}); err != nil {
		return errors.Join(err, w.Cut(s, end))
	}
	return nil
}

// freeNumber returns the lowest number that no port has. The largest number of an
// OpenFlow port is 65279, and a long run attaches more instances one after the
// other.
func (f *Fabric) freeNumber() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := make(map[int]bool, len(f.ports))
	for _, p := range f.ports {
		taken[p.number] = true
	}
	number := 1
	for taken[number] {
		number++
	}
	return number
}

// interfaceOf returns the name of a port's interface in the user's switch, at
// most 15 characters.
func interfaceOf(run string, number int) string { return fmt.Sprintf("vt%s%d", run, number) }

func (w *wiring) join(end *segment.End, p port) error {
	err := netns.Do(end.NetNS, func() (err error) {
		p.mac, err = prepare(end.Inner, w.datapath)
		return err
	})
	if err != nil {
		return err
	}
	w.mu.Lock() // before add-port, so that Cut also removes a port that the switch could not set up
	w.ports[end.Instance] = p
	w.mu.Unlock()
	ctx, cancel := changeContext()
	defer cancel()
	args := []string{"add-port", w.bridge, p.name, "--", "set", "Interface", p.name, "ofport_request=" + strconv.Itoa(p.number), "external_ids:instance=" + strconv.Quote(end.Instance)}
	if w.config.Ports == PortsAFXDP {
		// One queue: a veth has no more.
		args = append(args, "type=afxdp", "options:n_rxq=1")
	}
	if _, err := w.client.vsctl(ctx, args...); err != nil {
		return w.server.explain(err)
	}
	return w.install(ctx)
}

// prepare readies an instance's interface for the datapath and returns its MAC
// address. The calling thread is in the instance's namespace. The datapath in
// user space reads frames from packet sockets. There a checksum that the kernel
// left to the interface is never filled in, and a large segment is never cut.
// The receiver would drop such frames. So prepare turns the offload of TX
// checksums off, and the sender's kernel does both.
func prepare(name, datapath string) (mac string, err error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", name, err)
	}
	mac = link.Attrs().HardwareAddr.String()
	if datapath == DatapathKernel {
		return mac, nil
	}
	e, err := ethtool.NewEthtool()
	if err != nil {
		return "", fmt.Errorf("turning offloads off: %w", err)
	}
	defer e.Close()
	has, err := e.FeatureNames(name)
	if err != nil {
		return "", fmt.Errorf("asking for the offloads of %s: %w", name, err)
	}
	off := make(map[string]bool)
	for _, feature := range []string{"tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp"} {
		if _, is := has[feature]; is {
			off[feature] = false
		}
	}
	if err := e.Change(name, off); err != nil {
		return "", fmt.Errorf("turning TX checksum offload of %s off: %w", name, err)
	}
	return mac, nil
}

// Cut removes the port, its mirrors and its chain, and then the veth pair. If
// the run's own switch has ended, only the pair is left to remove.
func (w *wiring) Cut(s *segment.Segment, end *segment.End) error {
	ctx, cancel := changeContext()
	defer cancel()
	if err := w.cut(ctx, end.Instance); err != nil {
		return err
	}
	return s.Unpair(end)
}

func (w *wiring) cut(ctx context.Context, instance string) error {
	w.mu.Lock()
	p, has := w.ports[instance]
	var args []string
	if has {
		args = []string{"--if-exists", "del-port", w.bridge, p.name}
		for m := range w.mirrors {
			if m[0] == instance || m[1] == instance {
				name := mirrorName(w.ports[m[0]], w.ports[m[1]])
				args = append(args, "--", "--id=@"+name, "get", "Mirror", name, "--", "remove", "Bridge", w.bridge, "mirrors", "@"+name)
			}
		}
	}
	w.mu.Unlock()
	if !has {
		return nil
	}
	err := w.server.ifRunning(func() error {
		_, err := w.client.vsctl(ctx, args...)
		return err
	})
	if err != nil {
		return w.server.explain(err)
	}
	w.mu.Lock()
	delete(w.ports, instance)
	maps.DeleteFunc(w.mirrors, func(m [2]string, _ bool) bool { return m[0] == instance || m[1] == instance })
	if slices.Contains(w.chain, instance) {
		w.chain = nil
	}
	w.mu.Unlock()
	return w.server.ifRunning(func() error { return w.install(ctx) })
}
