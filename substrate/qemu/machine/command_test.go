package machine

import (
	"net"
	"slices"
	"testing"
)

func TestCommandLine(t *testing.T) {
	s := Spec{
		Name: "vt-run-sprout-1", Accelerator: TCG, VCPUs: 2, Memory: 128 << 20, Kernel: "/k", Initrd: "/i", Append: "quiet a=b,c",
		Disks: []Disk{{Path: "/overlay", Format: "qcow2", Backing: "/base", BackingFormat: "raw"}, {Path: "/agent", Format: "raw", ReadOnly: true}},
		Ports: []string{"agent"}, Console: "/c,d", Devices: []string{"vfio-pci,host=0000:3b:02.0"},
		Link: &Link{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MTU: 9000, Tap: "tap0"},
	}
	s.Confinement.Sandbox = "on,spawn=deny"
	number := map[string]int{"kernel": 3, "initrd": 4, "console": 5, "disk0": 6, "disk0's backing file": 7, "disk1": 8, "link": 9, "monitor": 10, "agent": 11}
	args, err := s.command(number)
	if err != nil {
		t.Fatal(err)
	}
	if args[0] != Program {
		t.Errorf("got program %q", args[0])
	}
	for _, want := range [][]string{
		{"-machine", "q35,accel=tcg"},
		{"-cpu", "max"},
		{"-smp", "2"},
		{"-m", "size=131072k"},
		{"-append", "quiet a=b,c"},
		{"-sandbox", "on,spawn=deny"},
		{"-kernel", "/proc/self/fd/3"},
		{"-initrd", "/proc/self/fd/4"},
		{"-add-fd", "fd=6,set=6", "-add-fd", "fd=7,set=7", "-blockdev", "driver=qcow2,node-name=disk0,read-only=off,file.driver=file,file.filename=/dev/fdset/6,backing.driver=raw,backing.read-only=on,backing.file.driver=file,backing.file.filename=/dev/fdset/7"},
		{"-blockdev", "driver=raw,node-name=disk1,read-only=on,file.driver=file,file.filename=/dev/fdset/8"},
		{"-device", "virtio-blk-pci,drive=disk0,werror=report"},
		{"-chardev", "file,id=console,append=on,path=/dev/fdset/5"},
		{"-chardev", "socket,id=monitor,fd=10"},
		{"-chardev", "socket,id=agent,fd=11"},
		{"-netdev", "tap,id=net0,fd=9,vhost=off"},
		{"-device", "virtio-net-pci,netdev=net0,mac=02:00:00:00:00:01,host_mtu=9000"},
		{"-device", "vfio-pci,host=0000:3b:02.0"},
	} {
		if !has(args, want) {
			t.Errorf("missing %q in %q", want, args)
		}
	}
	s.Accelerator, s.Model = KVM, MicroVM
	args, err = s.command(number)
	if err != nil || !has(args, []string{"-cpu", "host"}) || !has(args, []string{"-device", "virtio-blk-device,drive=disk0,werror=report"}) {
		t.Errorf("microvm with %s: got %q, error %v", KVM, args, err)
	}
}

func TestMachinesNeedProcessorsAndMemory(t *testing.T) {
	for _, s := range []Spec{{Memory: 1 << 20}, {VCPUs: 1}} {
		if args, err := s.command(nil); err == nil {
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
