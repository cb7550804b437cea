// Package qemu runs instances in full virtual machines, each with a Linux kernel
// and a Debian system of its own.
//
// A machine is a process of the host: the place that package process makes for
// QEMU has the instance's network namespace and its quota, which holds for all
// of QEMU. The machine itself is started by the first Start or Run, once a
// fabric has wired the place; an agent in it (package guest) runs the commands.
package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"vitrine"
	"vitrine/image"
	"vitrine/image/debian"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu/machine"
)

// Config is the part servers.qemu of a deployment.
type Config struct {
	// Accelerator is what machines run with: kvm, tcg, or auto for the better one
	// that a kernel boots with here. Results under tcg, which emulates, cannot be
	// compared with others.
	Accelerator string `yaml:"accelerator" json:"accelerator,omitempty" jsonschema:"enum=auto,enum=kvm,enum=tcg"`
	// Image is a disk image that machines are started from in place of Debian's
	// least system: that of a distribution for clouds, raw or qcow2. Its file
	// systems are used, not its kernel nor its init. A component's own image
	// counts before it.
	Image string `yaml:"image" json:"image,omitempty"`
	// Debian says what the least system is built with.
	Debian debian.Options `yaml:"debian" json:"debian,omitzero"`
	// Files are those of the host that each machine gets under the same path:
	// files, and folders with all that is in them.
	Files []string `yaml:"files" json:"files,omitempty"`
	// VFIO gives instances devices of the host: sprout-1: ["0000:3b:02.0"].
	VFIO map[string][]string `yaml:"vfio" json:"vfio,omitempty"`
	// Boot says what of the CPU a machine has until it is up: full, all of the CPUs
	// that it may run on, or flavor, its quota, which then holds from its first
	// instruction on. Empty: full.
	Boot string `yaml:"boot" json:"boot,omitempty" jsonschema:"enum=full,enum=flavor"`
	// Memory is what a machine has when its flavor does not say, in bytes; 0: 512 MiB.
	Memory int64 `yaml:"memory" json:"memory,omitempty"`

	Run     *runstate.Run   `yaml:"-" json:"-"` // whose instances these are
	Logger  *slog.Logger    `yaml:"-" json:"-"` // nil: none
	Environ []string        `yaml:"-" json:"-"` // of programs that build images
	Folder  string          `yaml:"-" json:"-"` // relative paths are below it: the deployment's
	Cache   image.Cache     `yaml:"-" json:"-"` // where guests are kept
	Prober  *machine.Prober `yaml:"-" json:"-"` // one for the whole process
	Agent   []string        `yaml:"-" json:"-"` // a static program and its words, which calls guest.Main
}

// A Substrate makes instances as virtual machines.
type Substrate struct {
	config Config
	places *process.Substrate

	preparing sync.Mutex
	prepared  *guestFiles
	warned    sync.Once

	instances substrate.Roster
}

var (
	_ substrate.Substrate   = (*Substrate)(nil)
	_ vitrine.Cleaner       = (*Substrate)(nil)
	_ vitrine.Checker       = (*Substrate)(nil)
	_ substrate.Accelerated = (*Substrate)(nil)
	_ substrate.Booter      = (*Substrate)(nil)
	_ substrate.Instance    = (*Instance)(nil)
	_ substrate.Process     = (*command)(nil)
)

// What of the CPU machines boot with.
const (
	bootFull   = "full"
	bootFlavor = "flavor"
)

// Memory of machines, in bytes.
const (
	usualMemory    = 512 << 20
	leastMemory    = 128 << 20 // a Debian with its kernel does not start in less
	overheadMemory = 512 << 20 // of QEMU itself, most of it for code that TCG has translated
)

// New makes a substrate. Without network namespaces, which a machine's tap is in,
// the error is a *vitrine.Unsupported; whether there is QEMU shows at Create.
func New(config Config) (*Substrate, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Prober == nil {
		config.Prober = new(machine.Prober)
	}
	config.Accelerator, config.Boot = cmp.Or(config.Accelerator, machine.Auto), cmp.Or(config.Boot, bootFull)
	if !slices.Contains(machine.Accelerators(), config.Accelerator) {
		return nil, &vitrine.BadInput{File: "qemu", Found: fmt.Sprintf("accelerator: %q", config.Accelerator), Want: strings.Join(machine.Accelerators(), ", ")}
	}
	if config.Boot != bootFull && config.Boot != bootFlavor {
		return nil, &vitrine.BadInput{File: "qemu", Found: fmt.Sprintf("boot: %q", config.Boot), Want: bootFull + ", " + bootFlavor}
	}
	if config.Memory == 0 {
		config.Memory = usualMemory
	}
	places, err := process.New(process.Config{Network: process.NetworkNamespace, Run: config.Run, Logger: config.Logger, Environ: config.Environ})
	if err != nil {
		return nil, err
	}
	return &Substrate{config: config, places: places}, nil
}

// OwnKernel is true: each instance is a machine.
func (s *Substrate) OwnKernel() bool { return true }

// BootsUnlimited says that machines boot without their CPU quota.
func (s *Substrate) BootsUnlimited() bool { return s.config.Boot == bootFull }

// namePattern keeps names fit for files, namespaces and a machine's own name.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,60}$`)

// Create makes the instance's place on the host, and sees to it that there is
// all that a machine is started from, which may be built first.
func (s *Substrate) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	in, err := s.create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("creating instance %s: %w", spec.Name, err)
	}
	return in, nil
}

func (s *Substrate) create(ctx context.Context, spec substrate.Spec) (*Instance, error) {
	if !namePattern.MatchString(spec.Name) {
		return nil, &vitrine.BadInput{File: "qemu", Found: fmt.Sprintf("instance %q", spec.Name), Want: "a name of letters, digits and hyphens, which a machine can have"}
	}
	if spec.Memory == 0 {
		spec.Memory = s.config.Memory
	}
	if spec.Memory < leastMemory {
		return nil, &vitrine.BadInput{File: "qemu", Found: fmt.Sprintf("%d MiB of memory", spec.Memory>>20), Want: fmt.Sprintf("at least %d MiB for a virtual machine", leastMemory>>20)}
	}
	var err error
	if spec.Dir, err = filepath.Abs(spec.Dir); err != nil {
		return nil, err
	}
	for _, address := range s.config.VFIO[spec.Name] {
		if err := passable(address); err != nil {
			return nil, err
		}
	}
	files, err := s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	s.warn(files)
	in := &Instance{substrate: s, spec: spec, files: files}
	if err := s.instances.Admit(spec.Name, in); err != nil {
		return nil, err
	}
	if err := in.make(ctx); err != nil {
		return nil, errors.Join(err, in.Remove(context.WithoutCancel(ctx)))
	}
	return in, nil
}

// Close removes all instances.
func (s *Substrate) Close(ctx context.Context) error {
	return errors.Join(s.instances.Close(ctx), s.places.Close(ctx))
}

// recordKind is where a run records the overlays of its machines.
const recordKind = "qemu"

// Clean removes what dead runs left: their machines with all that holds them, and
// their overlays.
func (s *Substrate) Clean(ctx context.Context) (removed []string, err error) {
	removed, err = s.places.Clean(ctx)
	recorded, failed := runstate.RemoveRecorded(s.config.Run.Root, recordKind)
	return append(removed, recorded...), errors.Join(err, failed)
}
