package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"vitrine"
	"vitrine/substrate"
)

// DefaultUser is the user that QEMU runs as.
const DefaultUser = "nobody"

// A Confinement describes how QEMU is isolated from the host.
type Confinement struct {
	Account *substrate.Account // QEMU's user; nil: the user of this process
	Sandbox string             // value of -sandbox (seccomp); empty: none
	Missing []*vitrine.Unsupported
}

// sandboxes returns values of -sandbox, best first. QEMU before 2.11 takes only the last one.
func sandboxes() []string {
	return []string{"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny", "on"}
}

// Confine returns how a machine's QEMU is confined. user is QEMU's user; empty: DefaultUser.
// devices is set for a machine with devices of the host. Confine runs QEMU once to find out
// which sandbox it has. What the host lacks is in Missing, and is no error.
func (p *Prober) Confine(ctx context.Context, user, accelerator string, devices bool) (Confinement, error) {
	var c Confinement
	var err error
	if c.Sandbox, err = p.findSandbox(ctx); err != nil {
		missing := new(vitrine.Unsupported)
		if !errors.As(err, &missing) {
			return c, err
		}
		c.Missing = append(c.Missing, missing)
	}
	if os.Geteuid() != 0 {
		return c, nil // only root can change the user
	}
	account, err := substrate.FindAccount(cmp.Or(user, DefaultUser))
	if err != nil {
		return c, err
	}
	refused := func(missing, do string) (Confinement, error) {
		c.Missing = append(c.Missing, &vitrine.Unsupported{What: "QEMU without the rights of root", Missing: missing, Do: do})
		return c, nil
	}
	switch {
	case devices:
		return refused("a way to give devices of the host to other users", "give such devices only to machines that you trust")
	case accelerator == KVM && !mayOpen(account, kvmDevice):
		return refused("access to "+kvmDevice+" for its user", "give the device to a group: chgrp kvm "+kvmDevice+" && chmod 660 "+kvmDevice)
	}
	c.Account = account
	return c, nil
}

const kvmDevice = "/dev/kvm"

// mayOpen reports whether the account may read and write a device. If only a group may, the
// account joins the group.
func mayOpen(account *substrate.Account, device string) bool {
	const readWrite = 0o6
	info, err := os.Stat(device)
	if err != nil {
		return false
	}
	owner, mode := info.Sys().(*syscall.Stat_t), info.Mode().Perm()
	switch {
	case mode&readWrite == readWrite, owner.Uid == account.UID && mode>>6&readWrite == readWrite:
		return true
	case mode>>3&readWrite == readWrite && owner.Gid != 0:
		account.Groups = append(account.Groups, owner.Gid)
		return true
	}
	return false
}

// findSandbox returns the best value of -sandbox that QEMU takes. If it takes none, the error is
// a *vitrine.Unsupported.
func (p *Prober) findSandbox(ctx context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.triedSandbox {
		return p.sandbox, p.noSandbox
	}
	var refusal error
	for _, value := range sandboxes() {
		if refusal = tries(ctx, value); refusal == nil {
			p.sandbox, p.triedSandbox = value, true
			return value, nil
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if errors.Is(refusal, exec.ErrNotFound) {
		return "", withoutProgram()
	}
	p.triedSandbox, p.noSandbox = true, &vitrine.Unsupported{
		What: "QEMU's sandbox (seccomp)", Missing: "an option -sandbox that it takes: " + refusal.Error(), Do: "use a QEMU that was built with --enable-seccomp",
	}
	return "", p.noSandbox
}

// tries runs QEMU without a machine, and returns an error if QEMU refuses the value of
// -sandbox.
func tries(ctx context.Context, sandbox string) error {
	cmd := exec.CommandContext(ctx, Program, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "none", "-monitor", "stdio", "-sandbox", sandbox)
	cmd.Stdin = strings.NewReader("quit\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := runTied(cmd)
	if first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n"); err != nil && first != "" {
		return fmt.Errorf("%w: %s", err, first)
	}
	return err
}
