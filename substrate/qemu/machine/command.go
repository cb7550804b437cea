package machine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	monitorSocket = "monitor"
	serialBus     = "ports"
)

// command returns QEMU's command line. The machine is paused until the monitor's cont.
func (s Spec) command() ([]string, error) {
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
		"-machine", model + ",accel=" + s.Accelerator, "-cpu", s.processor(),
		"-smp", strconv.Itoa(s.VCPUs), "-m", fmt.Sprintf("size=%dk", s.Memory>>10),
		"-chardev", chardev(monitorSocket), "-mon", "chardev=" + monitorSocket + ",mode=control",
	}
	if s.Kernel != "" {
		args = append(args, "-kernel", s.Kernel)
	}
	if s.Initrd != "" {
		args = append(args, "-initrd", s.Initrd)
	}
	if s.Append != "" {
		args = append(args, "-append", s.Append)
	}
	if s.Console != "" {
		args = append(args, "-chardev", "file,id=console,append=on,path="+escape(s.Console), "-serial", "chardev:console")
	}
	for i, d := range s.Disks {
		drive := fmt.Sprintf("if=none,id=disk%d,format=%s,file=%s,readonly=%s", i, d.Format, escape(d.Path), onOff(d.ReadOnly))
		args = append(args, "-drive", drive, "-device", fmt.Sprintf("virtio-blk-%s,drive=disk%d", bus, i))
	}
	if len(s.Ports) > 0 {
		args = append(args, "-device", "virtio-serial-"+bus+",id="+serialBus)
	}
	for _, name := range s.Ports {
		args = append(args, "-chardev", chardev(name), "-device", fmt.Sprintf("virtserialport,bus=%s.0,chardev=%s,name=%s", serialBus, name, name))
	}
	if s.Link != nil {
		args = append(args, "-netdev", s.Link.backend(), "-device", fmt.Sprintf("virtio-net-%s,netdev=net0,mac=%s,host_mtu=%d", bus, s.Link.MAC, s.Link.MTU))
	}
	for _, d := range s.Devices {
		args = append(args, "-device", d)
	}
	if s.Link != nil && s.Link.Device != "" {
		// The shell opens the macvtap's descriptor.
		args = append([]string{"/bin/sh", "-c", fmt.Sprintf(`d=$1; shift; exec "$@" %d<>"$d"`, linkFD), "sh", s.Link.Device}, args...)
	}
	return args, nil
}

// processor returns all features that the accelerator can offer: those of the host's CPU
// with KVM, and all that QEMU emulates without.
func (s Spec) processor() string {
	switch {
	case s.Processor != "":
		return s.Processor
	case s.Accelerator == KVM:
		return "host"
	}
	return "max"
}

// chardev returns a connection to a socket in QEMU's working folder.
func chardev(name string) string {
	return "socket,id=" + name + ",server=off,path=" + name + socketSuffix
}

// escape escapes a value in QEMU's comma-separated options.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
