package machine

import (
	"errors"
	"fmt"
	"strconv"
)

const (
	monitorPort = "monitor"
	serialBus   = "ports"
)

// command returns QEMU's command line. The machine is paused until the monitor's cont. number has
// the descriptors that QEMU inherits.
func (s Spec) command(number map[string]int) ([]string, error) {
	if s.VCPUs < 1 || s.Memory < 1 {
		return nil, errors.New("a machine needs processors and memory")
	}
	model := s.Model
	if model == "" {
		model = Q35
	}
	// Devices are on the PCI bus, or stand alone if the model has none.
	bus := "pci"
	if model == MicroVM {
		// Without ACPI the kernel's command line says where the devices are.
		bus, model = "device", MicroVM+",acpi=off"
	}
	args := []string{
		Program, "-name", s.Name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-S",
		"-machine", model + ",accel=" + s.Accelerator, "-cpu", processor(s.Accelerator),
		"-smp", strconv.Itoa(s.VCPUs), "-m", fmt.Sprintf("size=%dk", s.Memory>>10),
		"-chardev", chardev(monitorPort, number), "-mon", "chardev=" + monitorPort + ",mode=control",
	}
	if s.Confinement.Sandbox != "" {
		args = append(args, "-sandbox", s.Confinement.Sandbox)
	}
	args = append(args, "-kernel", fmt.Sprintf("/proc/self/fd/%d", number[kernelFile]))
	if s.Initrd != "" {
		args = append(args, "-initrd", fmt.Sprintf("/proc/self/fd/%d", number[initrdFile]))
	}
	if s.Append != "" {
		args = append(args, "-append", s.Append)
	}
	if s.Console != "" {
		set, path := fileSet(number[consoleFile])
		args = append(args, "-add-fd", set, "-chardev", "file,id=console,append=on,path="+path, "-serial", "chardev:console")
	}
	for i, d := range s.Disks {
		args = append(args, d.arguments(i, number)...)
		// By default, QEMU pauses the machine when the host's disk is full, and only the monitor could continue it.
		args = append(args, "-device", fmt.Sprintf("virtio-blk-%s,drive=disk%d,werror=report", bus, i))
	}
	if len(s.Ports) > 0 {
		args = append(args, "-device", "virtio-serial-"+bus+",id="+serialBus)
	}
	for _, name := range s.Ports {
		args = append(args, "-chardev", chardev(name, number), "-device", fmt.Sprintf("virtserialport,bus=%s.0,chardev=%s,name=%s", serialBus, name, name))
	}
	if s.Link != nil {
		args = append(args, "-netdev", fmt.Sprintf("tap,id=net0,fd=%d,vhost=off", number[linkFile]), "-device", fmt.Sprintf("virtio-net-%s,netdev=net0,mac=%s,host_mtu=%d", bus, s.Link.MAC, s.Link.MTU))
	}
	for _, d := range s.Devices {
		args = append(args, "-device", d)
	}
	return args, nil
}

// processor returns all features that the accelerator can offer: those of the host's CPU
// with KVM, and all that QEMU emulates without.
func processor(accelerator string) string {
	if accelerator == KVM {
		return "host"
	}
	return "max"
}

// chardev returns a connection that QEMU inherits.
func chardev(name string, number map[string]int) string {
	return fmt.Sprintf("socket,id=%s,fd=%d", name, number[name])
}

// fileSet returns the argument of -add-fd for a descriptor, and the path under which QEMU opens
// it. The kernel does not check that path, so QEMU's user needs no right to the file.
func fileSet(number int) (set, path string) {
	return fmt.Sprintf("fd=%d,set=%d", number, number), fmt.Sprintf("/dev/fdset/%d", number)
}

// arguments returns QEMU's arguments for a disk.
func (d Disk) arguments(i int, number map[string]int) []string {
	set, path := fileSet(number[diskFile(i)])
	args := []string{"-add-fd", set}
	node := fmt.Sprintf("driver=%s,node-name=disk%d,read-only=%s,file.driver=file,file.filename=%s", d.Format, i, onOff(d.ReadOnly), path)
	if d.Backing != "" {
		set, path := fileSet(number[backingFile(i)])
		args = append(args, "-add-fd", set)
		node += fmt.Sprintf(",backing.driver=%s,backing.read-only=on,backing.file.driver=file,backing.file.filename=%s", d.BackingFormat, path)
	}
	return append(args, "-blockdev", node)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
