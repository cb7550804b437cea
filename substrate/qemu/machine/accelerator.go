package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"vitrine"
)

// Accelerators, the better one first.
const (
	KVM  = "kvm"             // the processor's own virtualization
	TCG  = vitrine.Emulation // times taken in it say nothing about hardware
	Auto = "auto"            // asked for: the better one that works
)

// Accelerators are what can be asked for.
func Accelerators() []string { return []string{Auto, KVM, TCG} }

// A Prober finds out, once, which accelerator machines run with here: by
// booting a kernel with it, for /dev/kvm may be there and not work. Use one
// Prober for the whole process.
type Prober struct {
	mu     sync.Mutex
	probed bool
	found  string
	why    string
	err    error
}

// A kernel that finds no disk gives up after a second or two. Emulation is the
// last resort: a busy host is no reason to say that it does not work. KVM is faster
// than emulation. It does not work where emulation on the same host ended long ago.
const (
	emulating = 5 * time.Minute  // how long emulation may take
	probing   = time.Minute      // how long KVM may take
	least     = 10 * time.Second // KVM gets this much time in any case,
	times     = 10               // and this many times what emulation took
)

const reached = "Linux version" // what the kernel says first

// Accelerator gives the best one that works, and why none better does. The
// kernel, a file, is any of Linux that has a serial console. Without QEMU, or
// when not even emulation works, it is a *vitrine.Unsupported.
func (p *Prober) Accelerator(ctx context.Context, kernel string) (accelerator, why string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.probed {
		p.found, p.why, p.err = probe(ctx, kernel)
		p.probed = ctx.Err() == nil // one that was cut short says nothing
	}
	return p.found, p.why, p.err
}

// Choose gives the accelerator that was asked for, or for Auto the better one that
// works, and why it is no better one. KVM where no kernel boots with it is a
// *vitrine.Unsupported.
func (p *Prober) Choose(ctx context.Context, asked, kernel string) (found, why string, err error) {
	if asked == TCG {
		return TCG, "it was asked for", nil
	}
	found, why, err = p.Accelerator(ctx, kernel)
	if err != nil {
		return "", "", err
	}
	if asked == KVM && found != KVM {
		return "", "", &vitrine.Unsupported{What: "the accelerator kvm", Missing: "that a kernel boots with it: " + why, Do: "use accelerator: auto; what is measured in emulation cannot be compared with other results"}
	}
	return found, why, nil
}

func probe(ctx context.Context, kernel string) (accelerator, why string, err error) {
	if _, err := exec.LookPath(Program); err != nil {
		return "", "", withoutProgram()
	}
	virtual, giveUp := context.WithTimeout(ctx, probing)
	defer giveUp()
	emulation, stop := context.WithTimeout(ctx, emulating)
	defer stop()
	emulated := make(chan error, 1)
	go func() {
		began := time.Now()
		err := boots(emulation, TCG, kernel)
		if took := time.Since(began); err == nil {
			time.AfterFunc(max(least, times*took)-took, giveUp)
		}
		emulated <- err
	}()
	kvm := boots(virtual, KVM, kernel)
	if kvm == nil {
		stop()
	}
	tcg := <-emulated
	switch {
	case kvm == nil:
		return KVM, "", nil
	case ctx.Err() != nil:
		return "", "", context.Cause(ctx)
	case tcg == nil:
		return TCG, KVM + ": " + kvm.Error(), nil
	}
	return "", "", &vitrine.Unsupported{What: "virtual machines", Missing: fmt.Sprintf("an accelerator that boots: %s: %v; %s: %v", KVM, kvm, TCG, tcg)}
}

// boots starts the kernel and waits until it says so and gives up for want of a
// disk, which ends the machine.
func boots(ctx context.Context, accelerator, kernel string) error {
	began := time.Now()
	s := Spec{Accelerator: accelerator}
	cmd := exec.CommandContext(ctx, Program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", Q35+",accel="+accelerator, "-cpu", s.processor(), "-m", "256",
		"-kernel", kernel, "-append", "console=ttyS0 panic=-1", "-serial", "stdio")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no kernel boots within %v", time.Since(began).Round(time.Second))
	case err != nil:
		first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return errors.Join(errors.New(first), err)
	case !bytes.Contains(out.Bytes(), []byte(reached)):
		return errors.New("the kernel says nothing")
	}
	return nil
}
