package machine

import (
	"net"
	"slices"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	s := Spec{
		Name: "vt-run-sprout-1", Accelerator: TCG, VCPUs: 2, Memory: 128 << 20, Kernel: "/k", Initrd: "/i", Append: "quiet a=b,c",
		Disks: []Disk{{Path: "/with,comma", Format: "qcow2"}, {Path: "/agent", Format: "raw", ReadOnly: true}},
		Ports: []string{"agent"}, Console: "/c,d", Devices: []string{"vfio-pci,host=0000:3b:02.0"},
		Link: &Link{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MTU: 9000, Tap: "tap0"},
	}
	args, err := s.command()
	if err != nil {
		t.Fatal(err)
	}
	if args[0] != Program {
		t.Errorf("runs %q", args[0])
	}
	for _, want := range [][]string{
		{"-machine", "q35,accel=tcg"},
		{"-cpu", "max"},
		{"-smp", "2"},
		{"-m", "size=131072k"},
		{"-append", "quiet a=b,c"},
		{"-drive", "if=none,id=disk0,format=qcow2,file=/with,,comma,readonly=off"},
		{"-drive", "if=none,id=disk1,format=raw,file=/agent,readonly=on"},
		{"-chardev", "file,id=console,append=on,path=/c,,d"},
		{"-netdev", "tap,id=net0,ifname=tap0,script=no,downscript=no,vhost=off"},
		{"-device", "virtio-net-pci,netdev=net0,mac=02:00:00:00:00:01,host_mtu=9000"},
		{"-device", "vfio-pci,host=0000:3b:02.0"},
	} {
		if !has(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	s.Accelerator, s.Model = KVM, MicroVM
	args, err = s.command()
	if err != nil || !has(args, []string{"-cpu", "host"}) || !has(args, []string{"-device", "virtio-blk-device,drive=disk0"}) {
		t.Errorf("a microvm with %s: %q, %v", KVM, args, err)
	}
}

// TestCommandLineOfAMacvtap: a shell opens the device of a macvtap for QEMU.
func TestCommandLineOfAMacvtap(t *testing.T) {
	s := Spec{VCPUs: 1, Memory: 1 << 20, Link: &Link{Device: "/dir/macvtap", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MTU: 1500}}
	args, err := s.command()
	if err != nil || args[0] != "/bin/sh" || !slices.Contains(args, "/dir/macvtap") || !strings.Contains(strings.Join(args, " "), "tap,id=net0,fd=5") {
		t.Errorf("%q, %v", args, err)
	}
}

func TestMachinesNeedProcessorsAndMemory(t *testing.T) {
	for _, s := range []Spec{{Memory: 1 << 20}, {VCPUs: 1}} {
		if args, err := s.command(); err == nil {
			t.Errorf("%+v: %q", s, args)
		}
	}
}

// has reports whether words occurs in args as a sequence.
func has(args, words []string) bool {
	for i := range args {
		if len(args)-i >= len(words) && slices.Equal(args[i:i+len(words)], words) {
			return true
		}
	}
	return false
}
