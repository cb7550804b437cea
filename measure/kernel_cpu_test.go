package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"vitrine"
	"vitrine/result"
	"vitrine/testbed"
)

func TestSteer(t *testing.T) {
	few := testbed.CPUs{Generator: []int{0}, Function: []int{1}}
	enough := testbed.CPUs{Generator: []int{0}, Function: []int{1, 2, 40}}
	for _, tt := range []struct {
		asked    string
		cpus     testbed.CPUs
		cpu      int
		function string // CPUs left
		says     string
	}{
		{OwnCPU, few, -1, "[1]", "on the sender's CPU, where virtual links hand packets over; could not be isolated: no CPU is left besides CPU 0 of the sender and CPU 1 of the receiver"},
		{OwnCPU, enough, 40, "[1 2]", "on CPU 40, by receive packet steering"},
		{"2", enough, 2, "[1 40]", "on CPU 2, by receive packet steering"},
		{"1", enough, 1, "[1 2 40]", "on CPU 1, by receive packet steering; could not be isolated: it is the receiver's too"},
		{"0", few, 0, "[1]", "on CPU 0, by receive packet steering; could not be isolated: it is the sender's too"},
		{SendingCPU, enough, -1, "[1 2 40]", "on the sender's CPU, where virtual links hand packets over; could not be isolated: it was not asked for"},
	} {
		s, left, err := ChooseKernelCPU(tt.asked, tt.cpus)
		if err != nil || s.On != (tt.cpu >= 0) || s.On && s.CPU != tt.cpu || fmt.Sprint(left.Function) != tt.function || fmt.Sprint(left.Generator) != "[0]" || s.String() != tt.says {
			t.Errorf("kernel CPU %s of %v: got error %v, %+v, %v, CPUs left %v", tt.asked, tt.cpus, err, s, s, left)
		}
	}
	for _, asked := range []string{"", "3", "-1", "all", "1,2"} {
		if _, _, err := ChooseKernelCPU(asked, few); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "one of CPUs [0 1]") {
			t.Errorf("%q: %v", asked, err)
		}
	}
}

func TestMask(t *testing.T) {
	for cpu, want := range map[int]string{0: "1", 5: "20", 31: "80000000", 32: "1,00000000", 70: "40,00000000,00000000"} {
		if got := (KernelCPU{On: true, CPU: cpu}).mask(); got != want {
			t.Errorf("mask of CPU %d: got %q, want %q", cpu, got, want)
		}
	}
	if got := (KernelCPU{CPU: 5}).mask(); got != "0" {
		t.Errorf("mask without a kernel CPU: got %q, want 0", got)
	}
}

// steered returns how often the kernel has steered receive work from other CPUs to this one, for
// the whole host (received_rps, the tenth column of softnet_stat).
func steered(t *testing.T, cpu int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		columns := strings.Fields(line)
		if of, err := strconv.ParseInt(columns[12], 16, 64); err == nil && int(of) == cpu {
			n, err := strconv.ParseInt(columns[9], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	t.Fatalf("no CPU %d in softnet_stat", cpu)
	return 0
}

// TestReceiveWorkIsSteered checks that receive work runs on the named CPU and that the result says
// so. While CPU time is counted, the work must stay on the counted CPUs.
func TestReceiveWorkIsSteered(t *testing.T) {
	b := newBench(t)
	var err error
	if b.kernelCPU, b.cpus, err = ChooseKernelCPU(strconv.Itoa(b.cpus.Function[0]), b.cpus); err != nil {
		t.Fatal(err)
	}
	s := settings("bridge")
	s.Metrics = []string{Latency, Efficiency}
	dir := t.TempDir()
	before := steered(t, b.kernelCPU.CPU)
	if _, _, err := b.measure(t, s, dir); err != nil {
		t.Fatal(err)
	}
	if n := steered(t, b.kernelCPU.CPU) - before; n < s.Packets/2 {
		t.Errorf("CPU %d received %d packets, but %d packets were sent four times", b.kernelCPU.CPU, n, s.Packets)
	}
	data, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	receiving := map[string]string{}
	for _, o := range data.Outcomes {
		d, err := ReadDetail(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Ports {
			receiving[d.Metric+" "+p.Instance] = p.Receiving
		}
	}
	on := fmt.Sprintf("on CPU %d, by receive packet steering; could not be isolated: it is the receiver's too", b.kernelCPU.CPU)
	for _, at := range []string{"latency generator", "latency receiver-1"} {
		if receiving[at] != on {
			t.Errorf("%s: got %q, want %q", at, receiving[at], on)
		}
	}
	if !strings.HasPrefix(receiving["efficiency receiver-1"], "on the sender's CPU") || !strings.Contains(receiving["efficiency receiver-1"], "is counted") {
		t.Errorf("efficiency of the receiver: got %q", receiving["efficiency receiver-1"])
	}
}
