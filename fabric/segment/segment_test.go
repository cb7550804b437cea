package segment_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/macvlan"
	"vitrine/fabric/segment"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
)

// A stuck is a Wiring of veth pairs that fails to remove one of them the first time.
type stuck struct{ on string }

var errStuck = errors.New("stuck")

func (*stuck) Make(*segment.Segment) error                     { return nil }
func (*stuck) Join(s *segment.Segment, end *segment.End) error { return s.Pair(end, 0) }

func (w *stuck) Cut(s *segment.Segment, end *segment.End) error {
	if end.Instance == w.on {
		w.on = ""
		return errStuck
	}
	return s.Unpair(end)
}

// TestCloseGoesOn checks a Close that cannot detach one instance. It must remove everything else,
// and the next Close must remove that instance, too. In between, no instance may be attached.
func TestCloseGoesOn(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	s, err := segment.New(segment.Config{Run: run, Kind: segment.Kind{Name: "stuck"}}, &stuck{on: "bono-1"})
	hosttest.Need(t, err)
	for _, name := range []string{"bono-1", "homer-1", "sprout-1"} {
		if _, err := s.Attach(t.Context(), fabric.Port{Instance: name, NetNS: fabrictest.Place(t, run.ID, name)}); err != nil {
			t.Fatal(err)
		}
	}
	late := fabric.Port{Instance: "ellis-1", NetNS: fabrictest.Place(t, run.ID, "ellis-1")}
	for _, want := range []error{errStuck, nil, nil} {
		if err := s.Close(t.Context()); !errors.Is(err, want) {
			t.Errorf("Close: got %v, want %v", err, want)
		}
		if _, err := os.Stat(s.Path()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the fabric's namespace still exists: %v", err)
		}
		_, err := s.Attach(t.Context(), late)
		if err == nil || !strings.Contains(err.Error(), "the fabric is closed") {
			t.Errorf("attach to a fabric whose Close returned %v: got %v", want, err)
		}
	}
	if left, err := fabrictest.Interfaces(netns.Path("vt-" + run.ID + "-bono-1")); err != nil || !slices.Equal(left, []string{"lo"}) {
		t.Errorf("interfaces of the instance: got %q, error %v", left, err)
	}
}

// TestTenThousandAttaches checks that instances still get interfaces over a parent of the host
// after many attaches. The kernel bounds the length of interface names.
func TestTenThousandAttaches(t *testing.T) {
	host := fabrictest.NewHost(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	s := fabrictest.OnHost(t, host, func() (*segment.Segment, error) {
		return macvlan.New(macvlan.Config{Run: run, Parent: "eno1"})
	})
	bench := fabrictest.NewBench(t, s, run)
	s.SetNumber(9999)
	if err := bench.Reach(bench.Attach("bono-1"), bench.Attach("sprout-1")); err != nil {
		t.Error(err)
	}
}

// TestUplinkWithoutCarrier checks that an interface without a carrier is refused by name.
func TestUplinkWithoutCarrier(t *testing.T) {
	host := fabrictest.NewHost(t)
	host.Unplug(t)
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	err := segment.In(host.Path, func(links *netlink.Handle) error {
		for deadline := time.Now().Add(time.Minute); ; { // until the kernel has looked at the carrier
			link, err := links.LinkByName("eno1")
			if err != nil {
				return err
			}
			state := link.Attrs().OperState
			if state != netlink.OperUp && state != netlink.OperUnknown || time.Now().After(deadline) {
				break
			}
		}
		_, err := segment.UplinkWithin(links, run, "macvlan", "eno1", 0)
		return err
	})
	if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "the interface eno1 has no carrier") {
		t.Errorf("got %v, want a *vitrine.BadInput that names eno1", err)
	}
}
