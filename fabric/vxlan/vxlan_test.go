package vxlan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

func cases() fabrictest.Cases {
	return fabrictest.Cases{"pair": {
		Make:   func(run *runstate.Run) (fabric.Fabric, error) { return New(Config{Run: run}) },
		Fabric: segment.Name,
	}}
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestVxlanFabric(t *testing.T) { fabrictest.RunAll(t, cases()) }

// TestVxlanFabricTunnels checks that packets between instances on different hosts use the tunnel
// and are longer by its overhead.
func TestVxlanFabricTunnels(t *testing.T) {
	f, err := New(Config{Run: fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs")), VNI: 77, Port: 4790})
	hosttest.Need(t, err)
	bench := fabrictest.NewBench(t, f, f.Run)
	near, far, beside := bench.Attach("bono-1"), bench.Attach("sprout-1"), bench.Attach("bono-2")
	count := func() (wire, inner [2]uint64) {
		t.Helper()
		for name, into := range map[string]*[2]uint64{underlay: &wire, overlay: &inner} {
			link, err := f.Links.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			into[0], into[1] = link.Attrs().Statistics.TxPackets, link.Attrs().Statistics.TxBytes
		}
		return wire, inner
	}
	if err := bench.Reach(near, far); err != nil { // resolves all addresses by ARP first
		t.Fatal(err)
	}
	wire, inner := count()
	const times = 5
	for range times {
		if err := bench.Reach(near, far); err != nil {
			t.Fatal(err)
		}
	}
	wireNow, innerNow := count()
	if sent := innerNow[0] - inner[0]; sent < times {
		t.Errorf("%d packets went through the tunnel, want at least %d", sent, times)
	}
	// The tunnelled packet has an Ethernet header, and the tunnel adds another one.
	packets, longer := wireNow[0]-wire[0], (wireNow[1]-wire[1])-(innerNow[1]-inner[1])
	if packets < times || longer < packets*Overhead {
		t.Errorf("%d packets between the hosts are %d bytes longer than inside, want %d bytes each", packets, longer, Overhead)
	}
	before, _ := count()
	for range times {
		if err := bench.Reach(near, beside); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := count(); after[0]-before[0] >= times {
		t.Errorf("%d packets between instances on one host went to the other host", after[0]-before[0])
	}
	device, err := f.Links.LinkByName(overlay)
	if v, ok := device.(*netlink.Vxlan); err != nil || !ok || v.VxlanId != 77 || v.Port != 4790 {
		t.Errorf("got tunnel %+v, error %v", device, err)
	}
}

// TestVxlanFabricRemote joins two hosts. Each has its own run, with the other host as its remote.
func TestVxlanFabricRemote(t *testing.T) {
	host := fabrictest.NewHost(t)
	var bench []fabrictest.Bench
	open := func(path, parent, own, remote, first string) *segment.Segment {
		t.Helper()
		run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
		var f *segment.Segment
		err := netns.Do(path, func() error {
			link, err := netlink.LinkByName(parent)
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(own)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
			f, err = New(Config{Run: run, Remote: remote, Parent: parent, Options: segment.Options{First: first}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		bench = append(bench, fabrictest.NewBench(t, f, run))
		return f
	}
	f := open(host.Path, "eno1", "192.0.2.1/24", "192.0.2.2", "198.18.1.1/16")
	open(host.Switch, "br0", "192.0.2.2/24", "192.0.2.1", "198.18.2.1/16")
	if f.MTU != 1500-Overhead {
		t.Errorf("got MTU %d", f.MTU)
	}
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	host.Do(t, func() error { // a second concurrent run with the same tunnel
		config := Config{Run: run, Remote: "192.0.2.2", Parent: "eno1"}
		if _, err := New(config); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "vni: 1 is in use") {
			t.Errorf("tunnel with a VNI in use: got %v", err)
		}
		config.VNI = 2
		other, err := New(config)
		if err != nil {
			return err
		}
		return other.Close(t.Context())
	})
	here, there := bench[0].Attach("bono-1"), bench[1].Attach("sprout-1")
	if err := bench[0].Reach(here, there); err != nil {
		t.Error(err)
	}
	if err := bench[0].Reach(here, bench[0].Attach("bono-2")); err != nil {
		t.Error(err)
	}
	fabrictest.NotLent(t, host, f.Run.Root)
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if links, err := fabrictest.Interfaces(host.Path); err != nil || !slices.Equal(links, []string{"eno1", "eno2", "lo"}) {
		t.Errorf("interfaces of the host: got %q, error %v", links, err)
	}
}

func TestVxlanFabricBadInput(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	for words, c := range map[string]Config{
		"vni":              {VNI: 1 << 24},
		"port":             {Port: -1},
		"remote and":       {Remote: "192.0.2.1"},
		"an IPv4 address":  {Remote: "there", Parent: "eth0"},
		`interface "no-0"`: {Remote: "192.0.2.1", Parent: "no-0"},
		"mtu":              {Options: segment.Options{MTU: 1}},
	} {
		c.Run = run
		if _, err := New(c); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: got %v, want a *vitrine.BadInput with %q", c, err, words)
		}
	}
}

func TestVxlanFabricCheck(t *testing.T) {
	for _, c := range Check(t.Context()) {
		if err := netns.Possible(); c.OK != (err == nil) {
			t.Errorf("check %+v disagrees with the namespaces: %v", c, err)
		}
	}
}
