package monitor

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/netns"
)

// Check reports to `vitrine doctor` what the monitor can read of instances of substrate/process on
// this host. Containers have cgroups of their own.
func Check(context.Context) []vitrine.Check {
	groups, err := cgroup.Detect()
	return []vitrine.Check{
		checkCPU(groups),
		checkMemory(groups),
		checkThrottled(groups, err),
		checkNetwork(),
		checkSoftirq(kernelConfig()),
		checkCounters(),
	}
}

func checkCPU(groups *cgroup.Host) vitrine.Check {
	c := vitrine.Check{Name: "monitor: CPU time", OK: true}
	switch {
	case groups == nil:
		c.Detail = "the CPU clocks of the processes, in ns; descendants that live less than 1 s are missed"
	case groups.Version == 1:
		c.Detail = "cpuacct.usage of cgroup v1, in ns"
	default:
		c.Detail = "cpu.stat of cgroup v2, in us"
	}
	return c
}

func checkMemory(groups *cgroup.Host) vitrine.Check {
	c := vitrine.Check{Name: "monitor: memory", OK: true, Detail: "memory of the cgroup minus its inactive file cache"}
	if groups == nil || !groups.Has(cgroup.Memory) {
		c.Detail = "resident pages of the processes; a shared page counts once per process"
	}
	return c
}

func checkThrottled(groups *cgroup.Host, err error) vitrine.Check {
	c := vitrine.Check{Name: "monitor: throttled time"}
	switch {
	case groups == nil:
		c.Missing = err.Error()
	case !groups.Has(cgroup.CPU):
		c.Missing = "the cgroup controller cpu"
	default:
		c.OK, c.Detail = true, "cpu.stat of the cgroup"
	}
	return c
}

func checkNetwork() vitrine.Check {
	return vitrine.NewCheck("monitor: network of each instance", "/proc/net/dev in its network namespace", netns.Possible())
}

// checkSoftirq checks the precision of interrupt time. With IRQ_TIME_ACCOUNTING the kernel measures
// it. Otherwise the kernel charges each whole timer tick to the code that the tick interrupts.
func checkSoftirq(config map[string]string) vitrine.Check {
	c := vitrine.Check{Name: "monitor: softirq and steal time"}
	if _, err := os.Stat("/proc/stat"); err != nil {
		c.Missing = err.Error()
		return c
	}
	c.OK = true
	switch {
	case len(config) == 0:
		c.Detail = "/proc/stat, in units of 10 ms; unknown whether the kernel measures or samples interrupts"
	case config["CONFIG_IRQ_TIME_ACCOUNTING"] == "y":
		c.Detail = "/proc/stat, measured (IRQ_TIME_ACCOUNTING), in units of 10 ms"
	default:
		c.Detail = fmt.Sprintf("/proc/stat, sampled by the timer tick at %s Hz (no IRQ_TIME_ACCOUNTING), in units of 10 ms", config["CONFIG_HZ"])
	}
	return c
}

// checkCounters tries to count cycles. The monitor does not use hardware counters. But a user who
// wants to explain a bottleneck with perf(1) needs them.
func checkCounters() vitrine.Check {
	c := vitrine.Check{Name: "monitor: hardware performance counters"}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES, Size: unix.PERF_ATTR_SIZE_VER0}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		c.Missing = fmt.Sprintf("a count of CPU cycles: perf_event_open: %v", err)
		return c
	}
	unix.Close(fd)
	c.OK, c.Detail = true, "available; the monitor does not use them"
	return c
}

// kernelConfig returns the running kernel's build options. It is empty if they cannot be read.
func kernelConfig() map[string]string {
	if packed, err := os.Open("/proc/config.gz"); err == nil {
		defer packed.Close()
		if text, err := gzip.NewReader(packed); err == nil {
			return parseConfig(text)
		}
	}
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return nil
	}
	release, _, _ := bytes.Cut(name.Release[:], []byte{0})
	text, err := os.Open("/boot/config-" + string(release))
	if err != nil {
		return nil
	}
	defer text.Close()
	return parseConfig(text)
}

func parseConfig(text io.Reader) map[string]string {
	options := make(map[string]string)
	for lines := bufio.NewScanner(text); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(name, "#") {
			options[name] = value
		}
	}
	return options
}
