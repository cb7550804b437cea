package direct

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

func cases() fabrictest.Cases {
	return fabrictest.Cases{"cable": {
		Make:   func(run *runstate.Run) (fabric.Fabric, error) { return New(Config{Run: run}) },
		Fabric: segment.Name, Limit: 2,
	}, "eno1": {Make: func(run *runstate.Run) (fabric.Fabric, error) {
		return New(Config{Run: run, Interfaces: map[string]string{"bono-1": "eno1"}, InUse: true})
	}}}
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestDirectFabric(t *testing.T) {
	fabrictest.RunAll(t, fabrictest.Cases{"cable": cases()["cable"]})
}

// state describes eno1 of the host.
func state(t *testing.T, host fabrictest.Host) (s string) {
	t.Helper()
	host.Do(t, func() error {
		link, err := netlink.LinkByName("eno1")
		if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok {
			s = "absent"
			return nil
		}
		if err != nil {
			return err
		}
		a := link.Attrs()
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
		s = fmt.Sprint(a.Name, a.MTU, a.GSOMaxSegs, a.Alias, a.HardwareAddr, a.Flags&net.FlagUp, addrs)
		for _, r := range routes {
			s += fmt.Sprintln(r.Dst, r.Gw, r.Priority, r.Protocol)
		}
		return err
	})
	if s != "absent" {
		s += steered(t, host.Path, "eno1", "")
	}
	return s
}

// steered returns the CPUs that receive for an interface (RPS). If set is not empty, steered writes
// it first.
func steered(t *testing.T, path, name, set string) (s string) {
	t.Helper()
	err := netns.Do(path, func() error {
		return netns.Sysfs(func(sysfs string) error {
			file := filepath.Join(sysfs, "class/net", name, "queues/rx-0/rps_cpus")
			if set != "" {
				if err := os.WriteFile(file, []byte(set), 0); err != nil {
					return err
				}
			}
			b, err := os.ReadFile(file)
			s = string(b)
			return err
		})
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the kernel has no CONFIG_RPS
		t.Fatal(err)
	}
	return s
}

// furnish gives eno1 of the host an alias, an MTU, two addresses and a route through a gateway. The
// gateway is in the network of the second address, which has a route of its own.
func furnish(t *testing.T, host fabrictest.Host) {
	t.Helper()
	host.Do(t, func() error {
		link, err := netlink.LinkByName("eno1")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("192.0.2.2/24")
		if err != nil {
			return err
		}
		own, err := netlink.ParseAddr("198.51.100.2/24")
		if err != nil {
			return err
		}
		own.Flags = unix.IFA_F_NOPREFIXROUTE
		near := &net.IPNet{IP: net.IPv4(198, 51, 100, 0).To4(), Mask: net.CIDRMask(24, 32)}
		to := &net.IPNet{IP: net.IPv4(203, 0, 113, 0).To4(), Mask: net.CIDRMask(24, 32)}
		index := link.Attrs().Index
		return errors.Join(
			netlink.LinkSetAlias(link, "to the lab"),
			netlink.LinkSetMTU(link, 1400),
			netlink.AddrAdd(link, addr),
			netlink.AddrAdd(link, own),
			netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: near, Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_KERNEL, Priority: 100}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: to, Gw: net.IPv4(198, 51, 100, 1), Priority: 7}),
		)
	})
}

// addLinkLocal gives an interface of the host an address whose scope is the link, as
// avahi-autoipd(8) does.
func addLinkLocal(t *testing.T, host fabrictest.Host, name string) {
	t.Helper()
	host.Do(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("169.254.7.7/16")
		if err != nil {
			return err
		}
		addr.Scope = int(netlink.SCOPE_LINK)
		return netlink.AddrAdd(link, addr)
	})
}

// TestDirectInterfaces checks that instances with interfaces of the host reach each other and the
// switch. Their MTU must be the smallest of the interfaces. In the end the interfaces must be as they
// were.
func TestDirectInterfaces(t *testing.T) {
	host := fabrictest.NewHost(t)
	furnish(t, host)
	addLinkLocal(t, host, "eno1")
	steered(t, host.Path, "eno1", "1")
	before := state(t, host)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f := fabrictest.OnHost(t, host, func() (*segment.Segment, error) {
		return New(Config{Run: run, Interfaces: map[string]string{"bono-1": "eno1", "sprout-1": "eno2"}, InUse: true})
	})
	bench := fabrictest.NewBench(t, f, run)
	if f.MTU != 1400 {
		t.Errorf("got MTU %d, want 1400, that of eno1", f.MTU)
	}
	if _, err := f.Attach(t.Context(), fabric.Port{Instance: "other-1", NetNS: fabrictest.Place(t, run.ID, "other-1")}); !vitrine.IsBadInput(err) {
		t.Errorf("attach without a free interface: got %v", err)
	}
	bono, sprout := bench.Attach("bono-1"), bench.Attach("sprout-1")
	steered(t, netns.Path("vt-"+run.ID+"-bono-1"), "eth0", "2")
	if links, err := fabrictest.Interfaces(host.Path); err != nil || !slices.Equal(links, []string{"lo"}) {
		t.Errorf("interfaces of the host: got %q, error %v", links, err)
	}
	for _, to := range []fabrictest.Instance{sprout, host.Uplink()} {
		if err := bench.Reach(bono, to); err != nil {
			t.Error(err)
		}
	}
	host.Do(t, func() error {
		_, err := New(Config{Run: run, Interfaces: map[string]string{"bono-1": "eno1"}})
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "run "+run.ID+" has it") {
			t.Errorf("New with an interface in use: got %v", err)
		}
		return nil
	})
	if err := f.Detach(t.Context(), "bono-1"); err != nil {
		t.Error(err)
	}
	if after := state(t, host); after != before {
		t.Errorf("eno1 was\n%s\nand is now\n%s", before, after)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if links, err := fabrictest.Interfaces(host.Path); err != nil || !slices.Equal(links, []string{"eno1", "eno2", "lo"}) {
		t.Errorf("interfaces of the host: got %q, error %v", links, err)
	}
	if left, err := os.ReadDir(filepath.Join(run.Dir(), "interface")); err != nil || len(left) > 0 {
		t.Errorf("records were not removed: %v, error %v", left, err)
	}
}

// TestDirectInterfaceComesBackAfterKill checks that cleaning restores an interface that a killed
// run had taken.
func TestDirectInterfaceComesBackAfterKill(t *testing.T) {
	host := fabrictest.NewHost(t)
	furnish(t, host)
	before := state(t, host)
	root := filepath.Join(t.TempDir(), "runs")
	cleaner := segment.Cleaner{Root: root}
	run, kill := fabrictest.Killable(t, "eno1", root, host.Path)
	defer netns.Delete("vt-" + run + "-bono-1")
	if during := state(t, host); during != "absent" {
		t.Errorf("the host still has eno1: %s", during)
	}
	clean := func(want int) {
		t.Helper()
		host.Do(t, func() error {
			removed, err := cleaner.Clean(t.Context())
			if len(removed) != want {
				t.Errorf("removed %q, want %d", removed, want)
			}
			return err
		})
	}
	clean(0)
	kill()
	clean(2) // the interface, and the namespace
	if after := state(t, host); after != before {
		t.Errorf("eno1 was\n%s\nand is now\n%s", before, after)
	}
	clean(0)
}

// TestDirectRefusesInterfaces checks that interfaces that the host needs are refused with a reason.
func TestDirectRefusesInterfaces(t *testing.T) {
	host := fabrictest.NewHost(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	refused := func(name string, inUse bool, words string) {
		t.Helper()
		host.Do(t, func() error {
			_, err := New(Config{Run: run, Interfaces: map[string]string{"bono-1": name}, InUse: inUse})
			if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: got %v, want a *vitrine.BadInput with %q", name, err, words)
			}
			return nil
		})
	}
	refused("eno3", false, `no interface "eno3"`)
	addLinkLocal(t, host, "eno2")
	refused("eno2", false, "169.254.7.7/16")
	host.Do(t, func() error {
		eno2, err := netlink.LinkByName("eno2")
		if err != nil {
			return err
		}
		return netlink.LinkAddAltName(eno2, "enp4s0")
	})
	refused("enp4s0", true, "enp4s0 is another name of the interface eno2")
	furnish(t, host)
	refused("eno1", false, "192.0.2.2/24")
	several := netlink.Route{
		Dst:       &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		MultiPath: []*netlink.NexthopInfo{{Gw: net.IPv4(192, 0, 2, 1)}, {Gw: net.IPv4(192, 0, 2, 3)}},
	}
	host.Do(t, func() error { return netlink.RouteAdd(&several) })
	refused("eno1", true, "several next hops")
	host.Do(t, func() error { return netlink.RouteDel(&several) })
	host.Do(t, func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 0, 2, 1)}) })
	refused("eno1", true, "default route")
	host.Do(t, func() error {
		eno2, err := netlink.LinkByName("eno2")
		if err != nil {
			return err
		}
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "mv0", ParentIndex: eno2.Attrs().Index}})
	})
	refused("eno2", true, "mv0")
	host.Do(t, func() error {
		eno2, err := netlink.LinkByName("eno2")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: eno2.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(10, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
			Via: &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: net.ParseIP("fe80::1")},
		})
	})
	refused("eno2", true, "a next hop of another family")
}

// TestDirectInterfaceWithoutCarrier checks that routes are restored even if the link has no
// carrier. The kernel flags each route in that case.
func TestDirectInterfaceWithoutCarrier(t *testing.T) {
	host := fabrictest.NewHost(t)
	furnish(t, host)
	before := state(t, host)
	err := netns.Do(host.Switch, func() error {
		link, err := netlink.LinkByName("eno1")
		if err == nil {
			err = netlink.LinkSetDown(link)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f := lend(t, host, fabrictest.NewRun(t, t.TempDir()+"/runs"))
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if after := state(t, host); after != before {
		t.Errorf("eno1 was\n%s\nand is now\n%s", before, after)
	}
}

// lend makes a fabric that lends eno1 to bono-1, and attaches bono-1.
func lend(t *testing.T, host fabrictest.Host, run *runstate.Run) *segment.Segment {
	t.Helper()
	f := fabrictest.OnHost(t, host, func() (*segment.Segment, error) {
		return New(Config{Run: run, Interfaces: map[string]string{"bono-1": "eno1"}, InUse: true})
	})
	place := fabrictest.Place(t, run.ID, "bono-1")
	t.Cleanup(func() { _ = f.Close(context.Background()) }) // errors do not matter: the test may have closed it
	if _, err := f.Attach(t.Context(), fabric.Port{Instance: "bono-1", NetNS: place}); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDirectPutsBackAgain checks that a second Close restores an interface that the first Close
// could not restore. Until then the run's folder must keep the record.
func TestDirectPutsBackAgain(t *testing.T) {
	host := fabrictest.NewHost(t)
	furnish(t, host)
	before := state(t, host)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f := lend(t, host, run)
	host.Do(t, func() error { // takes the name eno1
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eno1"}})
	})
	if err := f.Close(t.Context()); !errors.Is(err, unix.EEXIST) {
		t.Errorf("got %v, want an error that the name is in use", err)
	}
	if records, err := runstate.Records(run.Root, run.ID, "interface"); err != nil || len(records) != 1 {
		t.Errorf("got records %q, error %v", records, err)
	}
	host.Do(t, func() error { return netlink.LinkDel(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eno1"}}) })
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if after := state(t, host); after != before {
		t.Errorf("eno1 was\n%s\nand is now\n%s", before, after)
	}
}

// TestDirectInterfaceThatIsNoMore checks that cleaning reports an interface that no longer exists
// once.
func TestDirectInterfaceThatIsNoMore(t *testing.T) {
	host := fabrictest.NewHost(t)
	root := filepath.Join(t.TempDir(), "runs")
	run, kill := fabrictest.Killable(t, "eno1", root, host.Path)
	defer netns.Delete("vt-" + run + "-bono-1")
	kill()
	err := netns.Do(host.Switch, func() error { // removes eno1 at the other end of its cable
		link, err := netlink.LinkByName("eno1")
		if err == nil {
			err = netlink.LinkDel(link)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 0} { // the interface, and the namespace
		host.Do(t, func() error {
			removed, err := segment.Cleaner{Root: root}.Clean(t.Context())
			if len(removed) != want || want > 0 && !strings.Contains(removed[0], "no longer exists") {
				t.Errorf("removed %q, want %d", removed, want)
			}
			return err
		})
	}
}
