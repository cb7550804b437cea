package quiet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"vitrine"
)

const (
	// latencyFile bounds, while it is open, the wake-up latency of all idle CPUs, in µs
	// (Documentation/power/pm_qos_interface.rst). The kernel removes the bound when the process
	// ends, however it ends.
	latencyFile = "/dev/cpu_dma_latency"
	// driverFile names the driver of idle states; "none": the kernel halts idle CPUs
	// without asking for the latency.
	driverFile = "/sys/devices/system/cpu/cpuidle/current_driver"
)

// AwakeCheck reports whether servers.keep_awake works on this host.
func AwakeCheck() vitrine.Check {
	return vitrine.NewCheck("trials: keep_awake", "idle CPUs can be kept polling", TryAwake())
}

// TryAwake keeps the CPUs awake for a moment. Its errors are those of KeepAwake.
func TryAwake() error {
	awake, err := KeepAwake()
	if err != nil {
		return err
	}
	return awake.Close()
}

// KeepAwake keeps idle CPUs of the host polling until the result is closed. It costs work to wake
// a halted CPU; under a hypervisor it costs a round trip to its host. A busy function has less of
// this work, so CPU per call would fall as the rate rises. While a virtual CPU is halted, other
// tenants use its core and leave the caches cold. Polling counts as idle time, and no instance
// competes with it. KeepAwake returns a *vitrine.Unsupported where the CPUs cannot be kept awake.
func KeepAwake() (io.Closer, error) {
	missing := func(what string) error {
		return &vitrine.Unsupported{What: "keep_awake", Missing: what, Do: "turn keep_awake off, or boot the host with idle=poll"}
	}
	options, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, fmt.Errorf("read the kernel's options: %w", err)
	}
	if slices.Contains(strings.Fields(string(options)), "idle=poll") {
		return io.NopCloser(nil), nil
	}
	driver, err := os.ReadFile(driverFile)
	if err != nil || strings.TrimSpace(string(driver)) == "none" {
		return nil, missing("a driver of idle states in " + driverFile)
	}
	file, err := os.OpenFile(latencyFile, os.O_WRONLY, 0)
	if err != nil {
		return nil, missing(err.Error())
	}
	if _, err := file.Write(make([]byte, 4)); err != nil {
		return nil, errors.Join(fmt.Errorf("keep the CPUs awake: %w", err), file.Close())
	}
	return file, nil
}
