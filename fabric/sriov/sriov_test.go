package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
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

// A card simulates a network card that this host need not have. Its virtual functions are
// interfaces of a test's host, cabled to the host's switch. A folder replaces the kernel's files
// about the card. Everything else is real.
type card struct {
	host  fabrictest.Host
	sysfs string
}

// newCard makes eno1 a physical function with at most most virtual functions. on of them are
// enabled.
func newCard(t *testing.T, most, on int) card {
	t.Helper()
	c := card{fabrictest.NewHost(t), t.TempDir()}
	device := filepath.Join(c.sysfs, "class/net/eno1/device")
	for i := range most {
		if err := os.MkdirAll(filepath.Join(device, fmt.Sprintf("virtfn%d/net/%s", i, virtualName(i))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]int{"sriov_totalvfs": most, "sriov_numvfs": on} {
		if err := os.WriteFile(filepath.Join(device, name), fmt.Appendln(nil, value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.host.Do(t, func() error { return c.cable(most) })
	return c
}

func virtualName(number int) string { return fmt.Sprintf("eno1v%d", number) }

// cable makes the interfaces of the virtual functions, on the host.
func (c card) cable(count int) error {
	fd, err := unix.Open(c.host.Switch, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for i := range count {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: virtualName(i), TxQLen: -1})
		pair.PeerName, pair.PeerNamespace = virtualName(i), netlink.NsFd(fd)
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
	}
	return netns.Do(c.host.Switch, func() error {
		bridge, err := netlink.LinkByName("br0")
		for i := 0; err == nil && i < count; i++ {
			var port netlink.Link
			if port, err = netlink.LinkByName(virtualName(i)); err == nil {
				err = netlink.LinkSetMaster(port, bridge)
			}
			if err == nil {
				err = netlink.LinkSetUp(port)
			}
		}
		return err
	})
}

// on returns the number of enabled virtual functions.
func (c card) on(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.sysfs, "class/net/eno1/device/sriov_numvfs"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// interfaces returns the names of the host's interfaces.
func (c card) interfaces(t *testing.T) []string {
	t.Helper()
	names, err := fabrictest.Interfaces(c.host.Path)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// open makes a fabric on the card's host.
func (c card) open(t *testing.T, config Config) *segment.Segment {
	t.Helper()
	config.Parent = "eno1"
	return fabrictest.OnHost(t, c.host, func() (*segment.Segment, error) { return open(config, c.sysfs) })
}

// sysfsEnv is the environment variable with the card's folder, for the run that TestSriovKilled
// kills.
const sysfsEnv = "SRIOV_TEST_SYSFS"

func TestMain(m *testing.M) {
	os.Exit(fabrictest.Main(m, fabrictest.Cases{"eno1": {Make: func(run *runstate.Run) (fabric.Fabric, error) {
		return open(Config{Run: run, Parent: "eno1", VFs: 2}, os.Getenv(sysfsEnv))
	}}}))
}

// TestSriovInstances checks that each instance has a virtual function, and that instances reach
// each other and the card's switch. In the end all virtual functions must be restored.
func TestSriovInstances(t *testing.T) {
	c := newCard(t, 3, 0)
	before := c.interfaces(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f := c.open(t, Config{Run: run, VFs: 2})
	if c.on(t) != "2" {
		t.Errorf("got %s virtual functions, want 2", c.on(t))
	}
	bench := fabrictest.NewBench(t, f, run)
	bono, sprout := bench.Attach("bono-1"), bench.Attach("sprout-1")
	for _, to := range []fabrictest.Instance{sprout, c.host.Uplink()} {
		if err := bench.Reach(bono, to); err != nil {
			t.Error(err)
		}
	}
	if names := c.interfaces(t); !slices.Equal(names, []string{"eno1", "eno1v2", "eno2", "lo"}) {
		t.Errorf("interfaces of the host: got %q", names)
	}
	port := fabric.Port{Instance: "homer-1", NetNS: fabrictest.Place(t, run.ID, "homer-1")}
	if _, err := f.Attach(t.Context(), port); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "eno1 has 2 virtual functions") {
		t.Errorf("attach of a third instance: got %v", err)
	}
	fabrictest.NotLent(t, c.host, run.Root)
	if err := f.Detach(t.Context(), "bono-1"); err != nil {
		t.Error(err)
	}
	if _, err := f.Attach(t.Context(), port); err != nil {
		t.Errorf("attach after a detach: got %v", err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if after := c.interfaces(t); !slices.Equal(after, before) || c.on(t) != "0" {
		t.Errorf("the host had %q and no virtual functions, now has %q and %s", before, after, c.on(t))
	}
}

// TestSriovTwoRuns checks that two runs can share a card. The last run to leave must remove the
// virtual functions that the first run made.
func TestSriovTwoRuns(t *testing.T) {
	c := newCard(t, 3, 0)
	root := t.TempDir() + "/runs"
	first, second := fabrictest.NewRun(t, root), fabrictest.NewRun(t, root)
	f := c.open(t, Config{Run: first})
	g := c.open(t, Config{Run: second, Options: segment.Options{First: "198.18.1.1/16"}})
	bench := fabrictest.NewBench(t, g, second)
	fabrictest.NewBench(t, f, first).Attach("bono-1")
	bono, sprout := bench.Attach("bono-1"), bench.Attach("sprout-1")
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if c.on(t) != "3" {
		t.Errorf("got %s virtual functions during a run, want 3", c.on(t))
	}
	if err := bench.Reach(bono, sprout); err != nil {
		t.Error(err)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if c.on(t) != "0" {
		t.Errorf("got %s virtual functions, want 0", c.on(t))
	}
}

// TestSriovKeeps checks that virtual functions that existed before the run stay.
func TestSriovKeeps(t *testing.T) {
	c := newCard(t, 2, 2)
	f := c.open(t, Config{Run: fabrictest.NewRun(t, t.TempDir()+"/runs")})
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if c.on(t) != "2" {
		t.Errorf("got %s virtual functions, want the 2 existing ones", c.on(t))
	}
}

// TestSriovKilled checks that cleaning restores the virtual function that a killed run used, and
// removes the virtual functions that it made.
func TestSriovKilled(t *testing.T) {
	c := newCard(t, 3, 0)
	before := c.interfaces(t)
	root := filepath.Join(t.TempDir(), "runs")
	t.Setenv(sysfsEnv, c.sysfs)
	run, kill := fabrictest.Killable(t, "eno1", root, c.host.Path)
	defer netns.Delete("vt-" + run + "-bono-1")
	clean := func(want int) {
		t.Helper()
		c.host.Do(t, func() error {
			lent, err := segment.Cleaner{Root: root}.Clean(t.Context())
			if err != nil {
				return err
			}
			made, err := Cleaner{Root: root, sysfs: c.sysfs}.Clean(t.Context())
			if removed := slices.Concat(lent, made); len(removed) != want {
				t.Errorf("removed %q, want %d", removed, want)
			}
			return err
		})
	}
	clean(0)
	if slices.Contains(c.interfaces(t), "eno1v0") || c.on(t) != "2" {
		t.Errorf("the host has interfaces %q and %s virtual functions", c.interfaces(t), c.on(t))
	}
	kill()
	clean(3) // the interface, the fabric's namespace, the virtual functions
	if after := c.interfaces(t); !slices.Equal(after, before) || c.on(t) != "0" {
		t.Errorf("the host had %q and no virtual functions, now has %q and %s", before, after, c.on(t))
	}
	clean(0)
}

// TestSriovPutsBackAgain checks that a second Close restores a virtual function that the first
// Close could not restore. Until then all virtual functions must stay.
func TestSriovPutsBackAgain(t *testing.T) {
	c := newCard(t, 3, 0)
	before := c.interfaces(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f := c.open(t, Config{Run: run})
	fabrictest.NewBench(t, f, run).Attach("bono-1")
	taken := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: virtualName(0)}}
	c.host.Do(t, func() error { return netlink.LinkAdd(taken) })
	if err := f.Close(t.Context()); !errors.Is(err, unix.EEXIST) {
		t.Errorf("got %v, want an error that the name is in use", err)
	}
	if c.on(t) != "3" {
		t.Errorf("got %s virtual functions while an instance uses one, want 3", c.on(t))
	}
	c.host.Do(t, func() error { return netlink.LinkDel(taken) })
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if after := c.interfaces(t); !slices.Equal(after, before) || c.on(t) != "0" {
		t.Errorf("the host had %q and no virtual functions, now has %q and %s", before, after, c.on(t))
	}
}

func TestSriovRefuses(t *testing.T) {
	c := newCard(t, 2, 2)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	for words, config := range map[string]Config{
		"one of eno1":         {},
		`no interface "eno3"`: {Parent: "eno3"},
		"vlan: 5000":          {Parent: "eno1", VLAN: 5000},
		"vfs: -1":             {Parent: "eno1", VFs: -1},
	} {
		config.Run = run
		c.host.Do(t, func() error {
			if _, err := open(config, c.sysfs); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), words) {
				t.Errorf("%+v: got %v, want a *vitrine.BadInput with %q", config, err, words)
			}
			return nil
		})
	}
	c.host.Do(t, func() error {
		_, err := open(Config{Run: run, Parent: "eno2"}, c.sysfs)
		if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "virtual functions of eno2") {
			t.Errorf("interface without virtual functions: got %v", err)
		}
		return nil
	})
	// A veth, like some drivers, cannot set VLANs of virtual functions. Then the virtual
	// function must stay with the host.
	before := c.interfaces(t)
	f := c.open(t, Config{Run: run, VLAN: 7})
	defer f.Close(context.Background())
	port := fabric.Port{Instance: "bono-1", NetNS: fabrictest.Place(t, run.ID, "bono-1")}
	if _, err := f.Attach(t.Context(), port); !vitrine.IsUnsupported(err) {
		t.Errorf("VLAN that the driver does not support: got %v", err)
	}
	if after := c.interfaces(t); !slices.Equal(after, before) {
		t.Errorf("the host had interfaces %q, now has %q", before, after)
	}
}

// A fakeCard keeps the VLAN tag of one virtual function.
type fakeCard netlink.VfInfo

func (c *fakeCard) LinkSetVfVlanQos(link netlink.Link, vf, vlan, qos int) error {
	return c.LinkSetVfVlanQosProto(link, vf, vlan, qos, int(netlink.VLAN_PROTOCOL_8021Q))
}

func (c *fakeCard) LinkSetVfVlanQosProto(_ netlink.Link, vf, vlan, qos, proto int) error {
	*c = fakeCard{ID: vf, Vlan: vlan, Qos: qos, VlanProto: proto}
	return nil
}

// TestSriovKeepsTheTag checks that a virtual function gets its VLAN back with the priority and the
// protocol, also from the record of a killed run. Records of earlier builds have only the VLAN.
func TestSriovKeepsTheTag(t *testing.T) {
	for _, before := range []netlink.VfInfo{
		{ID: 3, Vlan: 100, Qos: 5, VlanProto: int(netlink.VLAN_PROTOCOL_8021Q)},
		{ID: 3, Vlan: 4094, Qos: 7, VlanProto: int(netlink.VLAN_PROTOCOL_8021AD)},
	} {
		run := fabrictest.NewRun(t, t.TempDir()+"/runs")
		s := state{run: run, Parent: "eno1"}
		if err := s.note(before.ID, tagOf(before)); err != nil {
			t.Fatal(err)
		}
		kept, err := states(run.Root, "eno1")
		if err != nil {
			t.Fatal(err)
		}
		now := fakeCard{Vlan: 7}
		if err := kept[run.ID].VLANs[before.ID].set(&now, nil, before.ID); err != nil || !reflect.DeepEqual(netlink.VfInfo(now), before) {
			t.Errorf("got %+v, error %v, want %+v", now, err, before)
		}
		if err := run.Erase(recordKind, "eno1"); err != nil {
			t.Fatal(err)
		}
	}
	var old state
	if err := json.Unmarshal([]byte(`{"vlans":{"3":100}}`), &old); err != nil || old.VLANs[3].vlan() != 100 {
		t.Errorf("got %+v, error %v, want the VLAN 100", old, err)
	}
}

// TestSriovSkipsInUse checks that a virtual function with an address is left alone, because it is
// in use.
func TestSriovSkipsInUse(t *testing.T) {
	c := newCard(t, 2, 2)
	c.host.Do(t, func() error {
		link, err := netlink.LinkByName(virtualName(0))
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}})
	})
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	f := c.open(t, Config{Run: run})
	fabrictest.NewBench(t, f, run).Attach("bono-1")
	if names := c.interfaces(t); !slices.Contains(names, "eno1v0") || slices.Contains(names, "eno1v1") {
		t.Errorf("interfaces of the host: got %q", names)
	}
	if err := f.Close(t.Context()); err != nil { // before the instance's namespace is removed together with the interface
		t.Error(err)
	}
}

// TestSriovOfThisHost checks that the check and the fabric agree, and that both name what is
// missing.
func TestSriovOfThisHost(t *testing.T) {
	found := Check(t.Context())[0]
	names, err := capableNames(defaultSysfs)
	if found.OK != (err == nil) || found.OK == (found.Missing != "") {
		t.Errorf("check %+v disagrees with %q, %v", found, names, err)
	}
	if _, err := New(Config{Run: fabrictest.NewRun(t, t.TempDir()+"/runs")}); !found.OK && (!vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "CONFIG_PCI_IOV")) {
		t.Errorf("got %v, want a *vitrine.Unsupported that names CONFIG_PCI_IOV", err)
	}
}
