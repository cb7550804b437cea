package chain

import (
	"context"
	"encoding/json"
	"errors"
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
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/macvlan"
	"vitrine/fabric/ovs"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/measure"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/reference/forwarder"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/testbed"
	"vitrine/testbed/testbedtest"
)

// TestMain lets the test binary act as the forwarder: `... reference forwarder`.
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

// config returns a small measurement with processes of this host.
func config(t *testing.T, s Settings) Config {
	t.Helper()
	run, err := runstate.New(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	cpus, err := testbed.ShareCPUs(nil, nil)
	hosttest.Need(t, err)
	if s.Size == 0 {
		s.Size, s.Packets, s.Rate, s.Repeat = 64, 100, 1000, 2
	}
	s.Kind, s.Substrates = Kind, []string{"process"}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	results, err := result.Create(t.TempDir(), result.Manifest{Measurement: text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = results.Close() })
	plan, err := MakePlan(s, onlyOVS)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Plan: plan, Stage: measure.Stage{CPUs: cpus, Results: results, Testbed: testbedtest.Local(run)}}
	c.Testbed.Self = hosttest.Self(t)
	c.Testbed.Fabric = func(ctx context.Context, c spec.Choice, _ document.Node) (fabric.Fabric, error) {
		switch c.Fabric {
		case "ovs":
			return ovs.New(ctx, ovs.Config{Run: run})
		case "macvlan":
			return macvlan.New(macvlan.Config{Run: run})
		case "bridge":
			return bridge.New(bridge.Config{Run: run})
		case "ended":
			inner, err := bridge.New(bridge.Config{Run: run})
			return fabrictest.Ended{Fabric: inner, Err: errors.New("the switch\nhas ended")}, err
		}
		return nil, &vitrine.Unsupported{What: c.Fabric, Missing: "a test with this fabric"}
	}
	return c
}

// onlyOVS reports whether the rules of a fabric can forward.
func onlyOVS(fabric string) bool { return fabric == "ovs" }

// report runs the measurement and reads its results.
func report(t *testing.T, s Settings) (Report, error) {
	t.Helper()
	c := config(t, s)
	err := Run(t.Context(), c)
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if err != nil {
		return Report{}, err
	}
	data, err := result.Load(c.Results.Dir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return r, nil
}

// TestChainOverEachForwarder checks that probes come back through the hops and that each hop logs
// how it forwards. A few probes may be too late on a busy host.
func TestChainOverEachForwarder(t *testing.T) {
	for _, tt := range []struct{ forwarder, fabric, says string }{
		{Packet, "bridge", "packet"},
		{XDP, "bridge", "xdp, "},
		{Packet, "macvlan", "packet"},
		{OVS, "ovs", "packet"},
	} {
		t.Run(tt.forwarder+" on "+tt.fabric, func(t *testing.T) {
			r, err := report(t, Settings{Forwarders: []string{tt.forwarder}, Fabrics: []string{tt.fabric}, Lengths: []int{0, 1, 3}})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Chains) != 1 || len(r.Chains[0].Points) != 3 || len(r.Chains[0].Fits) != 4 {
				t.Fatalf("%+v", r)
			}
			c := r.Chains[0]
			for _, p := range c.Points {
				if p.Sent != 100*p.RoundTrip.Repeats || p.Lost > p.Sent/20 || p.Least <= 0 || p.Least > p.RoundTrip.Mean {
					t.Errorf("%+v", p)
				}
			}
			if len(c.Forwarding) != 1 || !strings.HasPrefix(c.Forwarding[0], tt.says) {
				t.Errorf("got forwarding %q", c.Forwarding)
			}
		})
	}
}

// TestUnsupportedChainsAreReported checks that a combination that this host does not support is
// listed with the reason, and that the rest is measured. Recorded streams must not be measured
// again.
func TestUnsupportedChainsAreReported(t *testing.T) {
	c := config(t, Settings{
		Forwarders: []string{XDP}, Fabrics: []string{"warp", "bridge"}, Lengths: []int{0, 1}, Size: 64, Packets: 50, Rate: 1000, Repeat: 2,
	})
	streams := 0
	c.Observe = func(e measure.Event) {
		if e.Outcome != nil && !e.Recorded {
			streams++
		}
	}
	for range 2 {
		hosttest.Need(t, Run(t.Context(), c))
	}
	if streams < 4 || streams != len(c.Results.Outcomes()) { // 4 valid streams, and perhaps invalid ones
		t.Errorf("got %d streams, %d outcomes", streams, len(c.Results.Outcomes()))
	}
	why := c.Results.Manifest().Unsupported
	if len(why) != 1 || !strings.Contains(why["process on warp, xdp"], "a test with this fabric") {
		t.Errorf("got unsupported combinations %q", why)
	}
	alone := c.Plan.Settings
	alone.Fabrics = []string{"warp"}
	if err := Run(t.Context(), config(t, alone)); !vitrine.IsUnsupported(err) {
		t.Errorf("run with nothing to measure: got %v, want Unsupported", err)
	}
}

// TestInjectedDelayIsFound checks that a delay injected at hop 2 is found there at its size, and
// not before hop 2. Other work on the host delays many packets by milliseconds, but not all
// packets. So the test compares the least round trips, and adds repeats until some of them are
// undisturbed.
func TestInjectedDelayIsFound(t *testing.T) {
	const put = 50.0 // us
	for _, forwarder := range []string{Packet, XDP} {
		t.Run(forwarder, func(t *testing.T) {
			c := config(t, Settings{
				Forwarders: []string{forwarder}, Fabrics: []string{"bridge"}, Lengths: []int{0, 1, 2, 3}, Size: 64, Packets: 120, Rate: 1000, Repeat: 2,
				Inject: Injection{Hop: 2, Delay: 50 * time.Microsecond},
			})
			for {
				hosttest.Need(t, Run(t.Context(), c))
				r, err := Summarize(c.Plan.Settings, c.Results.Outcomes(), nil)
				if err != nil {
					t.Fatal(err)
				}
				problem := judge(r, put)
				if problem == "" {
					return
				}
				more := c.Plan.Settings
				if more.Repeat >= 20 {
					t.Fatal(problem)
				}
				t.Logf("with %d repeats: %s", more.Repeat, problem)
				more.Repeat += 2 // recorded repeats stay
				if c.Plan, err = MakePlan(more, onlyOVS); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// judge returns "" if the delay found at hop 2 is right, and otherwise what is wrong.
func judge(r Report, put float64) string {
	if len(r.Chains) != 1 {
		return "nothing measured"
	}
	found := r.Chains[0].Found
	i := slices.IndexFunc(found, func(f Finding) bool { return f.Of == RoundTripMin })
	if i < 0 {
		return "nothing found"
	}
	f := found[i]
	if f.Added.Mean < 0.7*put || f.Added.Mean > 1.4*put {
		return fmt.Sprintf("found %g us, injected %g us", f.Added.Mean, put)
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
	r, err := report(t, Settings{
		Forwarders: []string{Script}, Fabrics: []string{"bridge"}, Lengths: []int{1},
		Program: []string{"/bin/sh", "-c", `exec "$0" reference forwarder --in "$INTERFACE" --next-mac "$NEXT_MAC"`, hosttest.Self(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Chains) != 1 || len(r.Chains[0].Fits) != 0 || len(r.Chains[0].Points) != 1 || r.Chains[0].Points[0].Lost > 0 {
		t.Errorf("%+v", r)
	}
}

// TestFailingForwarderIsNamed checks that the error names a forwarder that ends or does not forward.
func TestFailingForwarderIsNamed(t *testing.T) {
	for program, want := range map[string]string{
		"echo nothing here >&2; exit 3": "nothing here",
		"exec sleep 60":                 "0 of 20 probes",
	} {
		c := config(t, Settings{
			Forwarders: []string{Script}, Fabrics: []string{"bridge"}, Lengths: []int{1},
			Size: 64, Packets: 100, Rate: 1000, Repeat: 1, Program: []string{"/bin/sh", "-c", program},
		})
		c.Wait = 300 * time.Millisecond
		err := Run(t.Context(), c)
		if vitrine.IsUnsupported(err) {
			t.Skip(err)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// TestEndedFabricEndsTheVisit checks that the stream over a fabric whose process has ended is
// invalid, and that the run returns the reason without another attempt. On a busy host, the run may
// end before that stream, because a probe of the chain is late.
func TestEndedFabricEndsTheVisit(t *testing.T) {
	c := config(t, Settings{Forwarders: []string{Packet}, Fabrics: []string{"ended"}, Lengths: []int{0, 1}, Size: 64, Packets: 100, Rate: 1000, Repeat: 2})
	err := Run(t.Context(), c)
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if err == nil || !strings.Contains(err.Error(), "the switch\nhas ended") {
		t.Errorf("got the error %v", err)
	}
	if all := c.Results.Outcomes(); len(all) > 1 || len(all) == 1 && (all[0].Valid || all[0].Reason != "the switch has ended") {
		t.Errorf("got %+v, want one invalid stream", all)
	}
}

// TestUnstampedRepliesAreInvalid checks that a stream is invalid if the kernel did not stamp every
// reply, because the program reads the replies later.
func TestUnstampedRepliesAreInvalid(t *testing.T) {
	for _, unstamped := range []int{0, 2} {
		s := Stream{Unstamped: unstamped, Network: delay.Report{Received: 5}}
		o, err := s.outcome(vitrine.Key{Seq: 1, Attempt: 1, Rate: 1000})
		if err != nil || o.Valid != (unstamped == 0) {
			t.Errorf("%d unstamped replies: valid %t (%s), error %v", unstamped, o.Valid, o.Reason, err)
		}
	}
}

// TestClockSetDuringAStream checks that a stream is invalid if the time of day was set meanwhile,
// because the kernel stamps replies by it.
func TestClockSetDuringAStream(t *testing.T) {
	for _, drift := range []int64{40, -3_000_000} {
		s := Stream{Sent: packet.Sent{Drift: drift, Unsure: 50}, Network: delay.Report{Received: 5}}
		o, err := s.outcome(vitrine.Key{Seq: 1, Attempt: 1, Rate: 1000})
		if err != nil || o.Valid != (drift == 40) || !o.Valid && !strings.HasPrefix(o.Reason, "the time of day was set by -3ms") {
			t.Errorf("set by %d ns: valid %t (%s), error %v", drift, o.Valid, o.Reason, err)
		}
	}
}

// TestHopsHaveOneCPUEach checks that hops share CPUs only if there are fewer CPUs than hops, and that the
// conditions of the result say so.
func TestHopsHaveOneCPUEach(t *testing.T) {
	s := Settings{Lengths: []int{0, 5}}
	for _, tt := range []struct {
		cpus []int
		hops []int // their CPUs
		says string
	}{
		{[]int{1}, []int{1, 1, 1, 1, 1}, "each hop on one of [1], in turn, at most 5 on each"},
		{[]int{2, 3}, []int{2, 3, 2, 3, 2}, "each hop on one of [2 3], in turn, at most 3 on each"},
		{[]int{1, 2, 3, 4, 5, 6}, []int{1, 2, 3, 4, 5}, "each hop on one of [1 2 3 4 5], in turn, at most 1 on each"},
	} {
		var hops []int
		for number := 1; number <= 5; number++ {
			hops = append(hops, hopCPU(tt.cpus, number))
		}
		if says := s.PlaceHops(tt.cpus); !slices.Equal(hops, tt.hops) || says != tt.says {
			t.Errorf("5 hops on CPUs %v are on %v, want %v; the conditions say %q, want %q", tt.cpus, hops, tt.hops, says, tt.says)
		}
	}
	if says := (&Settings{Lengths: []int{0}}).PlaceHops([]int{1}); says != "no hops" {
		t.Errorf("a chain without hops: %q", says)
	}
}

// TestConditionsOfHops checks what the conditions say of the hops' CPUs and nodes, also in a run of an
// earlier program, whose hops ran on any of their CPUs.
func TestConditionsOfHops(t *testing.T) {
	for hopCPUs, want := range map[string][2]string{
		"each hop on one of [1 2], in turn, at most 1 on each": {
			"sender and the receiver's echo on [0]; each hop on one of [1 2], in turn, at most 1 on each; the kernel's receive work: somewhere",
			"sender and the receiver's echo 0, hops 0, 1",
		},
		"": {
			"sender and the receiver's echo on [0]; all hops on [1 2]; the kernel's receive work: somewhere",
			"sender and the receiver's echo 0, the first of the hops' CPUs 0, 1",
		},
	} {
		r := Report{Settings: Settings{HopCPUs: hopCPUs, Platform: measure.Platform{SenderNode: "0", ReceiverNode: "0, 1", ReceiveCPU: "somewhere"}}}
		says := map[string]string{}
		for _, line := range r.settings(result.Manifest{CPUs: result.Reservation{Generator: []int{0}, Function: []int{1, 2}}}).Tables[0].Rows {
			says[line.Cells[0].Text] = line.Cells[1].Text
		}
		if got := [2]string{says["CPU pinning"], says["NUMA node"]}; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestBadSettings(t *testing.T) {
	good := Settings{Substrates: []string{"process"}, Forwarders: []string{Packet}, Fabrics: []string{"bridge"}, Lengths: []int{0, 1}, Size: 64, Packets: 100, Rate: 1000, Repeat: 1}
	if _, err := MakePlan(good, onlyOVS); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Settings){
		"forwarder":                func(s *Settings) { s.Forwarders = []string{"click"} },
		"rules without a switch":   func(s *Settings) { s.Forwarders = []string{OVS} },
		"no script":                func(s *Settings) { s.Forwarders = []string{Script} },
		"no fabric":                func(s *Settings) { s.Fabrics = nil },
		"script":                   func(s *Settings) { s.Program = []string{"x"} },
		"attach":                   func(s *Settings) { s.Forwarders, s.Attach = []string{XDP}, "nativ" },
		"attach without XDP":       func(s *Settings) { s.Attach = "native" },
		"no length":                func(s *Settings) { s.Lengths = nil },
		"length":                   func(s *Settings) { s.Lengths = []int{-1} },
		"lengths":                  func(s *Settings) { s.Lengths = []int{2, 1} },
		"twice":                    func(s *Settings) { s.Lengths = []int{1, 1} },
		"size":                     func(s *Settings) { s.Size = 63 },
		"packets":                  func(s *Settings) { s.Packets = 1 },
		"rate":                     func(s *Settings) { s.Rate = 0 },
		"cut":                      func(s *Settings) { s.Cut = delay.Cut{Head: 1<<63 - 1, Tail: 9} },
		"hop":                      func(s *Settings) { s.Inject = Injection{Hop: 2, Delay: 1000} },
		"delay":                    func(s *Settings) { s.Inject = Injection{Hop: 1} },
		"all lengths pass the hop": func(s *Settings) { s.Lengths, s.Inject = []int{1, 2}, Injection{Hop: 1, Delay: 1000} },
	} {
		s := good
		spoil(&s)
		if _, err := MakePlan(s, onlyOVS); !vitrine.IsBadInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
