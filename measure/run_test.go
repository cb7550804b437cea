package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"vitrine/fabric/impair"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/measure/cpu"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/testbed"
	"vitrine/testbed/testbedtest"
)

// TestMain lets the test binary act as the programs that instances run.
func TestMain(m *testing.M) {
	programs := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"send": packet.RunSend, "receive": packet.RunReceive, "echo": packet.RunEcho, "soak": cpu.RunSoak,
	}
	var err error
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	switch {
	case len(os.Args) > 2 && os.Args[1] == "reference":
		err = programs[os.Args[2]](ctx, os.Args[3:], os.Stdout, os.Stderr)
	case len(os.Args) > 1 && os.Args[1] == impair.Verb:
		err = impair.Serve(ctx, time.Now, os.Stdin, os.Stdout)
	default:
		stop()
		os.Exit(m.Run())
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A bench is the environment of a test: processes of this host, on a bridge whose links
// may be impaired.
type bench struct {
	run   *runstate.Run
	cpus  testbed.CPUs
	links map[string]map[string]impair.Link // by fabric
	self  string

	kernelCPU KernelCPU
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if err := netns.Possible(); err != nil {
		t.Skip(err)
	}
	run, err := runstate.New(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	cpus, err := testbed.ShareCPUs(nil, nil)
	hosttest.Need(t, err)
	return &bench{run: run, cpus: cpus, self: hosttest.Self(t)}
}

func (b *bench) testbed() testbed.Config {
	c := testbedtest.Local(b.run)
	c.Self = b.self
	c.Fabric = func(ctx context.Context, o spec.Choice, _ document.Node) (fabric.Fabric, error) {
		if o.Fabric == "nowhere" {
			return nil, &vitrine.Unsupported{What: "the fabric nowhere", Missing: "a place"}
		}
		inner, err := bridge.New(bridge.Config{Run: b.run})
		if err == nil && o.Fabric == "ended" {
			return fabrictest.Ended{Fabric: inner, Err: errors.New("the switch\nhas ended")}, nil
		}
		if err != nil || b.links[o.Fabric] == nil {
			return inner, err
		}
		return impair.Wrap(ctx, inner, impair.Config{
			Links: b.links[o.Fabric], By: impair.Emulator, Seed: 1, Run: b.run, Command: []string{b.self, impair.Verb},
		})
	}
	return c
}

// machines reports whether a substrate's instances have their own kernel.
func machines(substrate string) bool { return substrate == "qemu" }

// settings returns settings with few packets at a low rate.
func settings(fabrics ...string) Settings {
	return Settings{
		Kind: Kind, Metrics: []string{Latency}, Substrates: []string{"process"}, Fabrics: fabrics,
		Sizes: []int{64}, SmallSize: 64, Packets: 200, Repeat: 1,
		Rates: Rates{1000, 1000, 1000}, Given: Given{true, true, true},
	}
}

// measure runs the measurement into a folder. It returns the folder's summary, the events and the
// error of the run.
func (b *bench) measure(t *testing.T, s Settings, dir string) (Summary, []Event, error) {
	t.Helper()
	plan, err := MakePlan(s, machines)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var run *result.Run
	if _, statErr := os.Stat(filepath.Join(dir, "manifest.json")); statErr == nil {
		run, err = result.Open(dir)
	} else {
		run, err = result.Create(dir, result.Manifest{Measurement: text})
	}
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	runErr := Run(t.Context(), Config{
		Plan: plan, KernelCPU: b.kernelCPU,
		Stage: Stage{Testbed: b.testbed(), CPUs: b.cpus, Results: run, Observe: func(e Event) { events = append(events, e) }},
	})
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	summary, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return summary, events, runErr
}

// details returns the Detail of the last attempt at a stream on a fabric. The attempt may be
// invalid, because the host may be busy.
func details(t *testing.T, dir, fabric, way string) Detail {
	t.Helper()
	data, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range slices.Backward(data.Outcomes) {
		if d, err := ReadDetail(o); err == nil && d.Fabric == fabric && d.Way == way {
			return d
		}
	}
	t.Fatalf("found no stream %s on %s", way, fabric)
	return Detail{}
}

// TestBridgeIsMeasuredDespiteUnsupportedPlaces checks that unsupported places are reported with the
// reason, while the bridge is measured. Recorded streams must not be measured again.
func TestBridgeIsMeasuredDespiteUnsupportedPlaces(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	s := settings("bridge", "nowhere")
	s.Metrics, s.Sizes = Metrics(), []int{64, 1514, 2000}
	summary, events, err := b.measure(t, s, dir)
	if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "2000 bytes") {
		t.Errorf("frames above every MTU: got %v", err)
	}
	if why := summary.Unsupported["process on nowhere"]; !strings.Contains(why, "a place") {
		t.Errorf("unsupported combinations: got %v", summary.Unsupported)
	}
	seen := map[string]int{}
	for _, r := range summary.Rows {
		seen[r.Fabric]++
		if r.Size == 2000 && r.Fabric == "bridge" && !strings.Contains(r.Invalid, "at most 1514") {
			t.Errorf("frame above the MTU: got %+v", r)
		}
	}
	if seen["bridge"] != 8 || seen[Floor] != 8 {
		t.Errorf("got rows per fabric %v", seen)
	}
	d := details(t, dir, "bridge", OneWay)
	if !d.OneClock || d.Stamps != "kernel" || d.Ports[0].Neighbour != "static" || d.Ports[0].IPv6 != "off" || d.Ports[1].Driver != "veth" || len(d.Ports[1].Offloads) == 0 {
		t.Errorf("%+v", d)
	}
	if d.Network.Received == 0 || d.Network.Delay.Min <= 0 {
		t.Errorf("%+v", d.Network)
	}
	last := events[len(events)-1]
	if last.Of != 24 || last.Done != 24 {
		t.Errorf("%d of %d streams are done, want 24", last.Done, last.Of)
	}
	again, events, _ := b.measure(t, s, dir)
	for _, e := range events {
		if e.Outcome != nil && !e.Recorded {
			t.Errorf("the stream was measured again: %+v", e.Outcome.Key)
		}
	}
	before, _ := json.Marshal(summary)
	after, _ := json.Marshal(again)
	if !bytes.Equal(before, after) {
		t.Error("a continued run has another result")
	}
}

// TestLinkSettingsAreReadBack checks that a run's results show the impairments of the links.
func TestLinkSettingsAreReadBack(t *testing.T) {
	b := newBench(t)
	b.links = map[string]map[string]impair.Link{
		"late":  {"receiver-1": {Delay: 30 * time.Millisecond, Way: impair.In}},
		"slow":  {"receiver-1": {Delay: 800 * time.Millisecond, Way: impair.In}},
		"lossy": {"receiver-1": {Loss: 0.2, Way: impair.In}},
		"mixed": {"receiver-1": {Delay: 50 * time.Millisecond, Reorder: 0.1, Way: impair.In}},
	}
	dir := t.TempDir()
	if _, _, err := b.measure(t, settings("late", "slow", "lossy", "mixed"), dir); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{OneWay, RoundTrip} {
		late := details(t, dir, "late", way).Network
		if late.Delay.Min < 29_900 || late.Delay.Min > 60_000 || late.Lost > 0 {
			t.Errorf("%s with a delay of 30 ms: got %+v", way, late)
		}
		if lossy := details(t, dir, "lossy", way).Network; lossy.Lost < 10 || lossy.Lost > 80 || lossy.Reordered > 0 {
			t.Errorf("%s with a loss of a fifth of 200 packets: got %+v", way, lossy)
		}
		// About 50 packets are in flight at any time, so most are overtaken.
		if mixed := details(t, dir, "mixed", way).Network; mixed.Reordered < 50 || mixed.Extent < 1 || mixed.Lost > 0 || mixed.PDV.Max < 20_000 {
			t.Errorf("%s with a tenth of the packets overtaking: got %+v", way, mixed)
		}
	}
	data, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range data.Outcomes { // in every attempt, all packets are sent long before the first one arrives
		if d, err := ReadDetail(o); err != nil || d.Fabric == "slow" && (d.Network.Delay.Min < 799_000 || d.Network.Lost > 0) {
			t.Errorf("%s with a delay of 800 ms: got %+v, error %v", d.Way, d.Network, err)
		}
	}
}

// TestEndedFabricEndsTheVisit checks that the streams over a fabric whose process has ended are
// invalid, that the run returns the reason without another attempt, and that it measures the other
// fabrics.
func TestEndedFabricEndsTheVisit(t *testing.T) {
	b := newBench(t)
	for _, metric := range []string{Latency, Jitter} { // a round trip comes first, or one way alone
		dir := t.TempDir()
		s := settings("ended", "bridge")
		s.Metrics = []string{metric}
		_, _, err := b.measure(t, s, dir)
		if err == nil || !strings.Contains(err.Error(), "process on ended: the switch\nhas ended") || strings.Contains(err.Error(), "process on bridge") {
			t.Errorf("%s: got the error %v", metric, err)
		}
		data, err := result.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		streams := map[string]int{}
		for _, o := range data.Outcomes {
			d, err := ReadDetail(o)
			if err != nil {
				t.Fatal(err)
			}
			streams[d.Fabric]++
			if d.Fabric == "ended" && (o.Valid || o.Reason != "the switch has ended") {
				t.Errorf("%s: got a stream that is valid %t, with the reason %q", metric, o.Valid, o.Reason)
			}
		}
		if streams["ended"] != 1 || streams["bridge"] == 0 {
			t.Errorf("%s: got %v streams", metric, streams)
		}
	}
}

// TestMarkEnded checks that the reason of an invalid stream is one line.
func TestMarkEnded(t *testing.T) {
	o := vitrine.Outcome{Valid: true, Reason: "sent on schedule"}
	if MarkEnded(&o, nil); !o.Valid || o.Reason != "sent on schedule" {
		t.Errorf("nothing has ended: got %+v", o)
	}
	if MarkEnded(&o, errors.New("it ended:\nwhy")); o.Valid || o.Reason != "it ended: why" {
		t.Errorf("got %+v", o)
	}
}

func TestHostWithoutSupport(t *testing.T) {
	b := newBench(t)
	if _, _, err := b.measure(t, settings("nowhere"), t.TempDir()); !vitrine.IsUnsupported(err) {
		t.Errorf("%v", err)
	}
}

func TestScaleKeepsRatesOfTheUser(t *testing.T) {
	s := settings("bridge")
	got, err := Scale(t.Context(), Config{}, s, t.TempDir())
	if err != nil || got.Rates != s.Rates || got.Scaled != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if round(76543) != 76000 || round(1000) != 1000 || round(1999) != 1900 || round(0) != 0 {
		t.Error(round(76543), round(1000), round(1999), round(0))
	}
}

// TestScaleLowersUnheldRates checks that Scale lowers a rate of 1e8 packets/s, which no
// sender holds, and reports the change. It must lower only rates that the user did not set.
func TestScaleLowersUnheldRates(t *testing.T) {
	b := newBench(t)
	s := settings("bridge")
	s.Rates.Latency, s.Given.Latency = 1e8, false
	if testing.Short() {
		t.Skip("tries many rates")
	}
	got, err := Scale(t.Context(), Config{Stage: Stage{Testbed: b.testbed(), CPUs: b.cpus}}, s, t.TempDir())
	if err != nil || got.Rates.Latency >= 1e8 || len(got.Scaled) != 1 || !strings.HasPrefix(got.Scaled[0], "latency: ") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPerPacketTakesTheBackgroundOff(t *testing.T) {
	usage := func(span, busy, missed int64, counted ...cpu.Reading) *packet.Usage {
		return &packet.Usage{Span: span, Busy: busy, Missed: missed, Counted: counted}
	}
	sent := &packet.Sent{Packets: 1000, Asked: 1e6, Rate: 1e6}
	plain := &packet.Record{Sent: sent, Background: usage(1e6, 1e4, 4e4), Used: usage(2e6, 7e5, 5e5)}
	idle := []cpu.Reading{{User: 1e3, Kernel: 1e3}, {Kernel: 2e3}, {User: 9e9}}
	busy := []cpu.Reading{{User: 2e3, Kernel: 3e5, Interrupt: 3.6e5}, {User: 1e5, Kernel: 3.06e5}, {User: 9e9}}
	counted := &packet.Record{Sent: sent, Background: usage(1e6, 0, 0, idle...), Used: usage(2e6, 0, 0, busy...)}
	p := perPacket(sentStream{record: plain, counted: counted}, []int{0, 1}, false)
	if p.Total != 1100 || p.Background != 100 {
		t.Errorf("%+v", p)
	}
	want := cpu.Split{User: 100, Kernel: 600, Interrupt: 360}
	if p.Split == nil || *p.Split != want {
		t.Errorf("got split %+v, want %+v: %s", p.Split, want, p.Why)
	}
	if p := perPacket(sentStream{record: plain, counted: counted}, []int{0, 1}, true); p.Split != nil || p.Counted != want.Sum() || !strings.Contains(p.Why, "in a virtual machine") {
		t.Errorf("a virtual machine, whose work BPF sees only as QEMU's: got %+v", p)
	}
	if p := perPacket(sentStream{record: plain, why: errors.New("no BPF")}, []int{0}, false); p.Split != nil || p.Why != "no BPF" {
		t.Errorf("%+v", p)
	}
}

// TestNoPacketOfEfficiencyWasSent checks that a trial is invalid if the interface took no packet of
// its stream.
func TestNoPacketOfEfficiencyWasSent(t *testing.T) {
	record := &packet.Record{
		Sent:       &packet.Sent{Failed: 10, Asked: 1000},
		Background: &packet.Usage{Span: 1e6, Busy: 1e4}, Used: &packet.Usage{Span: 1e6, Busy: 7e5},
	}
	x := stream{metric: Efficiency, way: OneWay, size: 64, rate: 1000, packets: 10}
	d := Detail{Sent: *record.Sent, CPU: perPacket(sentStream{record: record, counted: record}, []int{0}, false)}
	if o := outcome(x, x.Key(1), d); o.Valid || !strings.Contains(o.Reason, "no room for 10 of 10") || d.CPU.Why == "" {
		t.Errorf("%+v", o)
	}
}

// TestOutcomeIsWithinTheCut checks that all counts and the duration of a trial are those of the
// packets within the cut.
func TestOutcomeIsWithinTheCut(t *testing.T) {
	x := stream{metric: Latency, way: RoundTrip, size: 64, rate: 1000, packets: 1000}
	d := Detail{Metric: x.metric, Way: x.way, OneClock: true, Sent: packet.Sent{Packets: x.packets, Asked: x.rate}}
	var list []packet.Reception
	for i := range x.packets {
		if at := int64(i) * 1e6; i != 500 { // one packet is lost
			list = append(list, packet.Reception{Probe: packet.Probe{Sequence: uint32(i), Sent: at}, Kernel: at + 1e4})
		}
	}
	d.analyze(x, delay.Cut{Head: 10, Tail: 10}, list)
	o := outcome(x, x.Key(1), d)
	if !o.Valid || o.Scheduled != 980 || o.Offered != 980 || o.Succeeded != 979 || o.Failed["lost"] != 1 || o.Duration != 980*time.Millisecond {
		t.Errorf("%+v", o)
	}
}

// TestRoundTripsNeedTheKernelsStamps checks that a round trip without the kernel's stamps is invalid,
// because the program reads the replies later. One way, the program's stamps count.
func TestRoundTripsNeedTheKernelsStamps(t *testing.T) {
	for _, tt := range []struct {
		way, stamps string
		valid       bool
	}{{RoundTrip, kernelStamps, true}, {RoundTrip, "program", false}, {OneWay, "program", true}} {
		d := Detail{Way: tt.way, Stamps: tt.stamps, Network: delay.Report{Received: 1}}
		if err := d.valid(); (err == nil) != tt.valid {
			t.Errorf("%s by stamps of the %s: got %v", tt.way, tt.stamps, err)
		}
	}
}

// TestClockSetDuringAStream checks that a stream is invalid if the time of day was set meanwhile at
// the sender, or at a receiver with a kernel of its own, because the kernel stamps packets by it.
func TestClockSetDuringAStream(t *testing.T) {
	const step = 3_000_000
	for _, tt := range []struct {
		name   string
		detail Detail
		set    string // empty: the stream is valid
	}{
		{"error of one kernel's drift", Detail{OneClock: true, Drift: 40, Sent: packet.Sent{Drift: 40, Unsure: 50}}, ""},
		{"one kernel", Detail{OneClock: true, Drift: -step, Sent: packet.Sent{Drift: -step, Unsure: 50}}, "the time of day was set by -3ms"},
		{"error of the receiver's drift", Detail{Drift: 40_000}, ""},
		{"receiver", Detail{Drift: step}, "the receiver's time of day was set by 3ms"},
	} {
		tt.detail.Network.Received = 1
		if err := tt.detail.valid(); (err == nil) != (tt.set == "") || err != nil && !strings.HasPrefix(err.Error(), tt.set) {
			t.Errorf("%s: got the error %v, want %q", tt.name, err, tt.set)
		}
	}
}

// TestDropsOfTheEchoAreNoLoss checks that a round trip with loss is invalid if the echo's socket dropped
// packets.
func TestDropsOfTheEchoAreNoLoss(t *testing.T) {
	s := &site{Site: &testbed.Site{}, config: &Config{}}
	x := stream{metric: Latency, way: RoundTrip, size: 64, rate: 1000, packets: 2}
	record := &packet.Record{
		Sent:       &packet.Sent{Packets: 2, Asked: 1000},
		Receptions: []packet.Reception{{Probe: packet.Probe{Sent: 1000}, Kernel: 2000}},
	}
	for _, dropped := range []uint32{0, 1} {
		echo := &received{Record: &packet.Record{Dropped: dropped}}
		d := roundTripDetail(s, x, sentStream{record: record}, echo)
		o := outcome(x, x.Key(1), d)
		if d.Network.Lost != 1 || o.Valid != (dropped == 0) {
			t.Errorf("%d drops: got %d lost packets, valid %t: %s", dropped, d.Network.Lost, o.Valid, o.Reason)
		}
	}
}

// TestDriftIsOfOneStream checks that the drift of a one-way stream is over that stream, although one
// receiver takes all streams. A receiver with a kernel of its own knows only the drift over all streams.
func TestDriftIsOfOneStream(t *testing.T) {
	s := &site{Site: &testbed.Site{}, config: &Config{}}
	x := stream{metric: Latency, way: OneWay, id: 1, size: 64, rate: 1000, packets: 1}
	out := sentStream{record: &packet.Record{Boot: "a", Sent: &packet.Sent{Packets: 1, Asked: 1000, Drift: 250_000}}}
	for boot, want := range map[string]int64{"a": 250_000, "b": 3_000_000} {
		got := &received{Record: &packet.Record{Boot: boot, Drift: 3_000_000}}
		if d := oneWayDetail(s, x, out, got); d.Drift != want {
			t.Errorf("receiver on kernel %s: got a drift of %d ns, want %d ns", boot, d.Drift, want)
		}
	}
}

// TestListOfUnsupportedPlacesIsRebuilt checks that a resumed run rebuilds the list of unsupported
// places.
func TestListOfUnsupportedPlacesIsRebuilt(t *testing.T) {
	run, err := result.Create(t.TempDir(), result.Manifest{Unsupported: map[string]string{"process on bridge": "no privilege"}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := Run(t.Context(), Config{Stage: Stage{Results: run}}); err != nil {
		t.Fatal(err)
	}
	if left := run.Manifest().Unsupported; len(left) > 0 {
		t.Errorf("unsupported combinations: got %v", left)
	}
}

func TestPlanPutsEachRepeatBeforeTheNext(t *testing.T) {
	s := settings("bridge", "direct")
	s.Substrates, s.Repeat, s.Metrics = []string{"process", "qemu"}, 2, Metrics()
	p, err := MakePlan(s, machines)
	if err != nil {
		t.Fatal(err)
	}
	// The floor and two places of process have round-trip and one-way latency, jitter and
	// efficiency. The two places of qemu have no one-way latency.
	if p.Streams != 2*(3*4+2*3) || len(p.visits) != 10 || p.visits[0].Trials[0].where.Fabric != Floor || p.visits[5].Trials[0].repeat != 2 {
		t.Errorf("got %d streams, %d visits", p.Streams, len(p.visits))
	}
	keys := map[vitrine.Key]bool{}
	for _, v := range p.visits {
		for _, x := range v.Trials {
			keys[x.Key(1)] = true
		}
	}
	if len(keys) != p.Streams {
		t.Errorf("got %d keys, want %d streams", len(keys), p.Streams)
	}
}

// sizes returns n frame sizes.
func sizes(n int) (list []int) {
	for i := range n {
		list = append(list, packet.MinSize+i)
	}
	return list
}

// TestReceiverTakesTheLargestCount checks that even the largest plan asks no receiver for
// more probes than it can take.
func TestReceiverTakesTheLargestCount(t *testing.T) {
	s := settings("bridge")
	s.Packets, s.Metrics, s.Sizes = 1<<22, Metrics(), sizes(13)
	p, err := MakePlan(s, machines)
	if err != nil {
		t.Fatal(err)
	}
	_, oneWay := splitByWay(p.visits[0].Trials)
	if n := mostProbes(oneWay); n != packet.MostReceived || n != s.mostOneWay()*s.Packets {
		t.Errorf("limit of probes of a receiver: got %d", n)
	}
}

func TestSettingsRefuse(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"a metric":  func(s *Settings) { s.Metrics = []string{"speed"} },
		"no fabric": func(s *Settings) { s.Fabrics = nil },
		"twice":     func(s *Settings) { s.Sizes = []int{64, 128, 64} },
		"too large": func(s *Settings) { s.Cut = delay.Cut{Head: 1<<63 - 1, Tail: 9} },
		"a size":    func(s *Settings) { s.Sizes = []int{63} },
		"packets":   func(s *Settings) { s.Packets = 1 },
		"of all":    func(s *Settings) { s.Packets, s.Metrics, s.Sizes = 1<<22, Metrics(), sizes(14) },
		"repeat":    func(s *Settings) { s.Repeat = 0 },
		"cut":       func(s *Settings) { s.Cut = delay.Cut{Head: 90, Tail: 90} },
		"rate":      func(s *Settings) { s.Rates.Jitter = 0 },
	} {
		s := settings("bridge")
		change(&s)
		if _, err := MakePlan(s, machines); !vitrine.IsBadInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
