package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"vitrine"
)

// The accelerators, best first.
const (
	KVM  = "kvm"             // the processor's own virtualization
	TCG  = vitrine.Emulation // its timing says nothing about hardware
	Auto = "auto"            // as a request: the better one that works
)

// Accelerators returns the values that a user may request.
func Accelerators() []string { return []string{Auto, KVM, TCG} }

// A Prober finds out, once, which accelerator works on this host and how QEMU can be
// confined. It boots a kernel to test an accelerator, because /dev/kvm may exist and not
// work. Use one Prober for the whole process.
type Prober struct {
	mu     sync.Mutex
	probed bool
	found  string
	why    string
	err    error

	triedSandbox bool
	sandbox      string
	noSandbox    error
}

// A kernel without a disk gives up after a second or two. Emulation is the last resort, so
// it gets time enough on a busy host. KVM is faster than emulation, so it has failed if
// emulation on the same host finished long before.
const (
	tcgLimit   = 5 * time.Minute  // limit for emulation
	kvmLimit   = time.Minute      // limit for KVM
	kvmMinimum = 10 * time.Second // KVM gets at least this long,
	kvmFactor  = 10               // and this many times as long as emulation took
)

const kernelBanner = "Linux version" // the kernel's first output

// Accelerator returns the best accelerator that works, and why no better one does. kernel
// is the file of any Linux kernel with a serial console. The error is a
// *vitrine.Unsupported without QEMU, or if not even emulation works.
func (p *Prober) Accelerator(ctx context.Context, kernel string) (accelerator, why string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.probed {
		p.found, p.why, p.err = probe(ctx, kernel)
		p.probed = ctx.Err() == nil // a cancelled probe proves nothing
	}
	return p.found, p.why, p.err
}

// Choose returns the requested accelerator, or for Auto the better one that works, and
// why no better one was chosen. It calls kernel, which may have to build one, only if it has
// to boot a kernel. It fails with a *vitrine.Unsupported if KVM is requested and boots no kernel.
func (p *Prober) Choose(ctx context.Context, asked string, kernel func(context.Context) (string, error)) (found, why string, err error) {
	if asked == TCG {
		return TCG, "it was requested", nil
	}
	file := ""
	if !p.hasProbed() {
		if file, err = kernel(ctx); err != nil {
			return "", "", err
		}
	}
	found, why, err = p.Accelerator(ctx, file)
	if err != nil {
		return "", "", err
	}
	if asked == KVM && found != KVM {
		return "", "", &vitrine.Unsupported{What: "the accelerator kvm", Missing: "a kernel that boots with it: " + why, Do: "use accelerator: auto; results under emulation cannot be compared with others"}
	}
	return found, why, nil
}

func (p *Prober) hasProbed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probed
}

func probe(ctx context.Context, kernel string) (accelerator, why string, err error) {
	if _, err := exec.LookPath(Program); err != nil {
		return "", "", withoutProgram()
	}
	virtual, giveUp := context.WithTimeout(ctx, kvmLimit)
	defer giveUp()
	emulation, stop := context.WithTimeout(ctx, tcgLimit)
	defer stop()
	emulated := make(chan error, 1)
	go func() {
		began := time.Now()
		err := boots(emulation, TCG, kernel)
		if took := time.Since(began); err == nil {
			time.AfterFunc(max(kvmMinimum, kvmFactor*took)-took, giveUp)
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

// runTied runs a command that ends with this process. The kernel kills the command
// when the thread that started it ends, so runTied keeps its goroutine on that thread.
func runTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// boots starts the kernel and waits until it gives up because it has no disk, which ends
// the machine. The error is nil if the kernel printed its version.
func boots(ctx context.Context, accelerator, kernel string) error {
	began := time.Now()
	cmd := exec.CommandContext(ctx, Program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", Q35+",accel="+accelerator, "-cpu", processor(accelerator), "-m", "256",
		"-kernel", kernel, "-append", "console=ttyS0 panic=-1", "-serial", "stdio")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := runTied(cmd)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no kernel boots within %v", time.Since(began).Round(time.Second))
	case err != nil:
		first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return errors.Join(errors.New(first), err)
	case !bytes.Contains(out.Bytes(), []byte(kernelBanner)):
		return errors.New("the kernel printed nothing")
	}
	return nil
}
