package ipvlan

import (
	"os"
	"strings"
	"testing"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

func cases() fabrictest.Cases {
	c := make(fabrictest.Cases)
	for _, mode := range []string{"l2", "l3"} {
		c[mode] = fabrictest.Case{
			Make:   func(run *runstate.Run) (fabric.Fabric, error) { return New(Config{Run: run, Mode: mode}) },
			Fabric: segment.Name, Unicast: mode == "l3",
		}
	}
	return c
}

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m, cases())) }

func TestIpvlanFabric(t *testing.T) { fabrictest.RunAll(t, cases()) }

func TestIpvlanBadInput(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	for _, c := range []Config{{Mode: "l4"}, {Mode: "bridge"}} {
		c.Run = run
		if _, err := New(c); !vitrine.IsBadInput(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestIpvlanSaysWhatIsMissing checks that New and Check agree, and that the
// error names the kernel option.
func TestIpvlanSaysWhatIsMissing(t *testing.T) {
	check := Check(t.Context())[0]
	f, err := New(Config{Run: fabrictest.NewRun(t, t.TempDir()+"/runs")})
	if err == nil {
		err = f.Close(t.Context())
	}
	if check.OK != (err == nil) {
		t.Errorf("check %+v disagrees with the error %v", check, err)
	}
	if err != nil && (!vitrine.IsUnsupported(err) || netns.Possible() == nil && !strings.Contains(err.Error(), "CONFIG_IPVLAN")) {
		t.Errorf("got %v, want a *vitrine.Unsupported that names CONFIG_IPVLAN", err)
	}
}
