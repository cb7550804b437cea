package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/document"
	"vitrine/internal/netns"
	"vitrine/testbed"
)

// Values of --kernel-cpu besides a CPU number.
const (
	OwnCPU     = "auto" // a separate CPU, if one is left
	SendingCPU = "none" // the sender's CPU, on which virtual links hand over packets
)

// A KernelCPU is the CPU that does the kernel's receive work. Sender, receiver
// and kernel should have one CPU each.
type KernelCPU struct {
	On  bool   // the work runs on CPU; otherwise on the sender's CPU
	CPU int    // valid if On
	Why string // why the kernel has no CPU of its own; empty if it has one
}

// ChooseKernelCPU chooses one of the CPUs of sender and receiver, and returns the CPUs that remain
// for these two. Any other CPU is a *vitrine.BadInput, and one to which the kernel steers nothing a
// *vitrine.Unsupported. The sys folder below root, which is "/" except in tests, shows the NUMA nodes: a
// separate CPU is on the receiver's node if one is left there.
func ChooseKernelCPU(root, asked string, cpus testbed.CPUs) (KernelCPU, testbed.CPUs, error) {
	sender, receiver := cpus.Generator[0], cpus.Function[0]
	all, spare, isolated := slices.Concat(cpus.Generator, cpus.Function), spareCPUs(cpus), isolatedCPUs(root)
	open := without(spare, isolated...)
	cpu, err := strconv.Atoi(asked)
	switch {
	case asked == SendingCPU:
		return KernelCPU{Why: "it was not asked for"}, cpus, nil
	case asked == OwnCPU && len(spare) == 0:
		return KernelCPU{Why: fmt.Sprintf("no CPU is left besides CPU %d of the sender and CPU %d of the receiver", sender, receiver)}, cpus, nil
	case asked == OwnCPU && len(open) == 0:
		return KernelCPU{Why: noneToIsolated}, cpus, nil
	case asked == OwnCPU:
		cpu = nearest(root, open, receiver)
	case err != nil || !slices.Contains(all, cpu):
		return KernelCPU{}, cpus, &vitrine.BadInput{File: "--kernel-cpu", Found: fmt.Sprintf("%q", asked),
			Want: fmt.Sprintf("want auto, none, or one of CPUs %v, which are the measurement's", all)}
	case slices.Contains(isolated, cpu):
		return KernelCPU{}, cpus, &vitrine.Unsupported{What: fmt.Sprintf("the kernel's receive work on CPU %d", cpu), Missing: noneToIsolated,
			Do: "name a CPU that is not isolated, and add it to the list of taskset"}
	case cpu == sender:
		return KernelCPU{On: true, CPU: cpu, Why: "it is the sender's too"}, cpus, nil
	case cpu == receiver:
		return KernelCPU{On: true, CPU: cpu, Why: "it is the receiver's too"}, cpus, nil
	}
	return KernelCPU{On: true, CPU: cpu}, testbed.CPUs{Function: without(cpus.Function, cpu), Generator: without(cpus.Generator, cpu)}, nil
}

func without(list []int, cpus ...int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(cpu int) bool { return slices.Contains(cpus, cpu) })
}

// noneToIsolated is why the receive work does not run on an isolated CPU.
const noneToIsolated = "the kernel steers no receive work to isolated CPUs (isolcpus, nohz_full)"

// isolatedCPUs returns the CPUs to which the kernel steers no receive work since Linux 5.9
// (rps_cpumask_housekeeping in net/core/net-sysfs.c).
func isolatedCPUs(root string) (cpus []int) {
	for _, file := range []string{"isolated", "nohz_full"} {
		text, _ := os.ReadFile(filepath.Join(root, "sys/devices/system/cpu", file)) // missing without the option
		list, _ := document.ParseCPUs(strings.TrimSpace(string(text)))              // "" or "(null)" without such CPUs
		cpus = append(cpus, list...)
	}
	return cpus
}

// spareCPUs returns the CPUs that neither the sender nor the receiver runs on.
func spareCPUs(cpus testbed.CPUs) []int { return slices.Concat(cpus.Generator[1:], cpus.Function[1:]) }

// nearest returns the last of the CPUs that is on the NUMA node of a CPU, or the last one if none is.
func nearest(root string, list []int, to int) int {
	node := numaNode(root, to)
	for _, cpu := range slices.Backward(list) {
		if numaNode(root, cpu) == node {
			return cpu
		}
	}
	return list[len(list)-1]
}

// EmulatorCPU returns a CPU for the emulator of impaired links, which neither the sender nor the
// receiver runs on; nil: there is none. The sender uses its whole CPU, so packets would wait for it
// there.
func EmulatorCPU(root string, cpus testbed.CPUs) *int {
	spare := spareCPUs(cpus)
	if len(spare) == 0 {
		return nil
	}
	return new(nearest(root, spare, cpus.Function[0]))
}

// String returns where the kernel does the receive work of virtual links.
func (k KernelCPU) String() string {
	return k.steered("on the sender's CPU, where virtual links hand packets over")
}

// onCard is like String, for the links of a network card.
func (k KernelCPU) onCard() string {
	const interrupts = "on the CPUs of the card's interrupts"
	if k.On {
		return interrupts + ", then " + k.String()
	}
	return k.steered(interrupts)
}

// steered returns where the kernel does its receive work. place is where it does it without steering.
func (k KernelCPU) steered(place string) string {
	if k.On {
		place = fmt.Sprintf("on CPU %d, by receive packet steering", k.CPU)
	}
	if k.Why != "" {
		place += "; could not be isolated: " + k.Why
	}
	return place
}

// receiveOn moves the receive work of both ports to the configured CPU. If the stream's CPU time
// is counted, the work stays on the counted CPUs of sender and receiver. The facts of the ports
// have the CPU of the work.
func (s *site) receiveOn(counted bool) {
	on := s.config.KernelCPU
	switch {
	case !on.On:
	case counted:
		on = KernelCPU{Why: "only the CPU time of the sender's and the receiver's CPUs is counted"}
	case s.sharesHostNetwork():
		on = KernelCPU{Why: "the interface is the host's own"}
	}
	for _, p := range []*port{s.sender, s.receiver} {
		p.facts.Receiving = p.receiving(on)
		switch {
		case !s.config.KernelCPU.On || s.sharesHostNetwork():
			continue
		case p != s.sender && s.guest:
			p.facts.Receiving = "in the guest; could not be isolated: its kernel is its own"
			continue
		}
		if err := p.Inside(func() error { return on.set(p.Endpoint.Interface) }); err != nil {
			p.facts.Receiving = p.receiving(KernelCPU{Why: err.Error()})
		}
	}
}

// receiving returns where the kernel does the port's receive work.
func (p *port) receiving(on KernelCPU) string {
	if p.card {
		return on.onCard()
	}
	return on.String()
}

// set steers the kernel's receive work for an interface of the thread's network
// namespace to the CPU (Linux, Documentation/networking/scaling.rst, "RPS").
func (k KernelCPU) set(link string) error {
	return netns.Sysfs(func(sysfs string) error {
		queues, err := filepath.Glob(filepath.Join(sysfs, "class/net", link, "queues/rx-*/rps_cpus"))
		if err != nil || len(queues) == 0 {
			return fmt.Errorf("the kernel has no receive packet steering for %s (CONFIG_RPS)", link)
		}
		for _, queue := range queues {
			if err := os.WriteFile(queue, []byte(k.mask()), 0); err != nil {
				return fmt.Errorf("steer the receive work of %s to CPU %d: %w", link, k.CPU, errors.Unwrap(err))
			}
		}
		return nil
	})
}

// mask returns the CPU set in the format of sysfs: hexadecimal words of 32 bits,
// the highest first. The set is empty if the work is not steered.
func (k KernelCPU) mask() string {
	if !k.On {
		return "0"
	}
	return strconv.FormatUint(1<<(k.CPU%32), 16) + strings.Repeat(",00000000", k.CPU/32)
}
