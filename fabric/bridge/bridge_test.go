package bridge

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

func cases() fabrictest.Cases {
	open := func(run *runstate.Run, mtu int) (fabric.Fabric, error) {
		return New(Config{Run: run, Options: segment.Options{MTU: mtu}})
	}
	return fabrictest.Cases{
		"default": {Make: func(run *runstate.Run) (fabric.Fabric, error) { return open(run, 0) }, Fabric: segment.Name},
		"jumbo":   {Make: func(run *runstate.Run) (fabric.Fabric, error) { return open(run, 9000) }, Fabric: segment.Name, MTU: 9000},
	}
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestBridgeFabric(t *testing.T) { fabrictest.RunAll(t, cases()) }

// TestBridgeFabricKeepsOffTheHost checks that a fabric does not change the host's own network.
// Instances must have no route out and no IPv6 address.
func TestBridgeFabricKeepsOffTheHost(t *testing.T) {
	before := hostNetwork(t)
	f, run := cases()["default"].Open(t, filepath.Join(t.TempDir(), "runs"))
	defer f.Close(context.Background())
	path := fabrictest.Place(t, run.ID, "bono-1")
	end, err := f.Attach(context.Background(), fabric.Port{Instance: "bono-1", NetNS: path})
	if err != nil {
		t.Fatal(err)
	}
	if during := hostNetwork(t); before != during {
		t.Errorf("the host's network was\n%sand is now\n%s", before, during)
	}
	err = netns.Do(path, func() error {
		if conn, err := net.Dial("udp4", "192.0.2.1:9"); err == nil {
			t.Errorf("an instance has a route out of the fabric, from %s", conn.LocalAddr())
			_ = conn.Close()
		}
		link, err := net.InterfaceByName(end.Interface)
		if err != nil {
			return err
		}
		addrs, err := link.Addrs()
		if want := end.Addr.String() + "/16"; len(addrs) != 1 || addrs[0].String() != want {
			t.Errorf("got addresses %v, want only %s", addrs, want)
		}
		if link.MTU != 1500 {
			t.Errorf("got MTU %d, want 1500", link.MTU)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// hostNetwork lists the interfaces and the route of this namespace that a fabric could have made.
// It ignores all others, because other tests on this host may make them.
func hostNetwork(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name == "br0" || link.Name == segment.Inside || strings.HasPrefix(link.Name, "p") {
			fmt.Fprintln(&b, link.Name)
		}
	}
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(routes), "000012C6") { // 198.18.0.0, as the kernel writes it
		b.WriteString("a route to 198.18.0.0/16\n")
	}
	return b.String()
}

func TestBridgeFabricCheck(t *testing.T) {
	for _, c := range Check(context.Background()) {
		if err := netns.Possible(); c.OK != (err == nil) {
			t.Errorf("check %+v disagrees with the namespaces: %v", c, err)
		}
		if c.OK == (c.Missing != "") {
			t.Errorf("%+v: Missing must be set exactly when OK is not", c)
		}
	}
}

func BenchmarkAttachDetach(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "runs")
	run, err := runstate.New(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer run.Close()
	f, err := New(Config{Run: run})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close(context.Background())
	name := "vt-" + run.ID + "-bono-1"
	path, err := netns.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer netns.Delete(name)
	for b.Loop() {
		if _, err := f.Attach(context.Background(), fabric.Port{Instance: "bono-1", NetNS: path}); err != nil {
			b.Fatal(err)
		}
		if err := f.Detach(context.Background(), "bono-1"); err != nil {
			b.Fatal(err)
		}
	}
}

// TestBridgeFabricMirrors checks that an instance that only listens receives the messages between
// two others in both directions.
func TestBridgeFabricMirrors(t *testing.T) {
	f, run := cases()["default"].Open(t, filepath.Join(t.TempDir(), "runs"))
	fabrictest.Mirrors(t, f, run)
}
