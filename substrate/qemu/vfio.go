package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"vitrine"
)

// addressPattern matches a PCI address: domain, bus, device and function.
var addressPattern = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// checkDevice returns nil if the host's PCI device can be given to a machine. The error is a
// *vitrine.Unsupported for what the host lacks, and a *vitrine.BadInput for a wrong address.
func checkDevice(address string) error { return checkDeviceIn("/", address) }

func checkDeviceIn(root, address string) error {
	if !addressPattern.MatchString(address) {
		return &vitrine.BadInput{File: "vfio", Found: fmt.Sprintf("%q", address), Want: "the address of a PCI device, as lspci -D prints it: 0000:3b:02.0"}
	}
	what := "giving the device " + address + " to a virtual machine"
	if err := needVFIO(root, what); err != nil {
		return err
	}
	device := filepath.Join(root, "sys/bus/pci/devices", address)
	if _, err := os.Stat(device); err != nil {
		return &vitrine.BadInput{File: "vfio", Found: "no device " + address + " on this host", Want: "one that lspci -D prints"}
	}
	driver, err := os.Readlink(filepath.Join(device, "driver"))
	if err != nil || filepath.Base(driver) != "vfio-pci" {
		return &vitrine.Unsupported{What: what, Missing: "its driver vfio-pci", Do: "bind it: driverctl set-override " + address + " vfio-pci"}
	}
	return nil
}

// needVFIO returns a *vitrine.Unsupported if the host cannot give any device to a machine.
func needVFIO(root, what string) error {
	groups, err := os.ReadDir(filepath.Join(root, "sys/kernel/iommu_groups"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for the IOMMU: %w", err)
	}
	if len(groups) == 0 {
		return &vitrine.Unsupported{What: what, Missing: "an IOMMU that isolates devices", Do: "enable VT-d or AMD-Vi in the firmware, and boot the kernel with intel_iommu=on or amd_iommu=on"}
	}
	if _, err := os.Stat(filepath.Join(root, "dev/vfio/vfio")); err != nil {
		return &vitrine.Unsupported{What: what, Missing: "the kernel's VFIO (CONFIG_VFIO_PCI)", Do: "modprobe vfio-pci"}
	}
	return nil
}
