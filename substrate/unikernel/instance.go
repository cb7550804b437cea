package unikernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/image"
	packed "vitrine/image/unikernel"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu/machine"
)

// An Instance is the place of a machine, and what the machine boots from.
type Instance struct {
	substrate   *Substrate
	spec        substrate.Spec
	origin      origin
	accelerator string
	confinement machine.Confinement
	place       *process.Instance
	dir         string        // the machine's folder: its sockets, its kernel and files
	content     image.Content // of an image that was built here

	life    sync.Mutex // held by Start, Stop and Remove from beginning to end
	removed bool
	wired   bool
	link    *machine.Link
	guest   *guest // what Start started; nil before Start and after Stop
}

// machineDir is the machine's folder in the instance's folder. The others are files in machineDir.
const (
	machineDir = "machine"
	kernelFile = "kernel"
	filesFile  = "files"
)

// make makes the instance's place. When it fails, Remove removes what it has made.
func (in *Instance) make(ctx context.Context) (err error) {
	s := in.substrate
	if in.origin, err = s.find(ctx, in.spec.Image); err != nil {
		return err
	}
	if in.accelerator, err = s.Accelerator(ctx); err != nil {
		return err
	}
	if in.confinement, err = s.config.Prober.Confine(ctx, s.config.User, in.accelerator, false); err != nil {
		return err
	}
	in.dir = filepath.Join(in.spec.Dir, machineDir)
	if err := s.config.Run.Record(recordKind, in.spec.Name, []byte(in.dir)); err != nil {
		return err
	}
	if err := os.MkdirAll(in.dir, 0o700); err != nil {
		return err
	}
	place := in.spec
	place.Image, place.Dir, place.Memory, place.AllowPrivilegeEscalation = "", in.dir, in.spec.Memory+machine.OverheadMemory, false
	made, err := s.places.Create(ctx, place)
	if err != nil {
		return err
	}
	in.place = made.(*process.Instance)
	if in.origin.builtHere && in.origin.base == nil {
		return in.unpack()
	}
	return nil
}

// unpack reads the image's command, and puts its kernel and its files into the machine's folder.
// Start does not, because its time is the machine's boot time.
func (in *Instance) unpack() (err error) {
	if in.content, err = (packed.Packer{}).Content(in.origin.file); err != nil {
		return err
	}
	return packed.Split(in.origin.file, in.path(kernelFile), in.path(filesFile))
}

// path returns the path of a file in the machine's folder.
func (in *Instance) path(name string) string { return filepath.Join(in.dir, name) }

// NetNS returns the path of the network namespace.
func (in *Instance) NetNS() string { return in.place.NetNS() }

// Start boots the machine and returns when the application runs in it. For an image that
// was not built here, Start returns at once, because it cannot know that.
func (in *Instance) Start(ctx context.Context, command vitrine.Command) (substrate.Process, error) {
	in.life.Lock()
	defer in.life.Unlock()
	g, err := in.start(ctx, command)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", in.spec.Name, err)
	}
	return g, nil
}

func (in *Instance) start(ctx context.Context, command vitrine.Command) (*guest, error) {
	if in.removed {
		return nil, errors.New("the instance was removed")
	}
	if in.guest != nil {
		if !substrate.Ended(in.guest) {
			return nil, errors.New("it is already running")
		}
		if err := in.halt(ctx, 0); err != nil { // clean up after a machine that ended by itself
			return nil, err
		}
	}
	if !in.wired {
		link, err := machine.Wire(in.place.NetNS(), in.dir)
		if err != nil {
			return nil, err
		}
		in.link, in.wired = link, true
	}
	spec, start, err := in.machine(command)
	if err != nil {
		return nil, err
	}
	if start != nil {
		if err := os.Truncate(in.console(), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	g, err := in.boot(ctx, spec, start, command.Stdout)
	if err != nil {
		return nil, err
	}
	in.guest = g
	return g, nil
}

// console returns the file of the first serial line, for a machine whose
// application has its own ports.
func (in *Instance) console() string { return in.path("console") }

// Logs returns the kernel's output and QEMU's own.
func (in *Instance) Logs() []string { return []string{in.console(), machine.Log(in.dir)} }

// machine returns the machine's Spec for QEMU, and what runs in it; nil for an image
// that was not built here.
func (in *Instance) machine(command vitrine.Command) (machine.Spec, *packed.Start, error) {
	spec := machine.Spec{
		Name: runstate.Name(in.spec.Run, in.spec.Name), Accelerator: in.accelerator, Model: in.model(),
		VCPUs: machine.Processors(in.spec), Memory: in.spec.Memory, CPUs: in.spec.CPUs, Link: in.link, Dir: in.dir,
		Confinement: in.confinement,
	}
	if !in.origin.builtHere {
		spec.Kernel, spec.Append, spec.Console = in.origin.file, in.foreign(command), filepath.Join(in.spec.Dir, "log")
		if command.Stdout != "" {
			spec.Console = command.Stdout
		}
		return spec, nil, nil
	}
	start, err := in.files(command, &spec)
	if err != nil {
		return spec, nil, err
	}
	spec.Console, spec.Ports = in.console(), []string{portControl, portLog}
	ports := "vitrine.ports"
	if command.Stdout != "" {
		spec.Ports, ports = append(spec.Ports, portOut), "vitrine.ports=out"
	}
	spec.Append = strings.Join(append([]string{"quiet", ports}, in.network()...), " ")
	return spec, start, nil
}

// files sets the kernel and the machine's files. It packs the command's program if there is no
// image.
func (in *Instance) files(command vitrine.Command, spec *machine.Spec) (*packed.Start, error) {
	start := &packed.Start{Args: command.Args, Dir: command.Dir}
	if start.Dir == "" {
		start.Dir = in.spec.Dir
	}
	spec.Initrd = in.path(filesFile)
	var own []string
	if base := in.origin.base; base != nil {
		a, err := image.OfProgram(command.Args)
		if err != nil {
			return nil, err
		}
		tree, err := a.Tree()
		if err != nil {
			return nil, err
		}
		start.Args, spec.Kernel = tree.Command, base.Kernel
		if err := base.WriteFiles(spec.Initrd, tree); err != nil {
			return nil, fmt.Errorf("packing %s: %w", command.Args[0], err)
		}
	} else {
		if own = in.content.Environment; len(start.Args) == 0 {
			start.Args = in.content.Command
		}
		spec.Kernel = in.path(kernelFile)
	}
	start.Env = substrate.MergeEnvironment([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}, own, command.Env)
	return start, nil
}

// foreign returns the command line of an image that was not built here: Linux's parameters,
// the command's variables, which Linux passes to its first program, and the arguments.
func (in *Instance) foreign(command vitrine.Command) string {
	words := append([]string{"console=ttyS0 panic=-1"}, in.network()...)
	for _, entry := range command.Env {
		if strings.ContainsAny(entry, " \t\n") {
			name, value, _ := strings.Cut(entry, "=")
			entry = fmt.Sprintf("%s=\"%s\"", name, value)
		}
		words = append(words, entry)
	}
	if in.substrate.config.Append != "" {
		words = append(words, in.substrate.config.Append)
	}
	return strings.Join(append(words, command.Args...), " ")
}

// network returns the machine's address as a parameter of Linux
// (Documentation/admin-guide/nfs/nfsroot.rst).
func (in *Instance) network() []string {
	if in.link == nil || !in.link.Address.IsValid() {
		return nil
	}
	gateway := ""
	for _, r := range in.link.Routes {
		if r.To.Bits() == 0 && r.Via.IsValid() {
			gateway = r.Via.String()
		}
	}
	mask := uint32(math.MaxUint32) << (32 - in.link.Address.Bits())
	return []string{fmt.Sprintf("ip=%s::%s:%d.%d.%d.%d:%s:%s:off", in.link.Address.Addr(), gateway,
		mask>>24, mask>>16&0xff, mask>>8&0xff, mask&0xff, in.spec.Name, segment.Inside)}
}

func (in *Instance) model() string {
	switch m := in.substrate.config.Machine; {
	case m != "" && m != auto:
		return m
	case in.origin.builtHere:
		return machine.MicroVM
	}
	return machine.Q35
}

// Run always fails: the machine runs one program, and nothing in it could start another.
func (in *Instance) Run(_ context.Context, command vitrine.Command) error {
	return fmt.Errorf("running %s in %s: %w", command.Args, in.spec.Name, &vitrine.Unsupported{
		What: "a command beside the application of a unikernel", Missing: "a unikernel runs only one program",
		Do: "put the results of install scripts into the image, and use readiness by tcp, sip or http",
	})
}

// Stop sends SIGTERM to the application, or presses the power button of a machine whose
// image was not built here. After grace it switches the machine off.
func (in *Instance) Stop(ctx context.Context, grace time.Duration) error {
	in.life.Lock()
	defer in.life.Unlock()
	if err := in.halt(ctx, grace); err != nil {
		return fmt.Errorf("stopping %s: %w", in.spec.Name, err)
	}
	return nil
}

func (in *Instance) halt(ctx context.Context, grace time.Duration) error {
	if in.guest == nil {
		return nil
	}
	if !substrate.Ended(in.guest) && grace > 0 {
		in.guest.end(ctx, grace)
	}
	if err := in.guest.switchOff(ctx); err != nil {
		return err
	}
	in.guest = nil
	return nil
}

// Remove ends the machine and removes its place.
func (in *Instance) Remove(ctx context.Context) error {
	in.life.Lock()
	defer in.life.Unlock()
	in.removed = true
	err := in.halt(ctx, 0)
	if in.place != nil {
		err = errors.Join(err, in.place.Remove(ctx))
	}
	if err == nil && in.dir != "" {
		err = errors.Join(os.RemoveAll(in.dir), in.substrate.config.Run.Erase(recordKind, in.spec.Name))
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", in.spec.Name, err)
	}
	in.substrate.instances.Forget(in.spec.Name, in)
	return nil
}

// Vantage returns where to read the instance's use, which is that of the whole QEMU.
func (in *Instance) Vantage() vitrine.Vantage {
	v := in.place.Vantage()
	v.Memory = in.spec.Memory
	v.Interface = segment.Inside // the tap counts the same frames again
	return v
}
