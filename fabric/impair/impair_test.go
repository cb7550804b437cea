package impair

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/netns"
	"vitrine/internal/runs"
)

const killedEnv = "IMPAIR_TEST_ROOT"

// TestMain lets the test binary be the emulator, and a run that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		if err := Serve(context.Background(), time.Now, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if root := os.Getenv(killedEnv); root != "" {
		fmt.Println(beKilled(root))
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed
		return
	}
	os.Exit(m.Run())
}

// command is how the tests run the verb.
func command() []string { return []string{os.Args[0], Verb} }

// setup makes an impaired bridge; the test closes it.
func setup(t testing.TB, root string, c Config) *Fabric {
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
	f, err := open(run, c)
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func open(run *runs.Run, c Config) (*Fabric, error) {
	b, err := bridge.New(bridge.Config{Run: run})
	if err != nil {
		return nil, err
	}
	c.Run, c.Command = run, command()
	return Wrap(context.Background(), b, c)
}

// place makes an instance's namespace, as a substrate does.
func place(t testing.TB, run, instance string) string {
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

// left finds the run's namespaces of fabrics, and interfaces other than lo in
// the places.
func left(run string, places []string) ([]string, error) {
	var found []string
	for _, name := range []string{middle(run), "vt-" + run + "-fabric"} {
		if _, err := os.Stat(netns.Path(name)); err == nil {
			found = append(found, name)
		}
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

// TestImpairFabric: an impaired fabric is a fabric, whichever instances have
// the emulator in their links.
func TestImpairFabric(t *testing.T) {
	for name, between := range map[string][]string{"all": {"*", "*"}, "one": {"sprout", "bono"}} {
		t.Run(name, func(t *testing.T) {
			fabrictest.Run(t, func(t *testing.T, root string) fabrictest.Harness {
				f := setup(t, root, Config{Between: between, Link: Link{Delay: time.Millisecond, Jitter: time.Millisecond}})
				var places []string
				return fabrictest.Harness{
					Fabric: f, Run: f.config.Run,
					Place: func(t *testing.T, instance string) string {
						places = append(places, place(t, f.config.Run.ID, instance))
						return places[len(places)-1]
					},
					Left: func() ([]string, error) { return left(f.config.Run.ID, places) },
				}
			})
		})
	}
}

func beKilled(root string) (string, error) {
	run, err := runs.New(root)
	if err != nil {
		return "-", err
	}
	f, err := open(run, Config{Between: []string{"bono", "*"}, Link: Link{Delay: time.Millisecond}})
	if err != nil {
		return run.ID, err
	}
	path, err := netns.Create("vt-" + run.ID + "-bono-1")
	if err != nil {
		return run.ID, err
	}
	_, err = f.Attach(context.Background(), fabric.Port{Instance: "bono-1", NetNS: path})
	return run.ID, err
}
