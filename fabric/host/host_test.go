package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/runstate"
)

// firstEnv is the environment variable with Config.First for a run in another process.
const firstEnv = "HOST_TEST_FIRST"

func TestMain(m *testing.M) {
	os.Exit(fabrictest.Main(m, fabrictest.Cases{"eno1": {Shared: true, Make: func(run *runstate.Run) (fabric.Fabric, error) {
		return New(Config{Run: run, Interface: "eno1", First: os.Getenv(firstEnv)})
	}}}))
}

// newFabric makes a fabric on the host.
func newFabric(t *testing.T, host fabrictest.Host, config Config) fabric.Fabric {
	t.Helper()
	return fabrictest.OnHost(t, host, func() (fabric.Fabric, error) { return New(config) })
}

// addAddresses gives eno1 of the host count addresses, starting with 192.0.2.1.
func addAddresses(t *testing.T, host fabrictest.Host, count int) {
	t.Helper()
	host.Do(t, func() error {
		eno1, err := netlink.LinkByName("eno1")
		if err != nil {
			return err
		}
		for i := range count {
			addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, byte(i+1)), Mask: net.CIDRMask(24, 32)}}
			if err := netlink.AddrAdd(eno1, addr); err != nil {
				return err
			}
		}
		return nil
	})
}

// state returns the addresses and routes of eno1.
func state(t *testing.T, host fabrictest.Host) (s string) {
	t.Helper()
	host.Do(t, func() error {
		eno1, err := netlink.LinkByName("eno1")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(eno1, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(eno1, netlink.FAMILY_V4)
		s = fmt.Sprintln(addrs)
		for _, r := range routes {
			s += fmt.Sprintln(r.Dst, r.Gw, r.Priority)
		}
		return err
	})
	return s
}

func TestHostFabric(t *testing.T) {
	for name, first := range map[string]string{"added": "198.18.0.1/16", "present": ""} {
		t.Run(name, func(t *testing.T) {
			hosts := make(map[string]fabrictest.Host) // by root; each test of the suite has its own host
			fabrictest.Run(t, func(t *testing.T, root string) fabrictest.Harness {
				host, has := hosts[root]
				if !has {
					host = fabrictest.NewHost(t)
					addAddresses(t, host, 32)
					hosts[root] = host
				}
				run := fabrictest.NewRun(t, root)
				return fabrictest.Harness{
					Fabric: newFabric(t, host, Config{Run: run, Interface: "eno1", First: first}), Run: run, Host: host.Path,
					Place: func(*testing.T, string) string { return "" },
					Left:  func() ([]string, error) { return recorded(run) },
				}
			})
		})
	}
}

// recorded returns the names of the run's records of additions to the host.
func recorded(run *runstate.Run) (names []string, err error) {
	records, err := runstate.Records(run.Root, run.ID, recordKind)
	for name := range records {
		names = append(names, name)
	}
	return names, err
}

// TestHostInterface checks that the switch and the instances reach each other, even after all
// instances were detached once. In the end the interface must be as it was.
func TestHostInterface(t *testing.T) {
	host := fabrictest.NewHost(t)
	host.Do(t, func() error { // eno2 is at the same switch and would also answer for the addresses of eno1
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0)
	})
	before := state(t, host)
	root := filepath.Join(t.TempDir(), "runs")
	var others []fabric.Fabric
	for range 2 { // concurrent runs with the same addresses
		run := fabrictest.NewRun(t, root)
		f := newFabric(t, host, Config{Run: run, Interface: "eno1", First: "198.18.0.1/16"})
		others = append(others, f)
		bench := fabrictest.NewHostBench(t, f, run, host)
		for range 2 {
			bono := bench.Attach("bono-1")
			if err := bench.Reach(host.Uplink(), bono); err != nil {
				t.Error(err)
			}
			if err := bench.Reach(bono, host.Uplink()); err != nil {
				t.Error(err)
			}
			if err := f.Detach(t.Context(), "bono-1"); err != nil {
				t.Error(err)
			}
		}
		bench.Attach("sprout-1")
		fabrictest.NotLent(t, host, root)
	}
	for _, f := range others {
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if after := state(t, host); after != before {
		t.Errorf("eno1 had\n%s\nand now has\n%s", before, after)
	}
}

// TestHostAddressesTaken checks that each address of the interface is given out once, whichever run
// asks. An address that the host has already must not be added.
func TestHostAddressesTaken(t *testing.T) {
	host := fabrictest.NewHost(t)
	addAddresses(t, host, 3)
	root := filepath.Join(t.TempDir(), "runs")
	var all []fabric.Fabric
	for range 2 {
		f := newFabric(t, host, Config{Run: fabrictest.NewRun(t, root), Interface: "eno1"})
		defer f.Close(context.Background())
		all = append(all, f)
	}
	had := make(map[string]bool)
	for i, f := range []fabric.Fabric{all[0], all[1], all[0]} {
		end, err := f.Attach(t.Context(), fabric.Port{Instance: fmt.Sprintf("bono-%d", i)})
		if err != nil || had[end.Addr.String()] {
			t.Fatalf("got %v, error %v, after the addresses %v", end, err, had)
		}
		had[end.Addr.String()] = true
	}
	if _, err := all[1].Attach(t.Context(), fabric.Port{Instance: "sprout-1"}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "eno1 has no free address: instances of this run and others use all 3") {
		t.Errorf("attach of a fourth instance: got %v", err)
	}
	if err := all[0].Detach(t.Context(), "bono-0"); err != nil {
		t.Error(err)
	}
	if _, err := all[1].Attach(t.Context(), fabric.Port{Instance: "sprout-1"}); err != nil {
		t.Errorf("attach after an address was released: got %v", err)
	}
	before := state(t, host)
	f := newFabric(t, host, Config{Run: fabrictest.NewRun(t, root), Interface: "eno1", First: "192.0.2.1/24"})
	end, err := f.Attach(t.Context(), fabric.Port{Instance: "bono-1"})
	if err != nil || end.Addr.String() != "192.0.2.4" || end.Interface != "eno1" {
		t.Errorf("got %v, error %v, want 192.0.2.4", end, err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if after := state(t, host); after != before {
		t.Errorf("eno1 had\n%s\nand now has\n%s", before, after)
	}
}

// TestHostFabricKilled checks that cleaning removes only what a killed run added.
func TestHostFabricKilled(t *testing.T) {
	host := fabrictest.NewHost(t)
	addAddresses(t, host, 1)
	before := state(t, host)
	root := filepath.Join(t.TempDir(), "runs")
	t.Setenv(firstEnv, "198.18.0.1/16")
	_, kill := fabrictest.Killable(t, "eno1", root, host.Path)
	if during := state(t, host); !strings.Contains(during, "198.18.0.1/32") {
		t.Errorf("addresses of eno1 during the run: got %s", during)
	}
	clean := func(want int) {
		t.Helper()
		host.Do(t, func() error {
			removed, err := Cleaner{Root: root}.Clean(t.Context())
			if len(removed) != want {
				t.Errorf("removed %q, want %d", removed, want)
			}
			return err
		})
	}
	clean(0)
	kill()
	clean(2) // the address and the route
	if after := state(t, host); after != before {
		t.Errorf("eno1 had\n%s\nand now has\n%s", before, after)
	}
	clean(0)
}

// TestHostFabricUnprivileged checks that an ordinary user can use the addresses that the interface
// has. For other addresses, the error must name the missing privilege.
func TestHostFabricUnprivileged(t *testing.T) {
	host := fabrictest.NewHost(t)
	addAddresses(t, host, 1)
	const nobody = 65534
	dir, err := os.MkdirTemp("", "unprivileged-") // other users cannot read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	own, binary := filepath.Join(dir, "own"), filepath.Join(dir, "test")
	self, err := os.ReadFile("/proc/self/exe")
	err = errors.Join(err, os.Chmod(dir, 0o755), os.Mkdir(own, 0o700), os.Chown(own, nobody, nobody), os.WriteFile(binary, self, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	for first, want := range map[string]string{"": "192.0.2.1", "198.18.0.1/16": "CAP_NET_ADMIN"} {
		cmd := exec.CommandContext(t.Context(), binary)
		cmd.Env = append(fabrictest.Environ("eno1", filepath.Join(own, "runs"), ""), firstEnv+"="+first)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		host.Do(t, func() error {
			if out, err := cmd.CombinedOutput(); !strings.Contains(string(out), want) {
				t.Errorf("with first %q an ordinary user got %s, error %v, want %s", first, out, err, want)
			}
			return nil
		})
	}
}

func TestHostFabricBadInput(t *testing.T) {
	host := fabrictest.NewHost(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	for words, c := range map[string]Config{
		`no interface "eno3"`: {Interface: "eno3"},
		"no IPv4 address":     {Interface: "eno1"},
		"prefix length":       {Interface: "eno1", First: "198.18.0.1"},
		"lo has enough":       {First: "198.18.0.1/16"},
	} {
		c.Run = run
		host.Do(t, func() error {
			if f, err := New(c); f != nil || !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), words) {
				t.Errorf("%+v: got %v, want a *vitrine.BadInput with %q", c, err, words)
			}
			return nil
		})
	}
	addAddresses(t, host, 1)
	f := newFabric(t, host, Config{Run: run, Interface: "eno1"})
	defer f.Close(context.Background())
	port := fabric.Port{Instance: "vm-1", NetNS: fabrictest.Place(t, run.ID, "vm-1")}
	if _, err := f.Attach(t.Context(), port); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "macvtap") {
		t.Errorf("attach of an instance with a namespace: got %v", err)
	}
}

// TestHostIsLoopbackOnLo checks that the fabric behaves like loopback without an interface or with
// lo.
func TestHostIsLoopbackOnLo(t *testing.T) {
	for _, name := range []string{"", "lo"} {
		f, err := New(Config{Run: fabrictest.NewRun(t, t.TempDir()+"/runs"), Interface: name})
		if err != nil {
			t.Fatal(err)
		}
		end, err := f.Attach(t.Context(), fabric.Port{Instance: "bono-1"})
		if err != nil || !end.Addr.IsLoopback() || end.Interface != "lo" {
			t.Errorf("%+v, %v", end, err)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestHostCheck(t *testing.T) {
	found := Check(t.Context())
	if len(found) != 2 || !found[0].OK || !strings.Contains(found[0].Detail, "lo") {
		t.Errorf("%+v", found)
	}
	for _, c := range found {
		if c.OK == (c.Missing != "") {
			t.Errorf("%+v: Missing must be set exactly when OK is not", c)
		}
	}
}
