package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
)

const device = "0000:3b:02.0"

// TestDevicesAreRefusedWithTheReason builds a host's files step by step, and checks what
// checkDeviceIn reports as missing next.
func TestDevicesAreRefusedWithTheReason(t *testing.T) {
	root := t.TempDir()
	for i, step := range []struct{ missing, then string }{
		{"IOMMU", "sys/kernel/iommu_groups/7/"},
		{"CONFIG_VFIO_PCI", "dev/vfio/vfio/"},
		{"no device " + device, "sys/bus/pci/devices/" + device + "/"},
		{"driver vfio-pci", "sys/bus/pci/drivers/vfio-pci/"},
	} {
		err := checkDeviceIn(root, device)
		if err == nil || !strings.Contains(err.Error(), step.missing) {
			t.Errorf("want an error that names the missing %q, got %v", step.missing, err)
		}
		if !vitrine.IsUnsupported(err) && !vitrine.IsBadInput(err) {
			t.Errorf("%v is neither Unsupported nor BadInput", err)
		}
		if c := checkVFIO(root); c.OK != (i >= 2) || !c.OK && !strings.Contains(c.Missing, step.missing) {
			t.Errorf("vitrine doctor without %q: got %+v", step.missing, c)
		}
		if err := os.MkdirAll(filepath.Join(root, step.then), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../drivers/vfio-pci", filepath.Join(root, "sys/bus/pci/devices", device, "driver")); err != nil {
		t.Fatal(err)
	}
	if err := checkDeviceIn(root, device); err != nil {
		t.Errorf("complete device: %v", err)
	}
	for _, wrong := range []string{"", "3b:02.0", "0000:3b:02.8", device + ",multifunction=on"} {
		if err := checkDeviceIn(root, wrong); !vitrine.IsBadInput(err) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// TestDeviceOfNoHost checks that Create refuses a device that this host does not have, and leaves
// nothing behind.
func TestDeviceOfNoHost(t *testing.T) {
	s, run := newSubstrate(t, func(c *Config) { c.VFIO = map[string][]string{"sprout-1": {"ffff:ff:1f.7"}} })
	_, err := s.Create(t.Context(), smallSpec(t, run, "sprout-1"))
	if !vitrine.IsUnsupported(err) && !vitrine.IsBadInput(err) {
		t.Errorf("missing device: got error %v", err)
	}
}
