package bridge

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/runs"
	"vitrine/substrate"
)

const killedEnv = "BRIDGE_TEST_ROOT"

// TestMain lets the test binary be a run with a fabric that can be killed.
func TestMain(m *testing.M) {
	root := os.Getenv(killedEnv)
	if root == "" {
		os.Exit(m.Run())
	}
	run, err := runs.New(root)
	if err == nil {
		_, err = New(Config{Run: run})
	}
	fmt.Println(run.ID, err)
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed
}

func TestBridgeFabric(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T, root string) fabrictest.Harness {
		f := open(t, root)
		var places []string
		return fabrictest.Harness{
			Fabric: f, Run: f.Run,
			Place: func(t *testing.T, instance string) string {
				places = append(places, place(t, f.Run.ID, instance))
				return places[len(places)-1]
			},
			Left: func() ([]string, error) { return left(f.Run.ID, places) },
		}
	})
}

// open makes a fabric; the test closes it.
func open(t *testing.T, root string) *Fabric {
	t.Helper()
	run, err := runs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := New(Config{Run: run})
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// place makes an instance's namespace, as a substrate does.
func place(t *testing.T, run, instance string) string {
	t.Helper()
	name := "vt-" + run + "-" + instance
	path, err := netns.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Delete(name); err != nil {
			t.Error(err)
		}
	})
	return path
}

// left finds the run's fabric, and interfaces other than lo in the places.
func left(run string, places []string) ([]string, error) {
	var found []string
	if _, err := os.Stat(netns.Path(segment.Name(run))); err == nil {
		found = append(found, segment.Name(run))
	}
	for _, place := range places {
		if _, err := os.Stat(place); err != nil {
			continue // removed by the test
		}
		err := netns.Do(place, func() error {
			links, err := net.Interfaces()
			for _, link := range links {
				if link.Name != "lo" {
					found = append(found, place+": "+link.Name)
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// TestBridgeFabricKeepsOffTheHost: the host's own network is the same with and
// without a fabric, and instances have no way out and no IPv6.
func TestBridgeFabricKeepsOffTheHost(t *testing.T) {
	before := hostNetwork(t)
	f := open(t, filepath.Join(t.TempDir(), "runs"))
	defer f.Close(context.Background())
	path := place(t, f.Run.ID, "bono-1")
	end, err := f.Attach(context.Background(), fabric.Port{Instance: "bono-1", NetNS: path})
	if err != nil {
		t.Fatal(err)
	}
	if during := hostNetwork(t); before != during {
		t.Errorf("the host's network was\n%sand is now\n%s", before, during)
	}
	err = netns.Do(path, func() error {
		if conn, err := net.Dial("udp4", "192.0.2.1:9"); err == nil {
			t.Errorf("an instance has a route out, from %s", conn.LocalAddr())
			_ = conn.Close()
		}
		link, err := net.InterfaceByName(end.Interface)
		if err != nil {
			return err
		}
		addrs, err := link.Addrs()
		if want := end.Addr.String() + "/16"; len(addrs) != 1 || addrs[0].String() != want {
			t.Errorf("addresses %v, want %s alone", addrs, want)
		}
		if link.MTU != 1500 {
			t.Errorf("MTU %d", link.MTU)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// hostNetwork is the names of interfaces and the routes of this namespace. Of
// other tests on this host there may be others: only those of fabrics count.
func hostNetwork(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name == bridgeName || link.Name == segment.Inside || strings.HasPrefix(link.Name, "p") {
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

func TestBridgeFabricIsCleaned(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	f := open(t, root)
	defer f.Close(context.Background())

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedEnv+"="+root)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var run, failed string
	if _, err := fmt.Fscan(stdout, &run, &failed); err != nil || failed != "<nil>" {
		t.Fatalf("the other run: %q, %v", failed, err)
	}
	var cleaner substrate.Cleaner = f
	if removed, err := cleaner.Clean(context.Background()); err != nil || len(removed) > 0 {
		t.Errorf("Clean while both runs live: removed %q, %v", removed, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	removed, err := cleaner.Clean(context.Background())
	if want := []string{"network namespace vt-" + run + "-fabric"}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("Clean: removed %q, %v; want %q", removed, err, want)
	}
	if left, err := left(run, nil); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if left, err := left(f.Run.ID, nil); err != nil || len(left) != 1 {
		t.Errorf("the live run has %q, %v", left, err)
	}
}

func TestBridgeFabricCheck(t *testing.T) {
	for _, c := range Check(context.Background()) {
		if err := netns.Possible(); c.OK != (err == nil) {
			t.Errorf("%+v, yet namespaces: %v", c, err)
		}
		if c.OK == (c.Missing != "") {
			t.Errorf("%+v says that and why not", c)
		}
	}
}

func BenchmarkAttachDetach(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "runs")
	run, err := runs.New(dir)
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
