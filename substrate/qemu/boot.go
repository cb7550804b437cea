package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/qemu/guest"
	"vitrine/substrate/qemu/machine"
)

// running is a running machine and its agent.
type running struct {
	machine *machine.Machine
	agent   *client
	use     *os.File
	mirror  mirror
}

const (
	// bootTime bounds a machine's start. An emulated start takes three to five seconds of
	// CPU time, and longer with a small quota or on a busy host.
	bootTime = 5 * time.Minute
	// offTime is how long a machine may take to switch itself off.
	offTime = 10 * time.Second
)

// begin starts a command in the machine, and before that the machine if it does not run.
func (in *Instance) begin(ctx context.Context, c vitrine.Command) (*command, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("no command")
	}
	g, err := in.boot(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.mirror.deliver(ctx, g.agent, in, c); err != nil {
		return nil, err
	}
	log, err := substrate.OpenOutput(filepath.Join(in.spec.Dir, logFile))
	if err != nil {
		return nil, err
	}
	out := log
	if c.Stdout != "" {
		if out, err = substrate.OpenOutput(c.Stdout); err != nil {
			return nil, errors.Join(err, log.Close())
		}
	}
	dir := c.Dir
	if dir == "" {
		dir = in.spec.Dir
	}
	r := &command{client: g.agent, done: make(chan struct{}), stdout: out, stderr: log}
	request := guest.Request{Op: guest.OpStart, Command: &guest.Command{Args: c.Args, Env: c.Env, Dir: dir, User: in.spec.User}}
	if err := g.agent.request(ctx, request, r, nil); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, in.end(ctx, r))
		}
		r.closeOutput()
		return nil, err
	}
	return r, nil
}

// boot returns the running machine, and starts it if none runs.
func (in *Instance) boot(ctx context.Context) (*running, error) {
	in.booting.Lock()
	defer in.booting.Unlock()
	if in.removed {
		return nil, errors.New("the instance was removed")
	}
	if in.guest != nil {
		select {
		case <-in.guest.agent.ended:
		default:
			return in.guest, nil
		}
		if err := in.halt(ctx); err != nil { // clean up after a machine that ended by itself
			return nil, err
		}
	}
	if err := in.unchanged(); err != nil { // the disk's file system would be damaged
		return nil, err
	}
	if !in.wired {
		link, err := machine.Wire(in.place.NetNS(), filepath.Join(in.spec.Dir, machineDir))
		if err != nil {
			return nil, err
		}
		in.link, in.wired = link, true
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootTime, fmt.Errorf("the virtual machine is not up after %v", bootTime))
	defer cancel()
	g, err := in.start(ctx)
	if err != nil {
		return nil, err
	}
	in.guest, in.used = g, true
	return g, nil
}

// start starts the machine and sets it up.
func (in *Instance) start(ctx context.Context) (_ *running, err error) {
	use, err := in.openUse()
	if err != nil {
		return nil, err
	}
	err = in.quota(0)
	var m *machine.Machine
	if err == nil {
		m, err = machine.Start(ctx, in.place, in.machineSpec())
	}
	if err != nil {
		return nil, errors.Join(err, use.Close())
	}
	g := &running{machine: m, agent: newClient(m.Port(guest.PortName), use), use: use, mirror: mirror{known: make(map[string]stamp)}}
	began := time.Now()
	err = g.agent.ready(ctx)
	if err == nil {
		err = g.agent.ask(ctx, guest.Request{Op: guest.OpSetup, Setup: in.setup()})
	}
	if err == nil && in.used { // the folder holds files of an earlier machine, not of the host
		err = g.agent.ask(ctx, guest.Request{Op: guest.OpRemove, Path: in.spec.Dir})
	}
	for _, path := range in.substrate.config.Files {
		if err == nil {
			err = g.mirror.tree(ctx, g.agent, in.substrate.config.resolve(path))
		}
	}
	if err == nil {
		err = in.quota(in.spec.VCPUs)
	}
	if err != nil {
		ctx, cancel := substrate.Ending(ctx)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("the virtual machine does not boot: %w; its console ends with: %s", err, substrate.LastOutput(filepath.Join(in.spec.Dir, consoleFile), tailSize)), g.stop(ctx))
	}
	in.substrate.config.Logger.Debug("virtual machine is up", "instance", in.spec.Name, "accelerator", in.files.accelerator, "took", time.Since(began))
	return g, nil
}

// quota changes the machine's CPU quota, if the machine boots without its quota.
func (in *Instance) quota(vcpus float64) error {
	if in.spec.VCPUs == 0 || !in.substrate.BootsUnlimited() {
		return nil
	}
	return in.place.SetQuota(vcpus)
}

// machineSpec returns the machine's Spec for QEMU.
func (in *Instance) machineSpec() machine.Spec {
	s, dir := in.substrate, filepath.Join(in.spec.Dir, machineDir)
	words := append([]string{agentName}, append(slices.Clone(s.config.Agent[1:]), guest.VerbInit())...)
	spec := machine.Spec{
		Name: runstate.Name(in.spec.Run, in.spec.Name), Accelerator: in.files.accelerator,
		VCPUs: machine.Processors(in.spec), Memory: in.spec.Memory, CPUs: in.spec.CPUs,
		Kernel: in.files.base.Kernel, Initrd: in.files.base.Initrd,
		// A busy host may delay the machine. The kernel must not take that for a broken timer.
		Append: "console=ttyS0 quiet panic=-1 net.ifnames=0 random.trust_cpu=on nowatchdog no_timer_check vitrine.init=" + strings.Join(words, ","),
		Disks: []machine.Disk{
			in.disk,
			{Path: in.files.agent, Format: "raw", ReadOnly: true},
		},
		Ports: []string{guest.PortName}, Console: filepath.Join(in.spec.Dir, consoleFile), Link: in.link, Dir: dir,
		Confinement: in.confinement,
	}
	for _, address := range s.config.VFIO[in.spec.Name] {
		spec.Devices = append(spec.Devices, "vfio-pci,host="+address)
	}
	return spec
}

// setup returns the guest's own configuration.
func (in *Instance) setup() *guest.Setup {
	s := &guest.Setup{Hostname: in.spec.Name}
	l := in.link
	if l == nil {
		return s
	}
	s.Interface, s.MAC, s.MTU = segment.Inside, l.MAC.String(), l.MTU
	if l.Address.IsValid() {
		s.Address = l.Address.String()
	}
	for _, r := range l.Routes {
		route := guest.Route{To: r.To.String()}
		if r.Via.IsValid() {
			route.Via = r.Via.String()
		}
		s.Routes = append(s.Routes, route)
	}
	return s
}

// openUse opens the file for the guest's own counters.
func (in *Instance) openUse() (*os.File, error) {
	f, err := substrate.OpenOutput(filepath.Join(in.spec.Dir, useFile))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		_, err = f.WriteString(readingsHeader)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// halt switches the machine off, if one runs. The agent does it first, so that the guest
// writes its dirty pages; if that takes too long, halt ends QEMU.
func (in *Instance) halt(ctx context.Context) error {
	g := in.guest
	if g == nil {
		return nil
	}
	off, cancel := context.WithTimeout(ctx, offTime)
	defer cancel()
	if err := g.off(off); err != nil {
		in.substrate.config.Logger.Debug("a virtual machine does not switch itself off", "instance", in.spec.Name, "error", err)
	}
	if err := g.stop(ctx); err != nil {
		return err
	}
	in.guest = nil
	return nil
}

// off makes the guest switch the machine off. The port closes before an answer comes.
func (g *running) off(ctx context.Context) error {
	err := g.agent.ask(ctx, guest.Request{Op: guest.OpOff})
	select {
	case <-g.agent.ended:
	default:
		return err
	}
	select {
	case <-g.machine.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop ends the machine and its agent.
func (g *running) stop(ctx context.Context) error {
	err := g.machine.Stop(ctx)
	g.agent.close()
	if closing := g.use.Close(); !errors.Is(closing, os.ErrClosed) {
		err = errors.Join(err, closing)
	}
	return err
}
