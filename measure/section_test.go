package measure_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/measure"
	"vitrine/measure/cpu"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/report"
	"vitrine/result"
)

var update = flag.Bool("update", false, "write the golden files; then review them")

// synthetic returns a run of artificial streams of every metric, on two fabrics and the floor.
// Jitter has one invalid repeat on process and no valid one on qemu. The machines of qemu are
// emulated.
func synthetic(t *testing.T) *result.Data {
	t.Helper()
	s := measure.Settings{
		Kind: measure.Kind, Metrics: measure.Metrics(), Substrates: []string{"process", "qemu"}, Fabrics: []string{"direct", "bridge"},
		Sizes: []int{64, 1514}, SmallSize: 64, Packets: 1000, Repeat: 3, Cut: delay.Cut{Head: 10, Tail: 10},
		Rates: measure.Rates{Latency: 10000, Jitter: 190000, Efficiency: 64000},
		Platform: measure.Platform{SenderNode: "0", ReceiverNode: "0", Hugepages: "0 reserved, 0 free, of 2048 kB", THP: "madvise", ReceiveCPU: "on CPU 2, by receive packet steering",
			NetworkingModels: map[string]string{"direct": "none: a link of the kernel's between the two, or an interface of the host moved into the instance", "bridge": "kernel-space: the kernel's bridge"}},
		Scaled: []string{"jitter: 190000 packets a second instead of 253906 (the paper's 130 Mb/s): sender and receiver on this host do not hold more with headroom"},
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := &result.Data{Dir: "runs/network", Manifest: result.Manifest{
		Tool: "vitrine 1", Go: "go1.26", Command: []string{"vitrine", "measure", "network"}, Started: at, Finished: at.Add(time.Hour),
		VNF: "network", Unit: "packets/s", Measurement: text, CPUs: result.Reservation{Function: []int{1}, Generator: []int{0}},
		Substrates: map[string]string{"process": "kernel", "qemu": "7.2"}, Fabrics: s.Fabrics, Accelerator: "tcg", Accelerators: map[string]string{"qemu": "tcg"},
		Unsupported: map[string]string{"qemu on direct": "virtual machines: not possible on this host: a cable"},
		NotIsolated: []string{"CPU 1 not isolated"}, Host: result.Host{SMT: "off"},
	}}
	seq := 0
	add := func(substrate, fabric, metric, way string, size, repeat int, base float64, valid bool) {
		seq++
		detail := detailOf(base*(1+float64(repeat)/50), substrate, fabric, metric, way, size)
		measured, err := json.Marshal(detail)
		if err != nil {
			t.Fatal(err)
		}
		o := vitrine.Outcome{
			Key:      vitrine.Key{Seq: seq, Attempt: 1, Substrate: substrate, Options: "fabric=" + fabric, Subject: fmt.Sprintf("%s-%d", metric, size), Repeat: repeat, Rate: 10000},
			Duration: 98 * time.Millisecond, Scheduled: 980, Offered: 980, Succeeded: 978, Failed: map[string]int64{"lost": 2},
			Latency: vitrine.Latency{P50: base / 1e3}, Valid: valid, Measured: measured,
		}
		if !valid {
			o.Reason = "the sender could not hold 190000 packets a second"
		}
		d.Outcomes = append(d.Outcomes, o)
	}
	for repeat := 1; repeat <= 3; repeat++ {
		for base, where := range [][2]string{{"process", measure.Floor}, {"process", "direct"}, {"process", "bridge"}, {"qemu", "bridge"}} {
			us := 10 + 5*float64(base)
			for _, size := range s.Sizes {
				add(where[0], where[1], measure.Latency, measure.RoundTrip, size, repeat, 2*us+float64(size)/500, true)
				if where[0] != "qemu" {
					add(where[0], where[1], measure.Latency, measure.OneWay, size, repeat, us+float64(size)/1000, true)
				}
			}
			add(where[0], where[1], measure.Jitter, measure.OneWay, 64, repeat, us, where[1] != "bridge" || where[0] == "process" && repeat > 1)
			add(where[0], where[1], measure.Efficiency, measure.OneWay, 64, repeat, us, true)
		}
	}
	return d
}

// detailOf returns a stream with a mean of us microseconds.
func detailOf(us float64, substrate, fabric, metric, way string, size int) measure.Detail {
	dist := func(scale float64) delay.Distribution {
		v := us * scale
		return delay.Distribution{N: 978, Min: v / 2, Max: 9 * v, Mean: v, Deviation: v / 4, P50: v * 0.9, P90: v * 1.2, P95: v * 1.4, P99: v * 2, P999: v * 4}
	}
	d := measure.Detail{
		Metric: metric, Way: way, Size: size, Fabric: fabric, Stamps: "kernel", Room: 128 << 20, OneClock: substrate != "qemu" || way == measure.RoundTrip,
		Sent:    packet.Sent{Packets: 1000, Asked: 10000, Rate: 10000, Drift: 120, Schedule: packet.ScheduleErrors{P50: 100, P99: 900, Max: 5000}},
		Network: delay.Report{Sent: 980, Received: 978, Lost: 2, Reordered: 1, Extent: 3, Delay: dist(1), Jitter: dist(0.1), PDV: dist(0.2), IPDV: dist(0.05), Lateness: dist(0.3)},
		Ports: []measure.PortFacts{
			{Instance: "generator", Interface: "eth0", Driver: "veth", MTU: 1500, IPv6: "off", Neighbour: "static", Receiving: "on CPU 2, by receive packet steering", Offloads: []string{"rx-gro"}},
			{Instance: "receiver-1", Interface: "eth0", Driver: "veth", MTU: 1500, IPv6: "off", Neighbour: "static", Receiving: "on CPU 2, by receive packet steering", Offloads: []string{"rx-gro", "tx-checksum-ip-generic"}},
		},
	}
	if way == measure.OneWay {
		late := dist(0.5)
		d.Application = &late
	}
	if substrate == "qemu" {
		d.Accelerator = "tcg"
	}
	if metric == measure.Efficiency {
		split := &cpu.Split{User: us * 20, Kernel: us * 50, Interrupt: us * 30}
		if substrate == "qemu" {
			split.User *= 2
		}
		p := cpu.Judge(us*101, us, split, "")
		d.CPU = &p
	}
	return d
}

func TestReportOfANetwork(t *testing.T) {
	d := synthetic(t)
	var err error
	if d.Sections, err = measure.Sections(d); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.Text(&text, d); err != nil {
		t.Fatal(err)
	}
	hosttest.Golden(t, *update, "testdata/network.txt.golden", text.Bytes())
	var page bytes.Buffer
	if err := report.Page(&page, d); err != nil {
		t.Fatal(err)
	}
	// The page has no golden file, because the plotting library chooses the paths of the figures.
	html := page.String()
	for _, want := range []string{"without the frame check sequence", "not comparable: emulated (tcg)", "left out: virtual machines", "measured-0-latency", "RFC 8172"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if n := strings.Count(html, "<figure>"); n != 5 {
		t.Errorf("got %d figures, want 5", n)
	}
	if strings.Contains(html, `id="capacity"`) {
		t.Error("the page has a section of capacities")
	}
	for _, table := range strings.Split(html, "<table")[1:] {
		caption, _, _ := strings.Cut(table, "</caption>")
		if strings.Contains(table, "not comparable: emulated") && !strings.Contains(caption, "not comparable") {
			t.Errorf("a table of emulated machines lacks the note not comparable: %.200s", caption)
		}
	}
}

// TestConditionsNameTheSwitch checks that a report says which Open vSwitch the run had.
func TestConditionsNameTheSwitch(t *testing.T) {
	d := synthetic(t)
	d.Manifest.FabricVersions = map[string]string{"ovs": "Open vSwitch 3.1.0, datapath netdev"}
	var err error
	if d.Sections, err = measure.Sections(d); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.Text(&text, d); err != nil {
		t.Fatal(err)
	}
	if want := "Open vSwitch 3.1.0, datapath netdev"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in %s", want, text.String())
	}
}

// TestConditionsNameNodesAndTheEmulator checks that a report says on which NUMA node the kernel's
// receive work was done, and where the link emulator ran.
func TestConditionsNameNodesAndTheEmulator(t *testing.T) {
	d := synthetic(t)
	s, _, err := measure.ReadSettings(d.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	s.Platform.KernelNode, s.Platform.Emulator = "1", "on CPU 5"
	if d.Manifest.Measurement, err = json.Marshal(s); err != nil {
		t.Fatal(err)
	}
	if d.Sections, err = measure.Sections(d); err != nil {
		t.Fatal(err)
	}
	says := map[string]string{}
	for _, line := range d.Sections[len(d.Sections)-1].Tables[0].Rows {
		says[line.Cells[0].Text] = line.Cells[1].Text
	}
	if says["NUMA node"] != "sender 0, receiver 0, the kernel's receive work 1" || says["link emulator"] != "on CPU 5" {
		t.Errorf("got the conditions %q", says)
	}
}

func TestRelativeToDirect(t *testing.T) {
	s, err := measure.Read(synthetic(t))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, r := range s.Rows {
		if r.CPU == nil || r.Fabric == measure.Floor {
			continue
		}
		found++
		switch {
		case r.Substrate == "qemu":
			if r.CPU.Relative != nil || r.CPU.Split != nil || !strings.Contains(r.CPU.Why, "apart") || r.Mark == "" {
				t.Errorf("emulated machines: got %+v", r.CPU)
			}
		case r.Fabric == "direct" && (r.CPU.Relative.Mean != 1 || r.CPU.Agreed != 3):
			t.Errorf("fabric direct: got %+v", r.CPU)
		case r.Fabric == "bridge" && (r.CPU.Relative.Mean < 1.33 || r.CPU.Relative.Mean > 1.34):
			t.Errorf("fabric bridge: got %+v", r.CPU.Relative)
		}
	}
	if found != 3 {
		t.Errorf("got %d rows of efficiency, want 3", found)
	}
}

func TestReadRefusesOtherRuns(t *testing.T) {
	if _, err := measure.Read(&result.Data{}); !vitrine.IsBadInput(err) {
		t.Errorf("%v", err)
	}
	bad := synthetic(t)
	bad.Outcomes[0].Measured = json.RawMessage(`7`)
	if _, err := measure.Sections(bad); err == nil {
		t.Error("Sections accepted invalid data")
	}
}
