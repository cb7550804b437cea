package fabrictest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/segment"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// Make makes a fabric for a run.
type Make func(run *runstate.Run) (fabric.Fabric, error)

// Cases are fabrics to test, by name: "bridge", "macvlan-vepa".
type Cases map[string]Case

// A Case is one fabric to test.
type Case struct {
	Make  Make
	Limit int // see Harness
	MTU   int // see Harness; 0: 1500

	Unicast bool // see Harness
	Shared  bool // its instances share the host's network, and have no namespaces
	// Fabric returns the name of the fabric's network namespace in a run.
	Fabric func(run string) string
	// Cleaner returns the fabric's own cleaner, which runs before the one of segments.
	// nil: it has none.
	Cleaner func(root string) vitrine.Cleaner
}

// Environment variables for a second process of the test binary, which holds a
// run that the test kills.
const (
	killedCase = "FABRICTEST_CASE"
	killedRoot = "FABRICTEST_ROOT"
	killedHost = "FABRICTEST_HOST"
)

// Environ returns the environment in which Main holds a run of the named case.
// The run is registered in root. host is the path of the host's network
// namespace; empty: the one that the process is in.
func Environ(name, root, host string) []string {
	return []string{killedCase + "=" + name, killedRoot + "=" + root, killedHost + "=" + host}
}

// Main is for TestMain of a package whose tests call RunAll or Killable. These
// start the test binary again, and Main then holds a run until it is killed.
// Otherwise Main runs the tests.
func Main(m *testing.M, cases Cases) int {
	root := os.Getenv(killedRoot)
	if root == "" {
		return m.Run()
	}
	if err := cases[os.Getenv(killedCase)].hold(root, os.Getenv(killedHost)); err != nil {
		fmt.Println("-", err)
		return 1
	}
	return 0
}

// hold makes a run with a fabric and one instance. It prints the run's label
// and the instance's address, and waits to be killed.
func (c Case) hold(root, host string) error {
	run, err := runstate.New(root)
	if err != nil {
		return err
	}
	var f fabric.Fabric
	err = netns.Do(host, func() error {
		f, err = c.Make(run)
		return err
	})
	port := fabric.Port{Instance: "bono-1"}
	if err == nil && !c.Shared {
		port.NetNS, err = netns.Create(runstate.Name(run.ID, port.Instance))
	}
	if err != nil {
		return err
	}
	end, err := f.Attach(context.Background(), port)
	if err != nil {
		return err
	}
	fmt.Println(run.ID, end.Addr)
	_, err = io.Copy(io.Discard, os.Stdin) // until killed
	return err
}

// RunAll runs the suite for each case, and then the test that kills a run.
func RunAll(t *testing.T, cases Cases) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			Run(t, c.open)
			t.Run("Killed", func(t *testing.T) { testKilled(t, name, c) })
		})
	}
}

// Place makes an instance's network namespace for the test's duration, as a
// substrate does, and returns its path.
func Place(t testing.TB, run, instance string) string {
	t.Helper()
	name := runstate.Name(run, instance)
	path, err := netns.Create(name)
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return netns.Delete(name) })
	return path
}

// NewRun starts a run for the test's duration.
func NewRun(t testing.TB, root string) *runstate.Run {
	t.Helper()
	run, err := runstate.New(root)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.AtEnd(t, run.Close)
	return run
}

// Open makes a fabric with a run of its own. It skips the test when this host
// does not support the fabric.
func (c Case) Open(t *testing.T, root string) (fabric.Fabric, *runstate.Run) {
	t.Helper()
	run := NewRun(t, root)
	f, err := c.Make(run)
	hosttest.Need(t, err)
	return f, run
}

func (c Case) open(t *testing.T, root string) Harness {
	f, run := c.Open(t, root)
	var places []string
	mtu := c.MTU
	if mtu == 0 {
		mtu = 1500
	}
	return Harness{
		Fabric: f, Run: run, Limit: c.Limit, MTU: mtu, Unicast: c.Unicast,
		Place: func(t *testing.T, instance string) string {
			places = append(places, Place(t, run.ID, instance))
			return places[len(places)-1]
		},
		Left: func() ([]string, error) { return left(c.Fabric(run.ID), places) },
	}
}

// left returns the name of the fabric's namespace, if it exists, and the
// interfaces other than lo in the places.
func left(of string, places []string) ([]string, error) {
	var found []string
	if _, err := os.Stat(netns.Path(of)); err == nil {
		found = append(found, of)
	}
	for _, place := range places {
		if _, err := os.Stat(place); err != nil {
			continue // removed by the test
		}
		names, err := Interfaces(place)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if name != "lo" {
				found = append(found, place+": "+name)
			}
		}
	}
	return found, nil
}

// Interfaces returns the names of the interfaces in a network namespace,
// sorted.
func Interfaces(path string) (names []string, err error) {
	err = netns.Do(path, func() error {
		links, err := net.Interfaces()
		for _, link := range links {
			names = append(names, link.Name)
		}
		slices.Sort(names)
		return err
	})
	return names, err
}

// clean removes what dead runs in root left behind, as the program does.
func (c Case) clean(ctx context.Context, root string) (removed []string, err error) {
	var cleaners []vitrine.Cleaner
	if c.Cleaner != nil {
		cleaners = append(cleaners, c.Cleaner(root))
	}
	for _, cleaner := range append(cleaners, segment.Cleaner{Root: root}) {
		more, err := cleaner.Clean(ctx)
		if removed = append(removed, more...); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// testKilled checks that cleaning removes everything that a killed run left
// behind, and leaves a live run alone.
func testKilled(t *testing.T, name string, c Case) {
	root := filepath.Join(t.TempDir(), "runs")
	f, run := c.Open(t, root)
	defer func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	before := hostInterfaces(t)

	other, kill := Killable(t, name, root, "")
	hosttest.AtEnd(t, func() error { return netns.Delete(runstate.Name(other, "bono-1")) }) // a substrate would remove it
	if removed, err := c.clean(t.Context(), root); err != nil || len(removed) > 0 {
		t.Errorf("clean while both runs live: removed %q, %v", removed, err)
	}
	kill()
	removed, err := c.clean(t.Context(), root)
	if err != nil || len(removed) == 0 {
		t.Errorf("clean: removed %q, %v", removed, err)
	}
	if left, err := left(c.Fabric(other), nil); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if after := hostInterfaces(t); !slices.Equal(before, after) {
		t.Errorf("the host's interfaces were %q and are %q", before, after)
	}
	if left, err := left(c.Fabric(run.ID), nil); err != nil || len(left) != 1 {
		t.Errorf("the live run has %q, %v", left, err)
	}
}

// hostInterfaces returns the host's interfaces with names that a fabric could
// give. It ignores the others, which other tests on this host make and remove.
func hostInterfaces(t *testing.T) []string {
	t.Helper()
	names, err := Interfaces("")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return name != "eth0" && name != "br0" && name[0] != 'p'
	})
}

// Killable starts the test binary again with Environ. It returns the run's
// label and a function that kills the process.
func Killable(t *testing.T, name, root, host string) (run string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), Environ(name, root, host)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close() })
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(stdout, &run); err != nil || len(run) != 8 {
		rest, _ := io.ReadAll(stdout)
		t.Fatalf("the other run: %q%s, %v", run, rest, err)
	}
	return run, func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
}
