// Package qemu runs instances in full virtual machines, each with its own Linux
// kernel and Debian system.
//
// A machine is a process of the host. Package process makes the place for QEMU, with the
// instance's network namespace and its quota, which covers all of QEMU. The first Start or
// Run starts the machine, after a fabric has wired the place. An agent in the machine
// (package guest) runs the commands.
package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
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

// Config is the section servers.qemu of a deployment.
type Config struct {
	// Accelerator is kvm, tcg, or auto for the better one that boots a kernel on this host.
	// tcg emulates, so its results cannot be compared with others.
	Accelerator string `yaml:"accelerator" json:"accelerator,omitempty" jsonschema:"enum=auto,enum=kvm,enum=tcg"`
	// Image is a disk image, raw or qcow2, that replaces the minimal Debian system, such as
	// a distribution's cloud image. Machines use its file systems, but not its kernel or
	// init. A component's own image takes precedence.
	Image string `yaml:"image" json:"image,omitempty"`
	// Debian sets how the minimal system is built.
	Debian debian.Options `yaml:"debian" json:"debian,omitzero"`
	// Files are files and folders of the host that each machine gets under the same path;
	// folders with their content.
	Files []string `yaml:"files" json:"files,omitempty"`
	// VFIO assigns devices of the host to instances: sprout-1: ["0000:3b:02.0"].
	VFIO map[string][]string `yaml:"vfio" json:"vfio,omitempty"`
	// Boot sets the CPU limit of a machine until it is up: full, all CPUs that it may run
	// on, or flavor, its quota, which then holds from its first instruction. Empty: full.
	Boot string `yaml:"boot" json:"boot,omitempty" jsonschema:"enum=full,enum=flavor"`
	// User is the user that QEMU runs as, by name or number: nobody if empty, or root.
	User string `yaml:"user" json:"user,omitempty"`
	// Memory is a machine's memory if its flavor sets none, in bytes; 0: 512 MiB.
	Memory int64 `yaml:"memory" json:"memory,omitempty"`

	Run     *runstate.Run   `yaml:"-" json:"-"` // the run of the instances
	Logger  *slog.Logger    `yaml:"-" json:"-"` // nil: no log
	Environ []string        `yaml:"-" json:"-"` // for programs that build images
	Folder  string          `yaml:"-" json:"-"` // the deployment's folder; relative paths are below it
	Cache   image.Cache     `yaml:"-" json:"-"` // keeps the guests
	Prober  *machine.Prober `yaml:"-" json:"-"` // shared by the whole process
	Agent   []string        `yaml:"-" json:"-"` // a static program and its arguments that call guest.Main
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
	_ substrate.Confined    = (*Substrate)(nil)
	_ substrate.Instance    = (*Instance)(nil)
	_ substrate.Process     = (*command)(nil)
)

// Values of Config.Boot.
const (
	bootFull   = "full"
	bootFlavor = "flavor"
)

// Memory sizes of machines, in bytes.
const (
	MinMemory     = 128 << 20 // a Debian with its kernel needs at least this much
	defaultMemory = 512 << 20
)

// New makes a substrate. A machine's tap needs a network namespace; without those, the
// error is a *vitrine.Unsupported. Create, not New, detects a missing QEMU.
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
		config.Memory = defaultMemory
	}
	if keys := config.Debian.Keyring; keys != "" {
		config.Debian.Keyring = config.resolve(keys)
	}
	places, err := process.New(process.Config{Network: process.NetworkNamespace, Run: config.Run, Logger: config.Logger, Environ: config.Environ})
	if err != nil {
		return nil, err
	}
	return &Substrate{config: config, places: places}, nil
}

// resolve makes a path of the deployment absolute.
func (c *Config) resolve(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(c.Folder, path)
}

// OwnKernel returns true: each instance is a machine.
func (s *Substrate) OwnKernel() bool { return true }

// BootsUnlimited reports whether machines boot without their CPU quota.
func (s *Substrate) BootsUnlimited() bool { return s.config.Boot == bootFull }

// StaysUp returns true: Stop ends the command and leaves the machine running.
func (s *Substrate) StaysUp() bool { return true }

// Create makes the instance's place on the host. It first builds the files that machines
// start from, if they are missing.
func (s *Substrate) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	in, err := s.create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("creating instance %s: %w", spec.Name, err)
	}
	return in, nil
}

func (s *Substrate) create(ctx context.Context, spec substrate.Spec) (*Instance, error) {
	if err := machine.Complete("qemu", &spec, s.config.Memory, MinMemory); err != nil {
		return nil, err
	}
	for _, address := range s.config.VFIO[spec.Name] {
		if err := checkDevice(address); err != nil {
			return nil, err
		}
	}
	files, err := s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	in := &Instance{substrate: s, spec: spec, files: files}
	if in.confinement, err = s.confine(ctx, files, len(s.config.VFIO[spec.Name]) > 0); err != nil {
		return nil, err
	}
	s.warn(files, in.confinement)
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

// recordKind is the kind of record for the overlays of machines.
const recordKind = "qemu"

// Clean removes the machines and overlays that dead runs left, with their places.
func (s *Substrate) Clean(ctx context.Context) (removed []string, err error) {
	removed, err = s.places.Clean(ctx)
	recorded, failed := runstate.RemoveRecorded(s.config.Run.Root, recordKind)
	return append(removed, recorded...), errors.Join(err, failed)
}
