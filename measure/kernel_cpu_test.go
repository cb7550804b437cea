package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		s, left, err := ChooseKernelCPU(t.TempDir(), tt.asked, tt.cpus)
		if err != nil || s.On != (tt.cpu >= 0) || s.On && s.CPU != tt.cpu || fmt.Sprint(left.Function) != tt.function || fmt.Sprint(left.Generator) != "[0]" || s.String() != tt.says {
			t.Errorf("kernel CPU %s of %v: got error %v, %+v, %v, CPUs left %v", tt.asked, tt.cpus, err, s, s, left)
		}
	}
	for _, asked := range []string{"", "3", "-1", "all", "1,2"} {
		if _, _, err := ChooseKernelCPU(t.TempDir(), asked, few); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "one of CPUs [0 1]") {
			t.Errorf("%q: %v", asked, err)
		}
	}
}

// TestSeparateCPUsAreOnTheReceiversNode checks that on two sockets the kernel's CPU, and that of the link
// emulator, are on the receiver's node if a CPU is left there, and that the conditions name the nodes.
func TestSeparateCPUsAreOnTheReceiversNode(t *testing.T) {
	root := t.TempDir()
	for cpu := range 64 { // the usual numbers: hardware threads 0 to 31, and then their siblings
		node := fmt.Sprintf("sys/devices/system/cpu/cpu%d/node%d", cpu, cpu/16%2)
		if err := os.MkdirAll(filepath.Join(root, node), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := testbed.CPUs{Generator: []int{0}}
	for cpu := 1; cpu < 64; cpu++ {
		all.Function = append(all.Function, cpu)
	}
	kernel, left, err := ChooseKernelCPU(root, OwnCPU, all)
	if err != nil || kernel.CPU != 47 {
		t.Fatalf("the kernel's CPU is %d, error %v", kernel.CPU, err)
	}
	if emulator := EmulatorCPU(root, left); emulator == nil || *emulator != 46 {
		t.Errorf("the emulator's CPU is %v", emulator)
	}
	if EmulatorCPU(root, testbed.CPUs{Generator: []int{0}, Function: []int{1}}) != nil {
		t.Error("the emulator has the CPU of the sender or the receiver")
	}
	if p := ReadPlatform(root, left, kernel, nil); p.SenderNode != "0" || p.ReceiverNode != "0" || p.KernelNode != "0" {
		t.Errorf("the nodes are %+v", p)
	}
	kernel, left, err = ChooseKernelCPU(root, OwnCPU, testbed.CPUs{Generator: []int{0}, Function: []int{1, 16, 17}})
	if p := ReadPlatform(root, left, kernel, nil); err != nil || kernel.CPU != 17 || p.KernelNode != "1" {
		t.Errorf("without a CPU on the receiver's node: CPU %d, %+v, error %v", kernel.CPU, p, err)
	}
	if nodes := NUMANodes(root, []int{1, 2, 16, 32}); nodes != "0, 1" {
		t.Errorf("CPUs 1, 2, 16 and 32 are on the nodes %s", nodes)
	}
}

// TestNoReceiveWorkOnIsolatedCPUs checks that the receive work is not said to run on a CPU to which the
// kernel refuses to steer it, and that no such CPU is kept free for it.
func TestNoReceiveWorkOnIsolatedCPUs(t *testing.T) {
	cpus := testbed.CPUs{Generator: []int{2}, Function: []int{3, 4, 5}}
	for _, tt := range []struct {
		isolated, full string
		cpu            int // -1: none
		left           string
	}{
		{"2-5\n", "", -1, "[3 4 5]"},
		{"\n", "2-5\n", -1, "[3 4 5]"},
		{"2-4\n", "(null)\n", 5, "[3 4]"},
		{"\n", "\n", 5, "[3 4]"},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "sys/devices/system/cpu")
		err := os.MkdirAll(dir, 0o755)
		for file, text := range map[string]string{"isolated": tt.isolated, "nohz_full": tt.full} {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		kernel, left, err := ChooseKernelCPU(root, OwnCPU, cpus)
		if err != nil || kernel.On != (tt.cpu >= 0) || kernel.On && kernel.CPU != tt.cpu || !kernel.On && !strings.Contains(kernel.String(), "isolcpus") || fmt.Sprint(left.Function) != tt.left {
			t.Errorf("isolated %q, nohz_full %q: got %s, CPUs left %v, error %v", tt.isolated, tt.full, kernel, left, err)
		}
		if tt.cpu >= 0 {
			continue
		}
		for _, asked := range []string{"2", "3", "5"} {
			if _, _, err := ChooseKernelCPU(root, asked, cpus); !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "isolcpus") {
				t.Errorf("CPU %s: got error %v", asked, err)
			}
		}
	}
}

// TestReceiveWorkOfACard checks that the receive work of a network card is not said to run on the
// sender's CPU: its interrupts run elsewhere.
func TestReceiveWorkOfACard(t *testing.T) {
	for _, tt := range []struct {
		card bool
		on   KernelCPU
		want string
	}{
		{true, KernelCPU{Why: "it was not asked for"}, "on the CPUs of the card's interrupts; could not be isolated: it was not asked for"},
		{true, KernelCPU{On: true, CPU: 2}, "on the CPUs of the card's interrupts, then on CPU 2, by receive packet steering"},
		{false, KernelCPU{On: true, CPU: 2}, "on CPU 2, by receive packet steering"},
	} {
		if got := (&port{card: tt.card}).receiving(tt.on); got != tt.want {
			t.Errorf("card %t, %+v: got %q, want %q", tt.card, tt.on, got, tt.want)
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
	if b.kernelCPU, b.cpus, err = ChooseKernelCPU("/", strconv.Itoa(b.cpus.Function[0]), b.cpus); err != nil {
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
