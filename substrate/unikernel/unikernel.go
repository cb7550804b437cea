// Package unikernel runs instances in virtual machines that hold one application and nothing else.
//
// An image comes from package image/unikernel, built from an application's description or,
// if a component names no image, from the program of its command. It may also be any other
// file that QEMU starts directly (-kernel): a Linux bzImage, a multiboot kernel, or a
// kernel with a PVH entry.
//
// The machine runs in a place of package process, with the instance's network namespace and
// its quota, which covers all of QEMU. The machine's memory is the instance's limit.
package unikernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"vitrine"
	"vitrine/image"
	"vitrine/image/debian"
	packed "vitrine/image/unikernel"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu/machine"
)

// Name is the substrate's name in the image store.
const Name = "unikernel"

// Config is the section servers.unikernel of a deployment.
type Config struct {
	// Accelerator is kvm, tcg, or auto for the better one that boots a kernel on this host.
	// tcg emulates, so its results cannot be compared with others.
	Accelerator string `yaml:"accelerator" json:"accelerator,omitempty" jsonschema:"enum=auto,enum=kvm,enum=tcg"`
	// Machine is QEMU's model: microvm, q35, or auto. auto is microvm for images built
	// here, and q35 for others, whose drivers are unknown.
	Machine string `yaml:"machine" json:"machine,omitempty" jsonschema:"enum=auto,enum=microvm,enum=q35"`
	// Memory is a machine's memory if its flavor sets none, in bytes; 0: 256 MiB.
	Memory int64 `yaml:"memory" json:"memory,omitempty"`
	// User is the user that QEMU runs as, by name or number: nobody if empty, or root.
	User string `yaml:"user" json:"user,omitempty"`
	// Append comes before an instance's arguments on the command line of an image
	// that was not built here.
	Append string `yaml:"append" json:"append,omitempty"`

	Run     *runstate.Run   `yaml:"-" json:"-"` // the run of the instances
	Logger  *slog.Logger    `yaml:"-" json:"-"` // nil: no log
	Environ []string        `yaml:"-" json:"-"` // where PATH and HOME of QEMU come from
	Folder  string          `yaml:"-" json:"-"` // the deployment's folder; relative paths of images are below it
	Cache   image.Cache     `yaml:"-" json:"-"` // keeps kernels and images
	Prober  *machine.Prober `yaml:"-" json:"-"` // shared by the whole process
}

// Memory sizes of machines, in bytes.
const (
	MinMemory     = 48 << 20 // a kernel and a small program need at least this much
	defaultMemory = 256 << 20
)

const auto = "auto"

// A Substrate makes instances as machines with one application each.
type Substrate struct {
	config Config
	places *process.Substrate

	instances substrate.Roster
}

var (
	_ substrate.Substrate = (*Substrate)(nil)
	_ vitrine.Cleaner     = (*Substrate)(nil)
	_ vitrine.Checker     = (*Substrate)(nil)
	_ substrate.Confined  = (*Substrate)(nil)
	_ substrate.Instance  = (*Instance)(nil)
	_ substrate.Process   = (*guest)(nil)
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
	if config.Memory == 0 {
		config.Memory = defaultMemory
	}
	for _, choice := range []struct {
		name, given string
		of          []string
	}{
		{"accelerator", config.Accelerator, machine.Accelerators()},
		{"machine", config.Machine, []string{auto, machine.MicroVM, machine.Q35}},
	} {
		if choice.given != "" && !slices.Contains(choice.of, choice.given) {
			return nil, &vitrine.BadInput{File: Name, Found: fmt.Sprintf("%s: %q", choice.name, choice.given), Want: strings.Join(choice.of, ", ")}
		}
	}
	places, err := process.New(process.Config{Network: process.NetworkNamespace, Run: config.Run, Logger: config.Logger, Environ: config.Environ})
	if err != nil {
		return nil, err
	}
	return &Substrate{config: config, places: places}, nil
}

// Create makes the instance's place on the host. It finds the instance's image, or the base
// for making one, which it may first have to build.
func (s *Substrate) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	in, err := s.create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("creating instance %s: %w", spec.Name, err)
	}
	return in, nil
}

func (s *Substrate) create(ctx context.Context, spec substrate.Spec) (*Instance, error) {
	if err := machine.Complete(Name, &spec, s.config.Memory, MinMemory); err != nil {
		return nil, err
	}
	if spec.User != "" {
		return nil, &vitrine.Unsupported{What: "the user " + spec.User + " in a unikernel", Missing: "users: its application is its only program", Do: "leave out user"}
	}
	in := &Instance{substrate: s, spec: spec}
	if err := s.instances.Admit(spec.Name, in); err != nil {
		return nil, err
	}
	if err := in.make(ctx); err != nil {
		return nil, errors.Join(err, in.Remove(context.WithoutCancel(ctx)))
	}
	return in, nil
}

// Unconfined returns what this host lacks to confine QEMU.
func (s *Substrate) Unconfined(ctx context.Context) ([]*vitrine.Unsupported, error) {
	accelerator, err := s.Accelerator(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.config.Prober.Confine(ctx, s.config.User, accelerator, false)
	return c.Missing, err
}

// OwnKernel returns true: each instance is a machine.
func (s *Substrate) OwnKernel() bool { return true }

// Accelerator returns the requested accelerator, or the better one that works on this host.
// It may boot a kernel to find out. An image would start its application and not end.
func (s *Substrate) Accelerator(ctx context.Context) (string, error) {
	found, why, err := s.config.Prober.Choose(ctx, s.config.Accelerator, s.anyKernel)
	if err != nil {
		return "", err
	}
	if vitrine.NotComparable(found) != "" {
		s.config.Logger.Debug("machines are emulated: their results cannot be compared with others", "accelerator", found, "why", why)
	}
	return found, nil
}

// anyKernel returns a kernel that the cache has, be it of the substrate qemu. Without one it
// builds the kernel of images, which not every host can.
func (s *Substrate) anyKernel(ctx context.Context) (string, error) {
	builder := packed.Builder{Cache: s.config.Cache, Logger: s.config.Logger}
	if file := builder.AnyKernel(); file != "" {
		return file, nil
	}
	if guest, built := (debian.Builder{Cache: s.config.Cache}).Built(debian.Options{}); built {
		return guest.Kernel, nil
	}
	base, err := builder.Base(ctx)
	return base.Kernel, err
}

// Close removes all instances.
func (s *Substrate) Close(ctx context.Context) error {
	return errors.Join(s.instances.Close(ctx), s.places.Close(ctx))
}

// recordKind is the kind of record for the folders of machines.
const recordKind = "unikernel"

// Clean removes the machines and their folders that dead runs left, with their places.
func (s *Substrate) Clean(ctx context.Context) (removed []string, err error) {
	removed, err = s.places.Clean(ctx)
	recorded, failed := runstate.RemoveRecorded(s.config.Run.Root, recordKind)
	return append(removed, recorded...), errors.Join(err, failed)
}

// An origin is what an instance's machine boots from.
type origin struct {
	file      string       // an image; empty: made from the command's program
	builtHere bool         // the image was built here
	base      *packed.Base // the base of an image that is made from a program
}

// find resolves a component's image: a file, the name of a built image, or empty.
func (s *Substrate) find(ctx context.Context, name string) (origin, error) {
	builder := packed.Builder{Cache: s.config.Cache, Logger: s.config.Logger}
	if name == "" {
		base, err := builder.Base(ctx)
		return origin{builtHere: true, base: &base}, err
	}
	file := name
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.config.Folder, file)
	}
	if _, err := os.Stat(file); err != nil {
		if strings.ContainsRune(name, '/') {
			return origin{}, &vitrine.BadInput{File: "image " + name, Found: err.Error(), Want: "a file that QEMU starts with -kernel, or a name from vitrine image list"}
		}
		store := image.Store{Cache: s.config.Cache, Packers: map[string]image.Packer{Name: packed.Packer{Builder: builder}}}
		built, err := store.Find(name, Name)
		if err != nil {
			return origin{}, err
		}
		file = built.File
	}
	return origin{file: file, builtHere: packed.IsImage(file)}, nil
}
