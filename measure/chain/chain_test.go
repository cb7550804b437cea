package chain

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/macvlan"
	"vitrine/fabric/ovs"
	"vitrine/internal/runs"
	"vitrine/reference/forwarder"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/trial"
)

// TestMain lets the test binary be the forwarder: `... reference forwarder`.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "reference" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := forwarder.Run(ctx, os.Args[3:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// measured runs a small measurement on processes of this host.
func measured(t *testing.T, s Settings) (Report, error) {
	t.Helper()
	run, err := runs.New(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	cpus, err := trial.ShareCPUs(nil, nil)
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	place := func(context.Context, spec.Choice) (substrate.Substrate, error) {
		return process.New(process.Config{Run: run, Environ: os.Environ()})
	}
	if s.Size == 0 {
		s.Size, s.Packets, s.Rate, s.Repeat = 64, 200, 2000, 2
	}
	s.Substrate = "process"
	r, err := Run(t.Context(), Config{
		Settings: s, CPUs: cpus, RunID: run.ID, Dir: t.TempDir(),
		Backends: trial.Backends{
			Self: self, Host: place,
			Substrate: func(ctx context.Context, c spec.Choice, _ spec.Node) (substrate.Substrate, error) {
				return place(ctx, c)
			},
			Fabric: func(ctx context.Context, c spec.Choice, _ spec.Node) (fabric.Fabric, error) {
				switch c.Fabric {
				case "ovs":
					return ovs.New(ctx, ovs.Config{Run: run})
				case "macvlan":
					return macvlan.New(macvlan.Config{Run: run})
				}
				return bridge.New(bridge.Config{Run: run})
			},
		},
		Observe: func(e Event) {
			if e.Stream != nil {
				t.Logf("%d/%d: length %d: %.1f us, lost %d, jitter %.1f", e.Done, e.Of, e.Stream.Length, e.Stream.Network.Delay.Min, e.Stream.Network.Lost, e.Stream.Network.Jitter.Mean)
			}
		},
	})
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	return r, err
}

// Every probe comes back, through as many hops as were asked for: each hop's
// own count says so.
func TestChainOverEachForwarder(t *testing.T) {
	for _, tt := range []struct{ forwarder, fabric, says string }{
		{Packet, "bridge", "packet"},
		{XDP, "bridge", "xdp, "},
		{Packet, "macvlan", "packet"},
		{OVS, "ovs", "packet"},
	} {
		t.Run(tt.forwarder+" on "+tt.fabric, func(t *testing.T) {
			r, err := measured(t, Settings{Forwarder: tt.forwarder, Fabric: tt.fabric, Lengths: []int{0, 1, 3}})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Points) != 3 || len(r.Streams) != 6 || len(r.Fits) != 4 || len(r.Hops) != 3 {
				t.Fatalf("%d points, %d streams, %d fits, %d hops", len(r.Points), len(r.Streams), len(r.Fits), len(r.Hops))
			}
			for _, p := range r.Points {
				if p.Sent != 400 || p.Lost > 0 || p.RoundTrip.Mean <= 0 {
					t.Errorf("%+v", p)
				}
			}
			for _, h := range r.Hops {
				if !strings.HasPrefix(h.Ready, tt.says) {
					t.Errorf("hop %d: %q", h.Number, h.Ready)
				}
			}
		})
	}
}

// A delay that is put into hop 2 is found in what hop 2 adds: not before it,
// and as much as was put there. What else runs here delays packets by
// milliseconds, but not all of them: it is the least round trips that tell, and
// where none got through undelayed, it is measured again.
func TestInjectedDelayIsFound(t *testing.T) {
	const put = 50.0 // us
	for _, forwarder := range []string{Packet, XDP} {
		t.Run(forwarder, func(t *testing.T) {
			for attempt := 1; ; attempt++ {
				r, err := measured(t, Settings{
					Forwarder: forwarder, Fabric: "bridge", Lengths: []int{0, 1, 2, 3}, Size: 64, Packets: 200, Rate: 1000, Repeat: 3,
					Inject: Injection{Hop: 2, Delay: 50 * time.Microsecond},
				})
				if err != nil {
					t.Fatal(err)
				}
				problem := judge(r, put)
				if problem == "" {
					return
				}
				if attempt == 4 {
					t.Fatal(problem)
				}
				t.Log(problem)
			}
		})
	}
}

// judge says what is wrong about how the delay put into hop 2 was found.
func judge(r Report, put float64) string {
	i := slices.IndexFunc(r.Found, func(f Finding) bool { return f.Of == RoundTripMin })
	if i < 0 {
		return "nothing found"
	}
	f := r.Found[i]
	if f.Added.Mean < 0.7*put || f.Added.Mean > 1.4*put {
		return fmt.Sprintf("added %g us, put %g us", f.Added.Mean, put)
	}
	before, past := 0.0, 0.0
	for _, x := range f.Residuals {
		if x.Length < 2 {
			before += x.Value.Mean / 2
		} else {
			past += x.Value.Mean / 2
		}
	}
	if d := past - before; d < 0.7*put || d > 1.4*put {
		return fmt.Sprintf("residuals: %g us before the hop, %g us past it", before, past)
	}
	return ""
}

func TestScriptForwards(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := measured(t, Settings{
		Forwarder: Script, Fabric: "bridge", Lengths: []int{1},
		Program: []string{"/bin/sh", "-c", `exec "$0" reference forwarder --in "$INTERFACE" --next-mac "$NEXT_MAC"`, self},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Fits) != 0 || len(r.Points) != 1 || r.Points[0].Lost > 0 {
		t.Errorf("%+v", r)
	}
}

// A forwarder that ends, or does not forward, is an error that says so.
func TestForwarderThatDoesNot(t *testing.T) {
	for program, want := range map[string]string{
		"echo nothing here >&2; exit 3": "nothing here",
		"exec sleep 60":                 "0 of 20 probes",
	} {
		_, err := measured(t, Settings{
			Forwarder: Script, Fabric: "bridge", Lengths: []int{1}, Wait: 300 * time.Millisecond,
			Size: 64, Packets: 100, Rate: 1000, Repeat: 1, Program: []string{"/bin/sh", "-c", program},
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", program, err)
		}
	}
}

func TestBadSettings(t *testing.T) {
	good := Settings{Forwarder: Packet, Fabric: "bridge", Lengths: []int{0, 1}, Size: 64, Packets: 100, Rate: 1000, Repeat: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Settings){
		"forwarder":          func(s *Settings) { s.Forwarder = "click" },
		"rules of no switch": func(s *Settings) { s.Forwarder = OVS },
		"no script":          func(s *Settings) { s.Forwarder = Script },
		"script":             func(s *Settings) { s.Program = []string{"x"} },
		"no length":          func(s *Settings) { s.Lengths = nil },
		"length":             func(s *Settings) { s.Lengths = []int{-1} },
		"lengths":            func(s *Settings) { s.Lengths = []int{2, 1} },
		"twice":              func(s *Settings) { s.Lengths = []int{1, 1} },
		"size":               func(s *Settings) { s.Size = 63 },
		"packets":            func(s *Settings) { s.Packets = 1 },
		"rate":               func(s *Settings) { s.Rate = 0 },
		"hop":                func(s *Settings) { s.Inject = Injection{Hop: 2, Delay: 1000} },
		"delay":              func(s *Settings) { s.Inject = Injection{Hop: 1} },
		"all pass the hop":   func(s *Settings) { s.Lengths, s.Inject = []int{1, 2}, Injection{Hop: 1, Delay: 1000} },
	} {
		s := good
		spoil(&s)
		if err := s.Check(); !vitrine.IsBadInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
