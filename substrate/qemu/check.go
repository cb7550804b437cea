package qemu

import (
	"context"

	"vitrine"
	"vitrine/image/debian"
	"vitrine/substrate/qemu/machine"
)

// Check reports what virtual machines have on this host. It builds nothing, so it probes
// the accelerator only if the guest's kernel is already built.
func (s *Substrate) Check(ctx context.Context) []vitrine.Check {
	program := vitrine.Check{Name: "qemu: program"}
	version, err := machine.Version(ctx)
	if program.OK, program.Detail = err == nil, version; !program.OK {
		program.Missing = machine.Program + ": install qemu-system-x86"
	}
	guest := vitrine.Check{Name: "qemu: Debian guest", OK: true}
	builder := debian.Builder{Cache: s.config.Cache}
	base, built := builder.Built(s.config.Debian)
	switch err := debian.Possible(); {
	case built:
		guest.Detail = "built: kernel " + base.Version
	case err == nil:
		guest.Detail = "not built yet: the first use builds it, in about a minute"
	default:
		guest.OK, guest.Missing = false, err.Error()
	}
	return []vitrine.Check{program, guest, s.checkAccelerator(ctx, program.OK && built, base.Kernel), checkVFIO("/")}
}

func (s *Substrate) checkAccelerator(ctx context.Context, possible bool, kernel string) vitrine.Check {
	c := vitrine.Check{Name: "qemu: hardware acceleration"}
	if !possible {
		c.Missing = "a guest to boot: booting is the only probe"
		return c
	}
	found, why, err := s.config.Prober.Accelerator(ctx, kernel)
	switch {
	case err != nil:
		c.Missing = err.Error()
	case found == machine.KVM:
		c.OK, c.Detail = true, "kvm: a kernel boots with it"
	default:
		c.Missing = why + "; machines are emulated (" + found + "), and their results are marked as not comparable"
	}
	return c
}

func checkVFIO(root string) vitrine.Check {
	return vitrine.NewCheck("qemu: devices of the host (VFIO)", "the host has an IOMMU, and its kernel VFIO", needVFIO(root, "giving a device to a virtual machine"))
}
