package unikernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"vitrine"
	packed "vitrine/image/unikernel"
	"vitrine/substrate/qemu/machine"
)

// Check reports whether machines start on this host, and whether images can be
// built. It builds nothing.
func (s *Substrate) Check(ctx context.Context) []vitrine.Check {
	builder := packed.Builder{Cache: s.config.Cache}
	boots := vitrine.Check{Name: "unikernel: machines"}
	builds := vitrine.Check{Name: "unikernel: images"}
	base, err := builder.Cached()
	switch {
	case err == nil:
		builds.OK, builds.Detail = true, "kernel "+base.Kernel
	case errors.Is(err, os.ErrNotExist):
		if err = builder.Possible(); err == nil {
			builds.OK, builds.Detail = true, "the first use builds the kernel, which takes minutes"
		}
	}
	builds.Missing = missing(builds.OK, err)

	_, err = exec.LookPath(machine.Program)
	switch {
	case err != nil:
		boots.Missing = "the program " + machine.Program
	case base.Kernel == "":
		boots.OK, boots.Detail = true, "accelerator: probed at the first use"
	default:
		accelerator, why, err := s.config.Prober.Accelerator(ctx, base.Kernel)
		boots.OK, boots.Detail = err == nil, "accelerator "+accelerator
		if why != "" {
			boots.Detail += fmt.Sprintf(" (%s)", why)
		}
		boots.Missing = missing(boots.OK, err)
	}
	return []vitrine.Check{boots, builds}
}

func missing(ok bool, err error) string {
	var u *vitrine.Unsupported
	switch {
	case ok || err == nil:
		return ""
	case errors.As(err, &u):
		return u.Missing + "; " + u.Do
	}
	return err.Error()
}
